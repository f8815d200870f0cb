"""The admission limit of a study. Oracles: Little's law, and arithmetic over how long a run must be."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from jaxserve.sizing import study
from tests.jaxserve.sizing.studies import FACTS, Here


def test_the_admission_limit(facts: Any):
    found = facts["admission"]
    best = next(probe for probe in found["probes"] if probe["rate"] == found["rate"])
    assert found["cap"] == 128 and found["rate"] >= 20 and best["holds"]
    assert found["limit"] == math.ceil(found["rate"] * best["residence"])


def test_a_run_that_is_too_short_names_no_limit(here: Here):
    """Ten requests, two of which fill the system, at 20/s: over long before a request has ended, even four times as many."""
    short = (*FACTS, "--answer", "512", "--requests", "10")
    assert json.loads(here(*short, "--json"))["admission"] is None
    assert "so few requests say nothing of it; give more --requests" in here(*short)


def test_what_never_breaks_has_no_limit(here: Here, monkeypatch: pytest.MonkeyPatch):
    """With an SLO of minutes nothing breaks. The search ends at the rate at which 4 x 6 requests come within the stay of one."""
    monkeypatch.setattr(study, "PROBES", 12)
    lengths = ("--context", "32", "--answer", "16", "--batch", "64")
    options = ("--kv-pool", "30GiB", *lengths, "--ttft-p95", "10min", "--rate", "2/s", "--requests", "30")
    found = json.loads(here(*options, "--json"))
    stay = found["candidates"][0]["simulated"]["clients_mean"] / 2
    assert found["admission"]["above"] is None and found["admission"]["rate"] == pytest.approx(24 / stay)
    assert "none was found: the SLO holds at every rate that was tried, up to" in here(*options)
