"""Programs of our own step for chips that are not here. Needs the extras gpu-targets and tpu-targets, which `make test-all` installs.

Oracles: sizes of the arguments, FLOPs by hand, a compilation of all layers beside an extrapolated one, and for collectives the sums that
tensor parallelism asks for.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import Any

import jax
import pytest
from jax.sharding import PartitionSpec

from costmodel.compile.program import Platform, StepProgram
from costmodel.compile.target_table import TARGETS, find_target
from costmodel.compile.targets import TargetProgram, compile_for, compiler_version
from costmodel.compile.xla import in_place
from costmodel.ledger.compiled import CompiledCost, extrapolate
from costmodel.ledger.ledger import ledger
from models.config.model_config import ModelConfig
from models.config.presets import PRESETS
from models.errors import UserError
from tests.costmodel.target_functions import bf16, mlp

pytestmark = pytest.mark.targets

LLAMA = PRESETS["llama-3-8b"]


def layers(config: ModelConfig, count: int) -> ModelConfig:
    return dataclasses.replace(config, layers=count, windows=config.windows[:count])


def platform(target: str) -> Platform:
    return "tpu" if find_target(target)[1].platform == "tpu" else "gpu"


@functools.cache
def step(
    target: str, config: ModelConfig, batch: int, context: int = 1024, **options: Any
) -> tuple[StepProgram, TargetProgram]:
    name, chip = find_target(target)
    try:
        compiler_version(name, chip)
    except UserError as error:
        pytest.skip(str(error))
    program = StepProgram.on(platform(target), config, ((batch, 1),), context, **options)
    return program, compile_for(target, program, *program.abstract_args(), donate=program.donate)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles_a_step(target: str):
    """Two layers of an 8B: arguments as large as they are, the pool in place, a matmul for each weight and as many bytes."""
    program, compiled = step(target, layers(LLAMA, 2), 32)
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(program.abstract_args()))
    pool = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(program.abstract_args()[1]))
    assert compiled.totals.argument_bytes == pytest.approx(size, rel=1e-4)  # alignment, tiles of small arrays
    assert compiled.totals.alias_bytes == pool
    assert compiled.target == target and {"jax", "jaxlib"} < set(compiled.versions)
    if find_target(target)[1].platform == "cuda":
        assert compiled.totals.flops is None
    weights = 2 * (LLAMA.hidden * (LLAMA.qkv_dim + LLAMA.hidden + 3 * LLAMA.ffn)) + LLAMA.vocab_size * LLAMA.hidden
    counted = ledger(compiled.text, program.trips(program.context))
    attention = 2 * 2 * 2 * 32 * LLAMA.heads * LLAMA.head_dim * program.context
    assert counted.with_trips.flops == pytest.approx(2 * 32 * weights + attention, rel=0.02)
    if target != "tpu-v7x":  # lays some arrays out by calls to its sparse cores, which nobody has priced
        assert counted.unpriced == ()


@pytest.mark.parametrize("target", ["h100", "v5e", "v6e"])
def test_the_pool_is_not_copied(target: str):
    """Law 4 for chips, in the form that is served there: unrolled on a GPU, scanned on a TPU."""
    assert in_place(*(step(target, layers(LLAMA, 2), 32, slack=slack)[1] for slack in (1.0, 4.0)))


@pytest.mark.parametrize(("target", "memory"), [("v5e", "GiB"), ("h100", "GB")])
def test_seventy_billion_parameters_do_not_fit_one_chip(target: str, memory: str):
    """141 GB in bf16; refused by the compiler of the TPU, and by us for a GPU."""
    with pytest.raises(
        UserError, match=rf"^compiling for \S+: it needs 1[34]\d\.\d+ ?{memory} of memory, and the chip has [\d.]+ ?{memory}"
    ):
        step(target, PRESETS["llama-3-70b"], 1, scanned=True)


@pytest.mark.parametrize(("target", "chips"), [("h100", 8), ("v5e", 8), ("v6e", 4), ("v7x", 4)])
def test_several_chips(target: str, chips: int):
    """A matrix split by columns and the next by rows: one sum over all chips of the [16, 1024] result, and a share of the FLOPs."""
    step(target, PRESETS["tiny"], 1)  # skips where there is no compiler
    column, row = PartitionSpec(None, "model"), PartitionSpec("model", None)
    program = compile_for(
        target, mlp, bf16(16, 1024), bf16(1024, 8192), bf16(8192, 1024), mesh={"model": chips}, specs=(None, column, row)
    )
    assert program.chips == chips and f"num_partitions={chips}" in program.text
    assert len(re.findall(r"\[16,1024\]\S* all-reduce(?:-start)?\(", program.text)) == 1
    flops = ledger(program.text).with_trips.flops
    assert flops == pytest.approx(2 * 2 * 16 * 1024 * 8192 / chips, rel=0.02)


def test_extrapolation_from_2_and_4_layers():
    """Twelve layers, unrolled as a GPU has them: each witness's bytes and FLOPs of the whole program to 1 %.

    Not for a TPU, which keeps another share of each program on chip; there the layers are scanned and nothing is extrapolated.
    """

    def cost(count: int) -> CompiledCost:
        program, compiled = step("h100", layers(PRESETS["llama-3.2-1b"], count), 32)
        return CompiledCost.of(ledger(compiled.text, program.trips(program.context)))

    whole, found = cost(12), extrapolate(cost(2), cost(4), (2, 4, 12))
    for name in ("reported", "with_trips", "traffic"):
        wanted, given = getattr(whole, name), getattr(found, name)
        assert given.flops == pytest.approx(wanted.flops, rel=0.01), name
        assert given.bytes == pytest.approx(wanted.bytes, rel=0.01), name
    assert found.basis == "extrapolated from 2 and 4 layers to 12"
