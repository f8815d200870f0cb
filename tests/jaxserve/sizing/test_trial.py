"""Configurations on a virtual clock. Oracle: hand arithmetic with steps that all take 1 s."""

from __future__ import annotations

import pytest

from jaxserve.load.slo import SLO
from jaxserve.scheduling.registry import POLICIES
from jaxserve.scheduling.request import Request
from jaxserve.sizing.traffic import Traffic, poisson
from jaxserve.sizing.trial import Configuration, saturated_throughput, trial
from models.errors import UserError


def traffic(*requests: tuple[float, int, int]) -> Traffic:
    made = tuple(Request(id, range(prompt), answer, arrival=at) for id, (at, prompt, answer) in enumerate(requests))
    return Traffic(made, "by hand", 1.0)


def second(plan: object) -> float:
    return 1.0


def test_three_different_numbers():
    """Cap 2, three requests at 0 of 4, 2 and 2 tokens: two are active, the third waits for the place of the second.

    Steps 1 to 4 run rows (0, 1), (0, 1), (0, 2), (0, 2): 2 in each; three are in the system although only two are active.
    """
    ran = trial(Configuration("continuous", 2, 8, 9, 4), traffic((0.0, 4, 4), (0.0, 4, 2), (0.0, 4, 2)), second, None)
    assert (ran.batch.mean, ran.batch.most, ran.active.mean, ran.active.most) == (2.0, 2, 2.0, 2)
    assert [record.end for record in ran.records] == [4.0, 2.0, 4.0] and ran.run.steps == 4
    assert ran.within == pytest.approx((4 + 2 + 4) / 3)
    assert ran.met and ran.missed == ""


def test_a_static_batch_keeps_places_of_which_a_step_runs_fewer():
    """Answers of 4 and 2 tokens: steps of 2, 2, 1 and 1 rows in two places."""
    ran = trial(Configuration("static", 2, 8, 9, 4), traffic((0.0, 4, 4), (0.0, 4, 2)), second, None)
    assert (ran.batch.mean, ran.active.mean, ran.active.most) == (1.5, 2.0, 2)


def test_work_that_piles_up_is_not_met_whatever_the_limit():
    """As below, with a limit that 40 requests do not reach: the 1,000th would."""
    piling = traffic(*[(float(i), 2, 2) for i in range(40)])
    found = trial(Configuration("continuous", 1, 8, 9, 4), piling, second, SLO(ttft={95: 1000.0}))
    assert found.summary.met and not found.met and found.missed == "TTFT grows as long as the load lasts"


def test_a_prompt_in_chunks_is_active_and_not_always_in_a_step():
    """Budget 4, cap 2: the first prompt of 4 fills step 1 alone, so the second, of 8, begins with 3 tokens beside the first's decode."""
    ran = trial(Configuration("chunked", 2, 4, 9, 4), traffic((0.0, 4, 3), (0.0, 8, 1)), second, None)
    assert ran.batch.most == 2 and ran.batch.mean < 2
    assert [record.ttft for record in ran.records] == [1.0, 4.0]  # 4; then 3, 3 and 2 of 8


def test_a_cap_reserves_no_memory():
    """Cap 50 over 6 pages of 4: two sequences of 8 tokens need 4, and nothing is said against it; the third waits for pages."""
    ran = trial(Configuration("continuous", 50, 8, 6, 4), traffic(*[(0.0, 8, 3)] * 4), second, None)
    assert ran.active.most < 4 and ran.pages <= 6 and [record.reason for record in ran.records] == ["length"] * 4


def test_an_slo_that_is_missed_says_by_what():
    """40 requests of 2 tokens, one a second, one at a time: from the second on each waits a second more than the one before."""
    found = trial(
        Configuration("continuous", 1, 8, 9, 4), traffic(*[(float(i), 2, 2) for i in range(40)]), second, SLO(ttft={95: 0.5})
    )
    assert not found.met and found.growth.grows
    # Request i begins at 2 i: TTFT i + 1. Judged are 8 to 35; nearest rank of 28: the 27th, request 34.
    assert found.missed == "TTFT P95 35,000.0 ms over 500 ms, TTFT grows as long as the load lasts"


def test_no_more_is_served_than_steps_can():
    """As above, two tokens in 2 s: 1 token a second is drawn where 2 are offered, and the judged requests end at 72 s, 64 after the first.

    Judged are requests 8 to 35, which come from 8 s to 35 s; of the tokens, one comes at the end of each second.
    """
    found = trial(Configuration("continuous", 1, 8, 9, 4), traffic(*[(float(i), 2, 2) for i in range(40)]), second, None)
    assert found.tokens_per_s == 1.0
    assert found.summary.duration == 64.0 and found.summary.tokens_per_s == 56 / 64
    kept_up = trial(Configuration("continuous", 4, 8, 40, 4), traffic(*[(float(i), 2, 2) for i in range(40)]), second, None)
    assert kept_up.tokens_per_s == pytest.approx(2.0, rel=0.05)


def test_a_run_that_is_too_short_says_so():
    """One each s for 40 s: judged from 8 s on. Answers of 2 steps are over long before; answers of 20 are not."""
    configuration = Configuration("continuous", 64, 8, 999, 4)
    found = [trial(configuration, traffic(*[(float(i), 2, n) for i in range(40)]), second, None) for n in (2, 20)]
    assert [each.hasty for each in found] == [False, True]


def test_a_flood_is_never_short_of_work():
    """48 requests of 2 tokens, 5 at a time, steps of 1 s: 5 tokens a second until the last 3 are in, at 18 s, which aren't counted."""
    found = saturated_throughput(Configuration("continuous", 5, 8, 99, 4), poisson(1.0, 3, 2, 8, 0), second)
    assert (found.tokens_per_s, found.itl, found.batch) == (5.0, 1.0, (96 / 20, 5))


@pytest.mark.parametrize("policy", [name for name, entry in POLICIES.items() if entry.one_worker])
def test_every_policy_serves_all(policy: str):
    ran = trial(Configuration(policy, 4, 8, 30, 4), poisson(1.0, 5, 3, 12, 0), lambda plan: 0.1, None)
    assert ran.run.ends == {"length": 12}


def test_names_and_budgets():
    assert Configuration("chunked", 64, 512, 9, 4).name == "chunked 512"
    assert Configuration("chunked", 600, 512, 9, 4).tokens == 600  # every row must be able to go on
    assert Configuration("static", 4, 512, 9, 4).name == "static"
    with pytest.raises(
        UserError, match="policy 'none' is unknown; give static, dynamic, continuous, chunked; a policy of your own"
    ):
        Configuration("none", 4, 512, 9, 4).make()
