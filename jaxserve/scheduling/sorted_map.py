"""A mapping in the order of its keys that is a value: a change gives a new one and leaves the old one as it was.

A B+ tree (Bayer and McCreight 1972) whose nodes are never changed: a change copies the nodes on the way from the root to one leaf and
shares all others.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

FULL = 64  # entries of a leaf, children of a branch; one more, and it is split


class Leaf(NamedTuple):
    """Some entries, in order."""

    keys: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        return len(self.keys)


class Branch(NamedTuple):
    """Nodes in order. `keys` are their lowest keys; `size` is the number of entries below."""

    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    size: int

    @classmethod
    def of(cls, children: Sequence[Any]) -> Branch:
        return cls(tuple([c.keys[0] for c in children]), tuple(children), sum([c.size for c in children]))


class SortedMap(Generic[K, V]):
    """An immutable mapping in the order of its keys, which can be compared."""

    __slots__ = ("_root",)

    def __init__(self, root: Leaf | Branch = Leaf()):  # noqa: B008 (never changed)
        self._root = root

    def __len__(self) -> int:
        return self._root.size

    def get(self, key: K) -> V | None:
        """The value of a key; None where there is no such key."""
        node = self._root
        while isinstance(node, Branch):
            node = node.children[_child(node, key)]
        at = bisect.bisect_left(node.keys, key)
        return node.values[at] if at < len(node.keys) and node.keys[at] == key else None

    def at(self, index: int) -> tuple[K, V]:
        """The entry at a place, counted from 0. Raises IndexError where there is none."""
        if not 0 <= index < len(self):
            raise IndexError(f"entry {index} of {len(self)}")
        node = self._root
        while isinstance(node, Branch):
            for child in node.children:
                if index < child.size:
                    node = child
                    break
                index -= child.size
        return node.keys[index], node.values[index]

    def below(self, key: K) -> int:
        """How many keys are lower."""
        node, count = self._root, 0
        while isinstance(node, Branch):
            at = _child(node, key)
            count += sum([child.size for child in node.children[:at]])
            node = node.children[at]
        return count + bisect.bisect_left(node.keys, key)

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, from the lowest key on."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, Branch):
                nodes += reversed(node.children)
            else:
                yield from zip(node.keys, node.values, strict=True)

    def put(self, key: K, value: V) -> SortedMap[K, V]:
        """This mapping with an entry, in place of the one with the same key if there is one."""
        nodes = _put(self._root, key, value)
        return SortedMap(nodes[0] if len(nodes) == 1 else Branch.of(nodes))

    def drop(self, key: K) -> SortedMap[K, V]:
        """This mapping without a key. Raises KeyError where there is no such key."""
        root = _drop(self._root, key)
        while isinstance(root, Branch) and len(root.children) == 1:
            root = root.children[0]
        return SortedMap(Leaf() if root is None else root)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SortedMap):
            return NotImplemented
        return self._root is other._root or (
            len(self) == len(other) and all(itertools.starmap(_same, zip(self.items(), other.items(), strict=True)))
        )

    __hash__ = None  # type: ignore[assignment]  # its values may have none

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())})"


def _same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return one == other


def _child(node: Branch, key: Any) -> int:
    """The child that a key belongs to."""
    return max(bisect.bisect_right(node.keys, key) - 1, 0)


def _put(node: Leaf | Branch, key: Any, value: Any) -> list[Any]:
    """The node with the entry, as one node or, where it was full, two."""
    if isinstance(node, Branch):
        at = _child(node, key)
        below = _put(node.children[at], key, value)
        children = (*node.children[:at], *below, *node.children[at + 1 :])
        return [Branch.of(part) for part in _halves(children)]
    at = bisect.bisect_left(node.keys, key)
    after = at + (at < len(node.keys) and node.keys[at] == key)
    keys, values = (*node.keys[:at], key, *node.keys[after:]), (*node.values[:at], value, *node.values[after:])
    return [Leaf(*part) for part in zip(_halves(keys), _halves(values), strict=True)]


def _halves(entries: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The entries, in two where one node can't hold them."""
    middle = len(entries) // 2
    return [entries] if len(entries) <= FULL else [entries[:middle], entries[middle:]]


def _drop(node: Leaf | Branch, key: Any) -> Any:
    """The node without the key; None where nothing is left of it."""
    if isinstance(node, Branch):
        at = _child(node, key)
        left = _drop(node.children[at], key)
        children = (*node.children[:at], *(() if left is None else (left,)), *node.children[at + 1 :])
        return Branch.of(children) if children else None
    at = bisect.bisect_left(node.keys, key)
    if at == len(node.keys) or node.keys[at] != key:
        raise KeyError(key)
    return Leaf(node.keys[:at] + node.keys[at + 1 :], node.values[:at] + node.values[at + 1 :]) if len(node.keys) > 1 else None
