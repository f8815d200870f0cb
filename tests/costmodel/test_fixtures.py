"""Our own steps in every form that is served, for four targets, as their compilers wrote them (`scripts/make_hlo_fixtures.py`).

Oracles: XLA's own count of each text, the books of the ledger, and the analytical model, which knows nothing of the program.
"""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from costmodel.analytical import step_cost
from costmodel.compiled import CompiledCost
from costmodel.ledger import Ledger, ledger
from costmodel.reconcile import reconcile
from models.config import ModelConfig, RopeConfig

FOLDER = Path(__file__).parent / "fixtures"
KNOWN: dict[str, Any] = json.loads((FOLDER / "totals.json").read_text(encoding="utf-8"))
DECODE = [name for name in sorted(KNOWN) if "_B4" in name or "_B32" in name]


@functools.cache
def book(name: str) -> Ledger:
    text = lzma.decompress((FOLDER / f"{name}.hlo.xz").read_bytes()).decode()
    return ledger(text, KNOWN[name]["trips"] or None)


def config(name: str) -> ModelConfig:
    """The model that a fixture was made of."""
    given = dict(KNOWN[name]["step"]["config"])
    for rope in ("rope", "rope_local"):
        given[rope] = RopeConfig(**given[rope]) if given[rope] else None
    return ModelConfig(**{**given, "windows": tuple(given["windows"]), "eos_tokens": tuple(given["eos_tokens"])})


BEYOND = pytest.mark.xfail(
    reason="1.06 % under the TPU's own count: 5.4 MB of its fusions are charged by a rule that is not known here"
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=BEYOND if n == "v6e_mixed" else ()) for n in sorted(KNOWN)])
def test_sums_equal_xlas_own(name: str):
    """On a TPU within 1 % of its own count, which is in whole tiles."""
    found, known, own = book(name).reported, KNOWN[name]["generic"], KNOWN[name]["compiled"]
    everything = (i for computation in book(name).module.computations.values() for i in computation.instructions.values())
    calls = sum(i.opcode == "custom-call" for i in everything)  # each counts -1 there
    assert found.flops == pytest.approx(known["flops"] + calls, rel=1e-6)
    assert found.transcendentals == pytest.approx(known["transcendentals"], rel=1e-6)
    if KNOWN[name]["target"].startswith("tpu"):
        assert found.bytes == pytest.approx(own["bytes_accessed"], rel=0.01)
    else:
        assert found.bytes == pytest.approx(known["bytes accessed"] + calls, rel=1e-6)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_books_balance_and_everything_has_an_owner(name: str):
    found = CompiledCost.of(book(name))
    assert found.with_trips.bytes + sum(found.corrections.values()) == pytest.approx(found.traffic.bytes, rel=1e-12)
    assert sum(found.items.values()) == pytest.approx(found.traffic.bytes, rel=1e-12)
    assert found.unattributed <= 0.01
    assert {"embed", "qkv", "kv_write", "gate_up", "down", "out", "head"} <= book(name).by_component().keys()


@pytest.mark.parametrize("name", DECODE)
def test_every_weight_is_read_and_the_rest_is_named(name: str):
    """Against the analytical model: traffic is no less than the weights, FLOPs are those of the products and little more, and the
    named residuals sum to what XLA reports."""
    step = KNOWN[name]["step"]
    cost = step_cost(
        config(name), batch=step["shape"][0][0], context=step["context"], dtype=step["dtype"], kv_dtype=step["kv_dtype"]
    )
    found = reconcile(cost, book(name))
    assert found.unexplained < 1e-9
    assert found.compiled.traffic.bytes > 0.99 * float(cost.weight_bytes)
    assert 0.99 < found.ratio("traffic", "flops") < 1.1


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e", "v6e"])
def test_a_larger_pool_moves_nothing_more(target: str):
    """A pool of four times the pages that the rows need: what the compiler charges may grow with it, what moves may not."""
    name = f"{target}_pool_of_4"
    found = CompiledCost.of(book(name))
    pool = KNOWN[name]["step"]
    kv = (
        2 * 2 * 2 * 128 * (4 if pool["kv_dtype"] == "float32" else 2) * 512 * 8
    )  # K and V of 2 layers, 2 heads of 128, 8 full rows
    assert found.bytes_of(lambda key: key[0] == "kv" and key[1] == "in place") < 1.3 * kv
