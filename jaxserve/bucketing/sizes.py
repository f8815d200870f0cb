"""Which sizes to have along one axis, where every demand is served by the next size that is no smaller."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxserve.programs.buckets import powers


class Best(NamedTuple):
    """A choice of sizes and what it costs."""

    cost: float
    sizes: tuple[int, ...]  # indices, ascending; the last is the last there is


def best_sizes(cost: np.ndarray, most: int) -> list[Best]:
    """The cheapest choices of up to `most` sizes, exactly: each of more sizes than the one before, and cheaper.

    Dynamic programming: what the demands up to j cost with j the largest of k sizes is what those up to some i < j cost with k - 1, and
    all in between at j.

    Args:
      cost: [demands, sizes], square: of all of demand r where size s serves it, s >= r. The largest size is always chosen.
    """
    n = len(cost)
    total = np.cumsum(np.triu(cost), axis=0)
    upto = np.diagonal(total)  # of demands 0..j at size j
    between = np.where(np.triu(np.ones((n, n), bool), 1), upto[None, :] - total, np.inf)  # [i, j]: of demands i+1..j at size j
    costs, parents = [upto], [np.full(n, -1)]
    for _ in range(1, min(most, n)):
        through = costs[-1][:, None] + between
        parents.append(through.argmin(0))
        costs.append(through.min(0))
    found: list[Best] = []
    for k, each in enumerate(costs):
        if found and not each[-1] < found[-1].cost * (1 - 1e-12):
            continue
        sizes, at = [n - 1], n - 1
        for parent in reversed(parents[1 : k + 1]):
            at = int(parent[at])
            sizes.append(at)
        found.append(Best(float(each[-1]), tuple(reversed(sizes))))
    return found


def sets(count: int) -> Iterator[tuple[int, ...]]:
    """All choices, as indices below `count`, that hold the last."""
    for taken in itertools.product((False, True), repeat=count - 1):
        yield (*itertools.compress(range(count - 1), taken), count - 1)


def halvings(largest: int, most: int) -> Iterator[tuple[int, ...]]:
    """The largest size alone, then with one power of two below it, with two, ..., up to `most` sizes."""
    sizes = [*(size for size in powers(largest) if size < largest), largest]
    for count in range(1, min(most, len(sizes)) + 1):
        yield tuple(sizes[-count:])
