"""What a chip holds. Oracle: multiplied out by hand for PaLM 540B of 64 heads, E 18432, F 73728, 118 layers."""

import pytest

from costmodel.arch.catalog import palm
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.shares import Itemsizes, Share

PALM = palm("padded", layers=118, hidden=18432, heads=64)
MESH = Mesh(4, 4, 4)
SPLIT = 118 * 18432 * (3 * 73728 + 2 * 64 * 256) + 256_000 * 18432  # weights of which every chip has a part of its own
KV = 118 * 18432 * 512  # of the one KV head


def share(feedforward, attention="batch", batch=512, tokens=1, **sizes):
    return Share(PALM, Layout(MESH, feedforward, attention), batch, tokens, 2048, Itemsizes(**sizes))


@pytest.mark.parametrize("feedforward", ["ws-2d", "wg-x", "wg-xy", "wg-xyz"])
def test_weights_at_rest(feedforward):
    """A 64th of everything, but of the KV head's matrices a fourth: they are split over E only."""
    norms = 119 * 18432 * 2
    assert share(feedforward).memory().weights == pytest.approx(SPLIT / 64 * 2 + KV / 4 * 2 + norms, rel=1e-12)
    assert share(feedforward, weight=1).memory().weights == pytest.approx(SPLIT / 64 + KV / 4 + norms, rel=1e-12)


def test_1d_keeps_the_kv_head_on_every_chip():
    assert share("ws-1d").memory().weights == pytest.approx(SPLIT / 64 * 2 + KV * 2 + 119 * 18432 * 2, rel=1e-12)


def test_gathered_matrices():
    """wg-xyz fetches whole matrices, gate and up as one: 2 E F of 2 bytes; wg-xy a fourth of that. Stationary weights stay."""
    assert share("wg-xyz").memory().gathered == 2 * 18432 * 73728 * 2
    assert share("wg-xy").memory().gathered == 2 * 18432 * 73728 * 2 / 4
    assert share("ws-2d").memory().gathered == 0


def test_activations_of_a_large_prefill():
    """8 sequences of 2048 tokens a chip in wg-xyz: residual twice, its norm, queries, gate and up, 2 bytes each."""
    held = share("wg-xyz", tokens=2048).memory().activations
    assert held == 8 * 2048 * (3 * 18432 + 64 * 256 + 2 * 73728) * 2


@pytest.mark.parametrize(
    ("attention", "sequences", "heads", "token"), [("batch", 8, 64, 2 * 256 * 2), ("heads", 512, 1, 2 * 256 * 2)]
)
def test_attention(attention, sequences, heads, token):
    part = share("ws-2d", attention)
    assert (part.sequences, part.heads, part.kv_token_bytes) == (sequences, heads, token)
    assert part.memory().kv == sequences * 2048 * 118 * token
