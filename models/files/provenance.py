"""Which files gave what a model is served with, what becomes of each of their keys, and what of them was left unread."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

NEVER_DRAWN = "the model has no such token, so it is never drawn"  # why an end token is ignored


class Ignored(NamedTuple):
    """Something of a file that changes nothing here.

    Attributes:
      file: its name, as ``config.json``.
      what: a key, a tensor, or a count of them, as ``torch_dtype``.
      why: one short sentence without a full stop.
    """

    file: str
    what: str
    why: str


Use = Literal["read", "ignored", "refused"]


@dataclasses.dataclass(frozen=True)
class Key:
    """What becomes of one key of a file, or of one file: a row of a table of docs/models.md.

    Attributes:
      name: of it.
      use: what becomes of it.
      why: what it gives, why it changes nothing, or why it is refused; without a full stop.
    """

    name: str
    use: Use
    why: str


def ignored_keys(why: str, *names: str) -> list[Key]:
    """Several that are ignored for one reason."""
    return [Key(name, "ignored", why) for name in names]


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a model's parts come from. A source is a file's name and, where that is not all, the key: ``config.json eos_token_id``.

    Readers each fill in what they read; `|` joins what two readers say of one model.

    Attributes:
      weights, config, tokenizer, chat_template: the sources of each part; none where the model lacks it.
      end_tokens: (token id, the sources that name it) of each token that ends an answer, in the order in which they were found.
      ignored: what was there and changes nothing.
      remarks: what a reader decided where files contradict each other, each in one sentence without a full stop.
    """

    weights: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    tokenizer: tuple[str, ...] = ()
    chat_template: tuple[str, ...] = ()
    end_tokens: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ignored: tuple[Ignored, ...] = ()
    remarks: tuple[str, ...] = ()

    def __or__(self, other: Provenance) -> Provenance:
        """Both, each source once."""
        parts = ("weights", "config", "tokenizer", "chat_template", "ignored", "remarks")
        joined: dict[str, Any] = {part: _once(getattr(self, part), getattr(other, part)) for part in parts}
        ends = joined_ends([*self.end_tokens, *other.end_tokens])
        return Provenance(**joined, end_tokens=tuple(ends.items()))

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return {
            "weights": list(self.weights),
            "config": list(self.config),
            "tokenizer": list(self.tokenizer),
            "chat_template": list(self.chat_template),
            "end_tokens": [{"id": token, "sources": list(sources)} for token, sources in self.end_tokens],
            "ignored": [entry._asdict() for entry in self.ignored],
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        """For people, in one line."""
        parts = {"weights": self.weights, "tokenizer": self.tokenizer, "chat template": self.chat_template}
        told = [f"{part} from {_few(sources)}" if sources else f"no {part}" for part, sources in parts.items()]
        ends = ", ".join(f"{token} ({' and '.join(sources)})" for token, sources in self.end_tokens)
        told.append(f"end tokens {ends}" if ends else "no end tokens")
        if self.ignored:
            count = len(self.ignored)
            told.append(f"{count} entries ignored (--json lists them)" if count > 1 else "1 entry ignored (--json lists it)")
        return "; ".join([*told, *self.remarks])


def joined_ends(ends: Iterable[tuple[int, Iterable[str]]]) -> dict[int, tuple[str, ...]]:
    """Token id -> all sources that name it, each once, in the order given."""
    found: dict[int, tuple[str, ...]] = {}
    for token, sources in ends:
        found[token] = _once(found.get(token, ()), sources)
    return found


def _once(*sources: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(source for group in sources for source in group))


def _few(sources: tuple[str, ...]) -> str:
    """Shards are many: the first and a count."""
    return ", ".join(sources) if len(sources) <= 3 else f"{sources[0]} and {len(sources) - 1} more"
