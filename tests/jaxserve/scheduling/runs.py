"""Random policies: by themselves, and each with a workload and workers that suit it."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from hypothesis import strategies as st

from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.transfer import Link
from tests.jaxserve.scheduling.workloads import Workload, workloads

seconds = st.sampled_from([math.inf, 0.1, 3, 1e-300, 1e300]) | st.floats(min_value=0, exclude_min=True, allow_nan=False)
rules = st.builds(QueueRule, st.none() | st.integers(1, 9), seconds, st.sampled_from(["reject", "delay"]))


@st.composite
def any_limits(draw: st.DrawFn, ahead: bool) -> Limits:
    return Limits(
        rows=draw(st.integers(1, 300)),
        prefill_tokens=draw(st.none() | st.integers(1, 9)),
        context=draw(st.none() | st.integers(1, 9)),
        queue=draw(rules),
        levels=draw(st.dictionaries(st.integers(-3, 12), rules, max_size=3)),
        preemptions=draw(st.integers(1, 9)),
        ahead=draw(st.integers(0, 3)) if ahead else 0,
    )


@st.composite
def any_policy(draw: st.DrawFn, limits: Limits | None = None) -> Policy:
    """Of every kind, with every field drawn; with these limits if they are given."""
    kind = draw(st.sampled_from([Static, Dynamic, Continuous, Chunked, Disaggregated]))
    limits = limits or draw(any_limits(ahead=kind is not Disaggregated))
    multi_step = draw(st.integers(1, 4))
    if kind is Dynamic:
        preferred = draw(st.none() | st.lists(st.integers(1, limits.rows), min_size=1, max_size=3).map(tuple))
        return Dynamic(limits, preferred, draw(st.sampled_from([0.0, 1, 6.0, math.inf])), multi_step)
    if kind is Chunked:
        return Chunked(limits, limits.rows + draw(st.integers(0, 8)), multi_step)
    if kind is Disaggregated:
        link = Link(draw(st.integers(1, 10)), draw(st.sampled_from([5, 1e6, math.inf])), draw(st.sampled_from([0.0, 0.5])))
        affinity = draw(st.sampled_from([0.0, 1.0, 4.0]))
        limits = dataclasses.replace(limits, ahead=0)
        return Disaggregated(link, limits, draw(st.integers(1, 2)), draw(st.integers(1, 12)), affinity, multi_step)
    return kind(limits, multi_step)


class Run(NamedTuple):
    """A policy, what it is tried on, and how many workers there are."""

    policy: Policy
    load: Workload
    workers: int


@st.composite
def runs(draw: st.DrawFn) -> Run:
    load = draw(workloads())
    policy = draw(any_policy(load.limits))
    if isinstance(policy, Disaggregated):
        return Run(policy, dataclasses.replace(load, limits=policy.limits), policy.prefill + draw(st.integers(1, 3)))
    if isinstance(policy, Dynamic) and policy.delay == math.inf:  # only with enough company, which may never come
        policy = dataclasses.replace(policy, delay=6.0)
    return Run(policy, load, 1)
