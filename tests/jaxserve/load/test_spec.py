"""What a user asks. Oracles: what contradicts itself; the seeds, by drawing twice."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from jaxserve.load.schedule import Closed, Open
from jaxserve.load.slo import SLO
from jaxserve.load.spec import LoadSpec
from models.errors import UserError

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:40.0,10,5\n2023-11-16 18:15:42.0,20,5\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "nothing says how requests come"),
        (
            {"rates": (1.0,), "clients": (2,)},
            "--rate is of an open loop, and --clients makes a closed one; leave one of them out$",
        ),
        ({"clients": (2,), "burstiness": 2.0}, "--burstiness is of an open loop"),
        ({"rates": (1.0,), "think": 1.0}, "--think is of a closed loop; give --clients as well, or leave it out$"),
        ({"rates": (1.0,), "arrivals": "replay"}, "leave --rate out"),
        ({"arrivals": "replay"}, "nothing says how"),
        ({"arrivals": "gamma", "rates": (1.0,)}, "--burstiness and --arrivals gamma"),
        ({"rates": (1.0,), "burstiness": 2.0}, "--burstiness and --arrivals gamma"),
        ({"rates": (1.0,), "arrivals": "gamma", "burstiness": 0.0}, "the burstiness is 0"),
        ({"rates": (1.0,), "to": 2.0, "over": 3.0}, "--arrivals ramp"),
        ({"rates": (1.0,), "arrivals": "ramp", "to": 2.0}, "--arrivals ramp"),
        ({"rates": (1.0,), "length_scale": 0.5}, "--length-scale is of a trace"),
        ({"rates": (1.0,), "requests": 0}, "0 requests"),
        ({"rates": (1.0,), "requests": 5, "warmup": 5}, "5 requests with 5"),
        ({"rates": (1.0,), "warmup": -1}, "measure nothing"),
        ({"rates": (1.0,), "seed": -1}, "--seed"),
        ({"rates": (1.0,), "saturate": True}, "--saturate looks for"),
        ({"rates": (1.0, 2.0), "saturate": True, "slo": SLO(ttft={95: 1.0})}, "one --rate"),
        ({"clients": (1,), "saturate": True, "slo": SLO(ttft={95: 1.0})}, "one --rate"),
        ({"clients": (1,), "think": -1.0}, "at least 0"),
        ({"clients": (1,), "prompt": "0"}, "--prompt"),
        ({"clients": (1,), "output": "x"}, "--output"),
    ],
)
def test_contradictions(options: dict[str, Any], said: str):
    with pytest.raises(UserError, match=said):
        LoadSpec(**options)


def test_of_a_trace(trace: Path):
    for options, said in (
        ({"arrivals": "poisson"}, "it needs --rate"),
        ({"prompt": "5"}, "--prompt is of requests without a trace"),
        ({"rates": (1.0,), "time_scale": 2.0}, "--time-scale is of the times"),
        ({"length_scale": 0.0}, "length scale"),
        ({"time_scale": 0.0}, "time scale"),
    ):
        with pytest.raises(UserError, match=said):
            LoadSpec(trace=trace, **options)
    with pytest.raises(UserError, match="no such file"):
        LoadSpec(trace=trace.parent / "none.csv")
    trace.write_text(TRACE + "2023-11-16 18:15:43.0,x,5\n")
    with pytest.raises(UserError, match=r"trace\.csv line 4: ContextTokens is 'x'"):
        LoadSpec(trace=trace)


def test_replay(trace: Path):
    asked = LoadSpec(trace=trace, time_scale=0.5, length_scale=0.5)
    (load,) = asked.loads
    schedule = load.schedule(asked.drawn(0)[0])
    assert isinstance(schedule, Open) and [schedule.take(), schedule.take(), schedule.due] == [0.0, 1.0, math.inf]
    assert [(len(r.prompt), r.limit) for r in asked.drawn(0)[1]] == [(5, 2), (10, 2)]
    assert asked.to_json()["source"]["length_scale"] == 0.5 and load.arrivals["time_scale"] == 0.5


def test_which_loads():
    loads = LoadSpec(clients=(1, 32), think=0.5).loads
    assert [load.name for load in loads] == ["1 client", "32 clients"] and [load.clients for load in loads] == [1, 32]
    assert isinstance(loads[0].schedule(None), Closed)  # type: ignore[arg-type]
    assert [load.name for load in LoadSpec(rates=(0.5, 20.0)).loads] == ["poisson 0.5/s", "poisson 20/s"]
    (ramp,) = LoadSpec(rates=(1.0,), arrivals="ramp", to=9.0, over=60.0).loads
    assert not ramp.steady and ramp.arrivals == {"kind": "ramp", "from": 1.0, "to": 9.0, "over": 60.0}
    gamma = LoadSpec(rates=(1.0,), arrivals="gamma", burstiness=0.5)
    assert gamma.at(3.0).arrivals == {"kind": "gamma", "rate": 3.0, "burstiness": 0.5}


def test_one_seed_draws_all():
    """Parts have the same lengths and the same draws of time, and prompts of their own; another seed has others."""
    one, same, other = (LoadSpec(rates=(1.0,), prompt="5-500", requests=20, seed=seed) for seed in (3, 3, 4))

    def lengths(asked: LoadSpec, part: int) -> list[int]:
        return [len(request.prompt) for request in asked.drawn(part)[1]]

    def times(asked: LoadSpec, part: int) -> list[float]:
        schedule = asked.at(2.0).schedule(asked.drawn(part)[0])
        return [schedule.take() for _ in range(20)]

    assert lengths(one, 0) == lengths(same, 0) == lengths(one, 1) != lengths(other, 0)
    assert times(one, 0) == times(same, 0) == times(one, 1) != times(other, 0)
    keys = [asked.drawn(part)[2] for asked, part in itertools.product((one, same, other), (0, 1, 2))]
    assert keys[:3] == keys[3:6] and len(set(keys)) == 6
