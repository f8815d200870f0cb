"""The terms of attention: what is written to the cache, what is read of it, and the two matmuls over it.

S tokens of a row lie in the cache when the step ends; a layer with a window w is read to min(S, w + q - 1) of them for q queries. Scores
stay on the chip (Dao et al. 2022), so only queries, keys, values and outputs move.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence

from costmodel.analytical.rows import Rows, numeric
from costmodel.analytical.terms import Term
from costmodel.arch.config_weights import LATENT_KV
from costmodel.arch.deployment import Deployment
from costmodel.hardware.chip import Quantity

_FLASH = "scores stay on the chip; Dao et al. 2022"


def attention_terms(held: Deployment, rows: Sequence[Rows]) -> Iterator[Term]:
    """All of them, in the order in which a layer meets them."""
    a, compute = held.architecture, held.storage.activation.compute
    yield from _rope(held, sum(r.tokens for r in rows))
    yield from _cache(held, rows)
    if a.latent and not all(r.decoding for r in rows):
        yield from _expansion(held, rows)
    pairs = _over_layers(held, rows, lambda r, window: r.pairs(window))
    scored, mixed = _widths(held)
    heads, tokens = float(held.heads), sum(r.tokens for r in rows)
    of_scores = _by_form(held, rows, scored)
    of_values = _by_form(held, rows, mixed)
    a_bytes = held.storage.activation_bytes * a.layers * heads * tokens
    q_bytes, o_bytes = a_bytes * a.head_dim, a_bytes * (a.latent.value_dim if a.latent else a.head_dim)
    formula = "2 heads d FLOP a pair and layer; T heads d a B {}"
    yield Term(
        "attention scores", "scores", "activations", of_scores, q_bytes, 0.0, compute, formula.format("of q read"), _FLASH
    )
    source = "scale, maximum, subtract, exponential, sum; Milakov and Gimelshein 2018"
    yield Term("softmax", "softmax", "none", 5.0 * heads * pairs, 0.0, 0.0, compute, "5 heads FLOP a pair and layer", source)
    yield Term("attention values", "values", "activations", of_values, o_bytes, 0.0, compute, formula.format("written"), _FLASH)


def _over_layers(held: Deployment, rows: Sequence[Rows], each: Callable[[Rows, int | None], Quantity]) -> Quantity:
    """The sum over rows and layers of a figure of a row that depends on the layer's window."""
    windows = collections.Counter(held.architecture.windows)
    return sum(float(layers) * r.total(each(r, window)) for window, layers in windows.items() for r in rows)


def _widths(held: Deployment) -> tuple[tuple[int, int], tuple[int, int]]:
    """Numbers of a query that meet each key, and of each value that is mixed: (decoding, prefill) of each.

    A latent cache is attended to as it is in decode: kv_rank + rope_dim and kv_rank, the projections being absorbed by query and
    output (DeepSeek-V2, section 2.1.3).
    """
    a = held.architecture
    if a.latent is None:
        return (a.head_dim, a.head_dim), (a.head_dim, a.head_dim)
    return (a.latent.kv_rank + a.latent.rope_dim, a.head_dim), (a.latent.kv_rank, a.latent.value_dim)


def _by_form(held: Deployment, rows: Sequence[Rows], widths: tuple[int, int]) -> Quantity:
    """FLOP of one of the two matmuls, each row in its form."""

    def each(r: Rows, window: int | None) -> Quantity:
        return 2.0 * held.heads * (widths[0] if r.decoding else widths[1]) * r.pairs(window)

    return _over_layers(held, rows, each)


def _rope(held: Deployment, tokens: Quantity) -> Iterator[Term]:
    """A pair is turned by 4 multiplications and 2 additions (Su et al. 2021)."""
    a = held.architecture
    vectors, _ = a.kv_vectors(held.degree)
    turned = (held.heads + 1) * a.latent.rope_dim if a.latent else (held.heads + vectors // 2) * a.head_dim
    elements = float(a.layers * turned) * tokens
    compute, moved = held.storage.activation.compute, 2.0 * held.storage.activation_bytes * elements
    formula = "3 FLOP an element of q and k; 2 a B of each, read and written"
    yield Term("rotary embedding", "rope", "activations", 3.0 * elements, moved, 0.0, compute, formula, "Su et al. 2021")


def _cache(held: Deployment, rows: Sequence[Rows]) -> Iterator[Term]:
    a, kv = held.architecture, held.storage.kv
    vectors, width = a.kv_vectors(held.degree)
    each = float(vectors * width) * kv.bits / 8
    tokens = sum(r.tokens for r in rows if not r.empty)
    compute = held.storage.activation.compute
    what = "latent" if a.latent else "2 kv_heads head_dim"
    written = each * a.layers * tokens + _scales(held, rows, lambda r, window: 0.0 * r.context + r.query, read=False)
    read = each * _over_layers(held, rows, lambda r, w: r.cached(w)) + _scales(held, rows, lambda r, w: r.cached(w), read=True)
    formula, source = f"L T {what} s B", "K and V of the step's tokens, with their scales"
    yield Term("KV write", "kv_write", "kv", 0.0, written, 0.0, compute, formula, source)
    formula, source = f"sum over rows and layers of min(S, window) {what} s B", "each row's cache once a step, with its scales"
    yield Term("KV read", "kv_read", "kv", 0.0, read, 0.0, compute, formula, source)


def _scales(held: Deployment, rows: Sequence[Rows], tokens: Callable[[Rows, int | None], Quantity], *, read: bool) -> Quantity:
    """B of the scales that go with these tokens of the cache. A scale of a whole head is read once a layer and never written."""
    kv = held.storage.kv
    if not kv.scale_bytes:
        return 0.0
    vectors, width = held.architecture.kv_vectors(held.degree)
    size = kv.block[0]
    if size is None:
        return kv.scale_bytes * vectors * held.architecture.layers if read else 0.0

    def blocks(r: Rows, window: int | None) -> Quantity:
        count = tokens(r, window) / float(size)
        return 0.0 * count if r.empty else numeric(count).ceil(count)

    each = kv.row_bytes(width) - width * kv.bits / 8  # of one row of blocks
    return vectors * each * _over_layers(held, rows, blocks)


def _expansion(held: Deployment, rows: Sequence[Rows]) -> Iterator[Term]:
    """Prefill makes keys and values of all heads from the latent: those of earlier tokens anew, and all of them written and read."""
    a = held.architecture
    (weight,) = (w for w in a.weights if w.name == LATENT_KV)
    rank_in, rank_out = held.shape(weight)[1], held.shape(weight)[0]
    prefill = [r for r in rows if not r.decoding]
    earlier = _over_layers(held, prefill, lambda r, w: r.cached(w) - r.query if not r.empty else r.cached(w))
    cached = _over_layers(held, prefill, lambda r, w: r.cached(w))
    compute = held.storage.multiplied_in(held.storage.weight(weight))
    moved = 2.0 * rank_out * held.storage.activation_bytes * cached
    formula = "2 P_kv_b FLOP an earlier token; 2 heads (nope + value) a B a cached token"
    flops = 2.0 * rank_in * rank_out * earlier
    yield Term("latent expansion", "kv_read", "activations", flops, moved, 0.0, compute, formula, "DeepSeek-V2, section 2.1")
