"""A request's numbers do not depend on its neighbours, its row, the bucket, padding, or where its pages lie (law 1, one step).

Oracle: the naive dense forward pass over each sequence by itself (`tests.oracle`), and the same pool with other garbage in it.
"""

from __future__ import annotations

import numpy as np
import pytest

from jaxserve.sampling_params import SamplingParams
from tests import oracle
from tests.jaxserve import tiny
from tests.jaxserve.driver import Driver, Rows, Sequence
from tests.jaxserve.tiny import KINDS, TOLERANCE, model, prompt

STEPS = 5
SIZES = [1 + 7 * i % 13 for i in range(64)]  # prompts of 1 to 13 tokens


def started(driver: Driver, draw: bool = False) -> list[Sequence]:
    """The 64 prompts, prefilled together, all but the last token of each."""
    rows = [driver.sequence(prompt(i, n), SamplingParams(0.8 * draw, top_p=0.9, seed=i)) for i, n in enumerate(SIZES)]
    driver.step(Rows(rows, 12, [n - 1 for n in SIZES]))
    return rows


def agree(kind: str, rows: list[Sequence], steps: list[list[np.ndarray]]) -> None:
    for i, (s, seen) in enumerate(zip(rows, steps, strict=True)):
        assert len(seen) == STEPS
        expected = tiny.logits(kind, tuple(s.tokens[:-1]))[SIZES[i] - 1 :]
        assert oracle.relative(seen, expected) < TOLERANCE, f"row {i}"
        assert s.tokens[SIZES[i] :] == expected.argmax(axis=1).tolist(), f"row {i}"


@pytest.mark.parametrize(("live", "bucket"), [(1, 1), (1, 2), (2, 2), (5, 7), (7, 7), (64, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_batched_equals_alone(kind: str, live: int, bucket: int):
    driver = Driver(*model(kind), context=20, sequences=64)
    rows = started(driver)[:live]
    steps = driver.decode([*rows, *[None] * (bucket - live)], STEPS)
    agree(kind, rows, steps[:live])


@pytest.mark.parametrize("kind", KINDS)
def test_across_changes_of_bucket(kind: str):
    """One request decodes alone, then in 2, 7, 64 and alone again, at another row each time."""
    driver = Driver(*model(kind), context=20, sequences=64)
    me, *others = started(driver)
    seen = []
    for bucket, at in ((1, 0), (2, 1), (7, 3), (64, 63), (1, 0)):
        batch: list[Sequence | None] = list(others[: bucket - 1])
        batch.insert(at, me)
        seen.append(driver.decode(batch, 1)[at][0])
    agree(kind, [me], [seen])


def test_drawn_tokens_do_not_depend_on_the_batch():
    """The same with temperature: a row's noise depends on (seed, position), so all batches draw the same tokens."""
    drawn = []
    for live, order in ((1, 1), (2, -1), (7, 1), (64, -1)):
        driver = Driver(*model("llama"), context=20, sequences=64)
        rows = started(driver, draw=True)[:live]
        driver.decode(rows[::order], STEPS)
        drawn.append([s.tokens[size:] for s, size in zip(rows, SIZES, strict=False)])
    alone, two, seven, all64 = drawn
    assert alone == all64[:1] and two == all64[:2] and seven == all64[:7]
    assert len({tuple(tokens) for tokens in all64}) > 32  # they do differ by their seeds and prompts
    expected = [tiny.logits("llama", prompt(i, n))[-1].argmax() for i, n in enumerate(SIZES)]
    assert [tokens[0] for tokens in all64] != expected  # and are not the greedy ones


@pytest.mark.parametrize("options", [{"shuffle": 1}, {"fill": 0.0}, {"fill": 1e30}, {"fill": float("inf")}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_page_order_and_garbage_change_nothing_at_all(dtype: str, options: dict[str, float]):
    """Not a tolerance: the same numbers bit for bit, with padding rows, as with pages dealt otherwise and full of NaN."""
    seen = []
    for change in ({}, options):
        driver = Driver(*model("gemma3"), context=20, sequences=64, dtype=dtype, **change)  # type: ignore[arg-type]
        a, b, *_ = started(driver)
        seen.append(driver.decode([a, None, b, *[None] * 4], STEPS))
    for a, b in zip(*seen, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    assert np.isfinite(np.array(seen[0][0])).all()


def test_padding_rows_write_to_no_page():
    """A padding row whose table names a page of a live row leaves that page as it is."""
    driver = Driver(*model("llama"), context=20, sequences=64)
    s = started(driver)[6]
    driver.nobody = s.pages[0]  # where `work` lets padding rows point; their start is 3, within that page
    steps = driver.decode([None, s], STEPS)
    expected = tiny.logits("llama", tuple(s.tokens[:-1]))[SIZES[6] - 1 :]
    assert oracle.relative(steps[1], expected) < TOLERANCE
