"""Random workloads to try policies on: requests, and the machine that they meet."""

from __future__ import annotations

import dataclasses
import math

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jaxserve.kv.memory import Memory
from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.request import Request

many = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclasses.dataclass(frozen=True)
class Workload:
    """Random requests, and the machine that they meet."""

    requests: tuple[Request, ...]
    cancels: tuple[tuple[float, int], ...]
    limits: Limits
    kind: str  # of memory: paged, prefix, slots
    page: int
    capacity: int  # tokens
    slots: int
    vocabulary: int
    drafts: int
    multi_step: int

    def memory(self) -> Memory:
        if self.kind == "slots":
            return Slots.of(self.slots, self.capacity)
        return Paged.of(-(-self.capacity // self.page), self.page, prefix=self.kind == "prefix")


@st.composite
def workloads(draw: st.DrawFn, *, ahead: bool = True) -> Workload:
    """Few tokens and few pages, so that prefixes repeat and memory is short."""
    vocabulary = draw(st.integers(2, 5))
    rows = draw(st.integers(1, 6))
    size, timeout = draw(st.none() | st.integers(1, 4)), draw(st.sampled_from([math.inf, math.inf, 3.0, 20.0]))
    rule = QueueRule(size, timeout, draw(st.sampled_from(["reject", "delay"])))
    limits = Limits(
        rows=rows,
        prefill_tokens=draw(st.none() | st.integers(1, 16)),
        context=draw(st.none() | st.integers(12, 24)),
        queue=rule,
        levels=draw(st.sampled_from([{}, {2: QueueRule()}])),
        preemptions=draw(st.integers(1, 3)),
        ahead=draw(st.integers(0, 2)) if ahead else 0,
    )
    requests, id, now = [], 0, 0.0
    begins = draw(st.lists(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=9), min_size=1, max_size=3))
    for _ in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from([0.0, 0.0, 0.5, 2.0, 9.0]))
        prompt = draw(st.sampled_from(begins)) + draw(st.lists(st.integers(0, vocabulary - 1), max_size=5))
        deadline = now + draw(st.sampled_from([math.inf, math.inf, math.inf, 1.0, 8.0]))
        samples = draw(st.sampled_from([1, 1, 1, 2, 3]))
        requests.append(
            Request(
                id=id,
                prompt=tuple(prompt),
                limit=draw(st.integers(1, 9)),
                arrival=now,
                priority=draw(st.sampled_from([1, 1, 2])),
                deadline=deadline,
                samples=samples,
                reuse=draw(st.sampled_from([True, True, True, False])),
            )
        )
        id += samples
    return Workload(
        requests=tuple(requests),
        cancels=tuple(draw(st.lists(st.tuples(st.floats(0, 40), st.integers(0, id + 1)), max_size=3))),
        limits=limits,
        kind=draw(st.sampled_from(["paged", "prefix", "slots"])),
        page=draw(st.integers(1, 5)),
        capacity=draw(st.integers(8, 40)),
        slots=draw(st.integers(1, 5)),
        vocabulary=draw(st.sampled_from([vocabulary, 1000])),
        drafts=draw(st.sampled_from([0, 0, 1, 3])),
        multi_step=draw(st.sampled_from([1, 1, 2, 4])),
    )
