"""Rates and bars. Oracle: hand arithmetic on a made-up clock, and what stands on a made-up terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console

from jaxserve.engine.request_handle import Piece, RequestHandle
from jaxserve.generation.progress import Progress, Rate
from jaxserve.sampling_params import SamplingParams
from jaxserve.text.token_bytes import TokenBytes
from models.text.tokenizer import byte_tokenizer


def test_a_rate_is_that_of_the_last_seconds():
    """10 tokens in the first second, then 4 a second, and 6 a second for the last five, which alone count in the end."""
    now, seen = [0.0], {}
    rate = Rate(lambda: now[0])
    assert rate.per_second == 0
    for second in range(1, 21):
        now[0] = float(second)
        rate.add(10 if second == 1 else 4 if second <= 15 else 6)
        seen[second] = rate.per_second
    assert (seen[1], seen[3], seen[15], seen[20]) == (10, 18 / 3, 4, 6)
    assert rate.tokens == 10 + 14 * 4 + 5 * 6


def test_a_long_step_still_has_a_rate():
    now = [0.0]
    rate = Rate(lambda: now[0])
    for now[0] in (20.0, 60.0):
        rate.add(80)
    assert rate.per_second == 2  # over the whole of the last step, however long


def pieces(tokens: int, *, end: bool) -> list[Piece]:
    params = SamplingParams(max_tokens=tokens if end else None)
    handle = RequestHandle(
        0, [1], params, TokenBytes(byte_tokenizer(512)), (), 99, continued=False, arrival=0, priority=1, timeout=9
    )
    for _ in range(tokens):
        handle.answers[0].push(97)
    return [Piece(handle, 0, (97,) * tokens, "a" * tokens)]


def test_a_bar_counts_answers_and_tokens():
    terminal = io.StringIO()
    with Progress(2, console=Console(file=terminal, force_terminal=True, width=100)) as shown:
        shown.add(pieces(3, end=True))
        shown.add(pieces(2, end=False))
    assert "1/2 answers, 5 tokens," in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())


def test_nothing_where_nobody_looks():
    for shown, console in ((True, Console(file=io.StringIO())), (False, Console(file=io.StringIO(), force_terminal=True))):
        with Progress(1, shown=shown, console=console) as progress:
            progress.add(pieces(1, end=True))
        assert isinstance(console.file, io.StringIO) and console.file.getvalue() == ""
