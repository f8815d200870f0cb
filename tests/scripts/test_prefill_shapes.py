"""The bench of prefill shapes: every token of every prompt is run once, each prompt in pages of its own. Oracle: counting."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from jaxserve.programs.bucket import Bucket
from scripts.prefill_shapes import SHAPES, main, packed


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prompt", [1, 80, 512, 600])
def test_every_token_once(shape: tuple[int, int], prompt: int):
    work, live = packed(Bucket((shape,), 38), prompt, 512, 10**6)
    seen = []
    for (one,) in work:
        s = one.segment
        for start, count, table in zip(s.start, s.count, s.table, strict=True):
            seen += [(int(table[0]), position) for position in range(start, start + count)]
    prompts = max(512 // prompt, 1)
    assert sorted(seen) == [(38 * i, at) for i in range(prompts) for at in range(prompt)]
    assert live == prompts * prompt


@pytest.mark.slow
def test_the_command():
    ran = CliRunner().invoke(main, ["--model", "random:tiny", "--prompts", "5,20", "--tokens", "40", "--rounds", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)["measured_tokens_per_second"]
    assert len(found) == len(SHAPES) and all(
        len(rates) == 2 and min(rates) > 0 for one in found.values() for rates in one.values()
    )
