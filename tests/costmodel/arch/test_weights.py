"""Weights by component. Oracle: the module's whole abstract state, added up without looking at paths."""

import collections
import math

import jax
import pytest
from flax import nnx

from costmodel.arch.weights import Weight, module_weights, place
from models.config.presets import PRESETS
from models.transformer import abstract


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if config.layers > 50 else ()) for name, config in PRESETS.items()]
)
def test_every_parameter_is_in_a_component_once(name):
    """All layers are described here, where `module_weights` describes one."""
    leaves = jax.tree.leaves(nnx.state(abstract(PRESETS[name])))
    weights = module_weights(PRESETS[name])
    assert sum(w.elements for w in weights) == sum(leaf.size for leaf in leaves)
    # The fused qkv is listed in two parts, so sizes of single weights are compared with those put together again.
    sizes: collections.Counter[int] = collections.Counter()
    queries = {w.name: w for w in weights if w.name.endswith(".q")}
    for w in weights:
        if w.name.endswith(".kv"):
            sizes[math.prod(w.shape) + math.prod(queries[w.name.replace(".kv", ".q")].shape)] += w.count
        elif not w.name.endswith(".q"):
            sizes[math.prod(w.shape)] += w.count
    assert sizes == collections.Counter(leaf.size for leaf in leaves)


def test_llama_by_hand():
    weights = {w.name: w for w in module_weights(PRESETS["llama-3-8b"])}
    assert weights["attention.qkv.q"] == Weight("qkv", "attention.qkv.q", (4096, 4096), 32, "heads", 0)
    assert weights["attention.qkv.kv"] == Weight("qkv", "attention.qkv.kv", (2048, 4096), 32, "kv_heads", 0)
    assert weights["attention.out"] == Weight("out", "attention.out", (4096, 4096), 32, "heads", 1)
    assert weights["mlp.gate_up"] == Weight("gate_up", "mlp.gate_up", (28672, 4096), 32, "ffn", 0)
    assert weights["mlp.down"] == Weight("down", "mlp.down", (4096, 14336), 32, "ffn", 1)
    assert weights["embed"].count == weights["head"].count == weights["norm"].count == 1
    assert sum(w.elements for w in weights.values()) == 8_030_261_248


def test_biases_go_with_their_matrix():
    weights = {w.name: w for w in module_weights(PRESETS["qwen2.5-0.5b"])}
    assert weights["attention.qkv_bias.q"].shape == (14 * 64,) and weights["attention.qkv_bias.kv"].shape == (2 * 2 * 64,)
    assert weights["attention.qkv_bias.q"].component == "qkv"


def test_a_parameter_that_nobody_placed_is_an_error():
    with pytest.raises(ValueError, match=r"parameter layers\.3\.attention\.sinks belongs to no component"):
        place(PRESETS["tiny"], ("layers", 3, "attention", "sinks"), (4,))
