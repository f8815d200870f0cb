"""The check of all laws sees what is broken. Oracle: one thing at a time is broken in a state that is right."""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.admission import submit
from jaxserve.scheduling.check import check
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import NEVER, State, Worker


@pytest.fixture
def state() -> State:
    """Rows 0 and 1 run; 2 and 3 wait."""
    policy, state = Continuous(Limits(rows=2)), State.of(Paged.of(9, 2))
    for id in range(4):
        state = submit(state, Request(id, (1, 2, 3), 4, priority=1 + id // 3), policy.limits)
    _, state = policy(state, 0.0)
    check(state)
    return state


def worker(state: State, **change: Any) -> State:
    return state._replace(workers=(state.workers[0]._replace(**change),))


def rows(w: Worker, id: int, **change: Any) -> dict:
    return {**w.rows, id: w.rows[id]._replace(**change)}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda s, w: worker(s, memory=Paged.of(9, 2)), "9 free"),
        (lambda s, w: worker(s, rows=dict(reversed(w.rows.items()))), "not in the order of admission"),
        (lambda s, w: worker(s, rows={5: w.rows[0], 1: w.rows[1]}), "not in the order of admission"),
        (lambda s, w: worker(s, cached={0: 3}), r"has rows \[0, 1\], but cached of \[0\]"),
        (lambda s, w: worker(s, drafts={7: 1}), r"but drafts of \[7\]"),
        (lambda s, w: worker(s, moved={7: 1}), r"but moved of \[7\]"),
        (lambda s, w: worker(s, tails={0: ()}), r"but tails of \[0\]"),
        (lambda s, w: worker(s, rows=rows(w, 0, order=NEVER)), "row 0 runs, but was never admitted"),
        (
            lambda s, w: worker(s, cached={0: 5, 1: 3}),
            "row 0 has 5 tokens in the cache, of 4 at most by its life and its table",
        ),
        (lambda s, w: worker(s, rows=rows(w, 0, life=2)), "row 0 has 3 tokens in the cache, of 2 at most"),
        (lambda s, w: worker(s, rows=rows(w, 0, table=())), "5 free . 2 owned . 0 cached pages are not all 9"),
        (lambda s, w: s._replace(waiting=(w.rows[0], *s.waiting)), "a row is in two places"),
        (lambda s, w: s._replace(waiting=tuple(s.waiting)[::-1]), "not in the order of priority"),
        (lambda s, w: s._replace(waiting=(s.waiting[0]._replace(room=3), s.waiting[1])), "a row that waits holds memory"),
    ],
)
def test_it_sees(state: State, broken, message: str):
    with pytest.raises(RuntimeError, match=message):
        check(broken(state, state.workers[0]))
