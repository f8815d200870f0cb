"""Drafts by prompt lookup: what followed the last few tokens when they stood in the text before (Saxena 2023, Prompt Lookup Decoding).

No second model: where an answer repeats its prompt or itself, as in summaries, code and quotes, the guess is often right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from jaxserve.values import integer, settle
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class NGram:
    """The settings.

    Attributes:
      drafts: tokens to guess at most.
      longest, shortest: how many of the last tokens are looked for: the longest run that is found decides.
    """

    drafts: int = 4
    longest: int = 3
    shortest: int = 1

    def __post_init__(self) -> None:
        """Raises UserError for settings that find nothing."""
        for name in ("drafts", "longest", "shortest"):
            settle(self, **{name: integer(f"n-gram lookup: {name}", getattr(self, name), 1)})
        if self.shortest > self.longest:
            raise UserError(
                f"n-gram lookup: it looks for the last {self.longest} to {self.shortest} tokens; longest must be at least shortest, "
                "and that at least 1"
            )

    def begin(self, prompt: Iterable[int]) -> Lookup:
        """The lookup of one sequence, which begins with these tokens."""
        lookup = Lookup(self)
        lookup.push(prompt)
        return lookup


class Lookup:
    """The tokens of one sequence, and where each run of them was last seen: O(longest) for a token, whatever the length."""

    def __init__(self, settings: NGram):
        self.settings = settings
        self.tokens: list[int] = []
        self._sizes = tuple(range(settings.longest, settings.shortest - 1, -1))
        self._after: dict[tuple[int, ...], int] = {}  # run -> position after its last occurrence that something follows

    def push(self, tokens: Iterable[int]) -> None:
        """Add tokens at the end."""
        known = self.tokens
        for token in tokens:
            end = len(known)
            for size in self._sizes:
                if size <= end:
                    self._after[tuple(known[end - size :])] = end
            known.append(token)

    def draft(self) -> tuple[int, ...]:
        """The tokens that followed the last earlier occurrence of the longest run that ends the sequence; () where there is none.

        Where fewer followed than are wanted, the occurrence overlaps the end: the text repeats itself, and so does the draft.
        """
        known = self.tokens
        for size in self._sizes:
            if size <= len(known) and (at := self._after.get(tuple(known[-size:]))) is not None:
                period = known[at : at + self.settings.drafts]
                return tuple(period[i % len(period)] for i in range(self.settings.drafts))
        return ()
