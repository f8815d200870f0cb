"""The model's pass over segments, without sampling, and where each of its operations says that it belongs.

Oracles: the naive dense pass in float64 (`tests.oracle`), and the traced program itself, read equation by equation.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.forward import forward, serving
from models.kv_cache import PagedKV
from models.layers import stack_layers
from models.segment import Segment
from tests import oracle
from tests.compiling import UNOPTIMISED
from tests.jaxserve import tiny
from tests.jaxserve.tiny import KINDS, TOLERANCE, model, prompt

PAGE, WIDTH, UNITS = 4, 8, 40
COMPONENTS = {
    "embed",
    "norm",
    "qkv",
    "rope",
    "kv_write",
    "kv_read",
    "scores",
    "softmax",
    "values",
    "out",
    "gate_up",
    "down",
    "head",
}


def part(pages: int, tokens: list[tuple[int, ...]], query: int, start: list[int]) -> Segment:
    """A segment whose row i holds pages pages + i * WIDTH, ... and feeds `tokens[i]` from position `start[i]`."""
    rows = len(tokens)
    table = pages + np.arange(rows * WIDTH, dtype=np.int32).reshape(rows, WIDTH)
    padded = np.array([[*row, *[1] * (query - len(row))] for row in tokens], np.int32)
    return Segment(padded, np.array(start, np.int32), np.array([len(row) for row in tokens], np.int32), table)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_every_segment_equal_the_oracle(kind: str, stacked: bool):
    """Two rows are prefilled, one of them short; then one of them decodes beside the first chunk of a third."""
    config, (graph, state) = model(kind)
    if stacked:
        graph, state = stack_layers(config, dict(nnx.to_flat_state(jax.tree.map(jnp.asarray, state))))
    arrays = serving(config, state, PAGE * WIDTH)
    kv: Any = PagedKV.zeros(config, UNITS, PAGE, jnp.float32, stacked=stacked)
    a, b, c = prompt(0, 12), prompt(1, 7), prompt(2, 9)
    step = jax.jit(functools.partial(forward, graph, config, stacked=stacked), compiler_options=UNOPTIMISED)
    kv, (first,) = step(arrays, kv, (part(0, [a[:11], b], 11, [0, 0]),))
    segments = (part(0, [a[11:]], 1, [11]), part(2 * WIDTH, [c], 10, [0]))
    kv, (decoded, chunk) = step(arrays, kv, segments)
    last = [first[0], first[1], decoded[0], chunk[0]]
    for found, tokens in zip(last, (a[:11], b, a, c), strict=True):
        assert oracle.relative(found, tiny.logits(kind, tokens)[-1]) < TOLERANCE
    assert (first.shape, decoded.shape, chunk.shape) == ((2, 96), (1, 96), (1, 96))


def test_logits_after_every_token():
    config, (graph, state) = model("llama")
    kv = PagedKV.zeros(config, UNITS, PAGE, jnp.float32)
    a, b = prompt(0, 5), prompt(1, 5)
    arrays = serving(config, state, PAGE * WIDTH)
    step = jax.jit(functools.partial(forward, graph, config, every_token=True), compiler_options=UNOPTIMISED)
    _, (found,) = step(arrays, kv, (part(0, [a, b], 5, [0, 0]),))
    expected = np.concatenate([tiny.logits("llama", a), tiny.logits("llama", b)])
    assert oracle.relative(found, expected) < TOLERANCE


def test_logits_after_every_token_of_one_segment_only():
    """A draft of two rows is verified beside a decode and beside a chunk, of which the last token counts alone."""
    config, (graph, state) = model("llama")
    kv = PagedKV.zeros(config, UNITS, PAGE, jnp.float32)
    a, b, c, d = prompt(0, 3), prompt(1, 3), prompt(2, 1), prompt(3, 4)
    segments = (part(0, [a, b[:2]], 3, [0, 0]), part(2 * WIDTH, [c], 1, [0]), part(3 * WIDTH, [d], 5, [0]))
    step = jax.jit(functools.partial(forward, graph, config, every_token=(True, False, False)))
    _, (verified, decoded, chunk) = step(serving(config, state, PAGE * WIDTH), kv, segments)
    assert (verified.shape, decoded.shape, chunk.shape) == ((6, 96), (1, 96), (1, 96))
    found = np.concatenate([verified[:5], decoded, chunk])
    expected = [tiny.logits("llama", a), tiny.logits("llama", b[:2]), tiny.logits("llama", c), tiny.logits("llama", d)[-1:]]
    assert oracle.relative(found, np.concatenate(expected)) < TOLERANCE


def equations(jaxpr: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(primitive, names of the scopes around it) of every equation, those within loops and calls too."""
    for equation in jaxpr.eqns:
        scopes = (*above, *str(equation.source_info.name_stack).split("/"))
        inner = [x for v in equation.params.values() for x in (v if isinstance(v, (tuple, list)) else (v,))]
        inner = [getattr(x, "jaxpr", x) for x in inner if hasattr(x, "jaxpr") or hasattr(x, "eqns")]
        if not inner:
            yield equation.primitive.name, scopes
        for part in inner:
            yield from equations(part, scopes)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("attention", ["blockwise", "gather"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_names_its_component(kind: str, attention: str, stacked: bool):
    """Exactly one of the components around each, for a mixed step, whose segments are cut and joined, too."""
    config, (graph, state) = model(kind)
    if stacked:
        graph, state = stack_layers(config, dict(nnx.to_flat_state(jax.tree.map(jnp.asarray, state))))
    arrays = serving(config, state, PAGE * WIDTH)
    kv = PagedKV.zeros(config, UNITS, PAGE, jnp.bfloat16, stacked=stacked, attention=attention)
    segments = (part(0, [(1,), (2,)], 1, [3, 4]), part(2 * WIDTH, [(1, 2, 3)], 4, [0]))
    traced = jax.make_jaxpr(lambda arrays, kv, s: forward(graph, config, arrays, kv, s, stacked=stacked))(arrays, kv, segments)
    found = [(primitive, scopes, COMPONENTS.intersection(scopes)) for primitive, scopes in equations(traced.jaxpr)]
    assert [f"{primitive} in {'/'.join(scopes)}" for primitive, scopes, named in found if len(named) != 1] == []
    assert set().union(*(named for _, _, named in found)) == COMPONENTS


@pytest.mark.parametrize(
    "changed",
    [
        {"start": np.zeros(2, np.int32)},  # of two rows
        {"count": np.ones((1, 1), np.int32)},
        {"table": np.zeros((2, WIDTH), np.int32)},
        {"tokens": np.zeros((1, 4), np.float32)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_segment_whose_arrays_do_not_fit_is_refused_while_it_is_traced(changed: dict[str, np.ndarray]):
    config, (graph, state) = model("llama")
    kv = jax.eval_shape(lambda: PagedKV.zeros(config, UNITS, PAGE, jnp.float32))
    arrays = serving(config, state, PAGE * WIDTH)
    segment = dataclasses.replace(part(0, [prompt(0, 4)], 4, [0]), **changed)
    with pytest.raises(AssertionError):
        jax.eval_shape(functools.partial(forward, graph, config), arrays, kv, (segment,))
