"""One run. Oracle: a server on a virtual clock whose every answer is known beforehand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from jaxserve.load.arrivals import Constant, Poisson
from jaxserve.load.client import Item
from jaxserve.load.measure import play
from jaxserve.load.metrics import summarise
from jaxserve.load.schedule import Closed, Open
from models.errors import UserError
from tests.jaxserve.load.virtual import Blocking


def items(n: int) -> Iterator[Item]:
    return iter([Item(id, (1, 2, 3), 1) for id in range(n)])


def constant(rate: float) -> Open:
    return Open(Constant(rate).times(np.random.default_rng(0)))


@pytest.mark.parametrize("blocks", [False, True])
def test_coordinated_omission(blocks: bool):
    """The public report: service 0.5 s, 10 arrivals/s, one at a time. The k-th of eight is due at 0.1 k and ends at 0.5 (k + 1).

    The last one takes 3.3 s, whether it waited at the server or in a client that could not send it; counted from when it was sent, the
    latter would seem to take 0.5 s.
    """
    records, why = play(Blocking(0.5, blocks=blocks), constant(10.0), items(8))
    found = summarise(records, duration=4.0)
    assert not why and found.e2e.p99 == pytest.approx(3.3) and found.ttft.n == 8
    assert [record.e2e for record in records] == pytest.approx([0.5 + 0.4 * k for k in range(8)])
    assert found.client_delay.most == pytest.approx(2.8 if blocks else 0.0)
    if blocks:
        assert max(record.end - record.sent for record in records) == pytest.approx(0.5)


def test_nothing_waits_for_anything_in_an_open_loop():
    """Poisson arrivals at a server with room for all: each is sent when it is due."""
    times = list(itertools.islice(Poisson(50.0).times(np.random.default_rng(3)), 200))
    records, _ = play(Blocking(1.0, 1000), Open(iter(times)), items(200))
    assert [record.intended for record in sorted(records)] == times
    assert all(record.sent == record.intended for record in records)


def test_closed_loop():
    """Three clients at a server with two places, 1 s each: two answers a second, and never more than three requests."""
    server = Blocking(1.0, 2)
    records, _ = play(server, Closed(3), items(20))
    assert server.most == 3
    ends = sorted(record.end for record in records)
    assert ends == [1.0 + i // 2 for i in range(20)]
    due = sorted(record.intended for record in records)
    assert due == [0.0] * 3 + ends[:17] and all(record.sent == record.intended for record in records)


def test_clients_that_think():
    records, _ = play(Blocking(1.0, 9), Closed(2, 0.5), items(6))
    assert sorted(record.intended for record in records) == [0.0, 0.0, 1.5, 1.5, 3.0, 3.0]


def test_the_end_of_the_sending():
    """What is due from 1 s on is not sent, and what is under way then is waited for."""
    records, why = play(Blocking(0.75, 99), constant(4.0), items(100), until=1.0)
    assert not why and [record.intended for record in records] == [0.0, 0.25, 0.5, 0.75] and records[-1].end == 1.5
    records, why = play(Blocking(0.75, 99), Closed(1), items(100), until=1.0)
    assert [record.intended for record in records] == [0.0, 0.75]


def test_ctrl_c_keeps_what_there_is():
    """After 2.3 s: four have their answers, all others that were due have none, and each of them is told of."""
    records, why = play(Blocking(0.5, interrupt=2.3), constant(10.0), items(100))
    assert why == "interrupted by Ctrl-C" and sorted(record.id for record in records) == list(range(len(records)))
    done = [record for record in records if record.answered]
    assert len(done) == 4 and {record.reason for record in records} == {"length", "unfinished"}
    unsent = [record for record in records if math.isnan(record.sent)]
    assert [record.intended for record in unsent] == [2.3] and "not sent" in unsent[0].error  # it was due at that moment
    assert all(record.end == 2.3 for record in records if not record.answered)


def test_a_server_that_dies():
    records, why = play(Blocking(0.5, dies=1.2), constant(2.0), items(100))
    assert why == "the server is gone"
    assert [(record.id, record.reason) for record in records] == [(0, "length"), (1, "length"), (2, "unfinished")]


def test_a_trace_that_ends():
    records, why = play(Blocking(1.0), Open(iter([0.0, 3.0])), items(9))
    assert not why and [record.end for record in records] == [1.0, 4.0]
    assert play(Blocking(1.0), Open(iter([])), items(9)) == ([], "")


def test_it_tells():
    ended = list[int]()
    play(Blocking(1.0, 2), Closed(2), items(5), ended=ended.append)
    assert sum(ended) == 5 and max(ended) <= 2


def test_no_clients():
    with pytest.raises(UserError, match="at least 1"):
        Closed(0)
    with pytest.raises(UserError, match="at least 0"):
        Closed(1, -1.0)
