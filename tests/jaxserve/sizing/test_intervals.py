"""Studies whose steps are calibrated. Oracle: the order that a quicker and a slower step must give, and verdicts by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest

from costmodel.sizing import MODEL, UNDECIDED
from jaxserve.sizing.line import missed
from jaxserve.sizing.trial import Trial
from tests.jaxserve.sizing.studies import FACTS, SHORT, Here

CALIBRATED = ("--step-times", "calibrated")


def ran(words: str) -> Trial:
    """A run that missed by this; "" for one that met."""
    return cast(Trial, SimpleNamespace(met=not words, missed=words))


def test_verdicts():
    """Against a configuration speaks only what misses at the quick end too; without an interval what misses at all."""
    assert missed(ran(""), None, "analytical") is None and missed(ran(""), ran(""), "calibrated") is None
    roof = missed(ran("by 2"), None, "analytical")
    assert roof is not None and (roof.word, roof.reason) == (MODEL, "simulated with analytical steps: by 2")
    out = missed(ran("by 2"), ran("by 1"), "calibrated")
    assert out is not None and out.word == MODEL
    assert out.reason == "simulated with calibrated steps, at the quick end of their 90% interval: by 1"
    may = missed(ran("by 2"), ran(""), "calibrated")
    assert may is not None and may.word == UNDECIDED
    assert may.reason == "simulated with calibrated steps it misses (by 2), and not at the quick end of their 90% interval"


def test_a_study(here: Here):
    """Kernels are slower than their roof; latencies lie between those of quicker and slower steps."""
    found = json.loads(here(*SHORT, *CALIBRATED, "--batch", "64", "--json"))
    assert found["steps"]["witness"] == "calibrated" and "h100-sxm" in found["steps"]["source"]
    (each,) = found["candidates"]
    step, ends = each["calibrated_step"], each["interval"]
    assert each["full_step"] < step["quick"] < step["middle"] < step["slow"]
    for name in ("ttft", "itl"):
        assert ends["quick"][f"{name}_p95"] < each["simulated"]["summary"][name]["p95"] < ends["slow"][f"{name}_p95"]


def test_the_page_names_the_witness_of_each(here: Here):
    shown = " ".join(here(*SHORT, *CALIBRATED, "--batch", "64").split())
    for words in (
        "step times of the simulations: calibrated, kernels of h100-sxm",
        "full step ms ¹",
        "step of a full batch ms ³",
        "¹ analytical:",
        "² simulated: the scheduler that will run, on a virtual clock; a step takes its calibrated time",
        "³ calibrated: the sum of a step's kernels",
    ):
        assert words in shown, words
    assert "calibrated" not in here(*SHORT, "--batch", "64")


def test_a_search(here: Here):
    """Kernels below their roof: the same point is slower than with analytical steps, and the page says which they are."""
    options = (
        "--search",
        *FACTS[2:],
        "--answer",
        "16",
        "--requests",
        "20",
        "--batch",
        "32",
        "--tensor-parallel",
        "1",
        "--policy",
        "chunked",
    )
    roof, kernels = (json.loads(here(*options, *more, "--json")) for more in ((), CALIBRATED))
    (slower,), (quicker,) = kernels["options"], roof["options"]
    assert slower["itl_p95"] > quicker["itl_p95"] and slower["flooded"]["tokens_per_s"] < quicker["flooded"]["tokens_per_s"]
    assert any("steps calibrated" in line for line in kernels["heading"]) and any(
        "steps analytical" in line for line in roof["heading"]
    )


@pytest.mark.slow
def test_the_quick_end_decides(here: Here):
    """Of caps that fit, those are ruled out whose quick end misses 12 ms; whoever misses in the middle alone is undecided."""
    for limit in ("11ms", "12ms", "13ms", "20ms"):
        found = json.loads(here(*FACTS, *CALIBRATED, "--itl-p95", limit, "--requests", "100", "--batch", "128", "--json"))
        (each,) = found["candidates"]
        quick = each["interval"]["quick"]
        assert (each["verdict"] == MODEL) == (quick["itl_p95"] > float(limit[:-2]) / 1e3) == (not quick["met"])
        assert ("at the quick end" in each["reason"]) == (not each["simulated"]["met"])
