"""The examples of docs/simulation.md that have faults, as they stand there. Oracles: hand arithmetic on a trace of our own; the figures
that the page says of its command; and the faults that it lists, each of which can be read."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from jaxserve.simulate import main
from jaxserve.simulated_load.fault_text import read_fault

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_a_device_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """20 requests of one token, one every 2 s: without a fault each is alone and takes some ms. What is due at 20, 22 and 24 s, in a
    stall of 5 s, waits at least until 25 s: 5, 3 and 1 s. Of 20 values P95 is the 19th and P99 the 20th."""
    (program,) = (
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL) if "Stall(" in text
    )
    lines = [f"2023-11-16 18:00:{2 * i:02}.0000000,100,1" for i in range(20)]
    (tmp_path / "azure_2023_conv.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})  # our own page
    well, ill = (
        [float(each) for each in re.findall(r"P\d+ ([\d.]+) s", line)] for line in capsys.readouterr().out.splitlines()
    )
    assert max(well) < 0.05 and 3.0 <= ill[0] < 3.1 and 5.0 <= ill[1] < 5.1


def ran(arguments: list[str]) -> None:
    with main.make_context("simulate", list(arguments)) as context:
        main.invoke(context)


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str]):
    """With its fault and without; what waits when the device comes back at 25 s has waited up to 5 s."""
    text = PAGE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python -m jaxserve\.simulate (.*)$", text, re.MULTILINE)
    arguments = shlex.split(command)
    (ill, well) = re.search(r"brings TTFT P95 to ([\d,.]+) ms; without the fault it is ([\d.]+) ms", text).groups()  # type: ignore[union-attr]
    ran(arguments)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "TTFT, ms" in line)
    assert ill in row
    ran([*arguments[: arguments.index("--fault")], "--json"])
    found = json.loads(capsys.readouterr().out)
    assert f"{found['summary']['ttft']['p95'] * 1e3:,.2f}" == well
    assert float(ill.replace(",", "")) < 5000 + float(well)


def test_faults_that_it_lists():
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith('| `"')]
    texts = [text for row in rows for text in re.findall(r'`"(.+?)"`', row)]
    assert len(texts) == 8 and len({read_fault(text) for text in texts}) == 8
