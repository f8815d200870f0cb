"""How large an engine a file of prompts gets. Oracle: lengths and counts by hand; random:tiny's tokens are bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxserve.sampling_params import SamplingParams
from jaxserve.serve_settings import ServeSettings
from jaxserve.session import accept
from models.errors import UserError
from tests.jaxserve.shared_programs import shared

__all__ = ["shared"]

TEXTS = ("hello", "good morning", "a")


@pytest.mark.parametrize(
    ("given", "params", "rows", "context"),
    [
        ({}, {"max_tokens": 4}, 3, 12 + 3),  # the last token that is drawn is never run
        ({}, {"max_tokens": 4, "n": 2}, 6, 15),
        ({"rows": 2}, {"max_tokens": 4, "n": 2}, 2, 15),
        ({"context": 100}, {"max_tokens": 4}, 3, 100),
        ({"policy": "dynamic", "preferred": (2, 5)}, {"max_tokens": 4}, 5, 15),
        ({"policy": "chunked", "budget": 2}, {"max_tokens": 4}, 2, 15),  # a budget that every row can go on in
        ({"pages": 1}, {"max_tokens": 4}, 3, 15),
        ({}, {"max_tokens": 1024 - 11}, 3, 1024),
    ],
)
def test_as_large_as_it_has_to_be(given: dict[str, Any], params: dict[str, Any], rows: int, context: int):
    setup, prompts = accept(ServeSettings("random:tiny", dtype="float32", **given), SamplingParams(**params), TEXTS)
    assert prompts == [list(text.encode()) for text in TEXTS]
    assert (setup.rows, setup.context) == (rows, context)


def test_a_ladder_says_it_itself(shared: Path):
    setup, _ = accept(ServeSettings("random:tiny", dtype="float32", ladder=shared), SamplingParams(max_tokens=4), TEXTS)
    assert (setup.rows, setup.context) == (2, 48)


@pytest.mark.parametrize(
    ("given", "params", "message"),
    [
        (
            {"pages": 1, "page_size": 8},
            {"max_tokens": 4},
            "prompt 2 has 12 tokens, .* needs a context of 15, but the limit is 8",
        ),
        ({"rows": 2}, {"n": 3, "max_tokens": 4}, "n is 3 and at most 2 rows run at once"),
    ],
)
def test_refused(given: dict[str, Any], params: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        accept(ServeSettings("random:tiny", dtype="float32", **given), SamplingParams(**params), TEXTS)
