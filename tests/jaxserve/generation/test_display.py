"""What people see while answers grow. Oracle: made-up requests and figures, looked for on a made-up terminal."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.engine.request_output import CompletionOutput, RequestOutput
from jaxserve.engine.sequence import Finish
from jaxserve.engine.stats import EngineStats
from jaxserve.generation.display import EVERY, JsonLines, Printed, status_line, tail
from jaxserve.sampling_params import SamplingParams
from jaxserve.speculative.ngram import Acceptance
from jaxserve.text.token_bytes import TokenBytes
from models.text.tokenizer import byte_tokenizer

STATUS = EngineStats(3, 1, 12, 48, 9, 80, 1234, 2, 16, Acceptance())
ANSWER = CompletionOutput("blue\nsky", (1, 2, 3), Finish("stop", 3), (), (0.5, 1.0, 1.5))


def handle(id: int, text: str, *samples: str) -> RequestHandle:
    params = SamplingParams(n=1 + len(samples), temperature=1.0)
    pieces = TokenBytes(byte_tokenizer(512))
    one = RequestHandle(id, [1], params, pieces, (), 99, continued=False, arrival=0, priority=1, timeout=9)
    for answer, drawn in zip(one.answers, (text, *samples), strict=True):
        for token in drawn.encode():
            answer.push(token)
    return one


def test_the_status_line():
    line = "running 3 | waiting 1 | pages 12 of 48 (25%) | 1234 tokens | 57 tokens/s"
    assert status_line(STATUS, 56.7, 80).plain == line
    assert status_line(STATUS, 56.7, 66).plain == line.replace(" | 57", "\n57")
    assert status_line(STATUS, 56.7, 9).plain == line.replace(" | ", "\n")  # nothing is cut
    tried = Acceptance().verified(4, 4)  # three of four drafts were right
    assert status_line(STATUS._replace(acceptance=tried), 56.7, 99).plain == line + " | drafts accepted 75%"


def test_an_answer_that_grows_is_one_line():
    """Its end, that is; and a terminal obeys nothing of what a model has drawn."""
    assert tail(handle(7, "a\n\x1b[2Jb"), 4, 0, 80) == r"5 a\n\x1b[2Jb"  # as "prompt 5" when it has ended
    assert tail(handle(7, "0123456789"), 4, 0, 6) == "5 6789"
    assert tail(handle(7, "山川田"), 4, 0, 7) == "5 川田"  # each is two cells wide
    assert tail(handle(7, "x", "other"), 4, 1, 80) == "5.2 other"
    assert tail(handle(7, ""), 4, 0, 80) == ""
    ended = handle(7, "abc")
    ended.answers[0].abort()
    assert tail(ended, 4, 0, 80) == ""


def test_a_terminal_shows_growing_answers_above_a_status_line():
    now, out = [0.0], io.StringIO()
    console = Console(file=out, force_terminal=True, width=90, height=5, highlight=False)
    shown = Printed(console, lambda: now[0])
    with shown:
        now[0] = 2.0
        shown.step(lambda: STATUS, {handle(0, "first"): 0, handle(1, "second"): 1, handle(2, "third"): 2}, 100)
        shown.ended(0, RequestOutput("Why?", (1,), (ANSWER,)))
        before = len(out.getvalue())
        now[0] += EVERY / 2
        shown.step(lambda: STATUS, {handle(0, "soon"): 0}, 1)  # not yet
        assert len(out.getvalue()) == before
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "1 first" in text and "2 second" in text and "3 third" not in text  # 5 lines in all
    assert "running 3 | waiting 1 | pages 12 of 48 (25%) | 1234 tokens | 50 tokens/s" in text
    assert "prompt 1 'Why?'" in text and r"answer 'blue\nsky' (stop, 3 tokens)" in text


def test_without_a_terminal_answers_come_as_they_end():
    out = io.StringIO()
    shown = Printed(Console(file=out, width=90, highlight=False))
    with shown:
        shown.step(lambda: STATUS, {handle(0, "first"): 0}, 1)
        shown.ended(4, RequestOutput("[b]?", (1,), (ANSWER, ANSWER._replace(text="[/i]", finish=Finish("length")))))
    assert out.getvalue().splitlines() == [
        "prompt 5 '[b]?'",
        r"answer 1 'blue\nsky' (stop, 3 tokens)",
        "answer 2 '[/i]' (length, 3 tokens)",
    ]


def test_json_lines(capsys: pytest.CaptureFixture[str]):
    lines = JsonLines()
    with lines:
        lines.step(lambda: STATUS, {}, 0)
        lines.ended(4, RequestOutput("Why?", (1,), (ANSWER,)))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"request": 4, **RequestOutput("Why?", (1,), (ANSWER,)).to_json()}
