"""Law 4: a step updates its pool in place. Oracle: XLA's own memory totals of one program at two sizes of the pool."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costmodel.xla import XlaTotals, in_place, xla_totals
from jaxserve.step import Step
from models.kv_cache import ContiguousKV, PagedKV
from tests.jaxserve.driver import Driver, Rows
from tests.jaxserve.tiny import model


def totals(sequences: int, rows: Rows, *, donate: bool = True, **options: Any) -> XlaTotals:
    config, weights = model("gemma3")
    driver = Driver(config, weights, sequences=sequences, page=16, **options)
    step = jax.jit(Step(weights[0], config), donate_argnums=1 if donate else ())
    return xla_totals(step.lower(driver.serving, driver.kv, (driver.work(rows),)).compile())


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(("kind", "stacked"), [(PagedKV, False), (PagedKV, True), (ContiguousKV, False)])
def test_decode_does_not_copy_the_pool(kind: Any, dtype: Any, stacked: bool):
    small, large = (totals(n, Rows([None] * 4), kind=kind, dtype=dtype, stacked=stacked) for n in (8, 512))
    assert in_place(small, large), (small, large)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_prefill_does_not_copy_the_pool(dtype: Any):
    small, large = (totals(n, Rows([None], 16), dtype=dtype) for n in (8, 512))
    assert in_place(small, large), (small, large)


def test_the_check_sees_a_copy():
    assert not in_place(*(totals(n, Rows([None] * 4), donate=False) for n in (8, 512)))
