"""Policies on one trace. Oracle: what each policy is by definition, on a trace that is written here; rates and lengths by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from models.errors import UserError
from scripts.policies_on_a_trace import main
from scripts.policy_page import page
from scripts.policy_runs import Asked, simulate_policies

GIB = 2**30


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 requests a tenth of a second apart, of which every fourth has a long answer, and one a very long prompt."""
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for i in range(24):
        prompt, output = 6000 if i == 12 else 200, 120 if i % 4 == 0 else 10
        lines.append(f"2024-01-01 00:00:{i / 10:09.6f},{prompt},{output}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_policy_does_what_it_is_called(trace: Path):
    asked = Asked(trace, 24, (1.0,), "llama-3-8b", "h100", 8, 512, 0.05, 30 * GIB)
    (served,) = simulate_policies(asked, lambda what, total: lambda amount: None, pictured=True)
    runs, slots = served.runs, served.slots
    lengths = [(6000 if i == 12 else 200, 120 if i % 4 == 0 else 10) for i in range(24)]
    for run in runs.values():  # the same work for all, all of it done
        assert run.witness == "simulated" and run.summary.answered == 24
        assert [(record.prompt, record.output) for record in run.records] == lengths
    assert slots["continuous"].padded == slots["chunked"].padded == 0 < slots["static"].padded
    assert (
        max(step.prefill + step.decode for step in runs["chunked"].steps)
        <= 512
        < max(step.prefill for step in runs["continuous"].steps)
    )
    assert runs["chunked"].summary.itl.most < runs["continuous"].summary.itl.most  # nobody waits for 6,000 tokens at once
    assert runs["continuous"].summary.ttft.p50 < runs["static"].summary.ttft.p50
    text = "\n".join(page(asked, [served], None))
    assert "10.43 requests/s offered" in text and text.count("| static |") == 1  # 24 in 2.3 s


def test_the_command(trace: Path, tmp_path: Path):
    pytest.importorskip("plotly", reason="plotly draws the report")
    report = tmp_path / "page.html"
    given = ["--trace", str(trace), "--requests", "12", "--time-scales", "1", "--json", "--report", str(report)]
    result = CliRunner().invoke(main, given, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert [run["policy"] for run in found["runs"]] == ["static", "dynamic", "continuous", "chunked"]
    assert "Batching policies on the same trace, simulated" in report.read_text(encoding="utf-8")


BAD = [
    (["--time-scales", "0"], "numbers above 0"),
    (["--budget", "8"], "budget of 8"),
    (["--kv-pool", "1kB"], "less than one page"),
]


@pytest.mark.parametrize(("given", "match"), BAD)
def test_bad_input_is_told(trace: Path, given: list[str], match: str):
    with pytest.raises(UserError, match=match):
        CliRunner().invoke(main, ["--trace", str(trace), *given], catch_exceptions=False)
