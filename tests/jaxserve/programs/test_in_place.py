"""Law 4: a step updates its pool in place. Oracle: XLA's own memory totals of one program at two sizes of the pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import pytest

from costmodel.compile.xla import XlaTotals, in_place, xla_totals
from jaxserve.programs.multi_step import MultiStep
from jaxserve.programs.step import Repeat
from models.kv_cache import ContiguousKV, PagedKV
from tests.compiling import UNOPTIMISED
from tests.jaxserve.driver import Driver, Rows
from tests.jaxserve.tiny import model


def totals(sequences: int, rows: Rows, *, donate: bool = True, **options: Any) -> XlaTotals:
    driver = Driver(*model("gemma3"), sequences=sequences, page=16, **options)
    step = jax.jit(dataclasses.replace(driver.pure, with_logits=False), donate_argnums=1 if donate else ())
    return xla_totals(step.lower(driver.serving, driver.kv, (driver.work(rows),)).compile(UNOPTIMISED))


@pytest.mark.parametrize(
    ("kind", "scanned", "rows", "context", "dtype"),
    [
        (PagedKV, False, 1, 64, "bfloat16"),  # one row whose context is a single block: the read of it may leave the loop
        pytest.param(PagedKV, False, 4, 300, "bfloat16", marks=pytest.mark.slow),
        (PagedKV, False, 4, 300, "float32"),
        pytest.param(PagedKV, True, 1, 64, "bfloat16", marks=pytest.mark.slow),
        (PagedKV, True, 4, 300, "float32"),
        pytest.param(ContiguousKV, False, 1, 64, "float32", marks=pytest.mark.slow),
        (ContiguousKV, False, 4, 300, "bfloat16"),
    ],
)
def test_decode_does_not_copy_the_pool(kind: Any, scanned: bool, rows: int, context: int, dtype: str):
    small, large = (totals(n, Rows([None] * rows), kind=kind, scanned=scanned, context=context, dtype=dtype) for n in (8, 128))
    assert in_place(small, large), (small, large)


@pytest.mark.parametrize(
    ("kind", "scanned", "dtype"),
    [
        (PagedKV, False, "bfloat16"),
        pytest.param(PagedKV, True, "float32", marks=pytest.mark.slow),
        pytest.param(ContiguousKV, False, "float32", marks=pytest.mark.slow),
    ],
)
def test_a_loop_of_decodes_does_not_copy_the_pool(kind: Any, scanned: bool, dtype: str):
    found = []
    for sequences in (8, 128):
        driver = Driver(*model("gemma3"), sequences=sequences, page=16, context=300, kind=kind, scanned=scanned, dtype=dtype)
        work = dataclasses.replace(driver.work(Rows([None] * 4)), repeat=Repeat.blank(4, 5))
        step = jax.jit(MultiStep(driver.pure, 5), donate_argnums=1)
        found.append(xla_totals(step.lower(driver.serving, driver.kv, (work,)).compile(UNOPTIMISED)))
    assert in_place(*found), found


def test_prefill_does_not_copy_the_pool():
    small, large = (totals(n, Rows([None], 16), dtype="bfloat16") for n in (8, 128))
    assert in_place(small, large), (small, large)


def test_the_check_sees_a_copy():
    assert not in_place(*(totals(n, Rows([None] * 4), donate=False) for n in (8, 128)))
