"""Law 4: a step updates its pool in place. Oracle: XLA's own memory totals of one program at two sizes of the pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costmodel.xla import XlaTotals, in_place, xla_totals
from models.kv_cache import ContiguousKV, PagedKV
from tests.jaxserve.driver import Driver, Rows
from tests.jaxserve.tiny import model


def totals(sequences: int, rows: Rows, *, donate: bool = True, **options: Any) -> XlaTotals:
    driver = Driver(*model("gemma3"), sequences=sequences, page=16, **options)
    step = jax.jit(dataclasses.replace(driver.pure, with_logits=False), donate_argnums=1 if donate else ())
    return xla_totals(step.lower(driver.serving, driver.kv, (driver.work(rows),)).compile())


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("kind", "scanned", "rows"),
    [(PagedKV, False, 1), (PagedKV, False, 4), (PagedKV, True, 1), (PagedKV, True, 4), (ContiguousKV, False, 4)],
)
def test_decode_does_not_copy_the_pool(kind: Any, scanned: bool, rows: int, dtype: Any):
    small, large = (totals(n, Rows([None] * rows), kind=kind, dtype=dtype, scanned=scanned) for n in (8, 512))
    assert in_place(small, large), (small, large)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_prefill_does_not_copy_the_pool(dtype: Any):
    small, large = (totals(n, Rows([None], 16), dtype=dtype) for n in (8, 512))
    assert in_place(small, large), (small, large)


def test_the_check_sees_a_copy():
    assert not in_place(*(totals(n, Rows([None] * 4), donate=False) for n in (8, 512)))
