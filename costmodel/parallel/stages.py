"""What each chip does in one step of a model under a layout, by stage (Pope et al. 2022, section 3 and appendix A).

B sequences of L new tokens; T = B L / data rows meet in a matmul; h and w are the layout's degrees of E and F
(`costmodel.parallel.layouts`); D is the bytes of an activation. Collectives of a layer, each with the larger of its two
buffers:

| stage | collective and buffer | when | source |
|---|---|---|---|
| gate_up | all-gather over w: T E D / h | always | A.2.1, E/X |
| gate_up | reduce-scatter over h: T F D / w, twice that when gated | h > 1 | A.2.1, F/YZ |
| down | all-gather over h: T F D / w | h > 1 | A.2.1, F/YZ |
| down | reduce-scatter over w: T E D / h | always | A.2.1, E/X |
| qkv | all-gather over w, as gate_up's | serial block; a parallel one shares gate_up's | 3.4 |
| qkv | reduce-scatter over h: T H Q D / w, and T 2 K Q D / min(K, w) for K KV heads | h > 1 | 3.3, H Q for F |
| qkv | all-gather over h of keys and values: T 2 K Q D / min(K, h w) | by heads, K < h w | figure 4b: one KV head is on every chip |
| qkv, out | all-to-all over w: T H Q D / (h w); T 2 K Q D / (h w) among min(K, w) chips | by batch | figure 5b |
| out | all-gather over h: T H Q D / w | h > 1 | 3.3 |
| out | reduce-scatter over w, as down's | serial block; a parallel one shares down's | 3.4 |
| norm | all-reduce over h w: T 4, one f32 a row for each norm | E is split, which it is between matmuls | 3.5 |
| each matmul | all-gather of its weights over the data axes: bytes / w | weight-gathered | A.2.2, 2 E F N / n |

With (K - 1) / K of each buffer on the links, ws-1d of a plain parallel MLP moves 2 T E D (n - 1) / n a layer (3.2.1), and ws-2d about
2 T D (E / X + F / YZ), least at X = sqrt(n E / F), where it is 4 T D sqrt(E F / n): the 8 B L E / sqrt(n) of 3.2.2 for F = 4 E. In
general, with b pairs over w a layer (1 parallel, 2 serial) and V = 3 F (gated; 2 F plain) + 2 H Q (+ 2 K Q where K >= w) over h, it is
T D (2 b E / X + V X / n), least at X = sqrt(2 b n E / V): 2 T D sqrt(2 b E V / n). Weight-gathered over N chips a plain MLP moves
2 E F N / n + 2 B L E / N, least at N = sqrt(B L n / F): 4 E sqrt(B L F / n) (A.2.2); with 3 E F of a gated one N = sqrt(2 B L n / 3 F).

The embedding table and the head rest split over E and the vocabulary like any matrix and are never gathered; the head multiplies the
last token of each sequence and reduces f32 logits. Left out: the latency of a collective, biases, the memory traffic of the
collectives themselves, softmax, sampling, scales of quantised weights.
"""

from __future__ import annotations

import dataclasses

from costmodel.arch.architecture import Architecture
from costmodel.parallel.layouts import Layout
from costmodel.parallel.sharded import Exchange, ShardedStep, Stage
from costmodel.parallel.shares import BF16, Itemsizes, Matrix, Share
from models.errors import UserError

F32 = 4  # B of a logit, and of a sum of squares


def sharded_step(
    model: Architecture, layout: Layout, *, batch: int, context: float, tokens: int = 1, items: Itemsizes = BF16
) -> ShardedStep:
    """The cost of a step on one of the layout's chips.

    Args:
      model: a dense transformer, its block serial or parallel, its MLP plain or gated, any number of KV heads.
      batch: B, sequences.
      context: tokens of a sequence in the cache at the end of the step, the new ones among them; as a mean it may be a fraction.
      tokens: L, new tokens of each sequence: 1 to decode, the prompt's length to prefill. Only the causal half is multiplied.
      items: bytes of an element of each kind, at rest and on the links.

    Raises:
      UserError: a number out of range, a dimension that does not divide, an architecture with experts or a latent cache.
    """
    for name, value, least in (("batch", batch, 1), ("tokens", tokens, 1), ("context", context, tokens)):
        if not value >= least:
            raise UserError(f"sharded step: {name} is {value}; it must be at least {least}")
    if context > model.max_positions:
        raise UserError(f"sharded step: context is {context}; {model.name} takes up to {model.max_positions} tokens")
    if model.experts or model.latent:
        raise UserError(
            f"sharded step: {model.name} has experts or a latent cache; layouts are worked out for dense models only"
        )
    layout.check(model, batch)
    share = Share(model, layout, batch, tokens, context, items)
    stages = (embed(share), norm(share), qkv(share), attention(share), out(share), gate_up(share), down(share), head(share))
    return ShardedStep(layout, batch * tokens, stages, share.memory())


def attended(context: float, tokens: int, window: int | None) -> float:
    """Cached tokens that `tokens` queries attend to in sum, the last of which sees `context` of them, or its window."""
    first = context - tokens + 1
    if window is None or window >= context:
        return tokens * (first + context) / 2
    growing = max(0.0, window - first)  # queries that do not fill the window yet
    return growing * (first + window - 1) / 2 + (tokens - growing) * window


def qkv(share: Share) -> Stage:
    axes, layout, kv = share.layout.axes, share.layout, share.keys_values
    moves = [] if share.model.parallel else [_enter(share)]
    moves.append(_move(share, "reduce-scatter", "queries", axes.hidden, share.queries.width / layout.width))
    moves.append(_move(share, "reduce-scatter", "keys and values", axes.hidden, kv.width / kv.used))
    if layout.attention == "heads":
        copies = layout.hidden * kv.used // share.kv_parts
        moves.append(_move(share, "all-gather", "keys and values", axes.hidden, kv.width / share.kv_parts, copies))
    else:
        own = layout.hidden * layout.width
        moves.append(_move(share, "all-to-all", "queries", axes.width, share.queries.width / own))
        moves.append(_move(share, "all-to-all", "keys and values", axes.width, kv.width / own, kv.used))
    return _matmul(share, "qkv", (share.queries, kv), *moves)


def attention(share: Share) -> Stage:
    """Scores and values. Of the cache, what a window lets a layer see is read once, and the new tokens are written."""
    layers, tokens, context = share.model.layers, share.tokens, share.context
    seen = sum(attended(context, tokens, window) for window in share.model.windows)
    read = sum(min(context, (window or context) + tokens - 1) for window in share.model.windows)
    width = share.heads * share.model.head_dim
    return Stage(
        "attention",
        flops=4.0 * share.sequences * seen * width,
        kv_bytes=share.sequences * (read + layers * tokens) * share.kv_token_bytes,
        activation_bytes=2.0 * share.sequences * layers * tokens * width * share.items.activation,
    )


def out(share: Share) -> Stage:
    axes, layout, width = share.layout.axes, share.layout, share.queries.width
    moves = [_move(share, "all-gather", "attended", axes.hidden, width / layout.width)]
    if layout.attention == "batch":
        moves.append(_move(share, "all-to-all", "attended", axes.width, width / (layout.hidden * layout.width)))
    return _matmul(share, "out", (share.queries,), *moves, *([] if share.model.parallel else [_leave(share)]))


def gate_up(share: Share) -> Stage:
    partial = _move(share, "reduce-scatter", "gate and up", share.layout.axes.hidden, share.gate_up.width / share.layout.width)
    return _matmul(share, "gate_up", (share.gate_up,), _enter(share), partial)


def down(share: Share) -> Stage:
    gated = _move(share, "all-gather", "gated", share.layout.axes.hidden, share.down.width / share.layout.width)
    return _matmul(share, "down", (share.down,), gated, _leave(share))


def embed(share: Share) -> Stage:
    """Rows are looked up where their part of the vocabulary lies, zeros stand elsewhere, and a reduce-scatter adds them up."""
    layout, rows = share.layout, share.batch * share.tokens
    found = rows * share.model.hidden / layout.stored_hidden
    own = found / layout.stored_width
    move = Exchange("reduce-scatter", "embeddings", layout.stored.width, layout.stored_width, found * share.items.activation, 1)
    return Stage(
        "embed", weight_bytes=own * share.items.weight, activation_bytes=own * share.items.activation, exchanges=_sent(move)
    )


def norm(share: Share) -> Stage:
    """Weights of all norms, and their sums of squares over E; the last norm sees one token of a sequence. Elementwise work is free."""
    axes, layout, model = share.layout.axes, share.layout, share.model
    wide = sum(w.count for w in model.weights if w.component == "norm" and w.shape == (model.hidden,))
    group = layout.hidden * layout.width
    sums = Exchange("all-reduce", "norms", axes.hidden + axes.width, group, share.rows * F32, wide - 1)
    last = dataclasses.replace(sums, buffer=share.batch / layout.data * F32, runs=1)
    return Stage("norm", weight_bytes=share.norm_bytes, exchanges=_sent(sums, last))


def head(share: Share) -> Stage:
    """Logits of the last token of each sequence, in f32."""
    layout, batch, item = share.layout, share.batch, share.items.activation
    inputs, outputs = share.model.hidden / layout.stored_hidden, share.model.vocab / layout.stored_width
    return Stage(
        "head",
        flops=2.0 * batch * inputs * outputs,
        weight_bytes=share.table_bytes,
        activation_bytes=batch * (inputs * item + outputs * F32),
        exchanges=_sent(
            Exchange("all-gather", "last hidden", layout.stored.width, layout.stored_width, batch * inputs * item, 1),
            Exchange("reduce-scatter", "logits", layout.stored.hidden, layout.stored_hidden, batch * outputs * F32, 1),
        ),
    )


def _matmul(share: Share, name: str, matrices: tuple[Matrix, ...], *moves: Exchange) -> Stage:
    """A stage that multiplies by its matrices. From E to a width, or back: the cost is the same."""
    layers = share.model.layers
    outputs = sum(m.width / m.used for m in matrices)
    gathers = [
        Exchange("all-gather", "weights", share.layout.axes.data, share.gathered_from(m), share.weight_bytes(m), layers)
        for m in matrices
    ]
    arrived = sum(c.link_bytes for c in gathers)  # written to memory before it is read
    return Stage(
        name,
        flops=2.0 * share.rows * share.inputs * outputs * layers,
        weight_bytes=sum(share.weight_bytes(m) for m in matrices) * layers + arrived,
        activation_bytes=share.rows * (share.inputs + outputs) * share.items.activation * layers,
        exchanges=_sent(*gathers, *moves),
    )


def _move(share: Share, kind: str, what: str, axes: str, width: float, group: int | None = None) -> Exchange:
    """A collective in every layer of `width` elements a token, among `group` chips of the axes, or all of them."""
    return Exchange(
        kind, what, axes, group or share.layout.mesh.size(axes), share.rows * width * share.items.activation, share.model.layers
    )


def _enter(share: Share) -> Exchange:
    return _move(share, "all-gather", "hidden", share.layout.axes.width, share.inputs)


def _leave(share: Share) -> Exchange:
    return _move(share, "reduce-scatter", "hidden", share.layout.axes.width, share.inputs)


def _sent(*moves: Exchange) -> tuple[Exchange, ...]:
    """Those that have somebody to send to."""
    return tuple(c for c in moves if c.group > 1)
