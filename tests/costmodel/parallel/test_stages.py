"""Stages against the paper's closed forms (Pope et al. 2022, section 3.2, appendix A) and sums done without any layout.

The closed forms are the paper's own or derived here by hand from them; the code adds up collectives one by one.
"""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arch.catalog import find_architecture, palm
from costmodel.parallel.layouts import FEEDFORWARD, Layout, Mesh
from costmodel.parallel.shares import Itemsizes
from costmodel.parallel.stages import attended, sharded_step
from models.errors import UserError

# Figure 3's MLP, d_model 16384 and d_ff 65536, in a plain parallel block; 256 heads so that they divide.
E, F, LAYERS = 16384, 65536, 3
FIGURE3 = dataclasses.replace(palm("figure-3", layers=LAYERS, hidden=E, heads=256), gated=False)
LLAMA = find_architecture("llama-3-8b")
PALM = find_architecture("palm-540b")
SMALL = ("tiny", "smollm2-135m", "qwen3-0.6b", "gemma-3-1b", "llama-3-8b", "palm-8b")
MESH = Mesh(4, 4, 4)


def mlp_bytes(feedforward, mesh, batch, tokens=1, model=FIGURE3):
    """Link bytes a layer of the MLP alone."""
    step = sharded_step(model, Layout(mesh, feedforward, "heads"), batch=batch, context=tokens, tokens=tokens)
    return sum(stage.link_bytes for stage in step.stages if stage.name in ("gate_up", "down")) / model.layers


def less(k):
    return (k - 1) / k


@pytest.mark.parametrize("n", [4, 16, 64])
def test_1d_moves_the_same_whatever_the_chips(n):
    """3.2.1: 2 B L E elements of 2 bytes, of which a ring sends (n - 1) / n."""
    assert mlp_bytes("ws-1d", Mesh(1, 1, n), 8) == pytest.approx(2 * 8 * E * 2 * less(n), rel=1e-12)


@pytest.mark.parametrize("x", [1, 2, 4, 8])
def test_2d(x):
    """A.2.1: 2 B L (E / X + F / YZ)."""
    yz = 64 // x
    expected = 2 * 8 * (E / x * less(yz) + F / yz * less(x)) * 2
    assert mlp_bytes("ws-2d", Mesh(x, 1, yz), 8) == pytest.approx(expected, rel=1e-12)


def test_2d_is_least_at_half_the_root_and_falls_with_it():
    """3.2.2: X = 0.5 sqrt(n), 8 B L E / sqrt(n). The factors (K - 1) / K are all that the paper's approximation leaves out."""
    for n in (16, 64, 256):
        volumes = {x: mlp_bytes("ws-2d", Mesh(x, 1, n // x), 8) for x in (1, 2, 4, 8, 16)}
        best = min(volumes, key=lambda x: volumes[x])
        assert best == math.isqrt(n) // 2
        paper = 8 * 8 * E / math.sqrt(n) * 2
        assert volumes[best] == pytest.approx(paper * (less(n / best) + less(best)) / 2, rel=1e-12)


def test_2d_overtakes_1d_above_16_chips():
    """3.2.2: 2D moves less when sqrt(n) > F / E = 4. Counted with (K - 1) / K the two are equal at 8 chips already: by hand
    2 (E / 2 * 3 / 4 + F / 4 * 1 / 2) = 2 E * 7 / 8."""
    assert mlp_bytes("ws-2d", Mesh(1, 1, 4), 1) == mlp_bytes("ws-1d", Mesh(1, 1, 4), 1)
    assert mlp_bytes("ws-2d", Mesh(2, 1, 2), 1) > mlp_bytes("ws-1d", Mesh(1, 1, 4), 1)
    assert mlp_bytes("ws-2d", Mesh(2, 1, 4), 1) == mlp_bytes("ws-1d", Mesh(1, 1, 8), 1)
    assert mlp_bytes("ws-2d", Mesh(2, 1, 8), 1) < mlp_bytes("ws-1d", Mesh(1, 1, 16), 1)
    assert mlp_bytes("ws-2d", MESH, 1) < mlp_bytes("ws-1d", MESH, 1) / 2


@pytest.mark.parametrize(("feedforward", "gathered"), [("wg-x", 4), ("wg-xy", 16), ("wg-xyz", 64)])
def test_weight_gathered(feedforward, gathered):
    """A.2.2: 2 E F N / n of weights and 2 B L E / N of activations."""
    weights, activations = 2 * E * F * gathered / 64 * less(gathered), 2 * 128 * 2048 * E / gathered * less(64 // gathered)
    assert mlp_bytes(feedforward, MESH, 128, 2048) == pytest.approx((weights + activations) * 2, rel=1e-12)


def test_figure_3_crossovers():
    """Figure 3, X = Y = Z = 4. Without (K - 1) / K: 2D meets wg-x where B L = E, wg-x meets wg-xy at 65,536 tokens and wg-xy meets
    wg-xyz at 786,432 (2 E F N / n + 2 B L E / N set equal by hand). With the factors the order and the neighbourhood stay."""

    def least(tokens):
        volumes = {kind: mlp_bytes(kind, MESH, tokens) for kind in FEEDFORWARD}
        return min(volumes, key=lambda kind: volumes[kind])

    expected = {1024: "ws-2d", 8192: "ws-2d", 32768: "wg-x", 131072: "wg-xy", 524288: "wg-xy", 2**21: "wg-xyz"}
    assert {tokens: least(tokens) for tokens in expected} == expected


def test_weight_gathered_grows_as_the_root_of_the_tokens():
    """A.2.2: at the best N = sqrt(B L n / F) the volume is 4 E sqrt(B L F / n); N is 4, 16 and 64 at these numbers of tokens."""
    for gathered, kind in ((4, "wg-x"), (16, "wg-xy")):
        tokens = gathered**2 * F // 64
        paper = 4 * E * math.sqrt(tokens * F / 64) * 2
        assert mlp_bytes(kind, MESH, tokens) == pytest.approx(paper * (less(gathered) + less(64 // gathered)) / 2, rel=1e-12)


def test_gated_block_is_least_near_its_own_optimum():
    """X = sqrt(2 b n E / V), V = 3 F + 2 H Q + 2 K Q: 3.05 for PaLM 540B of 64 heads on 64 chips, so 2 or 4 of the divisors."""
    model = palm("padded", layers=1, hidden=18432, heads=64)
    optimum = math.sqrt(2 * 64 * 18432 / (3 * 73728 + 2 * 64 * 256 + 2 * 256))
    assert optimum == pytest.approx(3.05, abs=0.01)
    volumes = {}
    for x in (1, 2, 4, 8, 16):
        volumes[x] = sharded_step(model, Layout(Mesh(x, 1, 64 // x), "ws-2d", "heads"), batch=64, context=1).link_bytes
    assert sorted(volumes, key=lambda x: volumes[x])[0] in (2, 4)


def test_serial_block_gathers_and_scatters_once_more():
    """3.4: one more all-gather and reduce-scatter of B L E / X a layer, and nothing else."""
    layout = Layout(MESH, "ws-2d", "batch")
    parallel, serial = (
        sharded_step(dataclasses.replace(FIGURE3, parallel=p), layout, batch=64, context=100) for p in (True, False)
    )
    assert serial.link_bytes - parallel.link_bytes == pytest.approx(2 * 64 * E / 4 * less(16) * 2 * LAYERS, rel=1e-9)
    assert (serial.flops, serial.bytes) == (parallel.flops, parallel.bytes)


@pytest.mark.parametrize("chips", [1, 2, 8, 64])
def test_multiquery_by_heads_keeps_the_whole_cache_on_every_chip(chips):
    """3.3 and figure 4b: B S 2 Q 2 bytes a layer, whatever n; by batch a n-th of that (figure 4c)."""
    model = palm("padded", layers=5, hidden=18432, heads=64)
    mesh = Mesh(1, 1, chips)
    whole = 64 * 2048 * 2 * 256 * 2 * 5
    by_heads = sharded_step(model, Layout(mesh, "ws-2d", "heads"), batch=64, context=2048)
    by_batch = sharded_step(model, Layout(mesh, "ws-2d", "batch"), batch=64, context=2048)
    assert by_heads.memory.kv == whole
    assert by_batch.memory.kv == whole / chips
    read = next(stage.kv_bytes for stage in by_heads.stages if stage.name == "attention")
    assert read == whole * 2049 / 2048  # read once, and one token written


def test_keys_and_values_of_one_head_reach_every_chip():
    """Figure 4b, X = YZ = 4: after the sum along x every chip needs both whole, so half an all-reduce each way; by batch, a scatter."""
    model, mesh = palm("padded", layers=5, hidden=4096, heads=16), Mesh(4, 2, 2)
    part = 16 * 2 * 256 * 2 * 3 / 4 * 5  # rows, K and V, bytes, (X - 1) / X, layers
    for attention, parts in (("heads", 2), ("batch", 1)):
        step = sharded_step(model, Layout(mesh, "ws-2d", attention), batch=16, context=1)
        assert sum(e.link_bytes for e in step.exchanges if e.what == "keys and values") == parts * part
    # Eight KV heads: y and z deal out two to a chip, whose sums x scatters in halves of a head; pairs of chips make their head whole.
    grouped = dataclasses.replace(model, kv_heads=8)
    step = sharded_step(grouped, Layout(mesh, "ws-2d", "heads"), batch=16, context=1)
    scatter, gather = (e.link_bytes for e in step.exchanges if e.what == "keys and values")
    assert (scatter, gather) == (16 * 2 * 2 * 256 * 2 * 3 / 4 * 5, 16 * 2 * 1 * 256 * 2 * 1 / 2 * 5)


def test_gathered_weights_are_written_before_they_are_read():
    """wg-xyz: a chip reads all of a layer and writes the 63/64 that come from others; ws-2d reads a 64th."""
    step = {kind: sharded_step(FIGURE3, Layout(MESH, kind, "batch"), batch=64, context=1) for kind in ("ws-2d", "wg-xyz")}
    read = {kind: next(stage for stage in s.stages if stage.name == "down").weight_bytes for kind, s in step.items()}
    assert read == {"ws-2d": E * F * 2 * LAYERS / 64, "wg-xyz": E * F * 2 * LAYERS * (1 + 63 / 64)}


@pytest.mark.parametrize(("chips", "per_chip"), [(1, 8), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_grouped_heads_divide_until_there_is_one_a_chip(chips, per_chip):
    step = sharded_step(LLAMA, Layout(Mesh(1, 1, chips), "ws-1d", "heads"), batch=2, context=1024)
    assert step.memory.kv == 2 * 1024 * 32 * 2 * per_chip * 128 * 2


@pytest.mark.parametrize("name", SMALL)
def test_one_chip_is_the_model_itself(name):
    """On one chip nothing is sent, all weights are held, and FLOPs are two a multiplied weight and token plus attention."""
    model = find_architecture(name)
    step = sharded_step(model, Layout(Mesh(), "ws-1d", "heads"), batch=3, context=100)
    assert step.link_bytes == 0 and step.exchanges == ()
    biases = sum(w.elements for w in model.weights if w.name.endswith("bias.q") or w.name.endswith("bias.kv"))
    assert step.memory.weights == (model.parameter_count - biases) * 2
    attention = 4 * 3 * 100 * model.heads * model.head_dim * model.layers
    assert step.flops == pytest.approx(2 * 3 * model.multiplied + attention, rel=1e-12)


@given(
    shape=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 4])),
    feedforward=st.sampled_from(list(FEEDFORWARD)),
    attention=st.sampled_from(["heads", "batch"]),
    tokens=st.sampled_from([1, 7, 64]),
)
def test_chips_share_the_work_and_no_more(shape, feedforward, attention, tokens):
    """Multi-head (no copies): the FLOPs of all chips are those of one, whatever the layout, and so are weights at rest and cache."""
    model = dataclasses.replace(LLAMA, kv_heads=32, layers=2, windows=(None, None))
    layout = Layout(Mesh(*shape), feedforward, attention)
    step = sharded_step(model, layout, batch=32, context=128, tokens=tokens)
    alone = sharded_step(model, Layout(Mesh(), "ws-1d", "heads"), batch=32, context=128, tokens=tokens)
    n = layout.mesh.chips
    assert step.flops * n == pytest.approx(alone.flops, rel=1e-9)
    assert step.memory.kv * n == pytest.approx(alone.memory.kv, rel=1e-9)
    norms = alone.stages[1].weight_bytes  # on every chip
    assert (step.memory.weights - norms) * n == pytest.approx(alone.memory.weights - norms, rel=1e-9)


def test_int8_weights_halve_what_is_gathered_and_nothing_else():
    """3.6: quantised weights shrink reads, and links of weight-gathered layouts; activations stay in bf16."""
    layout = Layout(MESH, "wg-xyz", "batch")
    wide, narrow = (
        sharded_step(FIGURE3, layout, batch=64, context=16, tokens=16, items=Itemsizes(weight=size)) for size in (2, 1)
    )
    for a, b in zip(wide.exchanges, narrow.exchanges, strict=True):
        assert b.link_bytes == a.link_bytes / (2 if a.what == "weights" else 1)
    stationary = Layout(MESH, "ws-2d", "batch")
    assert sharded_step(FIGURE3, stationary, batch=64, context=16).link_bytes == (
        sharded_step(FIGURE3, stationary, batch=64, context=16, items=Itemsizes(weight=1)).link_bytes
    )


@given(st.integers(1, 60), st.integers(0, 60), st.one_of(st.none(), st.integers(1, 80)))
def test_attended(tokens, history, window):
    """Query i of the chunk sees history + i tokens, or its window."""
    naive = sum(min(history + i, window or 10**9) for i in range(1, tokens + 1))
    assert attended(history + tokens, tokens, window) == naive


def test_windows_bound_what_is_read():
    """gemma-3-1b: 22 of 26 layers slide over 512 tokens; one KV head of 256, 2 bytes."""
    step = sharded_step(find_architecture("gemma-3-1b"), Layout(Mesh(), "ws-1d", "heads"), batch=1, context=4096)
    attention = next(stage for stage in step.stages if stage.name == "attention")
    assert attention.kv_bytes == (22 * 512 + 4 * 4096 + 26) * 2 * 256 * 2
    assert step.memory.kv == 26 * 4096 * 2 * 256 * 2  # all of it is kept


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"tokens": 0}, "tokens is 0; it must be at least 1"),
        ({"tokens": 9, "context": 8}, "context is 8; it must be at least 9"),
        ({"context": float("nan")}, "context is nan; it must be at least 1"),
        ({"context": 9000}, "context is 9000; llama-3-8b takes up to 8192 tokens"),
    ],
)
def test_bad_numbers(changes, message):
    with pytest.raises(UserError, match=message):
        sharded_step(LLAMA, Layout(Mesh(), "ws-1d", "heads"), **{"batch": 1, "context": 8, **changes})


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3"])
def test_experts_and_latent_caches_are_refused(name):
    with pytest.raises(UserError, match=f"{name} has experts or a latent cache"):
        sharded_step(find_architecture(name), Layout(Mesh(), "ws-1d", "heads"), batch=1, context=8)
