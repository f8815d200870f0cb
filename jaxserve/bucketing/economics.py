"""Which programs to compile: the ladder that pads least, in seconds of the cost model, under a limit on their number."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxserve.bucketing.demand import Demand, rows_and_pieces
from jaxserve.bucketing.shapes import Shapes
from jaxserve.bucketing.sizes import best_sizes, halvings, sets
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from models.errors import UserError

_SETS = 2000  # of widths, all of which are tried
_GAIN = 1 - 1e-12  # what is less than that is rounding


@dataclasses.dataclass(frozen=True)
class Choice:
    """A ladder and what the run costs on it.

    Attributes:
      seconds: of all programs that run.
      exact: no other ladder of as many programs costs less.
    """

    ladder: Buckets
    seconds: float
    exact: bool = False

    @property
    def programs(self) -> int:
        return len(self.ladder.buckets())


class Share(NamedTuple):
    """What one program runs, over all of its runs.

    Attributes:
      tokens: that it computes, and of them padding.
      bytes: B more than the live rows would move.
      seconds: that it takes, and of them those that the live rows would not have taken.
    """

    bucket: Bucket
    runs: int = 0
    tokens: float = 0.0
    padded: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    wasted: float = 0.0


class Economics:
    """The costs of a demand on ladders with the same limits: rows, widest table, and the largest prefill that a step had work for.

    Args:
      demand: collected with a ladder of every shape.

    Attributes:
      every: that ladder, but for prefills of more pieces than any step had.
      live: s that all programs would take without any padding.

    Raises:
      UserError: nothing was asked for.
    """

    def __init__(self, demand: Demand):
        self.predictor, self.cells, ladder = demand.predictor, demand.cells, demand.predictor.ladder
        assert ladder is not None
        if not self.cells:
            raise UserError("no request was served, so there is no step to fit programs to; give a trace that fits the model")
        pieces = max(1, *(rows_and_pieces(bucket)[1] for bucket in self.cells))
        self.every = dataclasses.replace(ladder, chunk=(pieces, ladder.chunk[1]), prefills=tuple(range(1, pieces)))
        self.shapes = Shapes(self.every, self.cells, self.predictor)
        self.live = sum(
            cell.count * self.predictor.seconds(cell.mean(filled=False)) for cells in self.cells.values() for cell in cells
        )

    def best(self, programs: int) -> Choice:
        """The ladder of at most so many programs on which the run takes least.

        Exact where tables have one width: batches by dynamic programming, for every set of prefills and every number of batches that
        run together with them. With several widths (gather) that is so for each set of them. All sets are tried where there are at most
        a few thousand; of larger ones the best smaller set with one width more, and then widths and the rest in turn until neither gains.

        Raises:
          UserError: fewer programs than every ladder needs.
        """
        least = least_programs(programs, together=self.shapes.together)
        last = len(self.shapes.widths) - 1
        best = found = self._given((last,), programs)
        widths: tuple[int, ...] = (last,)
        exact = True
        for count in range(2, min(programs // least, last + 1) + 1):
            if math.comb(last, count - 1) <= _SETS:
                some = [(*each, last) for each in itertools.combinations(range(last), count - 1)]
                found, widths = min(((self._given(each, programs), each) for each in some), key=lambda pair: pair[0].seconds)
            else:
                exact = False
                found, widths = self._climb(widths, programs)
            if found.seconds < best.seconds * _GAIN:
                best = found
        return dataclasses.replace(best, exact=exact)

    def powers(self, programs: int) -> Choice:
        """The usual ladder: the largest size of each axis and powers of two below it, as many as the limit allows, best divided."""
        rows, pieces = self.every.batches[-1], self.every.chunk[0]
        found = []
        for widths in halvings(self.every.widths[-1], programs if len(self.shapes.widths) > 1 else 1):
            for prefills in halvings(pieces, programs):
                for mixed in halvings(rows, programs) if self.shapes.together else [()]:
                    room = programs // len(widths) - len(prefills) * (1 + len(mixed))
                    found += [self._ladder(batches, prefills, mixed, widths) for batches in halvings(rows, room)]
        return min(map(self.of, found), key=lambda choice: choice.seconds)

    def of(self, ladder: Buckets) -> Choice:
        """What the run costs on any ladder with the same limits."""
        return Choice(ladder, sum(share.seconds for share in self.shares(ladder)))

    def shares(self, ladder: Buckets) -> list[Share]:
        """What each program of a ladder runs, by the ladder's own choice for every step."""
        found = {bucket: Share(bucket) for bucket in ladder.buckets()}
        predictor = self.predictor
        for asked, cells in self.cells.items():
            bucket = _program(ladder, asked)
            for cell in cells:
                live, given = cell.mean(filled=False), predictor.padded(cell.mean(filled=True), bucket)
                least, roofs = predictor.roofs(live), predictor.roofs(given)
                figures = (
                    1,
                    given.tokens,
                    given.tokens - live.tokens,
                    (roofs.memory - least.memory) * predictor.bandwidth,
                    max(roofs),
                    max(roofs) - max(least),
                )
                sums = [total + cell.count * figure for total, figure in zip(found[bucket][1:], figures, strict=True)]
                found[bucket] = Share(bucket, *sums)
        return list(found.values())

    def _given(self, widths: tuple[int, ...], programs: int) -> Choice:
        """The best ladder with these widths, which are indices."""
        room = programs // len(widths)
        batches, prompts = best_sizes(self.shapes.decodes(widths), room), self.shapes.prefills(widths)
        best, sizes = math.inf, None
        if self.shapes.together:
            for pieces in sets(len(prompts)):
                alone = sum(prompts[k, next(p for p in pieces if p >= k)] for k in range(len(prompts)))
                for mixed, some in itertools.product(best_sizes(self.shapes.mixed(pieces), room // len(pieces)), batches):
                    cost = some.cost + mixed.cost + alone
                    if len(some.sizes) + len(pieces) * (1 + len(mixed.sizes)) <= room and cost < best:
                        best, sizes = cost, (some.sizes, pieces, mixed.sizes)
        else:
            for some, more in itertools.product(batches, best_sizes(prompts, room)):
                if len(some.sizes) + len(more.sizes) <= room and some.cost + more.cost < best:
                    best, sizes = some.cost + more.cost, (some.sizes, more.sizes, ())
        assert sizes is not None
        decodes, prefills, together = [tuple(at + 1 for at in each) for each in sizes]
        return Choice(self._ladder(decodes, prefills, together, [self.shapes.widths[w] for w in widths]), best)

    def _climb(self, widths: tuple[int, ...], programs: int) -> tuple[Choice, tuple[int, ...]]:
        """A good ladder with one width more, and its widths."""
        sets = [tuple(sorted((*widths, w))) for w in range(len(self.shapes.widths)) if w not in widths]
        best, at = min(((self._given(each, programs), each) for each in sets), key=lambda pair: pair[0].seconds)
        while True:
            ladder = best.ladder
            rows, pieces = ([size - 1 for size in sizes] for sizes in (ladder.batches, (*ladder.prefills, ladder.chunk[0])))
            turned = best_sizes(self.shapes.by_width(rows, pieces), len(at))[-1].sizes
            found = self._given(turned, programs)
            if not found.seconds < best.seconds * _GAIN:
                return best, at
            best, at = found, turned

    def _ladder(self, batches: Sequence[int], prefills: Sequence[int], mixed: Sequence[int], widths: Sequence[int]) -> Buckets:
        every = self.every
        return Buckets(tuple(batches), tuple(widths), every.chunk, every.page, tuple(prefills[:-1]), tuple(mixed))


def _program(ladder: Buckets, asked: Bucket) -> Bucket:
    """The program of a ladder for a step of the shape `asked`."""
    rows, pieces = rows_and_pieces(asked)
    tokens = asked.width * ladder.page
    if rows and pieces:
        both = ladder.together(rows, pieces, tokens)
        assert both is not None
        return both
    return ladder.decode(rows, tokens) if rows else ladder.prefill(tokens, pieces)


def least_programs(allowed: int, *, together: bool) -> int:
    """Programs of the smallest ladder: a decode, a prefill and, where they run together, both.

    Raises:
      UserError: fewer are allowed.
    """
    least = 3 if together else 2
    if allowed < least:
        raise UserError(f"programs: {allowed} are too few; a ladder needs at least {least}, the largest of each kind")
    return least
