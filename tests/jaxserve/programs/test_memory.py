"""Memory is estimated before it is taken. Oracles: sizes worked out by hand, arrays that were really made, files written here."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxserve.engine.model import load_model
from jaxserve.programs import memory
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.memory import MemoryNeed, available_bytes, pool_bytes, process_bytes, weight_bytes, workspace_bytes
from jaxserve.programs.program_set import compile_programs
from jaxserve.programs.step import Step
from models.checkpoint.load import random_weights
from models.config.presets import PRESETS
from models.errors import UserError
from models.forward import serving
from models.kv_cache import PagedKV

TINY = PRESETS["tiny"]  # vocabulary 512, hidden 64, 2 layers, 4 heads and 2 KV heads of 16, ffn 128, untied


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_weights_and_pool_are_what_is_really_taken(dtype: str, itemsize: int):
    matrices = 2 * 512 * 64 + 2 * (64 * 128 + 64 * 64 + 3 * 64 * 128)
    norms = 5 * 64
    assert weight_bytes(TINY, dtype) == (matrices + norms, itemsize * matrices + 4 * norms)
    model = load_model("random:tiny", dtype=dtype, context=16)
    assert (model.parameters, model.weight_bytes) == weight_bytes(TINY, dtype)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(model.serving.weights)) == model.weight_bytes
    pool = model.empty_pool(3, 8, dtype)
    assert pool_bytes(TINY, 3, 8, dtype) == sum(a.nbytes for a in jax.tree.leaves(pool)) == 3 * 8 * 2 * 2 * 2 * 16 * itemsize


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("llama-3-8b", 8_030_261_248), pytest.param("llama-3-70b", 70_553_706_496, marks=pytest.mark.slow)],
)
def test_published_models(name: str, parameters: int):
    """As their cards say; nothing is allocated to find out."""
    assert weight_bytes(PRESETS[name], "bfloat16")[0] == parameters


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_workspace_is_an_estimate_from_above(dtype: str):
    """XLA's own temp bytes stay below it, and it is not of another order. One layer compiles fast; the prefill's bytes grow with it."""
    config = PRESETS["smollm2-135m"].first_layer()
    graph, state = random_weights(config, jnp.dtype(dtype), 0)
    pool = PagedKV.zeros(config, 64 * 4, 16, dtype)
    buckets = [Bucket(((64, 1),), 16), Bucket(((1, 256),), 16)]
    decode, prefill = compile_programs(Step(graph, config), serving(config, state, 256), pool, buckets)
    for rows, chunk, temp in ((64, 0, decode.totals.temp_bytes or 0), (1, 256, prefill.totals.temp_bytes or 0)):
        estimate = workspace_bytes(config, rows, chunk)
        assert estimate / 20 < temp < estimate


def test_check_memory_names_every_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 8_000_000_000)
    fits = MemoryNeed(weights=5_000_000_000, pool=1_500_000_000, workspace=1_000_000_000, process=500_000_000)
    fits.check("this run", "float32", "--batch")  # exactly what there is
    more = fits._replace(pool=2_000_000_000)
    with pytest.raises(UserError) as caught:
        more.check("this run", "float32", "--batch or --max-new-tokens", "--")
    assert str(caught.value) == (
        "this run needs about 8.5 GB of memory (5.0 GB weights in float32, 2.0 GB KV pool, 1.0 GB workspace, 0.5 GB process and "
        "programs), but 8.0 GB are available; lower --batch or --max-new-tokens, or take a smaller model or --dtype bfloat16"
    )
    # On an accelerator, in 16 bits.
    with pytest.raises(UserError, match=r"2\.0 GB KV pool, 1\.5 GB workspace\), but .* or take a smaller model$"):
        more._replace(workspace=1_500_000_000, process=0).check("this run", "bfloat16", "--batch")


def test_the_process_counts_where_it_lies_in_the_same_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 7)
    deep = dataclasses.replace(TINY, layers=30, windows=(None,) * 30)
    one, ten = (process_bytes(deep, programs, "unrolled") for programs in (1, 10))
    assert ten > one > process_bytes(deep, 1, "scanned") > process_bytes(deep, 0, "scanned") > 500_000_000
    monkeypatch.setattr(memory, "free_memory_bytes", lambda: 70)
    assert available_bytes() == 77
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert process_bytes(deep, 10, "unrolled") == 0


@pytest.mark.parametrize(
    ("stats", "expected"), [({"bytes_limit": 100, "bytes_in_use": 30}, 70), ({"bytes_limit": 100}, 100), (None, 77), ({}, 77)]
)
def test_a_devices_own_memory_counts(monkeypatch: pytest.MonkeyPatch, stats: Any, expected: int):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
    monkeypatch.setattr(memory, "free_memory_bytes", lambda: 70)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 7)
    assert available_bytes() == expected


def test_a_pool_of_wider_heads_is_larger():
    wide = dataclasses.replace(TINY, head_dim=32)
    assert pool_bytes(wide, 3, 8, "float32") == 2 * pool_bytes(TINY, 3, 8, "float32")
    assert sum(a.nbytes for a in jax.tree.leaves(PagedKV.zeros(wide, 3, 8, jnp.float32))) == pool_bytes(wide, 3, 8, "float32")
