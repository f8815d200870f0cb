"""Rows and what their queries see. Oracle: a loop over every query of every row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.analytical.rows import Rows, check_quantity, real
from models.errors import UserError

SIZES = st.integers(1, 60)
WINDOWS = st.one_of(st.none(), st.integers(1, 40))


def seen(context, query, window):
    """Positions of keys that each query of a row sees, those of this step at the end of the context."""
    first = 0 if window is None else -window
    return [set(range(max(p + 1 + first, 0) if window else 0, p + 1)) for p in range(context - query, context)]


@given(SIZES, SIZES, WINDOWS)
def test_a_row_against_a_loop(context, query, window):
    query = min(query, context)
    row = Rows(1.0, float(context), float(query))
    keys = seen(context, query, window)
    assert row.pairs(window) == sum(map(len, keys))
    assert row.cached(window) == len(set().union(*keys))


@given(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=6), WINDOWS)
def test_rows_of_their_own_add_up(pairs, window):
    contexts = np.array([float(c) for c, _ in pairs])
    queries = np.array([float(min(q, c)) for c, q in pairs])
    rows = Rows(float(len(pairs)), contexts, queries, each=True)
    alone = [Rows(1.0, c, q) for c, q in zip(contexts, queries, strict=True)]
    assert rows.total(rows.pairs(window)) == sum(r.pairs(window) for r in alone)
    assert rows.total(rows.cached(window)) == sum(r.cached(window) for r in alone)
    assert rows.tokens == queries.sum() and rows.samples == len(pairs)


def test_one_query_for_rows_of_their_own():
    rows = Rows(3.0, np.array([[5.0, 6.0, 7.0], [1.0, 2.0, 3.0]]), 1.0, each=True)
    np.testing.assert_array_equal(rows.tokens, [3, 3])
    np.testing.assert_array_equal(rows.total(rows.pairs(None)), [18, 6])


def test_chunks_add_up_to_the_whole():
    """Every pair is met once, in whatever chunks."""
    for window in (None, 7, 100):
        whole = Rows(1.0, 50.0, 50.0).pairs(window)
        chunks = [Rows(1.0, float(end), float(size)).pairs(window) for end, size in ((20, 20), (33, 13), (50, 17))]
        assert sum(chunks) == whole


def test_f32_keeps_the_digits_of_a_long_context():
    """As a difference of squares, 131072 (131073) / 2 - 131071 (131072) / 2, f32 would be off by hundreds."""
    pairs = jax.jit(lambda c: Rows(1.0, c, 1.0).pairs(None))(jnp.float32(131072))
    assert float(pairs) == 131072
    assert float(jax.grad(lambda c: Rows(1.0, c, 1.0).pairs(4096))(131072.0)) == 0


def test_samples_and_empty_rows():
    assert Rows(4.0, 10.0, 3.0, every=True).samples == 12
    empty = Rows(4.0, 3.0, 3.0, empty=True)
    assert (empty.tokens, empty.pairs(None), empty.cached(None)) == (12, 0, 0)


def test_real():
    assert isinstance(real(3), float) and real([1, 2]).dtype == np.float64
    assert real(jnp.int32(2)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("value", "most", "message"),
    [
        (0, None, "batch is 0; it must be above 0"),
        (-2.5, None, "batch is -2.5; it must be above 0"),
        (float("nan"), None, "batch is nan; it must be above 0"),
        (np.array([3, 1, -1]), None, "batch is -1; it must be above 0"),
        (jnp.array([3, 0]), None, "batch is 0; it must be above 0"),
        ([], None, "batch is empty; give at least one"),
        (9, 8, "batch is 9; it must be at most 8, so"),
        (np.array([2, 6]), np.array([3, 5]), "batch is 6; it must be at most 5, so"),
    ],
)
def test_checks(value, most, message):
    with pytest.raises(UserError, match=message):
        check_quantity("batch", value, most=most, limit=", so")


def test_checks_pass_what_is_right_or_traced():
    def traced(batch):
        check_quantity("batch", batch)
        return batch

    check_quantity("batch", np.array([1, 2]), most=2)
    assert jax.jit(traced)(-1.0) == -1
