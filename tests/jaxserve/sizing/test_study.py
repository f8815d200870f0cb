"""`python -m jaxserve.size` as a user runs it. Oracle: facts.md section 4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.errors import UserError
from tests.jaxserve.sizing.studies import FACTS, SHORT, Here

GIB = 2**30


def test_the_facts(facts: Any):
    """0.125 GiB a sequence, 240 before metadata and headroom; 8, 16 and 32 GiB, the last over by 2; steps of 7.34 and 9.90 ms."""
    assert facts["pool"]["sequence_bytes"] == GIB / 8 and facts["pool"]["sequences_before"] == 240
    assert facts["pool"]["sequences"] == 237
    found = facts["candidates"]
    assert [(each["batch"], each["kv_bytes"] / GIB, each["over_bytes"] / GIB) for each in found] == [
        (64, 8, 0),
        (128, 16, 0),
        (256, 32, 2),
    ]
    assert [round(each["nominal_step"] * 1e3, 2) for each in found[:2]] == [7.34, 9.90]
    assert [each["verdict"] for each in found] == ["undecided until measured"] * 2 + ["infeasible by capacity"]
    assert facts["clients"] == [32, 64, 96, 128]


def test_three_numbers_are_kept_apart(facts: Any):
    """Never more rows in a step than are active, nor more active than the cap; and a cap of 256 does not take 32 GiB."""
    for each in facts["candidates"]:
        ran = each["simulated"]
        assert ran["step"]["most"] <= ran["active"]["most"] <= each["batch"] and ran["step"]["mean"] <= ran["active"]["mean"]
        assert ran["summary"]["ttft"]["p95"] < 0.25 and ran["summary"]["itl"]["p95"] < 0.012
    large = facts["candidates"][2]["simulated"]
    assert large["pages_most"] < facts["pool"]["usable_pages"] / 2 and large["preemptions"] == 0


def test_little(facts: Any):
    """Clients in the system: rate times mean residence, and a request stays at least for its 256 steps of 4.48 ms."""
    for each in facts["candidates"]:
        assert each["simulated"]["clients_mean"] > 20 * 256 * 4.48e-3


def test_the_page_for_people(here: Here):
    shown = here(*SHORT)
    for words in (
        "0.125 GiB a full sequence of 1024 tokens, 240 full sequences before block metadata and headroom, 237 after",
        "7.34",
        "9.90",
        "infeasible by capacity: 256 full sequences need 32 GiB, 2 GiB more than the pool of 30 GiB",
        "undecided until measured: it fits, and model steps are estimates, not bounds",
        "A cap reserves no memory",
        "python -m jaxserve.load --model random:llama-3-8b",
        "*",  # 21 requests that are judged are too few for a P95
    ):
        assert words in " ".join(shown.split()), words


def test_70b_does_not_fit_one_chip(here: Here):
    """Weights of 141 GB: ruled out by capacity whatever the batch, with the degree that would do; nothing to measure."""
    found = json.loads(here("--model", "llama-3-70b", *FACTS, "--requests", "30", "--json"))
    assert not found["fits"] and found["least_degree"] == 4 and found["plan"] == [] and found["admission"] is None
    assert {each["verdict"] for each in found["candidates"]} == {"infeasible by capacity"}
    assert "the smallest that does is tensor-parallel degree 4" in found["candidates"][0]["reason"]
    with pytest.raises(
        UserError, match=r"does not fit one h100-sxm .* degree 2; without --kv-pool the pool is what weights leave"
    ):
        here("--model", "llama-3-70b", *FACTS[2:], "--requests", "30")


def test_a_load_beyond_a_cap_is_infeasible_by_model(here: Here):
    """With answers of 512 tokens 64 rows can't keep up with 20/s, see `tests/costmodel/test_sizing.py`; so 128 alone is to be measured."""
    found = json.loads(here(*FACTS, "--answer", "512", "--requests", "12", "--json"))
    small = found["candidates"][0]
    assert small["verdict"] == "infeasible by model" and "want 10,240" in small["reason"]
    assert small["simulated"]["hasty"], "12 requests in 0.6 s, which stay 3 s"
    assert [each["file"] for each in found["plan"]] == ["closed-128.json", "open-128.json", "saturation-128.json"]


def test_a_simulated_miss_is_infeasible_by_model(here: Here):
    """Whole prompts of 1,008 tokens take 14.5 ms each in a step, so whoever decodes waits longer than 10; in chunks of 256 not."""
    options = (*SHORT, "--itl-p95", "10ms", "--batch", "64", "--json")
    (whole,) = json.loads(here(*options, "--policy", "continuous"))["candidates"]
    assert whole["verdict"] == "infeasible by model" and whole["reason"].startswith("simulated with analytical steps: ITL P95 ")
    (chunks,) = json.loads(here(*options, "--budget", "256"))["candidates"]
    assert chunks["verdict"] == "undecided until measured"


def test_headroom_can_be_what_does_not_fit(here: Here):
    """240 full sequences fit before metadata and headroom, and 237 after."""
    options = (*FACTS, "--answer", "16", "--itl-p95", "20ms", "--requests", "10", "--batch", "237,240", "--json")
    found = json.loads(here(*options))["candidates"]
    assert [each["verdict"] for each in found] == ["undecided until measured", "infeasible by capacity"]
    assert found[1]["reason"] == "237 full sequences are left after block metadata and headroom"


@pytest.mark.slow
def test_a_load_beyond_a_cap_shows_in_a_long_simulation(here: Here):
    """The same by simulation, in a run that is long enough: the queue before 64 rows grows, that before 128 does not."""
    small, large, _ = json.loads(here(*FACTS, "--answer", "512", "--requests", "1000", "--json"))["candidates"]
    assert not small["simulated"]["hasty"] and not small["simulated"]["met"] and "TTFT" in small["simulated"]["missed"]
    assert large["simulated"]["met"] and large["verdict"] == "undecided until measured"
