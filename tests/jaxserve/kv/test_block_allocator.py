"""The page allocator. Oracles: a list of free ids and a counter of holders, kept in the plainest way; and figures by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.kv.block_allocator import CHUNK, BlockAllocator, Stack


@given(st.lists(st.integers(1, 300) | st.integers(-300, -1), max_size=20))
def test_the_stack_is_last_in_first_out(moves: list[int]):
    stack, plain, new = Stack(), list[int](), 0
    for count in moves:
        if count > 0:
            ids = tuple(range(new, new + count))
            stack, new = stack.push(ids), new + count
            plain += ids
        elif -count <= len(plain):
            at = len(plain) + count
            ids, stack = stack.pop(-count)
            assert list(ids) == plain[at:]
            plain = plain[:at]
        assert stack.size == len(plain)
        assert [*(page for chunk in stack.full for page in chunk), *stack.top] == plain
        assert all(len(chunk) == CHUNK for chunk in stack.full)


@settings(max_examples=300)
@given(total=st.integers(1, 40), data=st.data())
def test_random_life(total: int, data: st.DataObject):
    """Tables take, share and give back pages at random; after each move every page is where plain books say."""
    pages, tables, cached = BlockAllocator.of(total), list[tuple[int, ...]](), set[int]()
    for _ in range(data.draw(st.integers(1, 30))):
        held = Counter(page for table in tables for page in table)
        idle = {page for page in cached if not held[page]}
        free = total - len(held) - len(idle)
        assert pages.free == free
        assert all(pages.shared(page) == (count > 1) for page, count in held.items())
        pages.check(tables, cached)
        move = data.draw(st.sampled_from(["take", "hold", "drop", "forget", "remember"]))
        if move == "take":
            count = data.draw(st.integers(0, total + 1))
            taken = pages.take(count)
            assert (taken is None) == (count > free)
            if taken:
                pages, ids = taken
                assert len(set(ids)) == count and not set(ids) & (set(held) | idle)
                tables.append(ids)
        elif move == "hold" and tables:
            ids = tuple(data.draw(st.sampled_from(tables))) + (tuple(idle) if data.draw(st.booleans()) else ())
            pages = pages.hold(ids)
            tables.append(ids)
        elif move == "drop" and tables:
            ids = tables.pop(data.draw(st.integers(0, len(tables) - 1)))
            pages, kept = pages.drop(ids, cached)
            assert kept == tuple(page for page in ids if held[page] == 1 and page in cached)
        elif move == "forget" and idle:
            ids = tuple(data.draw(st.sets(st.sampled_from(sorted(idle)), min_size=1)))
            pages = pages.forget(ids)
            cached -= set(ids)
        elif move == "remember" and held:
            cached |= data.draw(st.sets(st.sampled_from(sorted(held))))
    pages.check(tables, cached)


def test_asking_for_one_too_many_changes_nothing():
    """Case: ask n + 1 of n free pages."""
    pages, _ = BlockAllocator.of(5).take(2) or pytest.fail("there are five")
    assert pages.take(4) is None and pages.free == 3
    pages, ids = pages.take(3) or pytest.fail("there are three")
    assert sorted(ids) == [2, 3, 4] and pages.free == 0
    assert pages.take(1) is None and pages.take(0) == (pages, ())


def test_the_same_calls_give_the_same_ids_and_earlier_values_stay():
    start = BlockAllocator.of(10)
    first, ids = start.take(4) or pytest.fail("there are ten")
    again, same = start.take(4) or pytest.fail("there are ten")
    assert (first, ids) == (again, same) and start.free == 10
    back, _ = first.drop(ids)
    assert back.free == 10 and first.free == 6
    assert back.take(4) == (first._replace(returned=Stack()), ids), "what was given back last goes out first"


@pytest.mark.parametrize(
    ("broken", "tables", "cached", "message"),
    [
        (BlockAllocator.of(4), [(0,)], (), "4 free .* are not all 4"),
        (BlockAllocator.of(4)._replace(unused=2), [(0,)], (), "2 free . 1 owned . 0 cached pages are not all 4"),
        (BlockAllocator.of(4)._replace(unused=2), [(0, 1), (1,)], (), "2 tables hold page 1, but 1 are counted"),
        (BlockAllocator.of(4)._replace(unused=2), [(0, 1, 1)], (), "stands twice"),
        (BlockAllocator.of(4)._replace(unused=2, returned=Stack((), (1,))), [(0, 1)], (), "3 free .* are not all 4"),
        (BlockAllocator.of(4)._replace(unused=2, returned=Stack((), (3,))), [(0, 1)], (), "not 3 different ones"),
        (
            BlockAllocator(4, 2, Stack(), BlockAllocator.of(4).holders.change({1: 0})),
            [(0,)],
            (),
            "nothing remembers its content",
        ),
        (
            BlockAllocator(4, 2, Stack(), BlockAllocator.of(4).holders.change({1: 2})),
            [(0, 1)],
            (),
            "1 tables hold page 1, but 2 are counted",
        ),
    ],
)
def test_the_check_sees(broken: BlockAllocator, tables: list[tuple[int, ...]], cached: tuple[int, ...], message: str):
    with pytest.raises(RuntimeError, match=message):
        broken.check(tables, cached)
