"""Who waits, in the order of service: a value, of which every change costs at most the logarithm of their number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxserve.scheduling.sorted_map import SortedMap

if TYPE_CHECKING:
    from jaxserve.scheduling.state import Row

Place = tuple[int, bool, float, int]  # a row's rank, and then who came first


class Queue:
    """Rows that wait, each as the last of its rank (see `Row.rank`). Iterate over it for the order of service."""

    __slots__ = ("_arrivals", "_deadlines", "_places", "_rows", "_serial")

    def __init__(
        self,
        rows: SortedMap[Place, Row] = SortedMap(),  # noqa: B008 (never changed, like those that follow)
        places: SortedMap[int, tuple[Place, float]] = SortedMap(),  # noqa: B008
        deadlines: SortedMap[tuple[float, int], int] = SortedMap(),  # noqa: B008
        arrivals: SortedMap[tuple[float, int], int] = SortedMap(),  # noqa: B008
        serial: int = 0,
    ):
        self._rows, self._places = rows, places  # by place; by id, where the row is and when it is due
        self._deadlines, self._arrivals = (
            deadlines,
            arrivals,
        )  # (s, id) of those that are ever due; of those that have never run
        self._serial = serial

    def __iter__(self) -> Iterator[Row]:
        return (row for _, row in self._rows.items())

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        """Raises IndexError where so many don't wait."""
        return self._rows.at(index + len(self) if index < 0 else index)[1]

    def __contains__(self, id: object) -> bool:
        """Whether the row with this id waits."""
        return isinstance(id, int) and self._places.get(id) is not None

    def add(self, row: Row, due: float = math.inf) -> Queue:
        """With a row as the last of its rank, which is to be looked at again when it is `due`, s."""
        place = (*row.rank, self._serial)
        return Queue(
            self._rows.put(place, row),
            self._places.put(row.id, (place, due)),
            self._deadlines if due == math.inf else self._deadlines.put((due, row.id), row.id),
            self._arrivals if row.ran else self._arrivals.put((row.request.arrival, row.id), row.id),
            self._serial + 1,
        )

    def remove(self, id: int) -> Queue:
        """Without a row. Raises KeyError where it does not wait."""
        found = self._places.get(id)
        if found is None:
            raise KeyError(id)
        place, due = found
        row = self._rows.get(place)
        assert row is not None
        return Queue(
            self._rows.drop(place),
            self._places.drop(id),
            self._deadlines if due == math.inf else self._deadlines.drop((due, id)),
            self._arrivals if row.ran else self._arrivals.drop((row.request.arrival, id)),
            self._serial,
        )

    def of_priority(self, priority: int) -> int:
        """How many have this priority."""
        return self._rows.below((priority + 1, False, -math.inf, 0)) - self._rows.below((priority, False, -math.inf, 0))

    @property
    def due(self) -> float:
        """s, when the first row is due; inf where none ever is."""
        return self._deadlines.at(0)[0][0] if len(self._deadlines) else math.inf

    def overdue(self, now: float) -> tuple[Row, ...]:
        """Rows that are due by `now`, in the order of service."""
        found = []
        for (due, id), _ in self._deadlines.items():
            if due > now:
                break
            place, _ = self._places.get(id) or ((0, False, 0.0, 0), 0.0)
            found.append((place, self._rows.get(place)))
        return tuple(row for _, row in sorted(found, key=lambda one: one[0]) if row is not None)

    @property
    def all_new(self) -> bool:
        """Whether none of them has run before."""
        return len(self._arrivals) == len(self._rows)

    @property
    def first_arrival(self) -> float:
        """s, when the oldest of those that have never run arrived; inf where there is none."""
        return self._arrivals.at(0)[0][0] if len(self._arrivals) else math.inf

    def __eq__(self, other: object) -> bool:
        """Whether the same rows wait in the same order."""
        if not isinstance(other, Queue):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(map(_same, self, other)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Queue({list(self)})"


def _same(one: Row, other: Row) -> bool:
    return one is other or one == other
