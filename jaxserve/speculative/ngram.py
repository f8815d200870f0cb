"""Drafts by prompt lookup: what followed the last few tokens when they stood in the text before (Saxena 2023, Prompt Lookup Decoding).

No second model: where an answer repeats its prompt or itself, as in summaries, code and quotes, the guess is often right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

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


# Which drafts stand, and how well a drafter guesses.
#
# The model draws a token after each draft, with the key of its seed and position, as it would without drafts. So what is kept
# are the tokens of the run without speculation, whether rows are greedy or drawn. This is speculative sampling (Leviathan et
# al. 2023, section 2.3; Chen et al. 2023) for a drafter that is sure of its guess x: to accept x with probability p(x), and
# else to draw from p without x, is to draw from p and see whether it is x.


def accepted(drafts: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
    """The tokens that a verified row gains: those drawn, up to and including the first that is not the draft in its place.

    Args:
      drafts: k guesses of what follows the row's last token.
      drawn: at least k + 1 tokens; the i-th is what the model draws after the first i drafts. More are passed over.

    Returns:
      1 to k + 1 tokens: with every draft right, one more than the drafts.

    Raises:
      ValueError: fewer than k + 1 were drawn.
    """
    if len(drawn) <= len(drafts):
        raise ValueError(
            f"{len(drafts)} drafts were verified and {len(drawn)} tokens drawn; a token is drawn after each, and one before"
        )
    right = next((i for i, draft in enumerate(drafts) if drawn[i] != draft), len(drafts))
    return tuple(drawn[: right + 1])


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """A tally of verified rows; one row in one step, with at least one draft, counts once.

    Attributes:
      steps: rows x steps.
      offered: drafts.
      tried: drafts of which all before them in their step were accepted, up to the row's end: the model had a say in those alone.
      accepted: drafts that were accepted.
      tokens: what the rows gained, without what was drawn past their end.
    """

    steps: int = 0
    offered: int = 0
    tried: int = 0
    accepted: int = 0
    tokens: int = 0

    def verified(self, drafts: int, gained: int, kept: int | None = None) -> Acceptance:
        """The tally with one more row and step. A row without drafts verified nothing and is not counted.

        Args:
          drafts: that were offered.
          gained: tokens that `accepted` gave, 1 to drafts + 1.
          kept: how many of those the row kept, where it ended among them; all by default.
        """
        if not drafts:
            return self
        cut = kept is not None and kept < gained  # what would have come after the end was no draft for this answer
        tried, accepted, tokens = (kept, kept, kept) if cut and kept is not None else (min(gained, drafts), gained - 1, gained)
        return Acceptance(
            self.steps + 1, self.offered + drafts, self.tried + tried, self.accepted + accepted, self.tokens + tokens
        )

    @property
    def rate(self) -> float | None:
        """The share of tried drafts that were accepted: a of `expected`. None before any."""
        return self.accepted / self.tried if self.tried else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a verified row gained in a step, 1 without speculation. None before any."""
        return self.tokens / self.steps if self.steps else None

    def expected(self, drafts: int) -> float | None:
        """Tokens of a step by the formula: (1 - a^(k+1)) / (1 - a) with a = `rate` (Leviathan et al. 2023, equation 1).

        It assumes that each draft is accepted with the same probability, whatever was accepted before, that k are offered in every
        step, and that no row ends among them. None before any.

        Args:
          drafts: k.
        """
        if drafts < 0:
            raise ValueError(f"drafts is {drafts}; it must be at least 0")
        return None if (rate := self.rate) is None else sum(rate**i for i in range(drafts + 1))
