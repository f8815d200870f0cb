"""A model's step as a value: what it computes, on which abstract arguments, and how often its loops run.

Oracles: the dense float64 pass (`tests.oracle`), sizes and block counts worked out by hand from facts.md, XLA's own memory totals.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.compile.program import StepProgram
from costmodel.compile.xla import in_place, loops, xla_totals
from models.config.presets import PRESETS
from models.errors import UserError
from models.forward import serving
from tests import oracle
from tests.compiling import UNOPTIMISED
from tests.jaxserve.tiny import model, prompt

TINY = PRESETS["tiny"]
LLAMA = PRESETS["llama-3-8b"]
GEMMA = PRESETS["gemma-3-1b"]


def sizes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def compiled(program: StepProgram) -> jax.stages.Compiled:
    return jax.jit(program, donate_argnums=program.donate).lower(*program.abstract_args()).compile(UNOPTIMISED)


def test_arguments_of_llama_3_8b():
    """8,030,261,248 parameters, of them 266,240 in norms that stay f32; 131,072 B of KV a token; 64 pages a row, half again as many."""
    program = StepProgram.on("gpu", LLAMA, ((32, 1),), 1024, slack=1.5)
    arguments, kv, (segment,) = program.abstract_args()
    norms = 65 * 4096
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(arguments.weights)) == 8_030_261_248
    assert sizes(arguments.weights) == 2 * (8_030_261_248 - norms) + 4 * norms
    assert sizes(kv) == 1.5 * 32 * 1024 * 131_072 and program.pages == 32 * 64 * 1.5
    assert segment.table.shape == (32, 64) and segment.tokens.shape == (32, 1)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves((arguments, kv, segment)))


@pytest.mark.parametrize("scanned", [pytest.param(False, marks=pytest.mark.slow), True])
def test_seventy_billion_parameters_take_no_memory(scanned: bool):
    program = StepProgram.on("tpu", PRESETS["llama-3-70b"], ((1, 1),), 8192, scanned=scanned)
    start = time.perf_counter()
    arguments, _, _ = program.abstract_args()
    assert sizes(arguments.weights) > 140e9
    assert time.perf_counter() - start < 60  # drawing them would take minutes, and more memory than there is


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"scanned": True}, {"attention": "gather"}, {"kv_dtype": "bfloat16"}, {"slack": 3.0}], ids=str
)
def test_arguments_are_what_xla_says(options: dict[str, Any]):
    """And the pool comes back in place."""
    program = StepProgram.on("cpu", TINY, ((4, 1), (1, 8)), 96, **options)
    totals = xla_totals(compiled(program))
    assert totals.argument_bytes == pytest.approx(sizes(program.abstract_args()), abs=1024)  # alignment
    assert totals.alias_bytes == sizes(program.abstract_args()[1])


@pytest.mark.slow
@pytest.mark.parametrize("scanned", [False, True])
def test_in_place_at_two_pool_sizes(scanned: bool):
    program = StepProgram.on("cpu", TINY, ((4, 1),), 300, kv_dtype="bfloat16", scanned=scanned)
    small, large = (xla_totals(compiled(dataclasses.replace(program, slack=slack))) for slack in (1.0, 16.0))
    assert in_place(small, large)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_tokens_equal_the_oracle(kind: str):
    """A prompt in one chunk, then single steps, then a verify step over the last four tokens."""
    config, (graph, state) = model(kind)
    config = dataclasses.replace(config, max_positions=64)
    arrays = serving(config, state, 32)
    steps = {query: StepProgram.on("cpu", config, ((1, query),), 32, page=4, every_token=query == 4) for query in (9, 1, 4)}
    _, kv, (segment,) = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), steps[9].abstract_args())
    tokens, cached = list(prompt(3, 9)), 0

    def run(query: int, kv: Any) -> tuple[Any, np.ndarray]:
        part = dataclasses.replace(
            segment,
            tokens=np.array([tokens[cached : cached + query]], np.int32),
            start=np.array([cached], np.int32),
            count=np.array([query], np.int32),
            table=np.arange(8, dtype=np.int32)[None],
        )
        kv, (found,) = jax.jit(steps[query])(arrays, kv, (part,))
        return kv, np.asarray(found)

    for query in (9, 1, 1, 1):
        kv, found = run(query, kv)
        assert found.shape == (1,)
        cached += query
        tokens.append(int(found[0]))
    assert tokens[9:] == oracle.greedy(config, (graph, state), tokens[:9], 4)
    cached = 8
    _, found = run(4, kv)
    assert found.tolist() == tokens[9:]


def test_arguments_hold_what_the_step_is_for():
    """Each row holds `context` tokens in pages that no other row has, within the pool."""
    program = StepProgram.on("cpu", TINY.first_layer(), ((3, 1), (2, 5)), 50, slack=1.2)
    _, kv, segments = program.arguments()
    pages = np.concatenate([np.asarray(s.table).ravel() for s in segments])
    assert len(set(pages.tolist())) == pages.size == 5 * 4 and pages.max() < kv.units
    for s, query in zip(segments, (1, 5), strict=True):
        assert np.asarray(s.start + s.count).tolist() == [50] * s.rows and (np.asarray(s.count) == query).all()


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("cpu", ("float32", "float32", "float32", False)),
        ("gpu", ("bfloat16", "bfloat16", "bfloat16", False)),
        ("tpu", ("bfloat16", "bfloat16", "bfloat16", True)),
    ],
)
def test_what_suits_a_platform(platform: Any, expected: tuple[Any, ...]):
    program = StepProgram.on(platform, TINY, [(2, 1)], 64)
    assert (program.dtype, program.kv_dtype, program.compute, program.scanned) == expected
    other = StepProgram.on(platform, TINY, [(2, 1)], 64, kv_dtype="float32", scanned=True)
    assert (other.compute, other.scanned) == ("float32", True)


@pytest.mark.parametrize(
    ("program", "contexts", "expected"),
    [
        # A block is 64 tokens at 32 rows: 1024 / 64.
        (StepProgram.on("gpu", dataclasses.replace(LLAMA, layers=2, windows=(None,) * 2), ((32, 1),), 1024), (1024,), [16, 16]),
        (StepProgram.on("tpu", LLAMA, ((32, 1),), 1024), (1000,), [16]),
        (StepProgram.on("tpu", LLAMA, ((2, 1),), 1024), ([64, 65],), [2]),  # the longest row counts
        (StepProgram.on("tpu", LLAMA, ((2, 1),), 1024), ([0, 0],), [0]),
        # 26 layers: four full ones read 16 blocks, the others of window 512 the last 8 (positions 512 to 1023).
        (StepProgram.on("tpu", GEMMA, ((32, 1),), 1024), (1024,), [(4 * 16 + 22 * 8) / 26]),
        # Decode of 8 rows beside a chunk of 256 tokens, blocks of 64 and of 256.
        (StepProgram.on("tpu", LLAMA, ((8, 1), (1, 256)), 1024), (512, 1024), [8, 4]),
        (StepProgram.on("tpu", LLAMA, ((32, 1),), 1024, attention="gather"), (1024,), []),
    ],
)
def test_trips_by_hand(program: StepProgram, contexts: Any, expected: list[float]):
    assert list(program.trips(*contexts).values()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("scanned", [False, True])
def test_every_loop_that_data_bound_stands_in_its_scopes(scanned: bool):
    """The compiled text has one loop for each entry of `trips`, beside the scan itself."""
    program = StepProgram.on("cpu", TINY, ((4, 1), (1, 8)), 96, scanned=scanned)
    made, trips = compiled(program), program.trips(96, 96)
    text = made.as_text() or ""
    assert len(trips) == (2 if scanned else 4) and loops(made) == len(trips) + scanned
    for scopes in trips:
        assert len(re.findall(rf'while\(.*op_name="[^"]*{scopes}/while"', text)) == 1


def test_it_can_be_pickled():
    program = StepProgram.on("tpu", GEMMA, ((2, 1),), 64)
    assert pickle.loads(pickle.dumps(program)) == program
    arguments = program.abstract_args()
    again = pickle.loads(pickle.dumps(arguments))
    assert str(jax.tree.structure(again)) == str(jax.tree.structure(arguments))
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(again)] == [(x.shape, x.dtype) for x in jax.tree.leaves(arguments)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": ()}, "give at least one"),
        ({"shape": ((0, 1),)}, "at least 1 each"),
        ({"context": 2000}, "context is 2000; it must be 1 .* to 1024"),
        ({"context": 0}, "context is 0"),
        ({"shape": ((1, 9),), "context": 8}, "context is 8; it must be 9"),
        ({"page": 0}, "page is 0"),
        ({"slack": 0.5}, "slack is 0.5; it must be at least 1"),
        ({"slack": math.nan}, "slack is nan"),
        ({"dtype": "int8"}, "dtype is 'int8'; give float32 or bfloat16"),
        ({"attention": "flash"}, "attention is 'flash'; give blockwise or gather"),
    ],
)
def test_bad_steps_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(StepProgram.on("cpu", TINY, ((2, 1),), 64), **changes)


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ((), "0 segments are given, but this step has 1"),
        (([1, 2, 3],), "3 contexts are given for a segment of 2 rows"),
        ((65,), "65; this step takes 0 to 64"),
        ((-1,), "contexts are -1 to -1"),
    ],
)
def test_bad_contexts_are_refused(contexts: Any, message: str):
    with pytest.raises(UserError, match=message):
        StepProgram.on("cpu", TINY, ((2, 1),), 64).trips(*contexts)
