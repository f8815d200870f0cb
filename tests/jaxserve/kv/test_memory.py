"""What memory lends, in pages and in slots. Oracles: page arithmetic by hand; the laws in `laws.py` try random lives."""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.kv.memory import Grant, Growth, Memory, News, Want
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots


def admitted(memory: Any, tokens: tuple[int, ...], room: int | None = None) -> Any:
    grant = memory.admit(tokens, room or len(tokens))
    assert isinstance(grant, Grant)
    return grant


def grown(memory: Any, *wants: Want) -> Any:
    growth = memory.grow(wants)
    assert isinstance(growth, Growth)
    return growth


def test_a_row_takes_pages_as_it_grows():
    memory, table, room, cached, copies = admitted(Paged.of(4, 8), (1,) * 9)
    assert (table, room, cached, copies, memory.in_use) == ((0, 1), 16, 0, (), 2)
    memory, tables, rooms, kept, copies = grown(memory, Want(table, 16, 17))
    assert (list(tables), list(rooms), list(kept), copies) == ([(0, 1, 2)], [24], [2], ())
    assert memory.grow([Want(tables[0], 24, 33)]) is None, "five pages of four"
    assert memory.capacity == 32
    assert memory.release(tables[0]).in_use == 0


def test_all_rows_or_none_grow():
    """Case: growing on a full pool leaves the accounts as they were."""
    memory: Any = Paged.of(3, 1)
    memory, a, *_ = admitted(memory, (1,))
    memory, b, *_ = admitted(memory, (2,))
    before = memory
    assert memory.grow([Want(a, 1, 2), Want(b, 1, 2)]) is None and memory == before
    growth = grown(memory, Want(a, 1, 2), Want(b, 0, 1))
    assert growth.tables == [(0, 2), (1,)]


@pytest.mark.parametrize("memory", [Paged.of(3, 4), Paged.of(3, 4, prefix=True), Slots.of(1, 12)])
def test_a_refusal_changes_nothing(memory: Memory):
    """Case: partial allocation."""
    assert memory.admit((1,) * 5, 13) is None
    memory, table, *_ = admitted(memory, (1,) * 9)
    assert memory.admit((2,), 1) is None
    memory.check([table])
    assert admitted(memory.release(table), (3,), 12).room == 12


def test_a_shared_page_is_copied_by_whoever_writes_first():
    """A prompt of 6 tokens in pages of 4; a sample goes on from its first 5, so both write into the second page."""
    memory, table, *_ = admitted(Paged.of(8, 4), (1, 2, 3, 4, 5, 6))
    shared = memory.share(table, 5)
    assert shared is not None and shared.table == table == (0, 1) and shared.room == 5 and shared.memory.in_use == 2
    memory = shared.memory
    memory.check([table, shared.table])
    memory, (own,), _, kept, copies = grown(memory, Want(shared.table, 5, 6))
    assert own == (0, 2) and copies == ((1, 2),) and list(kept) == [1]
    memory, (last,), _, kept, copies = grown(memory, Want(table, 6, 7))
    assert last == (0, 1) and copies == () and list(kept) == [2], "who is left alone with a page need not copy it"
    memory.check([own, last])
    assert memory.release(own).release(last).in_use == 0


def test_two_that_share_a_page_ask_at_once():
    memory, table, *_ = admitted(Paged.of(8, 4), (1, 2, 3, 4, 5, 6))
    shared = memory.share(table, 5)
    assert shared is not None
    growth = grown(shared.memory, Want(table, 6, 9), Want(shared.table, 5, 6))
    assert growth.copies == ((1, 2),) and growth.tables == [(0, 2, 3), (0, 1)]
    growth.memory.check(growth.tables)


def test_a_sample_shares_no_page_of_which_it_has_nothing():
    memory, table, *_ = admitted(Paged.of(8, 4), (1, 2, 3, 4, 5))
    shared = memory.share(table, 4)
    assert shared is not None and shared.table == (0,)


def test_a_published_page_is_found_and_shared():
    """Case: full prefix hit. Both prompts are exactly two pages; the second must compute the last page's last token, so has to own it."""
    memory, first, *_ = admitted(Paged.of(8, 2, prefix=True), (1, 2, 3, 4))
    memory, (first,) = memory.publish([News(first, 0, (1, 2, 3, 4))])
    memory, second, room, cached, _ = admitted(memory, (1, 2, 3, 4))
    assert first == (0, 1) and second == (0, 2) and cached == 2 and room == 4
    memory, third, _, cached, _ = admitted(memory, (1, 2, 3, 4, 5))
    assert third == (0, 1, 3) and cached == 4
    memory.check([first, second, third])
    assert memory.in_use == 4


def test_an_announced_page_is_found_before_it_is_written():
    memory, first, *_ = admitted(Paged.of(8, 2, prefix=True), (1, 2, 3, 4, 5))
    memory = memory.announce(News(first, 0, (1, 2)))
    memory, second, _, cached, _ = admitted(memory, (1, 2, 3, 4, 5))
    assert cached == 2 and second == (0, 3, 4)
    memory = memory.announce(News(first, 2, (3, 4)))
    memory.check([first, second])
    again = memory.announce(News(second, 2, (3, 4)))  # the second has a copy of that page: nothing is to be found there
    assert again.prefix == memory.prefix
    memory, tables = memory.publish([News(first, 0, (1, 2, 3, 4)), News(second, 2, (3, 4))])
    assert tables == [first, (0, 1, 4)] and memory.in_use == 4
    memory.check(tables)


def test_what_comes_after_a_copy_is_not_announced():
    """A row that runs its whole prompt beside a known one (for log-probabilities of it), then goes on where nobody has been."""
    memory, first, *_ = admitted(Paged.of(8, 2, prefix=True), (1, 2, 3))
    memory = memory.announce(News(first, 0, (1, 2)))
    grant = memory.admit((), 6)
    assert grant is not None and grant.cached == 0
    memory, second = grant.memory.announce(News(grant.table, 0, (1, 2))), grant.table
    memory = memory.announce(News(second, 2, (3, 4)))
    memory.check([first, second])
    memory, (second,) = memory.publish([News(second, 0, (1, 2, 3, 4))])
    assert second[0] == first[0]
    memory.check([first, second])


def test_the_same_content_twice_is_kept_once():
    """Two rows ran the same prompt at the same time. When the second publishes, it takes the first's pages and gives its own back."""
    memory, first, *_ = admitted(Paged.of(8, 2, prefix=True), (1, 2, 3, 4, 5))
    memory, second, *_ = admitted(memory, (1, 2, 3, 4, 5))
    memory, (first,) = memory.publish([News(first, 0, (1, 2, 3, 4))])
    assert memory.in_use == 6
    memory, (second,) = memory.publish([News(second, 0, (1, 2, 3, 4))])
    assert first == (0, 1, 2) and second == (0, 1, 5) and memory.in_use == 4
    memory.check([first, second])


def test_the_same_content_at_the_same_time_is_kept_once():
    """As above, but both publish in one step; and a third that goes on after one of the pages."""
    memory, first, *_ = admitted(Paged.of(9, 2, prefix=True), (1, 2, 3, 4, 5))
    memory, second, *_ = admitted(memory, (1, 2, 3, 4, 5))
    memory, third, *_ = admitted(memory, (1, 2, 9, 9))
    news = [News(first, 0, (1, 2, 3, 4)), News(second, 0, (1, 2, 3, 4)), News(third, 0, (1, 2, 9, 9))]
    memory, tables = memory.publish(news)
    assert tables == [(0, 1, 2), (0, 1, 5), (0, 7)] and memory.in_use == 5
    memory.check(tables)


def test_what_nobody_holds_stays_until_its_place_is_wanted():
    """Case: cache hit after a forced eviction. Four pages of 2: a prompt of 3 pages is remembered, then something large comes."""
    memory, table, *_ = admitted(Paged.of(4, 2, prefix=True), (1, 2, 3, 4, 5))
    memory, (table,) = memory.publish([News(table, 0, (1, 2, 3, 4))])
    memory = memory.release(table)
    assert memory.in_use == 0 and memory.pages.free == 2
    memory.check([])
    memory, other, _, cached, _ = admitted(memory, (7, 7, 7, 7, 7, 7))
    assert cached == 0 and memory.pages.free == 0 and memory.in_use == 3
    memory.check([other])
    memory = memory.release(other)
    assert admitted(memory, (1, 2, 3, 4, 5)).cached == 2, "the page that continued another went first"


def test_making_room_does_not_evict_what_was_just_found():
    """Three pages, all remembered: the prompt finds two of them and needs two more, which there aren't."""
    memory, table, *_ = admitted(Paged.of(3, 1, prefix=True), (1, 2, 3))
    memory, (table,) = memory.publish([News(table, 0, (1, 2, 3))])
    memory = memory.release(table)
    assert memory.admit((1, 2, 8, 9), 4) is None
    grant = admitted(memory, (1, 2, 8))
    assert grant.cached == 2 and grant.table == (0, 1, 2)


def test_a_remembered_page_is_not_written_over():
    """A sample goes on one token before the end of a full page that others may find: it copies it, though nobody else holds it."""
    memory, table, *_ = admitted(Paged.of(8, 2, prefix=True), (1, 2))
    memory, (table,) = memory.publish([News(table, 0, (1, 2))])
    shared = memory.share(table, 1)
    assert shared is not None
    memory = shared.memory.release(table)
    growth = grown(memory, Want(shared.table, 1, 2))
    assert growth.tables == [(1,)] and growth.copies == ((0, 1),)
    growth.memory.check([(1,)])


def test_statistics_count_admissions_and_not_refusals():
    memory, table, *_ = admitted(Paged.of(2, 2, prefix=True), (1, 2, 3))
    memory, (table,) = memory.publish([News(table, 0, (1, 2))])
    assert memory.admit((1, 2, 3), 9) is None
    again = admitted(memory.release(table), (1, 2, 4)).memory
    assert isinstance(again, Paged) and again.prefix is not None
    assert (again.prefix.asked, again.prefix.hit) == (6, 2)


def test_slots_are_whole_and_copied_where_pages_are_shared():
    memory, table, room, cached, _ = admitted(Slots.of(2, 10), (1, 2, 3))
    assert (table, room, cached, memory.in_use, memory.capacity, memory.page) == ((0,), 10, 0, 1, 10, 10)
    assert memory.admit((1,) * 11, 11) is None
    shared = memory.share(table, 2)
    assert shared is not None and shared.table == (1,) and shared.copies == ((0, 1),)
    assert shared.memory.share(table, 2) is None and shared.memory.admit((1,), 1) is None
    assert shared.memory.grow([Want(table, 3, 10)]) == Growth(shared.memory, [(0,)], [10], [1], ())
    assert shared.memory.grow([Want(table, 3, 11)]) is None
    assert not memory.remembers and memory.publish([News(table, 0, (1,))]) == (memory, [table])
    assert memory.announce(News(table, 0, (1,))) == memory
    shared.memory.check([table, shared.table])
    with pytest.raises(RuntimeError, match=r"\[0, 1, 1\]"):
        memory.check([table, shared.table])


def test_a_table_that_goes_on_after_an_unknown_page_is_seen():
    memory, table, *_ = admitted(Paged.of(4, 1, prefix=True), (1, 2, 3))
    assert memory.prefix is not None
    odd = memory._replace(prefix=memory.prefix.insert({(-1, (2,)): table[1]}))
    with pytest.raises(RuntimeError, match="goes on after a page"):
        odd.check([table])
