"""The published PaLM runs beside the model. Oracles: the paper's own MFU for its seconds, and sums worked out by hand."""

import json
from pathlib import Path

import pytest

from scripts.palm import CHIP, choices, compare, contexts, differences, seconds
from scripts.palm_runs import PADDED, RUNS
from tests.jaxserve import commands

MODULE = "scripts.palm"
RECORD = Path(__file__).resolve().parents[2] / "docs" / "palm.md"
PEAK = 275e12


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_published_figures_agree_with_each_other(run):
    """Tables 2 and 3: MFU is tokens 2 N / (chips peak seconds), within what rounding to two digits of either leaves."""
    size = {"540B": 540.35e9, "62B": 62.5e9}[run.name.split()[0]]
    assert run.parameters == pytest.approx(size, rel=1e-3)
    tokens = run.batch * (64 if "decode" in run.name else 2048)
    assert tokens * 2 * size / (run.mesh.chips * PEAK * run.seconds) == pytest.approx(run.mfu, abs=0.01)
    assert run.utilisation(run.seconds, PEAK) == pytest.approx(run.mfu, abs=0.01)


def test_padding_adds_18_billion_parameters():
    """Section 4: 48 heads to 64."""
    assert PADDED.parameter_count - RUNS[0].parameters == pytest.approx(18e9, rel=0.02)


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_the_model_is_a_lower_bound_on_what_was_published(run):
    """At the peaks nothing can take longer than it did; overlap can only help, and fewer links can't."""
    times = seconds(run)
    assert times["hidden"] < times["exposed"] <= times["own links"] < run.seconds
    assert run.step().fits(CHIP)


def test_large_prefill_by_hand():
    """Run 3 per chip: 2 (118 (3 E F + 2 E 64 Q + 2 E Q)) FLOP a token, half the square of scores, and 63/64 of every weight over links."""
    e, f, q, layers, tokens = 18432, 73728, 256, 118, 512 * 2048
    weights = layers * (3 * e * f + 2 * e * 64 * q)
    kv = layers * 2 * e * q
    flops = tokens / 64 * (2 * (weights + kv) + 4 * layers * 64 * q * (2048 + 1) / 2) + 2 * 512 * 256_000 * e / 64
    run = compare(RUNS[2])
    assert run["parts_s"]["multiply"] == pytest.approx(flops / PEAK, rel=1e-9)
    gathered = (weights * 63 / 64 + kv * 3 / 4) * 2  # the KV head's matrices rest on every chip of y and z
    small = (
        tokens * e / 4 * 2 * 15 / 16 + 512 * e / 4 * 2 * 15 / 16 + 512 * 256_000 / 16 * 4 * 3 / 4
    )  # embeddings, last hidden, logits
    assert run["parts_s"]["links"] == pytest.approx((gathered + small) / 270e9, rel=1e-9)


def test_low_latency_decode_by_hand():
    """Run 2 per chip and step: int8 weights, 1 sequence of 2016.5 tokens on average and one written."""
    weights = (PADDED.parameter_count - 118 * 2 * 18432 * 256) / 64 + 118 * 2 * 18432 * 256 / 4
    run = compare(RUNS[1])
    assert run["parts_s"]["weights"] / 64 == pytest.approx(weights / 1.2e12, rel=1e-3)
    assert run["parts_s"]["cache"] / 64 == pytest.approx((2016.5 + 1) * 118 * 2 * 256 * 2 / 1.2e12, rel=1e-9)


def test_ratios():
    """How far off the model is, without overlap, as the record says; a change of the model has to change the record too."""
    found = [round(compare(run)["model_over_published"]["exposed"], 2) for run in RUNS]
    assert found == [0.59, 0.33, 0.83, 0.48, 0.46, 0.34, 0.75, 0.53]


def test_what_int8_saves():
    """8.7 GB less a chip at 1.2 TB/s is 7.3 ms, of 8.4 published; activations that are read beside the weights hide some of neither."""
    saved = differences()[0]
    assert saved["published"] == pytest.approx(8.4)
    assert saved["model"] == pytest.approx(PADDED.parameter_count / 64 / 1.2e12 * 1e3, rel=0.05)


def test_table_1():
    for row in contexts():
        assert row["model"] == pytest.approx(row["published"], rel=0.011)


def test_choices_over_all_links_are_the_papers():
    """Section 4.1: 2D weight-stationary to generate, by batch from 64 sequences on; weight-gathered to process many prompts."""
    found = {(c["kind"], c["batch"]): c["layout"] for c in choices() if c["links"] == "all"}
    assert {batch: layout for (kind, batch), layout in found.items() if kind == "decode"} == {
        1: "ws-2d heads",
        64: "ws-2d batch",
    }
    prefill = [layout.split()[0] for (kind, _), layout in found.items() if kind == "prefill"]
    assert prefill[0] == "ws-2d" and all(layout.startswith("wg-") for layout in prefill[1:])


def test_own_links_would_generate_in_1d():
    """Figure 6 has 2D faster than 1D at batch 512 on 64 chips, so links by axis alone are too few; the record says so."""
    last = [c["layout"] for c in choices() if (c["kind"], c["links"]) == ("decode", "own")][-1]
    assert last == "ws-1d batch"


def test_json(tmp_path):
    found = commands.run(MODULE, "--json", cache=tmp_path, JAX_PLATFORMS="cpu")
    assert (found.returncode, found.stderr) == (0, "")
    result = json.loads(found.stdout)
    assert [run["run"] for run in result["runs"]] == [run.name for run in RUNS]
    assert all(run["why"] for run in result["runs"])


def test_the_record_is_what_the_command_prints(tmp_path):
    found = commands.run(MODULE, cache=tmp_path, JAX_PLATFORMS="cpu")
    assert (found.returncode, found.stderr) == (0, "")
    printed = [line.rstrip() for line in found.stdout.splitlines()]
    recorded = [line.rstrip() for line in RECORD.read_text().partition("```\n")[2].partition("```")[0].splitlines()]
    assert recorded == printed


def test_help_has_an_example(tmp_path):
    found = commands.run(MODULE, "--help", cache=tmp_path)
    assert found.returncode == 0 and "Example: python -m scripts.palm" in found.stdout
