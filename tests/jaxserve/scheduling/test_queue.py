"""Who waits, in order. Oracle: a list that is sorted anew for every question; and, for what a change costs, how much it shares."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.scheduling.queue import Queue
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.sorted_map import FULL, Branch, SortedMap
from jaxserve.scheduling.state import NEVER, Row


def row(id: int, priority: int = 1, *, order: int = NEVER, late: bool = False, arrival: float = 0.0) -> Row:
    return Row(Request(id, (1,), 1, arrival, priority), id, 1, 1, order=order, late=late)


ROWS = st.tuples(
    st.integers(0, 3),
    st.one_of(st.just(NEVER), st.integers(0, 9)),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from((1.0, 2.0, math.inf)),
)


@given(st.lists(st.one_of(ROWS, st.integers(0, 60)), max_size=120))
def test_a_queue_is_a_list_that_is_sorted_by_rank(changes: list[Any]):
    """A tuple adds a row, a number removes the row at that place (modulo)."""
    queue, naive = Queue(), list[tuple[Row, float]]()
    before: list[tuple[Queue, list[Row]]] = []
    for id, change in enumerate(changes):
        before.append((queue, [one for one, _ in naive]))
        if isinstance(change, tuple):
            priority, order, late, arrival, due = change
            new = row(id, priority, order=order, late=late, arrival=arrival)
            queue, naive = queue.add(new, due), sorted([*naive, (new, due)], key=lambda one: one[0].rank)
        elif naive:
            gone, _ = naive.pop(change % len(naive))
            queue = queue.remove(gone.id)
            with pytest.raises(KeyError):
                queue.remove(gone.id)
            assert gone.id not in queue
        rows = [one for one, _ in naive]
        assert list(queue) == rows and len(queue) == len(rows) and bool(queue) == bool(rows)
        assert [queue[i] for i in range(len(rows))] == rows and all(one.id in queue for one in rows)
        assert [queue.of_priority(level) for level in range(5)] == [
            sum(one.request.priority == level for one in rows) for level in range(5)
        ]
        assert queue.due == min((due for _, due in naive), default=math.inf)
        assert queue.overdue(1.5) == tuple(one for one, due in naive if due <= 1.5)
        new_rows = [one for one in rows if one.order == NEVER]
        assert queue.all_new == (len(new_rows) == len(rows))
        assert queue.first_arrival == min((one.request.arrival for one in new_rows), default=math.inf)
    for old, rows in before:
        assert list(old) == rows, "a change has changed what was before it"


def test_queues_are_equal_where_the_same_rows_wait_in_the_same_order():
    one, other = Queue(), Queue()
    for id in (1, 2, 3):
        one, other = one.add(row(id)), other.add(row(9)).remove(9).add(row(id))
    assert one == other and one != other.remove(2) and one != Queue().add(row(2)).add(row(1)).add(row(3)) and one != [1]
    with pytest.raises(IndexError):
        one[3]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=600), st.randoms(use_true_random=False))
def test_a_sorted_map_is_a_dictionary_in_the_order_of_its_keys(changes: list[tuple[bool, int]], chance: random.Random):
    tree, naive = SortedMap[int, int](), dict[int, int]()
    for i in chance.sample(range(1000), 200):  # enough for several leaves
        tree, naive[i] = tree.put(i, -i), -i
    for drop, key in changes:
        if drop and key in naive:
            tree = tree.drop(key)
            del naive[key]
        elif not drop:
            tree, naive[key] = tree.put(key, key), key
    keys = sorted(naive)
    assert list(tree.items()) == [(key, naive[key]) for key in keys] and len(tree) == len(naive)
    for probe in (-1, 0, 7, 200, 401, 1001):
        assert tree.below(probe) == sum(key < probe for key in keys) and tree.get(probe) == naive.get(probe)
    assert [tree.at(i)[0] for i in range(len(keys))] == keys
    with pytest.raises(IndexError):
        tree.at(len(keys))
    if -5 not in naive:
        with pytest.raises(KeyError):
            tree.drop(-5)


def nodes(tree: SortedMap[int, int]) -> Iterator[Any]:
    stack: list[Any] = [tree._root]
    while stack:
        node = stack.pop()
        yield node
        stack += node.children if isinstance(node, Branch) else ()


def test_a_change_copies_one_path_of_a_tree_of_logarithmic_height():
    count, tree = 20_000, SortedMap[int, int]()
    for key in range(count):
        tree = tree.put(key, key)
    height, node = 1, tree._root
    while isinstance(node, Branch):
        height, node = height + 1, node.children[0]
    assert height <= 1 + math.ceil(math.log(count, FULL // 2))
    known = {id(node) for node in nodes(tree)}
    for changed in (tree.put(count // 2, 0), tree.drop(7), tree.put(count, 1)):
        assert sum(id(node) not in known for node in nodes(changed)) <= height + 1
        known |= {id(node) for node in nodes(changed)}
    for key in range(count):
        tree = tree.drop(key)
    assert not len(tree) and sys.getsizeof(tree._root)
