"""The shape of one program: its name, and shapes that no step has. Oracle: names and figures by hand."""

from __future__ import annotations

from typing import Any

import pytest

from jaxserve.programs.bucket import Bucket
from models.errors import UserError


@pytest.mark.parametrize(
    ("bucket", "name", "tokens"),
    [
        (Bucket(((64, 1),), 5), "decode 64", 64),
        (Bucket(((4, 64),), 5), "prefill 4x64", 256),
        (Bucket(((64, 1), (4, 64)), 5), "decode 64 + prefill 4x64", 320),
        (Bucket(((64, 5),), 5, verify=True), "verify 64x5", 320),
        (Bucket(((64, 5), (4, 64)), 5, verify=True), "verify 64x5 + prefill 4x64", 576),
        (Bucket(((64, 1),), 5, steps=8), "decode 64, up to 8 times", 64),
    ],
)
def test_names_and_tokens(bucket: Bucket, name: str, tokens: int):
    assert bucket.name == name and bucket.tokens == tokens


def test_what_is_compiled_differently_is_another_bucket():
    shape = ((4, 5),)
    assert len({Bucket(shape, 5), Bucket(shape, 6), Bucket(shape, 5, verify=True), Bucket(((4, 1),), 5, steps=2)}) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shape": ()}, r"segments are \[\]; give at least one"),
        ({"shape": ((0, 1),)}, r"segments are \[\(0, 1\)\]; give at least one, rows and query at least 1"),
        ({"shape": ((4, 1), (1, 0))}, "at least 1 each"),
        ({"width": 0}, "width is 0 and steps 1; both must be at least 1"),
        ({"steps": 0}, "width is 5 and steps 0"),
        ({"verify": True}, "verifies rows of one token; give the first segment a query of at least 2"),
        ({"steps": 2, "shape": ((1, 8),)}, "prefill 1x8, up to 2 times; only a decode by itself is repeated"),
        ({"steps": 2, "shape": ((1, 1), (1, 8))}, r"decode 1 \+ prefill 1x8, up to 2 times; only a decode"),
        ({"steps": 2, "shape": ((1, 4),), "verify": True}, "verify 1x4, up to 2 times; only a decode"),
    ],
    ids=str,
)
def test_shapes_that_no_step_has(given: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as caught:
        Bucket(**{"shape": ((4, 1),), "width": 5, **given})
    assert "\n" not in str(caught.value)
