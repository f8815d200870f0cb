"""Our own steps for four targets as `scripts/make_hlo_fixtures.py` keeps them: what they are, and what their attention moves.

That their sums are XLA's, that their books balance, and that no byte is without a component is tested with all kept programs, in
test_ledger, test_traffic and test_attribution. Oracle here: arithmetic on the model's shapes.
"""

from __future__ import annotations

import pytest

from costmodel.ledger.compiled import CompiledCost
from costmodel.ledger.ledger import Ledger, ledger
from models.errors import UserError
from tests.costmodel.hlo_programs import STEPS, cases, kept, program, totals


def test_every_text_has_its_totals():
    known = totals(STEPS)
    assert {path.name.removesuffix(".hlo.xz") for path in STEPS.glob("*.xz")} == set(known)
    assert sum(path.stat().st_size for path in STEPS.iterdir()) < 1.1e6
    assert {each["target"] for each in known.values()} == {"cpu", "h100-sxm", "tpu-v5e", "tpu-v6e"}


@pytest.mark.parametrize(("folder", "name"), cases([STEPS]))
def test_every_custom_call_has_a_price(folder, name):
    assert kept(name, folder).unpriced == ()


def kv_moved(book: Ledger) -> dict[tuple[str, str, str], float]:
    """Bytes of the KV cache by role, component and direction."""
    found: dict[tuple[str, str, str], float] = {}
    for (kind, role, component, way), amount in CompiledCost.of(book).items.items():
        if kind == "kv":
            found[role, component, way] = found.get((role, component, way), 0) + amount
    return found


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e", "v6e"])
def test_traffic_does_not_follow_the_pool_and_work_follows_the_context(target: str):
    """In a pool of four times the pages that the rows hold, to the byte: every live token's K and V are read once where they lie, each
    row's new one is written. A TPU keeps the block that it gathers on chip; elsewhere it is written, and read for scores (K) and values
    (V). Half the blocks halve all of it but the new tokens.
    """
    name = f"{target}_pool_of_4"
    token = 2 * 2 * 2 * 128 * (4 if target == "cpu" else 2)  # layers, K and V, KV heads, head_dim, bytes
    new, live = 8 * token, 8 * 512 * token  # rows, context
    on_chip = target in ("v5e", "v6e")
    for trips, read in ((8, live), (4, live / 2)):  # blocks of 64 tokens
        wanted = {("updated", "kv_write", "write"): new, ("in place", "kv_read", "read"): read}
        if not on_chip:
            wanted |= {("gathered", "kv_read", "write"): read}
            wanted |= {("gathered", component, "read"): read / 2 for component in ("scores", "values")}
        assert kv_moved(ledger(program(name), dict.fromkeys(totals(STEPS)[name]["trips"], trips))) == wanted
    # Besides, page numbers: 4 B for at least 16 kB of a layer's K and V, 0.025 %, and that up to eight times.
    rest = kept(name).by_component()["kv_read"].bytes - (live if on_chip else 2 * live)
    assert 0 < rest < 0.002 * live


def test_a_loop_that_data_bound_is_never_run_once_in_silence():
    with pytest.raises(UserError, match="trips"):
        _ = ledger(program("cpu_unroll_blockwise_B4")).traffic
