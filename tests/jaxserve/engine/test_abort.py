"""Clients that go away at any moment: the others answer as if they had never been there, and nothing of them is left.

Oracle: the dense float64 pass (`proofs.proved`, `proofs.greedy_answer`).
"""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.engine.engine import Engine
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import ALL_KIT, LINK, PLAIN_KIT, Kit, engine, nothing_left, numbered, run
from tests.jaxserve.proofs import greedy_answer, proved


def aborted(policy: Any, turns: int, *, kit: Kit = PLAIN_KIT, workers: int = 1, n: int = 1, **more: Any) -> Engine:
    """One of four is aborted after so many turns; the others answer as if it had never been there."""
    one = engine(policy, kit, workers=workers, **more)
    handles = [
        one.submit(numbered(i, 11), SamplingParams(max_tokens=6, ignore_eos=True, n=n if i == 1 else 1)) for i in range(4)
    ]
    for _ in range(turns):
        one.step()
        one.wait()
    had = [list(answer.tokens) for answer in handles[1].answers]
    done = handles[1].finished
    one.abort(handles[1])
    one.abort(handles[1])
    running = one.status().running
    run(one)
    for i, handle in enumerate(handles):
        if i == 1 and not done:
            assert [answer.tokens for answer in handle.answers] == had
            assert any(answer.finish == ("abort", None) for answer in handle.answers)
        proved(handle)
    assert [handle.answers[0].tokens for handle in handles if handle is not handles[1]] == [
        greedy_answer(numbered(i, 11), 6) for i in (0, 2, 3)
    ]
    assert running <= 4
    nothing_left(one)
    return one


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 7, 30])
@pytest.mark.parametrize(
    "policy",
    [Static(Limits(rows=3)), Continuous(Limits(rows=4, ahead=2)), Chunked(Limits(rows=4, ahead=1), 6)],
    ids=["static", "continuous", "chunked"],
)
def test_a_client_may_go_at_any_moment(policy: Any, turns: int):
    aborted(policy, turns)
    aborted(policy, turns, n=3)


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 9])
def test_a_client_may_go_while_its_kv_is_on_the_way(turns: int):
    aborted(Disaggregated(LINK, Limits(rows=4)), turns, workers=3, prefix=True)


def test_a_client_may_go_while_its_drafts_are_verified():
    for turns in (1, 3, 4, 5):
        aborted(Continuous(Limits(rows=4)), turns, kit=ALL_KIT, drafter=NGram(2), n=2)
