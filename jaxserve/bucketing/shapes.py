"""What every shape that was asked for costs in every shape that may be given, as tables to choose from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from jaxserve.bucketing.demand import Cell, rows_and_pieces
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets


class Shapes:
    """Tables of a demand. Rows, pieces and widths are counted from the smallest, 0.

    Attributes:
      widths: of tables that were asked for, ascending, and the widest there is.
      together: decodes and prompts of a step run as one program. Tables have one width then.
    """

    def __init__(self, ladder: Buckets, cells: Mapping[Bucket, Sequence[Cell]], predictor: Analytical):
        asked = {bucket.width for bucket in cells}
        self.widths = (*sorted(asked - {ladder.widths[-1]}), ladder.widths[-1])
        self.together = bool(ladder.mixed)
        rows, pieces, width = len(ladder.batches), ladder.chunk[0], len(self.widths)
        # How often each (rows, width), ... was asked for, and seconds of one such run in (rows, width), ... as given: the last axes.
        self._decodes, self._decode = np.zeros((rows, width)), np.zeros((rows, rows, width))
        self._prefills, self._prefill = np.zeros((pieces, width)), np.zeros((pieces, pieces, width))
        self._mixes, self._mix = np.zeros((rows, pieces)), np.zeros((rows, pieces, rows, pieces))
        sizes, chunks = np.arange(1.0, rows + 1), np.arange(1.0, pieces + 1)
        given, nothing = np.array(self.widths, float), np.zeros((1, 1))
        for bucket, found in cells.items():
            (r, k), w = rows_and_pieces(bucket), self.widths.index(bucket.width)
            n = sum(cell.count for cell in found)
            if r and k:
                self._mixes[r - 1, k - 1] = n
                self._mix[r - 1, k - 1] = _mean_seconds(predictor, found, sizes[:, None], chunks, given[-1])
            elif r:
                self._decodes[r - 1, w] = n
                self._decode[r - 1] = _mean_seconds(predictor, found, sizes[:, None], nothing, given)
            else:
                self._prefills[k - 1, w] = n
                self._prefill[k - 1] = _mean_seconds(predictor, found, nothing, chunks[:, None], given)

    def decodes(self, widths: Sequence[int]) -> np.ndarray:
        """Seconds of all decodes of so many rows [asked, given] where tables have these widths."""
        return self._over(self._decodes, self._decode, widths)

    def prefills(self, widths: Sequence[int]) -> np.ndarray:
        """Seconds of all prefills of so many pieces [asked, given] where tables have these widths."""
        return self._over(self._prefills, self._prefill, widths)

    def mixed(self, pieces: Sequence[int]) -> np.ndarray:
        """Seconds of all decodes together with prompts, by rows that decode [asked, given], where prefills have these sizes."""
        serving = _serving(pieces, self._mixes.shape[1])
        return np.einsum("rk,krm->rm", self._mixes, self._mix[:, range(len(serving)), :, serving])

    def by_width(self, rows: Sequence[int], pieces: Sequence[int]) -> np.ndarray:
        """Seconds of everything, by the width of tables [asked, given], where decodes and prefills have these sizes."""
        cost = np.zeros((len(self.widths),) * 2)
        for sizes, counts, seconds in ((rows, self._decodes, self._decode), (pieces, self._prefills, self._prefill)):
            cost += counts.T @ seconds[range(len(counts)), _serving(sizes, len(counts))]
        return cost

    @staticmethod
    def _over(counts: np.ndarray, seconds: np.ndarray, widths: Sequence[int]) -> np.ndarray:
        cost = np.zeros(seconds.shape[:2])
        for below, width in itertools.pairwise((-1, *widths)):
            cost += counts[:, below + 1 : width + 1].sum(1)[:, None] * seconds[:, :, width]
        return cost


def _serving(sizes: Sequence[int], count: int) -> list[int]:
    """Which of the sizes serves each demand."""
    return [next(size for size in sizes if size >= asked) for asked in range(count)]


def _mean_seconds(
    predictor: Analytical, cells: Sequence[Cell], rows: np.ndarray, pieces: np.ndarray, width: np.ndarray
) -> np.ndarray:
    """Of one run of what these cells asked for, given these shapes."""
    total = np.zeros(np.broadcast_shapes(np.shape(rows), np.shape(pieces), np.shape(width)))
    for cell in cells:
        roofs = predictor.roofs(predictor.shaped(cell.mean(filled=True), rows, pieces, width))
        total += cell.count * np.maximum(np.maximum(roofs.memory, roofs.compute), roofs.link)
    return total / sum(cell.count for cell in cells)
