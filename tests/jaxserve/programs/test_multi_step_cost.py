"""What many decode steps in one program cost: trips of its loops, ledger, memory.

Oracles: trips worked out by hand, the ledgers of the single steps and XLA's own totals, and the temp bytes of one step's program.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from costmodel.compile.xla import XlaTotals
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.executable import Executable
from jaxserve.programs.multi_step import multi_step_trips
from jaxserve.programs.program_set import Program, blank, compile_programs
from jaxserve.programs.step import Step
from models.kv_cache import PagedKV
from tests.jaxserve import tiny
from tests.jaxserve.driver import Driver


def test_trips_by_hand():
    """Rows whose block of 64 tokens ends while they run; one whose window of 6 passes the edge; a row that ends before the others."""
    config, (graph, _) = tiny.model("gemma3")
    assert sorted(set(config.windows), key=str) == [6, None] and config.windows[0] == 6
    kv = jax.eval_shape(lambda: PagedKV.zeros(config, 64, 16, jnp.float32))
    step = Step(graph, config)

    def trips(start: list[int], ran: list[int]) -> dict[str, float]:
        (work,) = blank(Bucket(((4, 1),), 8, steps=8), 64)
        work.segment.start[: len(start)] = start
        return multi_step_trips(step, kv, work.segment, ran)

    full, local = (f"layer{config.windows.index(window)}/attention/segment0" for window in (None, 6))
    # contexts 63, 64, 65, 66: one block of 64, then two; of the windows those of the tokens from 57 on
    assert trips([62], [4]) == {"repeat": 4, full: 1.5, local: 1.5}
    # contexts 69, 70, 71: windows from 63, 64 and 65 on, of which only the first reaches back into the first block
    assert trips([68], [3]) == {"repeat": 3, full: 2, local: pytest.approx((2 + 1 + 1) / 3)}
    # the long row ends after two steps
    assert trips([3, 100], [4, 2])[full] == pytest.approx((2 + 2 + 1 + 1) / 4)
    assert trips([3], [0]) == {"repeat": 0, full: 0, local: 0}
    # a program is told what its rows hold at the end; the short row, whose window begins in the first block, ends after one step
    program = Program(Bucket(((4, 1),), 8, steps=8), kv, step, Executable(None, XlaTotals(), 1, 1.0, False), [])  # type: ignore[arg-type]
    assert program.trips([[(71, 3), (20, 1)]]) == {"repeat": 3, full: 2, local: pytest.approx((2 + 1 + 1) / 3)}


@pytest.mark.slow
@pytest.mark.parametrize("scanned", [False, True])
def test_its_ledger_is_the_sum_of_the_steps(scanned: bool):
    """XLA's own totals first (law 5), then what its steps cost one by one: to a thousandth, for the loop itself costs little."""
    driver = Driver(*tiny.model("gemma3"), context=128, page=16, sequences=4, scanned=scanned)
    step = dataclasses.replace(driver.pure, with_logits=False)
    buckets = [Bucket(((4, 1),), 8, steps=steps) for steps in (1, 4)]
    single, repeated = compile_programs(step, driver.serving, driver.kv, buckets)
    live = [(66, 4), (40, 4), (62, 2)]
    book = repeated.ledger(repeated.trips([live]))
    assert (book.reported.flops, book.reported.bytes) == (repeated.totals.flops, repeated.totals.bytes_accessed)
    steps = []
    for i in range(4):
        steps.append(single.ledger(single.trips([[(held - ran + i + 1, 1) for held, ran in live if ran > i]])))
    for found, each in ((book.with_trips, [s.with_trips for s in steps]), (book.traffic, [s.traffic for s in steps])):
        assert found.flops == pytest.approx(sum(cost.flops for cost in each), rel=1e-3)
        assert found.bytes == pytest.approx(sum(cost.bytes for cost in each), rel=2e-3)
    parts = book.by_component()
    for name in ("qkv", "gate_up", "down", "head", "kv_read", "scores"):
        assert parts[name].bytes == pytest.approx(sum(s.by_component()[name].bytes for s in steps), rel=2e-3)


@pytest.mark.slow
def test_weights_are_not_copied_for_the_loop():
    """16-bit weights, which the embedding sees as integers: taken out of the loop, that would be a copy of the largest matrix."""
    config, (graph, state) = tiny.model("llama")
    driver = Driver(config, (graph, jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16) if a.ndim == 2 else a, state)))
    step = dataclasses.replace(driver.pure, with_logits=False)
    buckets = [Bucket(((1, 1),), 16, steps=steps) for steps in (1, 4)]
    single, repeated = compile_programs(step, driver.serving, driver.kv, buckets)
    assert single.totals.temp_bytes and repeated.totals.temp_bytes
    embedding = config.vocab_size * config.hidden * 2
    assert repeated.totals.temp_bytes - single.totals.temp_bytes < embedding / 2
