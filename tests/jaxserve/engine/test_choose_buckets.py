"""Which programs an engine gets. Oracle: worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine.choose_buckets import fitted, make_ladder, read_ladder
from jaxserve.engine.config import EngineConfig
from jaxserve.programs.buckets import Buckets
from models.errors import UserError

GIVEN = Buckets((1, 3, 12, 40), (4, 8), (4, 32), 8, prefills=(2,), mixed=(3, 40), drafts=7, steps=3)


@pytest.mark.parametrize(
    ("given", "rows", "context", "ladder"),
    [
        ({}, 8, 512, Buckets((1, 2, 4, 8), (32,), (16, 16), 16, prefills=(4,))),
        ({}, 6, 500, Buckets((1, 2, 4, 6), (32,), (16, 16), 16, prefills=(4,))),
        ({}, 1, 16, Buckets((1,), (1,), (1, 16), 16)),  # one row of one piece, so one prefill program will do
        ({}, 2, 1, Buckets((1, 2), (1,), (2, 2), 16, prefills=(1,))),  # no prefill program is a decode program
        ({"kv": "contiguous"}, 2, 50, Buckets((1, 2), (1,), (8, 16), 50, prefills=(2,))),
        ({"page_size": 5}, 2, 51, Buckets((1, 2), (11,), (8, 16), 5, prefills=(2,))),
        ({"policy": "chunked"}, 4, 512, Buckets((1, 2, 4), (32,), (16, 16), 16, (4,), mixed=(4,))),
        ({"policy": "chunked"}, 16, 64, Buckets((1, 2, 4, 8, 16), (4,), (16, 16), 16, (4,), mixed=(2, 16))),
        ({"batch_invariant": True}, 5, 40, Buckets((16,), (3,), (16, 1), 16)),
        ({"batch_invariant": True, "policy": "chunked", "kv": "contiguous"}, 32, 40, Buckets((32,), (1,), (32, 1), 40)),
        ({"speculate": "ngram", "drafts": 2, "multi_step": 4}, 1, 16, Buckets((1,), (1,), (1, 16), 16, drafts=2, steps=4)),
    ],
)
def test_powers_of_two(given: dict[str, Any], rows: int, context: int, ladder: Buckets):
    assert make_ladder(EngineConfig(**given), rows, context) == ladder


@pytest.mark.parametrize(
    ("given", "rows", "ladder"),
    [
        ({}, 40, Buckets((1, 3, 12, 40), (4, 8), (4, 32), 8, (2,), (3, 40))),
        ({"page_size": 8}, 4, Buckets((1, 3, 12), (4, 8), (4, 32), 8, (2,), (3, 40))),  # no larger batch can be met
        ({"speculate": "ngram", "multi_step": 2}, 1, Buckets((1,), (4, 8), (4, 32), 8, (2,), (3,), drafts=4, steps=2)),
        ({"kv": "contiguous"}, 1, Buckets((1,), (1,), (4, 32), 60, (2,), (3,))),
    ],
)
def test_a_ladder_that_was_computed(given: dict[str, Any], rows: int, ladder: Buckets, tmp_path: Path):
    """Its drafts and steps give way to what is asked for: programs that nobody runs are not compiled."""
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(GIVEN.to_json()))
    assert fitted(EngineConfig(ladder=file, **given), read_ladder(file), rows, 60) == ladder


@pytest.mark.parametrize(
    ("given", "rows", "context", "message"),
    [
        ({}, 41, 60, "l.json: the largest batch has 40 rows, not 41; lower rows, or compute it for more"),
        ({}, 40, 65, "l.json: its tables hold 64 tokens, not 65; lower the context, or compute it for longer sequences"),
        ({"page_size": 16}, 40, 60, "l.json: its pages have 8 tokens, not 16; leave page_size out"),
    ],
)
def test_a_ladder_that_does_not_fit(given: dict[str, Any], rows: int, context: int, message: str):
    with pytest.raises(UserError, match=message):
        fitted(EngineConfig(ladder="l.json", **given), GIVEN, rows, context)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"l\.json: no such file; give a file that jaxserve\.buckets --out wrote"),
        (b"{", r"l\.json: not valid JSON \(.*\); give a file"),
        (b"\xff\xfe", r"l\.json: not valid JSON \(.*\); give a file"),
        (b"[]", r"l\.json: ladder: list is no ladder; give an object"),
        (b'{"batches": [1]}', r"l\.json: ladder: widths is missing"),
    ],
)
def test_a_file_that_holds_no_ladder(content: bytes | None, message: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "l.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_ladder(tmp_path / "l.json")
