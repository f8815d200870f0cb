"""A step whose arrays lie as a layout says (Pope et al. 2022, figures 2, 4 and 5), for XLA to put the collectives in.

Nothing here calls a collective: each array is told which mesh axes split its dimensions, and where that changes the compiler has to
move data. What it moves is compared with `costmodel.parallel.stages`, which knows nothing of this program.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from costmodel.arch.architecture import Architecture
from costmodel.parallel.layouts import Axes, Layout

Tree: TypeAlias = Any


def spec(*dims: str) -> PartitionSpec:
    """Each dimension split over the axes in its string, the first axis slowest; an empty string leaves it whole."""
    return PartitionSpec(*(tuple(axes) or None for axes in dims))


def place(array: jax.Array, *dims: str) -> jax.Array:
    return jax.lax.with_sharding_constraint(array, spec(*dims))


@dataclasses.dataclass(frozen=True)
class PartitionedStep:
    """`tokens` new tokens for each of `batch` sequences, at a position that all share, over a contiguous cache of `context` tokens.

    Weights and activations are in `dtype`, sums of a matmul leave it in that dtype, logits are f32. No rotary embedding: it moves nothing.
    """

    model: Architecture
    layout: Layout
    batch: int
    context: int
    tokens: int = 1
    dtype: str = "bfloat16"

    donate = (1,)

    def __call__(self, weights: Tree, cache: Tree, tokens: jax.Array, position: jax.Array) -> tuple[Tree, jax.Array]:
        """weights and cache as `abstract_args`, tokens i32 [batch, tokens], position i32 [] -> cache, logits f32 [batch, vocab]."""
        axes, stored = self.layout.axes, self.layout.stored
        residual = (axes.data, "", axes.hidden + axes.width)
        with jax.named_scope("embed"):
            x = place(weights["embed"][tokens], *residual)
        filled = []
        for layer, (keys, values) in zip(weights["layers"], cache, strict=True):
            entered = self.enter(layer["norm"], x, "qkv")
            attended, kv = self.attention(layer, entered, keys, values, position)
            filled.append(kv)
            with jax.named_scope("out"):
                y = jnp.einsum("blkgq,kgqe->ble", attended, self.use(layer, "out"))
                if not self.model.parallel:
                    x = x + place(y, *residual)
            if self.model.parallel:
                y = y + self.mlp(layer, entered)
            else:
                y = self.mlp(layer, self.enter(layer["mlp_norm"], x, "gate_up"))
            with jax.named_scope("down"):
                x = x + place(y, *residual)
        with jax.named_scope("head"):
            last = place(norm(x[:, -1], weights["norm"]), "", stored.hidden)
            logits = jnp.einsum("be,ve->bv", last, weights["head"], preferred_element_type=jnp.float32)
            return filled, place(logits, "", stored.width + stored.hidden)

    def enter(self, scale: jax.Array, x: jax.Array, scope: str) -> jax.Array:
        """The norm, and its rows gathered for a matmul."""
        with jax.named_scope(scope):
            return place(norm(x, scale), self.layout.axes.data, "", self.layout.axes.hidden)

    def attention(
        self, layer: Tree, x: jax.Array, keys: jax.Array, values: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Attended values [B, L, K, G, Q], split over w along the heads, and the cache with the new tokens in it."""
        axes = self.layout.axes
        with jax.named_scope("qkv"):
            q = jnp.einsum("ble,ekgq->blkgq", x, self.use(layer, "q"))
            kv = jnp.einsum("ble,eckq->blckq", x, self.use(layer, "kv"))
            if self.layout.attention == "heads":
                q = place(q, axes.data, "", *self.on_heads(axes.width + axes.hidden), "")
                kv = place(kv, axes.data, "", "", self.on_heads(axes.width + axes.hidden)[0], "")
            else:
                # Reduced into the batch along the hidden axes, then exchanged along the width axes.
                q = place(q, axes.data + axes.hidden, "", *self.on_heads(axes.width), "")
                q = place(q, axes.data + axes.hidden + axes.width, "", "", "", "")
                kv = place(kv, axes.data + axes.hidden, "", "", self.on_heads(axes.width)[0], "")
                kv = place(kv, axes.data + axes.hidden + axes.width, "", "", "", "")
        with jax.named_scope("attention"):
            keys = place(jax.lax.dynamic_update_slice_in_dim(keys, kv[:, :, 0], position, axis=1), *self.cache_dims)
            values = place(jax.lax.dynamic_update_slice_in_dim(values, kv[:, :, 1], position, axis=1), *self.cache_dims)
            scores = jnp.einsum("blkgq,bskq->bkgls", q, keys, preferred_element_type=jnp.float32)
            seen = jnp.arange(self.context) <= position + jnp.arange(self.tokens)[:, None]
            shares = jax.nn.softmax(jnp.where(seen, scores * self.model.head_dim**-0.5, -jnp.inf), axis=-1)
            attended = jnp.einsum("bkgls,bskq->blkgq", shares.astype(self.dtype), values)
        with jax.named_scope("out"):
            if self.layout.attention == "batch":
                attended = place(attended, axes.data + axes.hidden, "", *self.on_heads(axes.width), "")
            return place(attended, axes.data, "", *self.on_heads(axes.width), ""), (keys, values)

    def mlp(self, layer: Tree, x: jax.Array) -> jax.Array:
        """Sums of the MLP that still have to be added up over the width axes."""
        axes = self.layout.axes
        with jax.named_scope("gate_up"):
            both = jnp.einsum("ble,eif->blif", x, self.use(layer, "gate_up"))
            both = place(both, axes.data, "", "", axes.width + axes.hidden)
        with jax.named_scope("down"):
            hidden = jax.nn.silu(both[:, :, 0]) * both[:, :, 1] if self.model.gated else jax.nn.gelu(both[:, :, 0])
            hidden = place(hidden, axes.data, "", axes.width)
            return jnp.einsum("blf,fe->ble", hidden, self.use(layer, "down"))

    def use(self, layer: Tree, name: str) -> jax.Array:
        """A weight as the matmul needs it: gathered over the axes that split the batch, if any."""
        return place(layer[name], *self.dims(self.layout.axes)[name])

    def on_heads(self, axes: str) -> tuple[str, str]:
        """Axes of the KV heads, and of the query heads that share one: the former where they divide, else the latter."""
        return (axes, "") if self.model.kv_heads % self.layout.mesh.size(axes) == 0 else ("", axes)

    def dims(self, axes: Axes) -> dict[str, tuple[str, ...]]:
        """How axes split the weights of a layer."""
        kv, group = self.on_heads(axes.width)
        return {
            "q": (axes.hidden, kv, group, ""),
            "kv": (axes.hidden, "", kv, ""),
            "out": (kv, group, "", axes.hidden),
            "gate_up": (axes.hidden, "", axes.width),
            "down": (axes.width, axes.hidden),
            **dict.fromkeys(self.norms, ("",)),
        }

    @property
    def norms(self) -> tuple[str, ...]:
        return ("norm",) if self.model.parallel else ("norm", "mlp_norm")

    @property
    def cache_dims(self) -> tuple[str, ...]:
        axes = self.layout.axes
        if self.layout.attention == "heads":
            return axes.data, "", self.on_heads(axes.width + axes.hidden)[0], ""
        return axes.data + axes.hidden + axes.width, "", "", ""

    def specs(self) -> tuple[Tree, Tree, PartitionSpec, PartitionSpec]:
        """Where the arguments lie between steps."""
        stored = self.layout.stored
        layer = {name: spec(*dims) for name, dims in self.dims(stored).items()}
        table = spec(stored.width, stored.hidden)
        weights = {"embed": table, "head": table, "norm": spec(""), "layers": [layer] * self.model.layers}
        return weights, [(spec(*self.cache_dims),) * 2] * self.model.layers, spec("", ""), spec()

    def abstract_args(self) -> tuple[Tree, Tree, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        m, group = self.model, self.model.heads // self.model.kv_heads

        def array(*shape: int, dtype: str = self.dtype) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))

        layer = {
            "q": array(m.hidden, m.kv_heads, group, m.head_dim),
            "kv": array(m.hidden, 2, m.kv_heads, m.head_dim),
            "out": array(m.kv_heads, group, m.head_dim, m.hidden),
            "gate_up": array(m.hidden, 2 if m.gated else 1, m.ffn),
            "down": array(m.ffn, m.hidden),
            **dict.fromkeys(self.norms, array(m.hidden)),
        }
        table = array(m.vocab, m.hidden)
        weights = {"embed": table, "head": table, "norm": array(m.hidden), "layers": [layer] * m.layers}
        cache = [(array(self.batch, self.context, m.kv_heads, m.head_dim),) * 2] * m.layers
        return weights, cache, array(self.batch, self.tokens, dtype="int32"), array(dtype="int32")


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMS norm in f32, out in the dtype of `x`."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale
