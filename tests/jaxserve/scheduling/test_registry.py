"""The registry of policies: one entry makes a policy known everywhere. Oracle: a made-up policy, first in the queue last."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import jaxserve.buckets
import jaxserve.simulate
import jaxserve.size
from jaxserve.engine.config import EngineConfig
from jaxserve.llm import LLM
from jaxserve.options import PolicyName
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.names import policy_json, policy_of
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.registry import OPTIONS, POLICIES, Entry, check_name, make_policy, mixes, takers, takes
from jaxserve.scheduling.state import State
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class LastComeFirst:
    """Whoever came last comes in first; whole prompts, then one token a step."""

    limits: Limits = dataclasses.field(default_factory=Limits)
    multi_step: int = 1

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        step = PlanBuilder(self.limits, state, now)
        step.decode()
        for row in step.partial:
            step.prefill(row, math.inf)
        for row in reversed(list(step.queue)):
            if not step.admit(row):
                break
        step.repeat(self.multi_step)
        return step.done()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(POLICIES, "last", Entry(LastComeFirst, "whoever came last, first"))
    return "last"


def test_every_entry_is_made_of_limits_and_what_it_takes():
    offered = {"budget": 64, "piece": 1, "multi_step": 1, "token_bytes": 2}
    for name, entry in POLICIES.items():
        policy = make_policy(name, Limits(rows=4), {}, offered)
        assert type(policy) is entry.kind and policy.limits.rows == 4 and entry.help
        assert [option for option in OPTIONS if takes(name, option)] == sorted(entry.options, key=OPTIONS.index)
        assert [takes(policy, option) for option in OPTIONS] == [takes(name, option) for option in OPTIONS]
        assert policy_of(policy_json(policy)) == policy
    assert takers("budget") == ("chunked", "disaggregated")
    assert [name for name in POLICIES if mixes(name)] == ["chunked"]


def test_an_option_that_a_policy_has_not():
    with pytest.raises(
        UserError, match="budget is given, but a static policy has none; leave it out, or take chunked or disagg"
    ):
        make_policy("static", Limits(), {"budget": 3}, {})
    with pytest.raises(
        UserError, match="policy 'fast' is unknown; give static, dynamic, continuous, chunked, disaggregated; a po"
    ):
        make_policy("fast", Limits(), {}, {})
    with pytest.raises(
        UserError, match="policy 'disaggregated' is unknown; give static, dynamic, continuous, chunked; a policy of"
    ):
        check_name("disaggregated", one_worker=True)


def test_one_entry_makes_a_policy_known_to_the_engine(registered: str):
    config = EngineConfig("random:tiny", policy=registered)
    assert type(config.scheduling(4, token_bytes=1, budget=8)) is LastComeFirst
    assert policy_of({"name": registered, "limits": {"rows": 3}}).limits.rows == 3
    llm = LLM("random:tiny", dtype="float32", rows=1, context=32, policy=registered, compile_cache=False)
    assert [
        len(output.outputs[0].tokens) for output in llm.generate(["a", "b"], SamplingParams(max_tokens=3, ignore_eos=True))
    ] == [3, 3]


@pytest.mark.parametrize("command", [jaxserve.size.main, jaxserve.simulate.main, jaxserve.buckets.main], ids=lambda c: c.name)
def test_one_entry_makes_a_policy_known_to_a_command(registered: str, command: click.Command, tmp_path: Path):
    (tmp_path / "trace.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,30,4\n2023-11-16 18:15:47,20,4\n", encoding="utf-8"
    )
    common = ["--model", "llama-3-8b", "--policy", registered, "--json"]
    given = {
        jaxserve.size.main: ["--context", "64", "--batch", "2", "--rate", "5/s", "--requests", "20", "--itl-p95", "1s"],
        jaxserve.simulate.main: ["--rate", "5/s", "--prompt", "16", "--output", "4", "--requests", "20"],
        jaxserve.buckets.main: ["--trace", str(tmp_path / "trace.csv"), "--programs", "3", "--rows", "2"],
    }[command]
    done = CliRunner().invoke(command, [*common, *given], catch_exceptions=False)
    assert done.exit_code == 0 and json.loads(done.output[done.output.index("{") :])


def test_the_option_says_which_there_are(registered: str):
    assert PolicyName().name == "[static|dynamic|continuous|chunked|disaggregated|last|MODULE:NAME]"
    assert "disaggregated" not in PolicyName(one_worker=True).name


def test_the_readme_has_the_table():
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    for name, entry in POLICIES.items():
        assert f"| `{name}` | {entry.help} |" in readme
