"""docs/life-of-a-request.md: its program runs as it stands there. Oracle: what three tokens of one request must bring about, by hand."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "life-of-a-request.md").read_text(encoding="utf-8")
PROGRAM = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
STEPS = ("submit", "queue", "schedule", "pack", "step", "unpack", "stream", "end")


@pytest.fixture(scope="module")
def printed() -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(PROGRAM, "docs/life-of-a-request.md", "exec", dont_inherit=True), {"__name__": "page"})
    return out.getvalue()


def test_eight_steps_in_their_order():
    assert re.findall(r"^## (\d)\. (\w+)$", PAGE, re.MULTILINE) == [(str(i), s.title()) for i, s in enumerate(STEPS, 1)]


def test_every_step_prints_its_value(printed: str):
    """A prompt of 5 tokens, and 3 to follow: two of them are run, one page of 8 holds them all."""
    first = [re.findall(rf"^{i} {name}: (.*)$", printed, re.MULTILINE) for i, name in enumerate(STEPS, 1)]
    submit, queue, schedule, pack, step, unpack, stream, end = first
    assert submit == ["Handle(0: 5 prompt tokens; 0 tokens) [72, 101, 108, 108, 111]"]
    assert "running=0, waiting=1, pages=0, total_pages=4" in queue[0]
    assert [re.sub(r" digest \w{8}$", "", line) for line in schedule] == [
        "step 0 on worker 0: 1 rows in 1 slots, 5 tokens; admitted: 0",
        "step 1 on worker 0: 1 rows in 1 slots, 1 tokens",
        "step 2 on worker 0: 1 rows in 1 slots, 1 tokens; final: 0",
    ]
    assert pack == ["('prefill 1x16',) rows 1 padded 0"]
    assert re.fullmatch(r"\d+\.\d\d ms measured, \d+\.0 FLOP, \d+ B temp", step[0])
    assert len(stream) == 3 and unpack[0].startswith(f"[(({stream[0].split(',')[0][1:]},), ")
    assert re.fullmatch(r"Finish\(reason='length', matched=None\) \[\d+, \d+, \d+\] pages in use: 0", end[0])


def test_files_that_it_names_exist():
    names = re.findall(r"`((?:models|costmodel|jaxserve|docs)/[\w/.-]*)`", PAGE)
    assert len(names) >= 10 and all((ROOT / name).exists() for name in names)
