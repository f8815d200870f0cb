"""Layouts beside programs that XLA partitioned for 8 H100s and a 2x4 v5e (jax 0.10.2; texts in `partitioned/`, so no compiler is needed).

Two checks that need each other: the program computes what the model does without a mesh, so its placement is a valid layout; and its
collectives, which XLA chose, move the bytes of formulas that know nothing of XLA.
"""

import functools
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.parallel.layouts import ATTENTION, FEEDFORWARD
from scripts.partitioned import CASES, TARGETS, WHY, compare, file_name, tell
from tests.jaxserve import commands

FOLDER = Path(__file__).parent / "partitioned"
RECORD = Path(__file__).resolve().parents[2] / "docs" / "partitioned.md"
MODULE = "scripts.partitioned"
STATIONARY = ["llama-3-8b ws-1d heads", "llama-3-8b ws-2d heads", "llama-3-8b ws-2d batch"]


@functools.cache
def compared(target, name):
    return compare(name, lzma.decompress((FOLDER / file_name(target, name)).read_bytes()).decode())


def by_kind(result, kind):
    rows = [row for row in result["rows"] if row["kind"] == kind]
    return tuple(sum(row[side] for row in rows) for side in ("analytical", "compiled"))


@pytest.mark.parametrize("name", STATIONARY)
def test_h100_sends_what_the_formulas_say(name):
    """Each kind of collective on each axis, to the byte: all-gathers, reduce-scatters, all-to-alls, and the sums of the norms."""
    for row in compared("h100", name)["rows"]:
        assert row["compiled"] == row["analytical"], row


@pytest.mark.parametrize("name", STATIONARY)
def test_v5e_gathers_and_exchanges_what_the_formulas_say(name):
    result = compared("v5e", name)
    for kind in ("all-gather", "all-to-all"):
        model, program = by_kind(result, kind)
        assert program == model, kind


@pytest.mark.parametrize("name", STATIONARY[1:])
def test_v5e_reduces_all_but_the_logits_as_the_formulas_say(name):
    """The logits, 32 rows of 128,256 / 4 in f32, are all-reduced along x where the formula scatters them: once more 1/2 of them."""
    result = compared("v5e", name)
    logits = 32 * 128_256 / 4 * 4 / 2
    assert result["sent"]["compiled"] - result["sent"]["analytical"] == logits


def test_v5e_ring_of_matmuls():
    """ws-1d: after `down`, 9 pieces of an eighth are permuted where 7 would do, in each of two layers."""
    result = compared("v5e", "llama-3-8b ws-1d heads")
    piece = 32 * 4096 / 8 * 2
    assert by_kind(result, "collective-permute") == (0, 2 * 9 * piece)
    assert result["sent"]["compiled"] - result["sent"]["analytical"] == 2 * 2 * piece


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_multiquery_parallel_block(target):
    """One gather and one scatter a layer; only K and V go differently: twice 16 rows of 512 elements in place of once, two layers."""
    result = compared(target, "palm-8b ws-2d batch")
    for kind in ("all-gather", "all-to-all"):
        model, program = by_kind(result, kind)
        assert program == model, kind
    assert result["sent"]["compiled"] - result["sent"]["analytical"] == 2 * 16 * 512 * 2


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_gathered_weights(target):
    """wg-xyz: seven eighths of every matrix, axis by axis or at once, are 99 % of what is sent. What is sent beyond the formulas, to 1 %:
    half of the embeddings that a chip looked up, last hidden states whole and not halved, and on a TPU the logits as above."""
    result = compared(target, "llama-3-8b wg-xyz batch")
    model, program = by_kind(result, "all-gather")
    matrices = 2 * (4096 * (32 + 2 * 8 + 32) * 128 + 3 * 4096 * 14336) * 2 * 7 / 8
    assert model == pytest.approx(matrices, rel=1e-3) and program == pytest.approx(matrices, rel=1e-3)
    embeddings, hidden = 32 * 64 * 2048 * 2 / 2, 32 * 4096 * 2 * 7 / 8 - 32 * 2048 * 2 * 3 / 4
    logits = 32 * 128_256 / 4 * 4 / 2 if target == "v5e" else 0
    more = result["sent"]["compiled"] - result["sent"]["analytical"]
    assert more == pytest.approx(embeddings + hidden + logits, rel=0.01)


@pytest.mark.parametrize("target", ["h100", "v5e"])
@pytest.mark.parametrize("name", list(CASES))
def test_a_chip_holds_what_the_formulas_say(target, name):
    """Weights and cache are the program's arguments, but for the tokens and their position."""
    result = compared(target, name)
    tokens = 32 * CASES[name].tokens * 4 + 4
    assert result["held"]["compiled"] == result["held"]["analytical"] + tokens


@pytest.mark.parametrize("target", ["h100", "v5e"])
@pytest.mark.parametrize("name", list(CASES))
def test_every_difference_is_explained(target, name):
    sent = compared(target, name)["sent"]
    assert (sent["compiled"] != sent["analytical"]) == ((target, name) in WHY)


def test_the_record_is_what_the_command_prints(capsys):
    """Of every program; which here are read and not compiled."""
    for target in TARGETS:
        for name in CASES:
            tell({"target": target, "case": name, **compared(target, name)})
    printed = capsys.readouterr().out.rstrip().splitlines()
    recorded = RECORD.read_text().partition("```\n")[2].partition("```")[0].rstrip().splitlines()
    assert [line.rstrip() for line in recorded] == [line.rstrip() for line in printed]


EQUAL = """
import dataclasses, jax, jax.numpy as jnp, numpy as np, sys
from costmodel.arch.catalog import find_architecture
from costmodel.parallel.layouts import Layout, Mesh
from scripts.partitioned_step import PartitionedStep
tiny = dataclasses.replace(find_architecture("tiny"), heads=16, head_dim=8)
models = dataclasses.replace(tiny, kv_heads=8), dataclasses.replace(tiny, kv_heads=1, parallel=True)
rng = np.random.default_rng(0)
for model in models[: int(sys.argv[1])]:
    real = want = None
    for layout in sys.argv[2:]:
        step = PartitionedStep(model, Layout(Mesh(2, 2, 2), *layout.split()), batch=8, context=16, tokens=2, dtype="float32")
        if real is None:
            draw = lambda a: jnp.asarray(rng.uniform(0, 9 if a.dtype == "int32" else 0.2, a.shape), a.dtype)
            real = jax.tree.map(draw, step.abstract_args())
        def run(devices):
            mesh = jax.sharding.Mesh(np.array(jax.devices()[: devices**3]).reshape(devices, devices, devices), ("x", "y", "z"))
            with jax.set_mesh(mesh):
                places = jax.tree.map(lambda s: jax.sharding.NamedSharding(mesh, s), step.specs(), is_leaf=lambda s: isinstance(s, jax.P))
                return jax.tree.map(np.asarray, jax.jit(step, in_shardings=places)(*jax.device_put(real, places)))
        want = want or run(1)
        for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(run(2)), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
"""


def equal(models, *layouts):
    """A serial block with grouped heads, or a parallel multiquery one too, partitioned over 8 devices of the host, against one device."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(commands.ROOT), *sys.path]),
    }
    found = subprocess.run(
        [sys.executable, "-c", EQUAL, str(models), *layouts], capture_output=True, text=True, env=environment, timeout=600
    )
    assert found.returncode == 0, found.stderr[-2000:]


@pytest.mark.slow
def test_partitioned_programs_compute_the_same():
    equal(1, "ws-2d batch")


@pytest.mark.slow
def test_partitioned_programs_compute_the_same_in_every_layout():
    equal(2, *(f"{feedforward} {attention}" for feedforward in FEEDFORWARD for attention in ATTENTION))


def test_unknown_chip_and_help(tmp_path):
    unknown = commands.run(MODULE, "--target", "h1000", cache=tmp_path)
    assert unknown.returncode == 2 and "h1000" in commands.error_line(unknown.stderr)
    found = commands.run(MODULE, "--help", cache=tmp_path)
    assert found.returncode == 0 and "Example: python -m scripts.partitioned" in found.stdout
