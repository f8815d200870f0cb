"""The decoder as a Flax NNX module: its readable definition, and the single description of its weights.

Shapes, dtypes and logical axes of every weight are stated here once; initialisation, loading, sharding and the cost model's
parameter counts are derived from the module's abstract state. The module knows nothing of pages or batches: it works on a flat list
of tokens and hands q, k and v to the function `mix` that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models import rotary
from models.config.model_config import ModelConfig

# q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim] -> attention output, as q
Mix = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

FEW = 128  # tokens up to which a CPU multiplies faster with the weights as the first operand


def linear(weight: Any, x: jax.Array, bias: Any = None) -> jax.Array:
    """x f32 [tokens, in] times weight [out, in], transposed -> f32 [tokens, out].

    x is rounded to the weight's dtype and the products are summed in f32: the one form in which 16-bit weights are fast on a CPU
    and right on an accelerator; a single token is padded to two there, for one falls off a cliff of 5 to 10 times.

    For few tokens in f32 the product is taken as W x^T: a matmul repacks its second operand, and then that is the small one (1.7
    times faster at 8 tokens on a CPU, slower again from 256). The barrier keeps XLA from swapping the operands back.
    """
    w, inner = weight[...], (((1,), (1,)), ((), ()))
    if w.dtype == jnp.float32 and x.shape[0] <= FEW:
        y = jax.lax.dot_general(w, x, inner, precision=jax.lax.Precision.HIGHEST)
        y = jax.lax.optimization_barrier(y).T
    elif w.dtype == jnp.float32:
        y = jax.lax.dot_general(x, w, inner, precision=jax.lax.Precision.HIGHEST)
    else:
        two = jnp.pad(x, ((0, max(2 - x.shape[0], 0)), (0, 0))).astype(w.dtype)
        y = jax.lax.dot_general(two, w, inner, preferred_element_type=jnp.float32)[: x.shape[0]]
    return y if bias is None else y + bias[...]


def _rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """table [rows, n] at index i32 [m] -> f32 [m, n].

    A CPU reads a bfloat16 table as integers, for XLA would convert it whole; a TPU would copy it whole for being read as integers.
    """

    def rows(table: jax.Array, index: jax.Array) -> jax.Array:
        return table[index].astype(jnp.float32)

    def bits(table: jax.Array, index: jax.Array) -> jax.Array:
        read = jax.lax.bitcast_convert_type(table, jnp.uint16)[index]
        return jax.lax.bitcast_convert_type(read.astype(jnp.uint32) << 16, jnp.float32)

    if table.dtype != jnp.bfloat16:
        return rows(table, index)
    return jax.lax.platform_dependent(table, index, cpu=bits, default=rows)


class RMSNorm(nnx.Module):
    """x / rms(x) * (offset + scale) over the last axis, in f32 (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, config: ModelConfig):
        self.scale = nnx.Param(jnp.full((size,), 1.0 - config.norm_offset, jnp.float32), axes=("norm",))
        self.eps, self.offset = config.norm_eps, config.norm_offset

    def __call__(self, x: jax.Array) -> jax.Array:
        inverse = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return x * inverse * (self.offset + self.scale[...])


class Attention(nnx.Module):
    """Grouped-query attention; q, k and v come from one fused matmul in that order of rows."""

    def __init__(self, config: ModelConfig, init: _Init):
        self.config = config
        c = config
        self.qkv = init((c.qkv_dim, c.hidden), ("heads", "hidden"))
        self.out = init((c.hidden, c.heads * c.head_dim), ("hidden", "heads"))
        self.qkv_bias = init.zeros(c.qkv_dim, "heads") if c.qkv_bias else None
        self.out_bias = init.zeros(c.hidden, "hidden") if c.out_bias else None
        self.q_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None

    def __call__(self, x: jax.Array, cos_sin: jax.Array, mix: Mix) -> jax.Array:
        c = self.config
        with jax.named_scope("qkv"):
            qkv = linear(self.qkv, x, self.qkv_bias).reshape(x.shape[0], -1, c.head_dim)
            q, k, v = jnp.split(qkv, (c.heads, c.heads + c.kv_heads), axis=1)
        if self.q_norm is not None and self.k_norm is not None:
            with jax.named_scope("norm"):
                q, k = self.q_norm(q), self.k_norm(k)
        with jax.named_scope("rope"):
            q, k = rotary.rotate(q, cos_sin), rotary.rotate(k, cos_sin)
        mixed = mix(q, k, v)
        with jax.named_scope("out"):
            return linear(self.out, mixed.reshape(x.shape[0], -1), self.out_bias)


class MLP(nnx.Module):
    """down(act(gate(x)) * up(x)); gate and up come from one fused matmul in that order of rows (Shazeer 2020)."""

    def __init__(self, config: ModelConfig, init: _Init):
        c = config
        self.activation = c.activation
        self.gate_up = init((2 * c.ffn, c.hidden), ("ffn", "hidden"))
        self.down = init((c.hidden, c.ffn), ("hidden", "ffn"))
        self.gate_up_bias = init.zeros(2 * c.ffn, "ffn") if c.mlp_bias else None
        self.down_bias = init.zeros(c.hidden, "hidden") if c.mlp_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        with jax.named_scope("gate_up"):
            gate, up = jnp.split(linear(self.gate_up, x, self.gate_up_bias), 2, axis=-1)
            if self.activation == "silu":
                gate = jax.nn.silu(gate)
            else:
                gate = jax.nn.gelu(gate, approximate=self.activation == "gelu_tanh")
        with jax.named_scope("down"):
            return linear(self.down, gate * up, self.down_bias)


class Block(nnx.Module):
    """One layer: attention and MLP, each behind a norm and, in Gemma 3, in front of one too."""

    def __init__(self, config: ModelConfig, init: _Init):
        c = config
        self.attention_norm, self.mlp_norm = RMSNorm(c.hidden, c), RMSNorm(c.hidden, c)
        self.attention_post_norm = RMSNorm(c.hidden, c) if c.sandwich_norms else None
        self.mlp_post_norm = RMSNorm(c.hidden, c) if c.sandwich_norms else None
        self.attention, self.mlp = Attention(c, init), MLP(c, init)

    def __call__(self, x: jax.Array, cos_sin: jax.Array, mix: Mix) -> jax.Array:
        with jax.named_scope("norm"):
            h = self.attention_norm(x)
        h = self.attention(h, cos_sin, mix)
        with jax.named_scope("norm"):
            x = x + (h if self.attention_post_norm is None else self.attention_post_norm(h))
            h = self.mlp_norm(x)
        h = self.mlp(h)
        with jax.named_scope("norm"):
            return x + (h if self.mlp_post_norm is None else self.mlp_post_norm(h))


class Transformer(nnx.Module):
    """Embedding, `layers` blocks, final norm and head. `head` is None where the embedding serves as the head (tied)."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32):
        self.config = config
        init = _Init(rngs, dtype)
        self.embed = init((config.vocab_size, config.hidden), ("vocab", "hidden"))
        self.layers = nnx.List([Block(config, init) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config)
        self.head = None if config.tied_head else init((config.vocab_size, config.hidden), ("vocab", "hidden"))

    def embedding(self, tokens: jax.Array) -> jax.Array:
        """tokens i32 [tokens] -> f32 [tokens, hidden]."""
        with jax.named_scope("embed"):
            return _rows(self.embed[...], tokens) * self.config.embedding_scale

    def logits(self, x: jax.Array) -> jax.Array:
        """The last block's output f32 [tokens, hidden] -> f32 [tokens, vocab], soft-capped where the config says so."""
        with jax.named_scope("norm"):
            x = self.norm(x)
        with jax.named_scope("head"):
            logits = linear(self.embed if self.head is None else self.head, x)
            cap = self.config.logit_softcap
            return logits if cap is None else jnp.tanh(logits / cap) * cap


class _Init:
    """Makes weights of one dtype: N(0, 0.02) matrices and zero biases, each with its logical axes as metadata."""

    def __init__(self, rngs: nnx.Rngs, dtype: DTypeLike):
        self.rngs, self.dtype = rngs, dtype

    def __call__(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> nnx.Param:
        return nnx.Param(jax.random.normal(self.rngs.params(), shape, self.dtype) * 0.02, axes=axes)

    def zeros(self, size: int, axis: str) -> nnx.Param:
        return nnx.Param(jnp.zeros((size,), jnp.float32), axes=(axis,))


def abstract(config: ModelConfig, dtype: DTypeLike = jnp.float32) -> Transformer:
    """The module with shapes in place of arrays: nothing is allocated, so a 70B model is described as cheaply as a small one."""
    return nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0), dtype=dtype))
