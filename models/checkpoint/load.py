"""The weights of `models.transformer.Transformer` from a checkpoint.

What is wanted (shapes, dtypes) is read off the module's abstract state; this file only says which stored tensors make up each
weight. One weight at a time is assembled on the host, in its final dtype, and handed to `put`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from models import transformer
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.config.model_config import ModelConfig
from models.errors import UserError
from models.files.reading import shown

Path = tuple[Any, ...]  # of a weight in the module: ("layers", 0, "attention", "qkv")
Put = Callable[[Any], jax.Array]  # host or device array -> where the weight is to live
Weights = tuple[nnx.GraphDef[transformer.Transformer], nnx.State]


def load(checkpoint: Checkpoint | RandomCheckpoint, dtype: DTypeLike, *, put: Put = jnp.asarray) -> Weights:
    """Read all weights.

    Args:
      checkpoint: where from; for a `RandomCheckpoint` they are drawn instead.
      dtype: of the matrices; norms and biases are float32.
      put: called once for each finished weight, a numpy array of its final shape and dtype (see `random_weights` for random
        ones). Pass a `jax.device_put` with a sharding to place the weights as they come.

    Returns:
      The graph definition and the filled state: `nnx.merge` of the two is the module.

    Raises:
      UserError: a tensor is missing, is not part of the architecture, has the wrong shape, or holds NaN or infinity.
    """
    if isinstance(checkpoint, RandomCheckpoint):
        return random_weights(checkpoint.config, dtype, checkpoint.seed, put=put)
    check(checkpoint)  # first, for a module of a damaged number of layers takes long to describe
    config = checkpoint.config
    graph, wanted = nnx.split(transformer.abstract(config, dtype))
    filled = []
    for path, variable in nnx.to_flat_state(wanted):
        leaf = variable.get_value()
        filled.append((path, variable.replace(put(_assemble(checkpoint, _sources(path, config, leaf.shape), leaf)))))
    return graph, nnx.from_flat_state(filled)


def check(checkpoint: Checkpoint | RandomCheckpoint) -> None:
    """Refuse what `load` would refuse by names and shapes alone: for a caller that has expensive work to do before it loads.

    Raises:
      UserError: as `load`.
    """
    if not isinstance(checkpoint, RandomCheckpoint):
        _compare(checkpoint)


def random_weights(config: ModelConfig, dtype: DTypeLike, seed: int, *, put: Put = jnp.asarray) -> Weights:
    """Draw all weights: matrices N(0, 0.02), norms that multiply by 1, biases 0.

    One weight at a time, by a program compiled once for each shape, so nothing but the weight itself is ever held.

    Args:
      config, dtype: as in `load`.
      seed: two calls with one seed draw the same weights.
      put: called once for each finished weight, a `jax.Array`.
    """
    graph, wanted = nnx.split(transformer.abstract(config, dtype))
    key, filled = jax.random.key(seed), []
    for index, (path, variable) in enumerate(nnx.to_flat_state(wanted)):
        leaf = variable.get_value()
        if path[-1] == "scale":
            value = jnp.full(leaf.shape, 1.0 - config.norm_offset, leaf.dtype)
        elif len(leaf.shape) == 1:
            value = jnp.zeros(leaf.shape, leaf.dtype)
        else:
            value = _normal(jax.random.fold_in(key, index), leaf.shape, leaf.dtype)
        filled.append((path, variable.replace(put(value))))
    return graph, nnx.from_flat_state(filled)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return (0.02 * jax.random.normal(key, shape, jnp.float32)).astype(dtype)


Source = tuple[str, tuple[int, ...]]  # a stored tensor and the shape it must have


def _sources(path: Path, config: ModelConfig, shape: tuple[int, ...]) -> Iterator[Source]:
    """The stored tensors that make up one weight of `shape`, in the order of its rows."""
    top = {("embed",): "model.embed_tokens.weight", ("head",): "lm_head.weight", ("norm", "scale"): "model.norm.weight"}
    if path in top:
        yield top[path], shape
        return
    layer, weight = f"model.layers.{path[1]}.", ".".join(path[2:])
    suffix = "bias" if weight.endswith("_bias") else "weight"
    for name, rows in _parts(weight.removesuffix("_bias").removesuffix(".scale"), config):
        yield f"{layer}{name}.{suffix}", (rows, *shape[1:])


def _parts(weight: str, c: ModelConfig) -> list[tuple[str, int]]:
    """(name in a layer of the checkpoint, rows) of each part of one weight of a block."""
    query, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    return {
        "attention.qkv": [("self_attn.q_proj", query), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)],
        "attention.out": [("self_attn.o_proj", c.hidden)],
        "attention.q_norm": [("self_attn.q_norm", c.head_dim)],
        "attention.k_norm": [("self_attn.k_norm", c.head_dim)],
        "mlp.gate_up": [("mlp.gate_proj", c.ffn), ("mlp.up_proj", c.ffn)],
        "mlp.down": [("mlp.down_proj", c.hidden)],
        "attention_norm": [("input_layernorm", c.hidden)],
        # where a norm follows attention too, it takes over the name that the MLP's norm has elsewhere
        "mlp_norm": [("pre_feedforward_layernorm" if c.sandwich_norms else "post_attention_layernorm", c.hidden)],
        "attention_post_norm": [("post_attention_layernorm", c.hidden)],
        "mlp_post_norm": [("post_feedforward_layernorm", c.hidden)],
    }[weight]


def _compare(checkpoint: Checkpoint) -> None:
    """Compare names and shapes with the module's state before anything is read, so a wrong file is refused at once.

    One layer is described and looked for as often as there are layers, which are made alike.
    """
    config = checkpoint.config
    wanted = []
    for path, variable in nnx.to_flat_state(nnx.state(transformer.abstract(config.first_layer()))):
        every = [("layers", layer, *path[2:]) for layer in range(config.layers)] if path[0] == "layers" else [path]
        wanted += [source for one in every for source in _sources(one, config, variable.get_value().shape)]
    present = set(checkpoint.names())
    for name, shape in wanted:
        if name not in present:
            reason = "the checkpoint is incomplete"
            if name == "lm_head.weight":
                reason = "tie_word_embeddings must be true where the embedding is the head"
            raise UserError(f"{checkpoint.origin}: tensor {name} {list(shape)} is missing; {reason}")
        found = checkpoint.shape(name)
        if found != shape:
            raise UserError(f"{checkpoint.origin}: tensor {name} is {list(found)}; by the config it must be {list(shape)}")
        present.discard(name)
    extra = sorted(present)
    if extra:
        others = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        raise UserError(
            f"{checkpoint.origin}: tensor {shown(extra[0])}{others} is not part of a {config.architecture} model with this config; "
            f"{_reason(extra)}"
        )


def _reason(extra: list[str]) -> str:
    """What tensors that no model has tell, by the names that libraries of adapters and of quantisation give them."""
    if any("lora_" in name or name.startswith("base_model.") for name in extra):
        return "it is of an adapter, which must be merged into the model"
    if any(name.rpartition(".")[2] in _QUANTISED for name in extra):
        return "its weights are stored quantised, which is read from GGUF only"
    if any(name.endswith(".bias") for name in extra):
        return "the config says nothing of this bias"
    return "the config belongs to another model"


_QUANTISED = frozenset(
    "qweight qzeros scales g_idx weight_scale weight_scale_inv weight_zero_point weight_packed weight_shape input_scale SCB absmax "
    "quant_map nested_absmax nested_quant_map zeros".split()
)


def _assemble(checkpoint: Checkpoint, sources: Iterator[Source], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    out, row = np.empty(leaf.shape, leaf.dtype), 0
    for name, shape in sources:
        rows, stored = out[row : row + shape[0]], checkpoint.read(name)
        with np.errstate(over="ignore"):  # what does not fit becomes infinity, which is refused
            rows[...] = stored
        if not finite(rows):
            at = next(i for i in range(len(rows)) if not finite(rows[i : i + 1]))
            wrong = np.argmin(np.isfinite(rows[at].astype(np.float32)))
            value = float(stored[at].reshape(-1)[wrong])
            why = (
                f"{rows.dtype} does not hold it; take another --dtype"
                if np.isfinite(value)
                else "the file is damaged or badly converted"
            )
            raise UserError(f"{checkpoint.origin}: tensor {name} holds {value:g} in row {at}; {why}")
        row += shape[0]
    return out


_SCANNED = 1 << 16  # elements at a time, so that what is made of them stays in a core's cache


def finite(array: np.ndarray) -> bool:
    """Whether there is no NaN and no infinity in it. Read as a whole number without its sign, no finite number reaches infinity."""
    bits = array.reshape(-1).view(f"u{array.dtype.itemsize}")
    infinity = np.array(np.inf, array.dtype).view(bits.dtype)[()]
    unsigned = bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
    return all((bits[at : at + _SCANNED] & unsigned).max() < infinity for at in range(0, bits.size, _SCANNED))
