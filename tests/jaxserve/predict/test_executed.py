"""What programs run. Oracles: the loops' own count of their turns, `step_cost` where nothing is padded, and hand arithmetic."""

from __future__ import annotations

import jax
import pytest

from costmodel.analytical.step import step_cost
from costmodel.arch.catalog import as_architecture
from costmodel.hardware.chip import Chip
from jaxserve.predict.executed import Executed, rows_of, tiled
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import Piece, Run
from jaxserve.programs.program_set import blank
from jaxserve.scheduling.plan import Plan
from models.config.presets import PRESETS
from models.forward import loop_trips
from models.kv_cache import PagedKV

LADDER = Buckets((1, 2, 4, 8, 64), (128,), (16, 16), 16, prefills=(4,), mixed=(8,), drafts=3, steps=4)
UNIT = Chip("unit", 1.0, 1.0, {"float32": 1.0, "bfloat16": 1.0}, "test")


def decode(rows: int, bucket: int, context: int) -> Run:
    return Run(Bucket(((bucket, 1),), 128), range(rows), (context - 1,) * rows, None, ())


def test_a_full_decode_is_that_of_the_cost_model():
    """64 rows of 512 tokens: 16 blocks of 32 and no padding."""
    executed = Executed(as_architecture("llama-3.2-1b"), LADDER, dtype="float32")
    found = executed.run(decode(64, 64, 512))
    cost = step_cost("llama-3.2-1b", batch=64, context=512, chip=UNIT, dtype="float32")
    assert found.weights + found.moved + found.cache == pytest.approx(float(cost.bytes), rel=1e-9)
    assert found.flops + found.attention == pytest.approx(float(cost.flops), rel=1e-9)
    assert found.programs == 1 and found.turns == 16 * 16


def test_padding_is_run():
    """5 rows run as 8, up to the longest row's last block of 64: 320 of 300 tokens, whatever the others hold."""
    executed = Executed(as_architecture("llama-3.2-1b"), LADDER, dtype="float32")
    run = Run(Bucket(((8, 1),), 128), range(5), (9, 20, 299, 1, 0), None, ())
    full = executed.run(decode(8, 8, 320))
    assert executed.run(run)._replace(moved=0.0) == full._replace(moved=0.0)
    entered = 3 * 2 * 16 * 8 * 64 * 4.0  # KV of three rows that are not there is not written
    assert full.moved - executed.run(run).moved == pytest.approx(entered)


def test_a_matmul_multiplies_whole_tiles_of_rows():
    """Two rows cost what four do, one row does not; attention, which is one product for each row, is not padded."""
    executed = Executed(as_architecture("llama-3.2-1b"), LADDER, dtype="float32")
    one, two, four = (executed.run(decode(rows, rows, 64)) for rows in (1, 2, 4))
    assert two.flops == four.flops == pytest.approx(4 * one.flops)
    assert two.attention == pytest.approx(2 * one.attention)
    assert [tiled(rows) for rows in (0, 1, 2, 4, 5, 64)] == [0, 1, 4, 4, 8, 64]


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gemma-3-1b"])
@pytest.mark.parametrize(
    ("bucket", "starts", "counts", "pieces"),
    [
        (Bucket(((8, 1),), 128), (1000, 3, 5), None, ()),
        (Bucket(((8, 4),), 128, verify=True), (800, 30), (4, 2), ()),
        (Bucket(((16, 16),), 128), (), None, (Piece(1000, 16, 0), Piece(0, 7, 1))),
        (Bucket(((8, 1), (4, 16)), 128), (90, 600), None, (Piece(0, 16, 2), Piece(16, 9, 2))),
    ],
)
def test_turns_are_those_of_the_loops(name, bucket, starts, counts, pieces):
    config = PRESETS[name]
    kv = jax.eval_shape(lambda: PagedKV.zeros(config, 64, 16, "float32", compute="float32"))
    segments = [work.segment for work in blank(bucket, 64)]
    live = [[(start, count) for start, count in zip(starts, counts or (1,) * len(starts), strict=True)]] if starts else []
    live += [[(piece.start, piece.tokens) for piece in pieces]] if pieces else []
    for segment, rows in zip(segments, live, strict=True):
        for i, (start, count) in enumerate(rows):
            segment.start[i], segment.count[i] = start, count
    trips = loop_trips(config, kv, segments, stacked=False)
    executed = Executed(as_architecture(config), LADDER, dtype="float32")
    assert executed.run(Run(bucket, range(len(starts)), starts, counts, pieces)).turns == sum(trips.values())


def test_a_repeated_decode_runs_every_step():
    executed = Executed(as_architecture("llama-3.2-1b"), LADDER, dtype="float32")
    plan = Plan(0, ids=(0, 1), starts=(62, 5), counts=(1, 1), draws=(4, 4), steps=4)
    found = executed.plan(plan)
    assert [each.turns for each in found] == [16, 16, 32, 32]  # 63, 64, 65 and 66 tokens in blocks of 64, 16 layers


def test_rows_of_a_program():
    assert rows_of(Bucket(((8, 1), (4, 16)), 1)) == (8, 4)
    assert rows_of(Bucket(((4, 16),), 1)) == (0, 4)
    assert rows_of(Bucket(((8, 4), (4, 16)), 1, verify=True)) == (8, 4)
