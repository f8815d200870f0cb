"""The ledger of our own steps for four targets, from texts that `scripts/make_hlo_fixtures.py` keeps in `fixtures/`.

Oracles: XLA's count of the same text by its generic rules, what the compiler of a TPU reported itself, and the issue's limit on bytes
that no component accounts for.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from costmodel.ledger import Ledger, ledger
from models.errors import UserError

FOLDER = Path(__file__).parent / "fixtures"
TOTALS: dict[str, dict[str, Any]] = json.loads((FOLDER / "totals.json").read_text())


def text(name: str) -> str:
    return lzma.open(FOLDER / f"{name}.hlo.xz", "rt", encoding="utf-8").read()


def read(name: str) -> Ledger:
    return ledger(text(name), TOTALS[name]["trips"] or None)


def test_every_text_has_its_totals():
    assert {path.name.removesuffix(".hlo.xz") for path in FOLDER.glob("*.xz")} == set(TOTALS)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1.1e6
    assert {known["target"] for known in TOTALS.values()} == {"cpu", "h100-sxm", "tpu-v5e", "tpu-v6e"}


@pytest.mark.parametrize("name", TOTALS)
def test_sums_equal_xlas_and_all_bytes_have_a_component(name: str):
    found, known = read(name), TOTALS[name]
    generic, own = known["generic"], known["compiled"]
    assert found.reported.flops == pytest.approx(generic["flops"], rel=1e-6)
    assert found.reported.transcendentals == pytest.approx(generic["transcendentals"], rel=1e-6)
    if known["target"].startswith("tpu"):  # whose compiler charges bytes by rules of its own
        assert found.reported.flops == pytest.approx(own["flops"], rel=1e-6)
        assert found.reported.bytes == pytest.approx(own["bytes_accessed"], rel=0.01)
    else:
        assert found.reported.bytes == pytest.approx(generic["bytes accessed"], rel=1e-6)
    parts = found.by_component()
    assert sum(part.bytes for part in parts.values()) == pytest.approx(found.traffic.bytes, rel=1e-9)
    assert "unattributed" not in parts or parts["unattributed"].bytes <= 0.01 * found.traffic.bytes
    assert found.unpriced == ()


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e", "v6e"])
def test_traffic_does_not_follow_the_pool_and_work_follows_the_context(target: str):
    """Four times the pages move nothing more; half the blocks halve what attention reads."""
    name = f"{target}_pool_of_4"
    whole = read(name)
    half = ledger(text(name), {scope: count / 2 for scope, count in TOTALS[name]["trips"].items()})
    kv = 8 * 512 * 2 * 2 * 2 * 128 * (4 if target == "cpu" else 2)  # rows, context, layers, K and V, KV heads, head_dim, bytes
    moved = whole.by_component()["kv_read"].bytes
    assert kv * 0.99 < moved < kv * 6
    assert half.by_component()["kv_read"].bytes == pytest.approx(moved / 2, rel=0.02)


def test_a_loop_that_data_bound_is_never_run_once_in_silence():
    with pytest.raises(UserError, match="trips"):
        _ = ledger(text("cpu_unroll_blockwise_B4")).traffic
