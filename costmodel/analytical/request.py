"""What a step is asked for, turned into rows: its kind, its batch, and what a compiled program runs in place of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from costmodel.analytical.rows import Rows, check_quantity, numeric, real
from costmodel.hardware.chip import Quantity
from models.errors import UserError

KINDS = ("decode", "prefill", "mixed", "verify")
_BELONGS = {  # of what only some kinds have
    "chunk": ("prefill", "mixed"),
    "prompts": ("mixed",),
    "prompt_context": ("mixed",),
    "drafts": ("verify",),
    "padded_chunk": ("prefill", "mixed"),
}


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `costmodel.analytical.step.step_cost` that say what is to be computed; see there.

    Raises:
      UserError: an unknown kind, or an argument that the kind does not have.
    """

    kind: str
    batch: Quantity | None = None
    context: Quantity | None = None
    contexts: Quantity | None = None
    chunk: Quantity | None = None
    prompts: Quantity | None = None
    prompt_context: Quantity | None = None
    drafts: Quantity | None = None
    padded_batch: Quantity | None = None
    padded_chunk: Quantity | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        for name, kinds in _BELONGS.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise UserError(f"{name} belongs to {' and '.join(kinds)} steps; this one is {self.kind}, so leave it out")

    def rows(self, longest: int, name: str) -> tuple[Rows, ...]:
        """The live rows. `longest` is the context that the model called `name` takes at most.

        Raises:
          UserError: a number out of range or missing, more tokens than the model takes or than are to be in the cache.
        """
        count, context, each = self._batch()
        rows = self._groups(count, context, each)
        for group, what in zip(rows, ("context", "prompt_context"), strict=False):
            check_quantity(what, group.context, most=longest, limit=f", the longest that {name} takes")
            tokens = {"decode": "the token", "verify": "drafts + 1"}.get(self.kind, "chunk")
            if group.query is not group.context and not (self.kind == "mixed" and group.decoding):
                check_quantity(
                    tokens, group.query, most=group.context, limit=f", the {what}, which counts the tokens of the step"
                )
        return rows

    def padded(self, rows: tuple[Rows, ...]) -> tuple[Rows, ...] | None:
        """The rows that the program runs, or None where it runs the live ones.

        Raises:
          UserError: the program runs fewer than are live.
        """
        if self.padded_batch is None and self.padded_chunk is None:
            return None
        found = list(rows)
        if self.padded_chunk is not None:
            live, chunk = rows[-1], real(self.padded_chunk)
            check_quantity("chunk", live.query, most=chunk, limit=", the padded_chunk")
            found[-1] = dataclasses.replace(live, query=chunk, context=live.context - live.query + chunk)
        if self.padded_batch is not None:
            first, batch = found[0], real(self.padded_batch)
            check_quantity("batch", first.count, most=batch, limit=", the padded_batch")
            widest = first.each and numeric(first.query).ndim(first.query) > 0
            query = first.query.max(-1) if widest else first.query
            spare = Rows(batch - first.count, query, query, every=first.every, decoding=first.decoding, empty=True)
            found.append(spare)
        return tuple(found)

    def _batch(self) -> tuple[Quantity, Quantity, bool]:
        """(rows, context, whether the last axis of context is rows)."""
        if self.contexts is None:
            if self.batch is None or self.context is None:
                raise UserError("step cost: give batch and context, or contexts row by row")
            check_quantity("batch", self.batch)
            return real(self.batch), real(self.context), False
        if self.batch is not None or self.context is not None:
            raise UserError("step cost: contexts has a row each, so leave batch and context out")
        contexts = real(self.contexts)
        if numeric(contexts).ndim(contexts) == 0:
            raise UserError("step cost: contexts is one number; give [..., rows], or batch and context")
        return float(contexts.shape[-1]), contexts, True

    def _groups(self, count: Quantity, context: Quantity, each: bool) -> tuple[Rows, ...]:
        if self.kind == "prefill":
            return (Rows(count, context, context if self.chunk is None else real(self.chunk), each, decoding=False),)
        if self.kind == "verify":
            check_quantity("drafts", self._needed("drafts"))
            return (Rows(count, context, real(self.drafts) + 1.0, each, every=True),)
        decode = Rows(count, context, 1.0, each)
        if self.kind == "decode":
            return (decode,)
        prompts, chunk = 1 if self.prompts is None else self.prompts, real(self._needed("chunk"))
        check_quantity("prompts", prompts)
        after = chunk if self.prompt_context is None else real(self.prompt_context)
        return decode, Rows(real(prompts), after, chunk, decoding=False)

    def _needed(self, name: str) -> Any:
        if getattr(self, name) is None:
            raise UserError(f"a {self.kind} step needs {name}")
        return getattr(self, name)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a word that is not among the known ones."""
    if value not in known:
        raise UserError(f"{name} {value!r} is unknown; give {' or '.join(known)}")
