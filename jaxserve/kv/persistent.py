"""A mapping that is a value: a change gives a new mapping and leaves the old one as it was.

The entries lie in small dictionaries, the leaves of a tree two levels high. A change copies the leaf of each key, the branch that it
is on and the root, a few microseconds for 100,000 entries, and shares all else; so every earlier state stays usable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LEAF = 4  # bits: 16 entries; neighbouring integers share a leaf, for pages are most often taken and given back in runs


class Map(Generic[K, V]):
    """An immutable mapping. The order of its entries means nothing."""

    __slots__ = ("_bits", "_root", "_size")

    def __init__(self, root: list[list[dict[K, V]]], bits: int, size: int):
        self._root, self._bits, self._size = root, bits, size

    @classmethod
    def sized(cls, expected: int) -> Map[K, V]:
        """An empty mapping that is quickest at about `expected` entries."""
        bits = (expected >> LEAF).bit_length() // 2
        return cls([[{}] * (1 << bits)] * (1 << bits), bits, 0)

    def _leaf(self, key: object) -> dict[K, V]:
        place = hash(key) >> LEAF
        mask = (1 << self._bits) - 1
        return self._root[place & mask][place >> self._bits & mask]

    def __getitem__(self, key: K) -> V:
        return self._leaf(key)[key]

    def get(self, key: K, default: V) -> V:
        return self._leaf(key).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._leaf(key)

    def __len__(self) -> int:
        return self._size

    def items(self) -> Iterator[tuple[K, V]]:
        for branch in self._root:
            for leaf in branch:
                yield from leaf.items()

    def change(self, put: Mapping[K, V], drop: Iterable[K] = ()) -> Map[K, V]:
        """This mapping without the keys `drop`, each of which it must have, and then with the entries `put`."""
        root, bits, size = self._root.copy(), self._bits, self._size
        mask = (1 << bits) - 1
        copied: dict[int, dict[K, V]] = {}  # leaves
        branches: set[int] = set()

        def own(key: K) -> dict[K, V]:
            """The leaf of a key, copied before its first change."""
            place = hash(key) >> LEAF
            at = place & (1 << 2 * bits) - 1
            if at not in copied:
                first, second = place & mask, place >> bits & mask
                if first not in branches:
                    branches.add(first)
                    root[first] = root[first].copy()
                copied[at] = root[first][second] = root[first][second].copy()
            return copied[at]

        for key in drop:
            del own(key)[key]
            size -= 1
        for key, value in put.items():
            leaf = own(key)
            size += key not in leaf
            leaf[key] = value
        return Map(root, bits, size)

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == dict(other.items()) if isinstance(other, Map) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it holds dictionaries

    def __repr__(self) -> str:
        return f"Map({dict(self.items())})"

    def __reduce__(self) -> tuple:
        """Pickled as entries: where an entry lies is not the same in every process for every kind of key."""
        return _rebuilt, (self._bits, dict(self.items()))


def _rebuilt(bits: int, entries: dict[K, V]) -> Map[K, V]:
    empty: Map[K, V] = Map([[{}] * (1 << bits)] * (1 << bits), bits, 0)
    return empty.change(entries)
