"""Weights worked out from sizes. Oracle: the Flax module of the same model."""

import collections

import pytest

from costmodel.arch.config_weights import attention, edges, mlp, norms
from costmodel.arch.weights import module_weights
from models.config.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_as_the_module_has_them(name):
    """The same shapes, as often, in the same component and divided alike; only names differ."""
    c = PRESETS[name]
    found = [
        *edges(c.vocab_size, c.hidden, tied=c.tied_head),
        *norms(c.layers, c.hidden, each=4 if c.sandwich_norms else 2),
        *attention(c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, bias=c.qkv_bias, qk_norm=c.qk_norm),
        *mlp(c.layers, c.hidden, c.ffn),
    ]
    counts = []
    for weights in (found, module_weights(c)):
        counter: collections.Counter[tuple] = collections.Counter()
        for w in weights:
            counter[(w.component, w.shape, w.split, w.axis)] += w.count
        counts.append(counter)
    assert counts[0] == counts[1]


def test_a_plain_mlp_has_no_gate():
    (up, down) = mlp(3, 8, 32, gated=False)
    assert (up.shape, down.shape, up.count) == ((32, 8), (8, 32), 3)
