"""The model's part of a sizing study. Oracles: facts.md section 4, and figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arch.catalog import find_architecture
from costmodel.hardware.chips import find_chip
from costmodel.sizing import CAPACITY, MODEL, UNDECIDED, Demand, Goal, Placement, batches, candidate, check_goal, gib
from models.errors import UserError

GIB = 2**30
PLACED = Placement(find_architecture("llama-3-8b"), find_chip("h100"))
POOL = PLACED.pool(30 * GIB, 16)
GOAL = Goal(ttft=0.250, itl=0.012)
DEMAND = Demand.of(20.0, [(768, 256)])


def seen(batch: int, demand: Demand = DEMAND):
    return candidate(PLACED, POOL, batch, 1024, demand)


def test_the_facts():
    """0.125 GiB a sequence; 240 fit; 256 are 2 GiB over; 128 and 64 need 16 and 8 GiB; steps of 7.34 and 9.90 ms."""
    assert POOL.sequence(1024) == GIB / 8 and POOL.sequences(1024) == 240 and batches(240) == (64, 128, 256)
    small, middle, large = map(seen, (64, 128, 256))
    assert (small.kv, middle.kv, large.kv) == (8 * GIB, 16 * GIB, 32 * GIB)
    assert (small.over, middle.over, large.over) == (0, 0, 2 * GIB)
    assert (round(small.nominal * 1e3, 2), round(middle.nominal * 1e3, 2)) == (7.34, 9.90)


def test_the_full_step_leaves_the_table_out():
    """Of the embedding, 128,256 x 4096 numbers, a step reads 64 rows: 0.31 ms less than 8.03e9 parameters, and more for the rest."""
    found, table = seen(64), 128_256 * 4096 * 2 / 3.35e12
    weights = PLACED.model.parameter_count * 2 / 3.35e12 - table
    assert weights + 8 * GIB / 3.35e12 < found.full < found.nominal
    assert PLACED.quickest(64, 1024) == found.full and PLACED.quickest(1, 1) < 16e9 / 3.35e12


def test_the_verdicts_of_the_facts():
    """Capacity rules 256 out; model steps below the target decide nothing."""
    words = {batch: seen(batch).verdict(POOL, GOAL, DEMAND, PLACED.busy(DEMAND)) for batch in (64, 128, 256)}
    assert (words[64].word, words[128].word, words[256].word) == (UNDECIDED, UNDECIDED, CAPACITY)
    assert words[256].reason == "256 full sequences need 32 GiB, 2 GiB more than the pool of 30 GiB"
    assert "estimates, not bounds" in words[64].reason


def test_a_step_above_the_target_is_ruled_out_by_the_model():
    found = seen(128).verdict(POOL, Goal(itl=0.008), DEMAND, 0.1)
    assert found.word == MODEL and found.reason.startswith(
        "a step of 128 full sequences takes 9.90 ms (nominal) or 9.95 (full)"
    )
    assert found.reason.endswith("both more than the ITL of 8 ms")


def test_a_demand_beyond_the_batch_is_ruled_out_by_the_model():
    """20/s of 512 tokens are 10,240 tokens/s. 64 rows that hold 768.5 on average read 15.0 GB of weights without the embedding, and
    6.4 GB of KV. That is 6.41 ms, and activations and KV writes make it 6.58: 9,732 tokens/s. The nominal model says 9,552.
    """
    demand = Demand.of(20.0, [(512, 512)])
    assert demand.attended == 512 + 513 / 2
    found = seen(64, demand)
    read = (PLACED.model.parameter_count - 128_256 * 4096) * 2 + 64 * 768.5 * 131_072
    assert 0.97 * 64 / (read / 3.35e12) < found.ceiling < 64 / (read / 3.35e12)
    verdict = found.verdict(POOL, GOAL, demand, 0.5)
    assert verdict.word == MODEL and verdict.reason.endswith(
        "draws at most 9,732 tokens/s (analytical), and 20 requests/s want 10,240"
    )
    assert seen(128, demand).verdict(POOL, GOAL, demand, 0.5).word == UNDECIDED


def test_arithmetic_that_is_wanted():
    """Prompts of 768 tokens take 11.0 ms each (below), an answer's 256 tokens some 16 GFLOP each: 0.22 + 0.08 of a chip; two halve it."""
    assert PLACED.busy(DEMAND) == pytest.approx(20 * (0.0110 + 256 * 16e9 / 989e12), rel=0.05)
    assert Placement(PLACED.model, PLACED.chip, 2).busy(DEMAND) == pytest.approx(PLACED.busy(DEMAND) / 2, rel=1e-3)
    found = seen(8).overload(Demand.of(1.0, [(7000, 2)]), 1.5)
    assert found == "1 requests/s want 1.50 times the chips' arithmetic (analytical)"


@given(lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), min_size=1, max_size=8))
def test_what_a_token_attends_to(lengths: list[tuple[int, int]]):
    """Token by token: the i-th of an answer attends to the prompt and i tokens."""
    every = [p + i for p, a in lengths for i in range(1, a + 1)]
    found = Demand.of(3.0, lengths)
    assert found.attended == pytest.approx(sum(every) / len(every))
    assert found.prompt == pytest.approx(sum(p for p, _ in lengths) / len(lengths))


@given(sequences=st.integers(1, 100_000))
def test_batches_enclose_what_fits(sequences: int):
    *fitting, over = batches(sequences)
    assert max(fitting) <= sequences < over and over == 2 * fitting[-1]


def test_batches_where_little_fits():
    assert (batches(0), batches(1), batches(2), batches(3)) == ((1,), (1, 2), (1, 2, 4), (1, 2, 4))


def test_an_slo_below_one_step():
    """Weights without the embedding take 15.0 GB / 3.35 TB/s = 4.48 ms. A prompt of 768 tokens: 2 x 6.98e9 x 768 FLOP of layers, one row of
    logits, 4 x 4096 x 32 x 768 x 769 / 2 of attention: 10.88 TFLOP / 989 TFLOP/s = 11.00 ms.
    """
    with pytest.raises(
        UserError, match=r"ITL target of 3 ms is below one step: llama-3-8b on 1 x h100-sxm takes 4\.48 ms for a single"
    ):
        check_goal(PLACED, Goal(itl=0.003), DEMAND)
    with pytest.raises(UserError, match=r"TTFT target of 10 ms is below one prompt of 768 tokens: .* takes 11\.00 ms"):
        check_goal(PLACED, Goal(ttft=0.010), DEMAND)
    check_goal(PLACED, GOAL, DEMAND)


def test_other_models_have_their_own_count():
    tiny = Placement(find_architecture("smollm2-135m"), find_chip("h100"))
    assert tiny.parameters == tiny.model.parameter_count and PLACED.parameters == 8.0e9


def test_the_cache_follows_the_weights_where_they_are_floats():
    """K and V of a token: 131,072 B in 16 bits, twice that in f32; int8 weights leave the cache in 16 bits."""
    tokens = {
        dtype: Placement(PLACED.model, PLACED.chip, dtype=dtype).pool(GIB, 16).token
        for dtype in ("bfloat16", "float32", "int8")
    }
    assert tokens == {"bfloat16": 131_072, "float32": 262_144, "int8": 131_072}
    assert Placement(PLACED.model, PLACED.chip, kv_dtype="int8").pool(GIB, 16).token == 32 * 16 * 132


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Demand.of(1.0, []), "0 requests; give at least 1"),
        (lambda: Demand.of(0.0, [(1, 1)]), "demand: rate is 0; it must be above 0"),
        (lambda: seen(0), "batch is 0"),
        (lambda: candidate(PLACED, POOL, 1, 9000, DEMAND), "at most 8192"),
    ],
)
def test_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_sizes_for_people():
    assert (gib(2 * GIB), gib(GIB / 8), gib(1.7 * GIB + 3)) == ("2 GiB", "0.125 GiB", "1.70 GiB")
    assert (gib(1.5 * 2**20), gib(0)) == ("1.5 MiB", "0 MiB")
