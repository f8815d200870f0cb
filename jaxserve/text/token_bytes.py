"""What each token adds to a text, as bytes: a tokenizer's decoder taken apart, so that a text can grow token by token.

Two families: byte-level (GPT-2, Llama 3, Qwen, SmolLM2), whose tokens spell bytes in an alphabet of their own, so that a token may end
within a character; and SentencePiece (Llama 2, Mistral, Gemma, T5), whose tokens are text with U+2581 for a space, beside one
token for each byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from models.errors import UserError
from models.text.tokenizer import Tokenizer


class TokenBytes:
    """The bytes of every token of a tokenizer.

    Attributes:
      strip: (character, count): so many of it, at most, are dropped from the beginning of a text.
      texts: what tokens add between whole characters if they are whole characters themselves, as far as it has been found out.
    """

    def __init__(self, tokenizer: Tokenizer):
        """Raises UserError for a decoder that is of neither family."""
        backend = tokenizer.backend
        self._spelling = backend.id_to_token
        self._special = frozenset(token.content for token in backend.get_added_tokens_decoder().values() if token.special)
        self.texts: dict[int, str] = {}
        self._known: dict[tuple[int, bool], bytes | None] = {}
        self._edits: list[Callable[[str, bool], str]] = []
        self._to_bytes: Callable[[str], bytes] = str.encode
        self.strip = ("", 0)
        whole = False  # whether tokens have been joined to one text by then
        for part in _parts(_decoder(tokenizer)):
            kind, early = part.get("type"), self._to_bytes is str.encode and not whole
            if kind == "Replace" and early and "String" in part["pattern"]:
                self._edits.append(_replace(part["pattern"]["String"], part["content"]))
            elif kind == "Metaspace" and early:
                self._edits.append(_metaspace(part["replacement"], part["prepend_scheme"]))
            elif kind == "ByteLevel" and early:
                self._to_bytes, whole = _byte_level, True
            elif kind == "ByteFallback" and early:
                self._to_bytes = _byte_fallback
            elif kind == "Fuse":
                whole = True
            elif kind == "Strip" and whole and part["stop"] == 0:
                self.strip = (part["content"], part["start"])
            else:
                raise UserError(
                    f"{tokenizer.origin}: a decoder with the step {kind} cannot be streamed; supported are ByteLevel, Metaspace, "
                    "and Replace, ByteFallback, Fuse, Strip in this order"
                )

    def of(self, token: int, *, first: bool = False) -> bytes | None:
        """What a token adds, or None where a text does without it: a special token, or an id that the vocabulary does not have.

        Args:
          first: no token before it added anything, not even nothing.
        """
        found = self._known.get((token, first), self)
        if not isinstance(found, TokenBytes):
            return found
        text = self._spelling(token)
        if text is None or text in self._special:
            piece = None
        else:
            for edit in self._edits:
                text = edit(text, first)
            piece = self._to_bytes(text)
        self._known[token, first] = piece
        return piece


def _decoder(tokenizer: Tokenizer) -> Mapping[str, Any]:
    try:
        return json.loads(tokenizer.backend.decoder.__getstate__())
    except Exception:  # None has no state, and the library raises bare Exception for a decoder written in Python
        raise UserError(
            f"{tokenizer.origin}: the tokenizer has no decoder that can be read; give one as in tokenizer.json"
        ) from None


def _parts(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder.get("type") == "Sequence":
        for part in decoder["decoders"]:
            yield from _parts(part)
    else:
        yield decoder


def _replace(pattern: str, content: str) -> Callable[[str, bool], str]:
    return lambda text, first: text.replace(pattern, content)


def _metaspace(mark: str, scheme: str) -> Callable[[str, bool], str]:
    """Spaces for marks; those of the first token are the prefix that encoding a text had put there."""
    return lambda text, first: text.replace(mark, "" if first and scheme != "never" else " ")


def _byte_fallback(text: str) -> bytes:
    byte = re.fullmatch("<0x([0-9A-Fa-f]{2})>", text)
    return bytes.fromhex(byte[1]) if byte else text.encode()


def _alphabet() -> dict[str, int]:
    """The byte that each character of GPT-2's alphabet stands for: itself if Latin-1 prints it, else the next from U+0100 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


ALPHABET = _alphabet()


def _byte_level(text: str) -> bytes:
    """A token with any character that is not of the alphabet was added as plain text."""
    known = [ALPHABET.get(character) for character in text]
    return text.encode() if None in known else bytes(byte for byte in known if byte is not None)
