"""Real runs on the virtual clock. Oracle: the engine of the tiny model, its plans' hashes and the times of its tokens, bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxserve.load.recorder import Recorder
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.state import State
from jaxserve.simulator.recorded import Recording
from jaxserve.simulator.records import simulated
from jaxserve.simulator.run import simulate
from jaxserve.speculative.ngram import NGram
from jaxserve.steplog.writer import StepLog
from models.errors import UserError
from tests.jaxserve.engines import ALL_KIT, LINK, PLAIN_KIT, Kit, engine, numbered
from tests.jaxserve.steplogs import altered, numbers, small_log, without


class Digests(Observer):
    def __init__(self) -> None:
        self.found: list[tuple[float, str]] = []

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if not plan.idle:
            self.found.append((now, plan.digest))


@pytest.mark.parametrize(
    ("policy", "kit", "prefix", "drafter"),
    [
        (Continuous(Limits(4, ahead=1)), PLAIN_KIT, True, None),
        (Chunked(Limits(4), 12), PLAIN_KIT, False, None),
        (Dynamic(Limits(4), delay=0.05), PLAIN_KIT, False, None),
        (Disaggregated(LINK, Limits(4), budget=6), PLAIN_KIT, True, None),
        pytest.param(Chunked(Limits(4), 12, 3), ALL_KIT, True, NGram(2), marks=pytest.mark.slow),  # more programs to compile
    ],
)
def test_a_real_run_again(policy: Policy, kit: Kit, prefix: bool, drafter: NGram | None, tmp_path: Path):
    """Ten requests that come between steps, some of which end at a stop token or have samples; one goes away; memory is short."""
    path, digests, recorder = tmp_path / "steps.jsonl", Digests(), Recorder()
    workers = 2 if isinstance(policy, Disaggregated) else 1
    with StepLog(path) as log:
        watch = Observers(digests, recorder, log)
        served = engine(policy, kit, prefix=prefix, lent=12, drafter=drafter, workers=workers, books=watch)
        handles = []
        for i in range(10):
            sizes = SamplingParams(max_tokens=3 + i, n=1 + (i == 3), ignore_eos=i % 2 == 0, temperature=float(i == 4))
            handles.append(served.submit(numbered(i % 3, 5 + i % 3), sizes))
            for _ in range(i % 3):
                served.step()
        served.abort(handles[5])
        while not served.idle:
            served.step()
            served.wait()
    again, seen = Recording.read(path), Digests()
    records = simulated(again.policy, again.state, again.clients, again.pace, run=again.run, cancels=again.cancels, watch=seen)
    assert [digest for _, digest in seen.found] == [digest for _, digest in digests.found]
    assert [at for at, _ in seen.found] == [at for at, _ in digests.found]
    # How long a batch could have formed by then shows only in questions that came to nothing, which no log holds.
    known = (
        [record._replace(ready=record.submitted) for record in recorder.records()]
        if isinstance(policy, Dynamic)
        else recorder.records()
    )
    assert (
        len(records) == 11 and [r._replace(ready=r.submitted) if isinstance(policy, Dynamic) else r for r in records] == known
    )
    if isinstance(policy, Chunked) and not prefix:
        assert any(record.preemptions for record in records)
    times = {handle.id + i: each for handle in handles for i, each in enumerate(handle.token_times)}
    assert {record.id: list(record.tokens) for record in records} == times


def test_other_plans_are_refused(tmp_path: Path):
    """The step times of one policy say nothing of another's steps: the first plan that differs is named."""
    again = Recording.read(small_log(tmp_path / "steps.jsonl"))
    found = simulate(again.policy, again.state, again.clients, again.pace, run=again.run)
    assert found.plans == len(again.ended)
    with pytest.raises(UserError, match=r"plan 0 has digest [0-9a-f]{32} here and [0-9a-f]{32} in the log"):
        simulate(Continuous(Limits(2)), again.state, again.clients, again.pace, run=again.run)


def test_logs_that_are_no_whole_run(tmp_path: Path):
    path = small_log(tmp_path / "steps.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    with pytest.raises(UserError, match="ends before the run did, with 1 answers under way"):
        Recording.read(path)
    path.write_text("".join(lines))
    altered(path, numbers(path, "planned")[1], digest="0" * 32)
    with pytest.raises(UserError, match=r"line \d+ of .*: plan 1 differs when it is run again"):
        Recording.read(path)
    path.write_text("".join(lines))
    without(path, numbers(path, "folded")[0])
    with pytest.raises(UserError, match="line"):
        Recording.read(path)
    path.write_text("".join(lines).replace('"arrival":0.0', '"arrival":0.5', 1))
    with pytest.raises(UserError, match=r"line 2 of .*: it is not as it was written, or does not follow on the line before"):
        Recording.read(path)


def test_plans_that_the_log_does_not_have(tmp_path: Path):
    again = Recording.read(small_log(tmp_path / "steps.jsonl"))
    count = len(again.digests)
    with pytest.raises(UserError, match=rf"the log has {count} plans, and this would be number {count}"):
        again.run(Plan(count))
