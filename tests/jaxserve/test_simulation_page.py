"""The example of docs/simulation.md that has faults, as it stands there. Oracle: hand arithmetic on a trace of our own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
