"""Totals of a table. Oracle: two terms whose figures were chosen to be added in the head."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from costmodel.analytical.terms import StepCost, Term, padding_terms
from costmodel.hardware.chip import Chip
from models.errors import UserError

CHIP = Chip("toy", 1e3, 10.0, {"bfloat16": 100.0, "int8": 200.0}, "made up", link_bandwidth=2.0)
READ = Term("qkv", "qkv", "weights", 300.0, 50.0, 0.0, "bfloat16", "formula", "source")
KV = Term("KV read", "kv_read", "kv", 0.0, 20.0, 0.0, "bfloat16", "formula", "source")
HEAD = Term("head", "head", "weights", 400.0, 10.0, 0.0, "int8", "formula", "source")
SENT = Term("all-reduces", "collectives", "none", 0.0, 0.0, 30.0, "bfloat16", "formula", "source")
COST = StepCost((READ, KV, HEAD), 4.0, 4.0)


def test_totals():
    assert (COST.flops, COST.bytes, COST.link_bytes) == (700, 80, 0)
    assert (COST.weight_bytes, COST.kv_bytes, COST.activation_bytes) == (60, 20, 0)
    assert (COST.intensity, COST.intensity_limit, COST.weight_bytes_per_row) == (8.75, 35, 15)
    assert COST.by_component() == {"qkv": (300, 50, 0), "kv_read": (0, 20, 0), "head": (400, 10, 0)}


def test_times_each_dtype_at_its_peak():
    assert (COST.memory_seconds(CHIP), COST.compute_seconds(CHIP), COST.link_seconds(CHIP)) == (8, 5, 0)
    assert (COST.seconds(CHIP), COST.bound(CHIP), COST.tokens_per_second(CHIP)) == (8, "memory", 0.5)
    fast = dataclasses.replace(CHIP, bandwidth=20.0)
    assert (COST.seconds(fast), COST.bound(fast)) == (5, "compute")
    sending = StepCost((*COST.terms, SENT), 4.0, 4.0, CHIP)
    assert (sending.link_seconds(), sending.seconds(), sending.bound()) == (15, 15, "link")
    assert sending.seconds(dataclasses.replace(CHIP, link_bandwidth=5.0)) == 8


def test_sparse_peaks_are_read_by_nothing():
    poisoned = dataclasses.replace(CHIP, sparse_peaks={"bfloat16": float("nan"), "int8": float("nan")})
    for method in ("memory_seconds", "compute_seconds", "link_seconds", "seconds", "bound", "tokens_per_second"):
        assert getattr(COST, method)(poisoned) == getattr(COST, method)(CHIP)


def test_refused():
    with pytest.raises(UserError, match="no chip was given, so there are bytes but no seconds; pass chip="):
        COST.seconds()
    with pytest.raises(UserError, match="chip toy: no link bandwidth is known, which several chips need"):
        StepCost((SENT,), 1.0, 1.0).link_seconds(dataclasses.replace(CHIP, link_bandwidth=None))
    with pytest.raises(UserError, match="chip toy: no dense peak for float8; it has bfloat16, int8"):
        StepCost((dataclasses.replace(READ, compute="float8"),), 1.0, 1.0).compute_seconds(CHIP)


def test_words_for_arrays():
    cost = StepCost((dataclasses.replace(READ, flops=np.array([300.0, 9000.0])),), 1.0, 1.0)
    np.testing.assert_array_equal(cost.bound(CHIP), ["memory", "compute"])


def test_a_pytree_whose_words_are_static():
    cost = dataclasses.replace(COST, chip=CHIP)
    leaves, tree = jax.tree.flatten(cost)
    assert all(isinstance(leaf, float) for leaf in leaves)
    assert jax.tree.unflatten(tree, leaves) == cost
    twice = jax.tree.map(lambda x: 2 * x, cost)
    assert [t.name for t in twice.terms] == ["qkv", "KV read", "head"] and twice.flops == 1400
    assert float(jax.jit(lambda c: c.seconds())(cost)) == 8


def test_rows_of_a_table():
    rows = COST.table()
    assert [row["name"] for row in rows] == ["qkv", "KV read", "head"]
    assert rows[0] == {
        "name": "qkv", "component": "qkv", "kind": "weights", "flops": 300.0, "bytes": 50.0, "link_bytes": 0.0,
        "compute": "bfloat16", "formula": "formula", "source": "source", "padding": False,
    }  # fmt: skip
    assert json.loads(json.dumps(rows)) == rows


def test_padding_is_told_apart():
    more = [dataclasses.replace(READ, flops=700.0), KV, dataclasses.replace(HEAD, bytes=12.0)]
    padding = padding_terms(COST.terms, more)
    assert [(t.name, t.component, t.flops, t.bytes, t.padding) for t in padding] == [
        ("qkv, padding", "qkv", 400, 0, True),
        ("head, padding", "head", 0, 2, True),
    ]
    padded = StepCost((*COST.terms, *padding), 4.0, 4.0)
    assert (padded.flops, padded.bytes, padded.waste) == (1100, 82, 400 / 1100) and COST.waste == 0
