"""Policies and memories as JSON. Oracle: the value that was written down, after a turn through text."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.names import memory_json, memory_of, policy_json, policy_of
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.registry import POLICIES
from jaxserve.scheduling.state import State
from models.errors import UserError
from tests.jaxserve.scheduling.runs import any_policy


def through_text(plain: Any) -> Any:
    """What somebody reads who got it as a file. JSON knows no infinity, so Python's own must not be in it."""
    return json.loads(json.dumps(plain, allow_nan=False))


@settings(max_examples=100, deadline=None)
@given(policy=any_policy())
def test_every_policy_comes_back(policy: Policy):
    plain = policy_json(policy)
    assert policy_of(through_text(plain)) == policy
    assert set(plain) == {"name"} | {field.name for field in dataclasses.fields(policy)}  # type: ignore[arg-type]
    assert POLICIES[plain["name"]].kind is type(policy)


@given(total=st.integers(1, 5000), page=st.integers(1, 64), prefix=st.booleans())
def test_every_memory_comes_back_empty(total: int, page: int, prefix: bool):
    for memory in (Paged.of(total, page, prefix=prefix), Slots.of(total, page)):
        assert memory_of(through_text(memory_json(memory))) == memory
        grant = memory.admit(range(page), 1)
        assert grant is not None and memory_of(memory_json(grant.memory)) == memory


def test_what_is_written():
    levels = {2: QueueRule(3, 0.5, "delay")}
    policy = Dynamic(Limits(4, levels=levels), (2, 4), math.inf, 8)
    always = {"size": None, "timeout": "inf", "late": "reject"}
    limits = {
        "rows": 4,
        "prefill_tokens": None,
        "context": None,
        "queue": always,
        "levels": {"2": {"size": 3, "timeout": 0.5, "late": "delay"}},
        "preemptions": 3,
        "ahead": 0,
    }
    assert policy_json(policy) == {"name": "dynamic", "limits": limits, "preferred": [2, 4], "delay": "inf", "multi_step": 8}
    assert memory_json(Paged.of(9, 16, prefix=True)) == {"kind": "paged", "pages": 9, "page": 16, "prefix": True}
    assert memory_json(Slots.of(2, 40)) == {"kind": "slots", "total": 2, "size": 40}


def test_what_is_not_written_has_its_default():
    assert policy_of({"name": "continuous", "limits": {"rows": 3}}) == Continuous(Limits(3))


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        (3, "policy.name is 3; there are static, dynamic, continuous, chunked, disaggregated"),
        ({"name": ["static"]}, "policy.name is ['static']; there are"),
        ({"name": "orca"}, "policy.name is 'orca'; there are"),
        ({"name": "static", "budget": 3}, "policy has no field budget; there are limits, multi_step"),
        ({"name": "disaggregated"}, "policy lacks the field link"),
        ({"name": "static", "limits": 4}, "policy.limits is 4; it must be an object"),
        ({"name": "static", "limits": {"rows": True}}, "policy.limits.rows is True; it must be a whole number"),
        (
            {"name": "static", "limits": {"rows": 0}},
            "policy.limits: limits: rows is 0; it must be a whole number of at least 1",
        ),
        (
            {"name": "static", "limits": {"queue": {"timeout": "soon"}}},
            "policy.limits.queue.timeout is 'soon'; it must be a number",
        ),
        (
            {"name": "static", "limits": {"queue": {"late": "x"}}},
            "policy.limits.queue.late is 'x'; it must be one of reject, delay",
        ),
        (
            {"name": "static", "limits": {"queue": {"size": 0}}},
            "policy.limits.queue: the number of requests that may wait is 0",
        ),
        (
            {"name": "static", "limits": {"levels": {"a": {}}}},
            "a key of policy.limits.levels is 'a'; it must be a whole number",
        ),
        ({"name": "static", "limits": {"levels": [1]}}, "policy.limits.levels is [1]; it must be an object"),
        ({"name": "dynamic", "preferred": [1, "a"]}, "policy.preferred[1] is 'a'; it must be a whole number"),
        ({"name": "dynamic", "preferred": "12"}, "policy.preferred is '12'; it must be a list"),
        ({"name": "dynamic", "preferred": [65]}, "policy: preferred batch sizes are [65]"),
        ({"name": "dynamic", "delay": None}, "policy.delay is None; it must be a number"),
        ({"name": "disaggregated", "link": {"token_bytes": 1}}, "policy.link lacks the field bandwidth"),
    ],
)
def test_a_wrong_policy_is_refused_by_field(plain: Any, says: str):
    with pytest.raises(UserError) as error:
        policy_of(plain)
    assert str(error.value).startswith(says) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"kind": "disk"}, "memory.kind is 'disk'; there are paged, slots"),
        ({"kind": "paged", "pages": 3}, "memory lacks the field page"),
        ({"kind": "paged", "pages": 3, "page": 0}, "memory.page is 0; it must be at least 1"),
        ({"kind": "paged", "pages": 3, "page": 2, "prefix": 1}, "memory.prefix is 1; it must be true or false"),
        ({"kind": "slots", "total": -1, "size": 2}, "memory.total is -1; it must be at least 1"),
    ],
)
def test_a_wrong_memory_is_refused_by_field(plain: Any, says: str):
    with pytest.raises(UserError) as error:
        memory_of(plain)
    assert str(error.value) == says


class Plain:
    limits, multi_step = Limits(), 1

    def __call__(self, state: State, now: float) -> tuple[Plan, State]:
        raise NotImplementedError


def test_what_has_no_name_is_refused():
    class Own(Continuous):
        pass

    with pytest.raises(UserError, match=r"Own can't be written down; move it out of the function that it is defined in"):
        policy_json(Own())
    with pytest.raises(UserError, match=r"the policy .*test_names:Plain can't be written down, .*; make it a frozen dataclass"):
        policy_json(Plain())
    with pytest.raises(UserError, match="a memory of type int can't be written down; those that can are paged, slots"):
        memory_json(3)  # type: ignore[arg-type]
