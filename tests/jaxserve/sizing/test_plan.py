"""The measurement plan of a study. Oracle: the options of the load harness itself."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from jaxserve.engine.config import EngineConfig
from jaxserve.load.__main__ import main as load
from jaxserve.load.slo import SLO
from jaxserve.load.spec import LoadSpec
from tests.jaxserve.sizing.studies import SHORT, Here


def parsed(text: str) -> dict[str, Any]:
    """What the load harness makes of a command of the plan, as far as that goes without a server."""
    words = shlex.split(text.partition(" > ")[0])
    assert words[:3] == ["python", "-m", "jaxserve.load"]
    given = dict(load.make_context("load", words[3:]).params)
    engine = {field.name: given.pop(field.name) for field in dataclasses.fields(EngineConfig) if field.name in given}
    slo, url = SLO.parse(given["limits"]), given["url"]
    asked = LoadSpec(
        slo=slo,
        **{
            field.name: given[field.name]
            for field in dataclasses.fields(LoadSpec)
            if field.name in given and given[field.name] is not None
        },
    )
    return {"server": None if url else EngineConfig(**engine), "url": url, "asked": asked}


def test_the_plan_runs_as_it_stands(facts: Any):
    """Each command is one that the harness takes: closed loop, open loop for both caps, saturation."""
    closed, small, large, saturation = (parsed(each["text"]) for each in facts["plan"])
    assert closed["asked"].clients == (32, 64, 96, 128) and closed["server"].rows == 128
    assert (small["server"].rows, large["server"].rows) == (64, 128)
    for each in (small, large):
        rates = each["asked"].rates
        assert rates == tuple(sorted(rates)) and 20.0 in rates and len(rates) >= 4 and each["asked"].kind == "poisson"
        assert each["server"].model == "random:llama-3-8b" and each["server"].policy == "chunked"
        assert each["server"].pages == facts["pool"]["usable_pages"] and each["server"].context == 1024
    assert saturation["asked"].saturate and saturation["asked"].rates == (20.0,)
    assert all(
        each["asked"].slo == SLO(ttft={95: 0.25}, itl={95: 0.012}) and each["asked"].requests == 80
        for each in (closed, small, large, saturation)
    )


def test_a_plan_for_what_the_engine_does_not_run(here: Here):
    """Two chips are asked over HTTP."""
    found = json.loads(here(*SHORT, "--tensor-parallel", "2", "--json"))
    assert found["plan"] and all(parsed(each["text"])["url"] == "http://127.0.0.1:8000" for each in found["plan"])
