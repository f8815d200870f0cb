"""The bucket ladder: the closed set of shapes that an engine compiles, and which of them a step needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from models.errors import UserError

Shape = tuple[tuple[int, int], ...]  # (rows, query) of each segment


@dataclasses.dataclass(frozen=True, order=True)
class Bucket:
    """The static shape of one program: (rows, query) of each segment, and the width of the page tables."""

    shape: Shape
    width: int

    @property
    def tokens(self) -> int:
        """Tokens of the step with padding."""
        return sum(rows * query for rows, query in self.shape)

    @property
    def name(self) -> str:
        """decode 64, prefill 4x64, or both joined by +."""
        return " + ".join(f"decode {rows}" if query == 1 else f"prefill {rows}x{query}" for rows, query in self.shape)


def powers(largest: int, smallest: int = 1) -> tuple[int, ...]:
    """smallest, twice that, ..., up to the first that is at least `largest`."""
    sizes = [smallest]
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Batch sizes and page-table widths, each ascending.

    Attributes:
      batches: rows of the decode programs.
      widths: pages of a row's table. One is enough where attention follows the live context (blockwise); the gather reference
        pays for the whole width, so there a ladder of them pays off.
      chunk: (rows, query) of the prefill program.
      page: tokens of a page.
    """

    batches: tuple[int, ...]
    widths: tuple[int, ...]
    chunk: tuple[int, int]
    page: int

    def __post_init__(self) -> None:
        for name in ("batches", "widths"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
                raise UserError(f"ladder: {name} are {list(sizes)}; they must ascend from at least 1")
        if min(self.chunk) < 1:
            raise UserError(f"ladder: the prefill chunk is {self.chunk[0]}x{self.chunk[1]}; both must be at least 1")

    @property
    def context(self) -> int:
        """Tokens that the widest table holds."""
        return self.widths[-1] * self.page

    def buckets(self) -> list[Bucket]:
        """Every bucket, cheapest first."""
        shapes: list[Shape] = [((rows, 1),) for rows in self.batches]
        buckets = [Bucket(shape, width) for shape in [*shapes, (self.chunk,)] for width in self.widths]
        return sorted(buckets, key=lambda bucket: (bucket.tokens, bucket))

    def decode(self, rows: int, tokens: int) -> Bucket:
        """The smallest decode bucket for `rows` rows whose longest holds `tokens` tokens after the step."""
        return Bucket(((self._at_least(self.batches, rows, "rows"), 1),), self._width(tokens))

    def prefill(self, tokens: int) -> Bucket:
        """The prefill bucket for rows of up to `tokens` tokens after the step."""
        return Bucket((self.chunk,), self._width(tokens))

    def _width(self, tokens: int) -> int:
        if tokens > self.context:
            raise UserError(f"a sequence of {tokens} tokens fits no program; the longest holds {self.context}; raise --context")
        return self._at_least(self.widths, -(-tokens // self.page), "pages")

    @staticmethod
    def _at_least(sizes: Iterable[int], wanted: int, what: str) -> int:
        for size in sizes:
            if size >= wanted:
                return size
        raise UserError(f"{wanted} {what} fit no program; the largest has {size}; build a longer ladder")
