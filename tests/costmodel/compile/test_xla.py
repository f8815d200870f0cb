"""XLA's own totals: values on tiny programs, and every way in which they may be missing."""

import types

import jax
import jax.numpy as jnp
import pytest

from costmodel.compile.xla import XlaTotals, in_place, loops, xla_totals


def compiled(function, *shapes, **options):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function, **options).lower(*arguments).compile()


def reported(cost, memory=None):
    """A program that reports exactly this."""
    return types.SimpleNamespace(cost_analysis=lambda: cost, memory_analysis=lambda: memory)


def test_dot():
    totals = xla_totals(compiled(lambda x, w: x @ w, (8, 64), (64, 32)))
    assert totals.flops == 2 * 8 * 64 * 32
    assert totals.bytes_accessed == 4 * (8 * 64 + 64 * 32 + 8 * 32)
    assert totals.transcendentals == 0  # the key is absent
    assert totals.argument_bytes == 4 * (8 * 64 + 64 * 32)
    assert totals.output_bytes == 4 * 8 * 32
    assert totals.alias_bytes == 0


def test_transcendentals():
    assert xla_totals(compiled(jnp.exp, (100,))).transcendentals == 100


@pytest.mark.parametrize("missing", [None, [], {}])
def test_missing_analysis_is_unknown_and_not_zero(missing):
    assert xla_totals(reported(missing)) == XlaTotals()


def test_list_of_one_dict():
    totals = xla_totals(reported([{"flops": 7.0, "bytes accessed": 5.0}]))
    assert (totals.flops, totals.bytes_accessed, totals.transcendentals) == (7, 5, 0)


def test_negative_total_is_unknown():
    """A custom call counts -1: a program of one custom call would report -1 FLOP."""
    totals = xla_totals(reported({"flops": -1.0, "bytes accessed": 5.0}))
    assert (totals.flops, totals.bytes_accessed) == (None, 5)


def test_loop_bodies_are_counted_once_and_the_loops_are_counted():
    def body(x, _):
        return jnp.sin(x) + 1, None

    once = compiled(lambda x: body(x, None)[0], (64,))
    eight = compiled(lambda x: jax.lax.scan(body, x, length=8)[0], (64,))
    nested = compiled(lambda x: jax.lax.scan(lambda y, _: (jax.lax.scan(body, y, length=8)[0], None), x, length=8)[0], (64,))
    assert (loops(once), loops(eight), loops(nested)) == (0, 1, 2)
    assert xla_totals(eight).transcendentals == xla_totals(once).transcendentals == 64


def pool_program(size, *, copies, donate=True):
    def update(pool, row):
        new = pool.at[3].set(row)
        return (new, pool.sum() + new[::-1].cumsum()[0]) if copies else new

    return xla_totals(compiled(update, (size,), (), donate_argnums=(0,) if donate else ()))


def test_in_place():
    sizes = (1 << 14, 1 << 18)
    assert in_place(*(pool_program(n, copies=False) for n in sizes))
    assert not in_place(*(pool_program(n, copies=True) for n in sizes))
    assert not in_place(*(pool_program(n, copies=False, donate=False) for n in sizes))


def test_in_place_refuses_to_guess():
    small, large = (pool_program(n, copies=False) for n in (1 << 14, 1 << 18))
    with pytest.raises(ValueError, match="grew by 0 B only"):
        in_place(small, small)
    with pytest.raises(ValueError, match="unknown on this backend"):
        in_place(XlaTotals(), large)
