"""What the host knows of rows, as arrays. Oracle: a dictionary of plain lists, told the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.engine.input_batch import NOBODY, InputBatch
from jaxserve.programs.step import STOPS
from jaxserve.sampling_params import SamplingParams

CONTEXT, WIDTH, UNITS = 20, 6, 99

OPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "leave", "show", "tell", "learn", "learn"]),
        st.sampled_from([*range(3), *range(3), *range(12)]),
        st.integers(0, CONTEXT - 4),
        st.lists(st.integers(0, 500), min_size=1, max_size=4),
    ),
    max_size=60,
)


@given(OPS)
@settings(max_examples=100, deadline=None)
def test_any_coming_and_going(ops: list[tuple[str, int, int, list[int]]]):
    """Lines grow by doubling, and are used again by others; nobody ever sees another's."""
    seats = InputBatch(CONTEXT, WIDTH, UNITS)
    tokens: dict[int, dict[int, int]] = {}
    tables: dict[int, list[int]] = {}
    for what, id, at, values in ops:
        if what == "take" and id not in tokens:
            seats.take(id, values, SamplingParams(0.5, top_k=2**40, seed=id), [at, at + 1])
            seats.show(id, values, 0)
            tokens[id], tables[id] = dict(enumerate(values)), list(values)
        elif what == "leave":
            seats.leave(id)
            tokens.pop(id, None)
            tables.pop(id, None)
        elif what == "show" and id in tokens:
            first = min(at, len(tables[id]))
            table = tables[id][:first] + values[: WIDTH - first]
            seats.show(id, table, first)
            tables[id] = table
        elif what == "tell":
            seats.tell(id, at, values)
            tokens.get(id, {}).update(enumerate(values, at))
        elif what == "learn" and id in tokens:
            seats.learn(np.array([id]), seats.of([id]), np.array([at]), np.array([values], np.int32))
            tokens[id].update(enumerate(values, at))
        assert len(seats) == len(tokens)
    lines = seats.of(tokens)
    assert len(set(lines.tolist())) == len(tokens)
    for id, line in zip(tokens, lines.tolist(), strict=True):
        assert id in seats and seats.owner[line] == id
        assert {at: int(seats.tokens[line, at]) for at in tokens[id]} == tokens[id]
        assert seats.tables[line].tolist() == tables[id] + [UNITS] * (WIDTH - len(tables[id]))
        assert seats.settings["seed"][line] == id and seats.settings["top_k"][line] == 2**31 - 1
    assert (seats.owner == NOBODY).sum() == len(seats.owner) - len(tokens)


def test_what_a_row_drew_is_lost_on_whoever_has_its_seat_now():
    """A step was packed with row 1 in a seat; by the time that its tokens come, row 2 sits there."""
    seats = InputBatch(CONTEXT, WIDTH, UNITS)
    seats.take(1, [7, 8], SamplingParams(), ())
    ids, lines = np.array([1]), seats.of([1])
    seats.leave(1)
    seats.take(2, [5, 6, 4], SamplingParams(), ())
    assert seats.of([2]).tolist() == lines.tolist()
    seats.learn(ids, lines, np.array([2]), np.array([[9]], np.int32))
    seats.tell(1, 2, [9])
    assert seats.tokens[lines[0], :3].tolist() == [5, 6, 4]


def test_the_next_one_in_a_seat_has_a_table_of_its_own():
    seats = InputBatch(CONTEXT, WIDTH, UNITS)
    seats.take(1, [3], SamplingParams(), ())
    seats.show(1, (5, 6, 7, 8), 0)
    seats.show(1, (5, 9, 7), 1)
    assert seats.tables[seats.of([1])[0]].tolist() == [5, 9, 7, UNITS, UNITS, UNITS]
    seats.leave(1)
    seats.take(2, [4], SamplingParams(), ())
    seats.show(2, (1,), 0)
    assert seats.tables[seats.of([2])[0]].tolist() == [1] + [UNITS] * 5


def test_what_stands_after_the_end_of_a_row_stays_within_its_line():
    """A repeated decode says as many tokens as it has steps, also of a row that is at its last place."""
    seats = InputBatch(CONTEXT, WIDTH, UNITS)
    seats.take(1, [3], SamplingParams(), ())
    seats.take(2, [4], SamplingParams(), ())
    seats.learn(np.array([1]), seats.of([1]), np.array([CONTEXT - 1]), np.array([[11, 12, 13, 14]], np.int32))
    first, second = seats.of([1, 2])
    assert seats.tokens[first, CONTEXT - 1] == 11 and seats.tokens[second].tolist() == [4] + [0] * CONTEXT


def test_of_many_stops_the_lowest_are_kept():
    seats = InputBatch(CONTEXT, WIDTH, UNITS)
    seats.take(1, [3], SamplingParams(), range(30, 10, -1))
    (line,) = seats.of([1])
    assert seats.stops[line].tolist() == list(range(11, 11 + STOPS))
    seats.leave(1)
    seats.take(2, [3], SamplingParams(), [5])
    (line,) = seats.of([2])
    assert seats.stops[line].tolist() == [5] + [-1] * (STOPS - 1)
