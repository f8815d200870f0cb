"""A text that grows token by token, in whole characters only."""

from __future__ import annotations

from collections.abc import Iterable

from jaxserve.text.token_bytes import TokenBytes


class Detokenizer:
    """Turns tokens into text as they come, at a cost that does not depend on how many came before.

    Bytes that may still become a character are kept until they have, so an answer that is cut within one (by max_tokens, say) ends
    before it: the rest is dropped. Bytes that no character begins with, or that the next token leaves incomplete, become U+FFFD, one
    for each maximal ill-formed part (Unicode 15, section 3.9, table 3-8), and nothing around them is lost.

    What it has said, joined, is `Tokenizer.decode` of all tokens but for two things: the U+FFFD that `decode` puts for an incomplete
    last character; and in a SentencePiece vocabulary, the U+FFFD that `decode` puts for every byte token of a run that is not all
    valid, of its valid characters too.
    """

    __slots__ = ("_first", "_kept", "_pieces", "_strip", "_stripped")

    def __init__(self, pieces: TokenBytes, prompt: Iterable[int] = ()):
        """`prompt` is the text that is continued, where the answer is no text of its own: its first space is kept then."""
        self._pieces = pieces
        self._kept = b""
        self._first = True
        self._stripped, self._strip = pieces.strip
        for token in prompt:
            self.push(token)

    def push(self, token: int) -> str:
        """The characters that are complete with this token and were not before it."""
        usual = not (self._kept or self._first or self._strip)
        if usual and (known := self._pieces.texts.get(token)) is not None:
            return known
        text = self._push(token)
        if usual and not self._kept:
            self._pieces.texts[token] = text
        return text

    def _push(self, token: int) -> str:
        piece = self._pieces.of(token, first=self._first)
        if piece is None:
            return ""
        self._first = False
        data = self._kept + piece if self._kept else piece
        if left := incomplete(data):
            self._kept, data = data[-left:], data[:-left]
        else:
            self._kept = b""
        text = data.decode("utf-8", "replace")
        while self._strip and text:
            if text[0] != self._stripped:
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text


def incomplete(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose rest is not there yet, 0 to 3 (Unicode 15, table 3-7).

    Python's own incremental decoder would wait for ED A0 to go on too, which begins a surrogate and so no character.
    """
    if not data or data[-1] < 0x80:  # as nearly always
        return 0
    for size, byte in enumerate(reversed(data[-3:]), 1):
        if byte >= 0xC0:  # it leads a character
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if size >= wanted or not 0xC2 <= byte <= 0xF4:
                return 0
            # Only the second byte has a range of its own; from the third on any continuation serves to see whether one can follow.
            return size if size == 1 or _valid(data[-size:] + b"\x80" * (wanted - size)) else 0
        if byte < 0x80:
            break
    return 0


def _valid(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
