"""Every weight of a model that the engine has no module for, worked out from its sizes.

Shapes are those of the published checkpoints, in the layout of `models.transformer`: a matrix is [outputs, inputs], and gate and up lie
in one. The tests hold them against the Flax module where there is one, and against the published number of parameters elsewhere.
"""

from __future__ import annotations

from costmodel.arch.architecture import Experts, Latent
from costmodel.arch.weights import Weight


def edges(vocab: int, hidden: int, *, tied: bool) -> list[Weight]:
    """Embedding, final norm, and the head where it is not the embedding."""
    head = [] if tied else [Weight("head", "head", (vocab, hidden), 1, "vocab")]
    return [Weight("embed", "embed", (vocab, hidden), 1, "vocab"), Weight("norm", "norm", (hidden,)), *head]


def attention(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, *, bias: bool = False, qk_norm: bool = False
) -> list[Weight]:
    """Grouped-query attention, with biases of q, k and v (Qwen 2) or norms of q and k (Qwen 3) where asked for."""
    rows, kv_rows = heads * head_dim, 2 * kv_heads * head_dim
    weights = [
        Weight("qkv", "attention.qkv.q", (rows, hidden), layers, "heads"),
        Weight("qkv", "attention.qkv.kv", (kv_rows, hidden), layers, "kv_heads"),
        Weight("out", "attention.out", (hidden, rows), layers, "heads", 1),
    ]
    if bias:
        weights.append(Weight("qkv", "attention.qkv_bias.q", (rows,), layers, "heads"))
        weights.append(Weight("qkv", "attention.qkv_bias.kv", (kv_rows,), layers, "kv_heads"))
    if qk_norm:
        weights += [Weight("norm", f"attention.{name}", (head_dim,), layers) for name in ("q_norm", "k_norm")]
    return weights


def latent_attention(layers: int, hidden: int, heads: int, latent: Latent) -> list[Weight]:
    """MLA (DeepSeek-V2, section 2.1). The projections into and out of the ranks belong to no head, so each chip holds all of them."""
    rows = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank is None:
        queries = [Weight("qkv", "attention.q", (rows, hidden), layers, "heads")]
    else:
        queries = [
            Weight("qkv", "attention.q_a", (latent.q_rank, hidden), layers),
            Weight("norm", "attention.q_a_norm", (latent.q_rank,), layers),
            Weight("qkv", "attention.q_b", (rows, latent.q_rank), layers, "heads"),
        ]
    return [
        *queries,
        Weight("qkv", "attention.kv_a", (latent.kv_rank + latent.rope_dim, hidden), layers),
        Weight("norm", "attention.kv_a_norm", (latent.kv_rank,), layers),
        Weight("qkv", LATENT_KV, (heads * (latent.nope_dim + latent.value_dim), latent.kv_rank), layers, "heads"),
        Weight("out", "attention.out", (hidden, heads * latent.value_dim), layers, "heads", 1),
    ]


LATENT_KV = "attention.kv_b"  # from the latent to keys and values of all heads


def mlp(layers: int, hidden: int, ffn: int, *, gated: bool = True) -> list[Weight]:
    return [
        Weight("gate_up", "mlp.gate_up" if gated else "mlp.up", (2 * ffn if gated else ffn, hidden), layers, "ffn"),
        Weight("down", "mlp.down", (hidden, ffn), layers, "ffn", 1),
    ]


def mixture(
    layers: int, hidden: int, ffn: int, experts: Experts, *, bias: bool = False, shared_gate: bool = False
) -> list[Weight]:
    """Plain MLPs of the dense layers, and router, routed and shared experts of the others.

    `bias` is the router's correction of each expert (DeepSeek-V3, section 2.1.2), `shared_gate` the gate of Qwen 2's shared expert.
    """
    n = layers - experts.dense_layers
    weights = mlp(experts.dense_layers, hidden, ffn) if experts.dense_layers else []
    weights += [
        Weight("router", "mlp.router", (experts.count, hidden), n),
        Weight("experts", "mlp.experts.gate_up", (2 * experts.ffn, hidden), n * experts.count, "ffn", routed=True),
        Weight("experts", "mlp.experts.down", (hidden, experts.ffn), n * experts.count, "ffn", 1, routed=True),
    ]
    if bias:
        weights.append(Weight("router", "mlp.router_bias", (experts.count,), n))
    if shared_gate:
        weights.append(Weight("router", "mlp.shared_gate", (1, hidden), n))
    if experts.shared_ffn:
        weights.append(Weight("experts", "mlp.shared.gate_up", (2 * experts.shared_ffn, hidden), n, "ffn"))
        weights.append(Weight("experts", "mlp.shared.down", (hidden, experts.shared_ffn), n, "ffn", 1))
    return weights


def norms(layers: int, hidden: int, each: int = 2) -> list[Weight]:
    """`each` norms of the residual a layer: two, or one where attention and MLP stand side by side."""
    return [Weight("norm", f"norm_{i}", (hidden,), layers) for i in range(each)]
