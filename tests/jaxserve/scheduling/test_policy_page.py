"""docs/policy.md: its programs run as they stand there. Oracle: the order in which three requests must end, by hand."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from jaxserve.kv.paged import Paged
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan_builder import PlanBuilder
from jaxserve.scheduling.state import State
from tests.jaxserve.scheduling.laws import Laws, obeys
from tests.jaxserve.scheduling.workloads import Workload, many, workloads

PAGE = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")
POLICY, DRIVER, SERVE, MEASURE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def names() -> dict[str, Any]:
    """What the page's policy defines."""
    found: dict[str, Any] = {"__name__": "page"}
    exec(compile(POLICY, "docs/policy.md", "exec", dont_inherit=True), found)
    return found


def test_the_policy_has_at_most_30_lines():
    assert len(POLICY.splitlines()) <= 30


def test_the_shortest_of_two_places_go_first():
    """Steps of 10 ms, three tokens each: prompts of 20 and 100 tokens run in steps 1 to 3, the one of 300 in 4 to 6."""
    found = names()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(DRIVER, "docs/policy.md", "exec", dont_inherit=True), found)
    ends = re.findall(r"(\d) ended by length at (\S+) s", out.getvalue())
    assert ends == [("1", "0.03"), ("2", "0.03"), ("0", "0.06")]
    assert out.getvalue().startswith("step 0 on worker 0: 2 rows in 2 slots, 120 tokens\n  admitted: 1, 2\n")


def test_an_engine_takes_it_as_it_is():
    found = names()
    exec(compile(SERVE, "docs/policy.md", "exec", dont_inherit=True), found)
    assert type(found["llm"].setup.policy) is found["ShortestFirst"]


@pytest.mark.slow
def test_it_is_measured_beside_the_policy_it_was_made_from():
    """The page says what its program prints; who is served first can't change what is drawn in all, but who waits."""
    found = names()
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(DRIVER, "docs/policy.md", "exec", dont_inherit=True), found)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(MEASURE, "docs/policy.md", "exec", dont_inherit=True), found)
    printed = re.findall(r"(\w+): time to first token, (P50 \S+ s, P95 \S+ s)", out.getvalue())
    assert [name for name, _ in printed] == ["Chunked", "ShortestFirst"]
    for name, figures in printed:
        assert f"{figures} for `{name}`" in PAGE


def test_the_verbs_and_values_that_it_names_exist():
    planning = PlanBuilder(Limits(), State.of(Paged.of(4, 4)), 0.0)
    verbs = re.findall(r"^\| (`.*`) \|", PAGE, re.MULTILINE)
    assert len(verbs) == 13
    for verb in re.findall(r"`(\w+)", " ".join(verbs)):
        assert hasattr(PlanBuilder, verb) or hasattr(planning, verb), verb


@settings(many, max_examples=100)
@given(load=workloads())
def test_it_obeys_all_laws_but_the_order_of_arrival(load: Workload):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Laws, "turn", lambda self, id, now: (id not in self.again,))
        obeys(names()["ShortestFirst"](load.limits, load.limits.rows, load.multi_step), load, budget=load.limits.rows)
