"""The check of a GPU, walked through on a CPU with a tiny model: its figures follow from each other, and it says what it leaves out."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from costmodel.hardware.ceilings import Ceilings
from jaxserve.engine.model import load_model
from jaxserve.programs.step import Work
from models.config.presets import PRESETS
from models.layers import KV
from scripts.gpu_sweep import Sweep
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line

MODULE = "scripts.gpu_check"
SMALL = ("--model", "random:tiny", "--batches", "1,2", "--context", "32", "--steps", "3", "--allow-cpu")
CHECK = ("--check-model", "random:tiny", "--check-rows", "3", "--check-tokens", "4")


def check(cache: Path, *arguments: str, **more: str) -> Any:
    found = commands.run(MODULE, *arguments, "--json", cache=cache, **more)
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    return json.loads(found.stdout)


def test_without_a_gpu(tmp_path: Path):
    found = commands.run(MODULE, cache=tmp_path, JAX_PLATFORMS="cpu")
    assert found.returncode == 2 and found.stdout == ""
    assert error_line(found.stderr).startswith("error: no GPU: JAX sees cpu only; install jaxserve[cuda]")


def test_help_has_an_example(tmp_path: Path):
    found = commands.run(MODULE, "--help", cache=tmp_path)
    assert found.returncode == 0 and "Example: python -m scripts.gpu_check" in found.stdout


@pytest.mark.slow
def test_all_of_it_in_f32(tmp_path: Path):
    """The reference on a second device of the host: the same weights and dtype, so not a token differs."""
    two = "--xla_force_host_platform_device_count=2"
    result = check(tmp_path, *SMALL, *CHECK, "--dtype", "float32", JAX_PLATFORMS="cpu", XLA_FLAGS=two)
    agreed = result["agreement"]
    assert agreed["greedy_same"] == agreed["greedy_tokens"] == 12 and agreed["same_top"] == 1.0 and agreed["holds"]
    assert agreed["mean_kl"] < 1e-9 and agreed["positions"] > 100
    config = PRESETS["tiny"]
    for batch, point in zip((1, 2), result["sweep"], strict=True):
        parameters = 2 * 512 * 64 + 2 * (64 * 128 + 64 * 64 + 3 * 64 * 128) + 5 * 64
        assert point["batch"] == batch and point["skipped"] is None
        assert point["nominal_bytes"] == pytest.approx(4 * parameters + batch * 32 * config.kv_bytes_per_token(4))
        assert point["tokens_per_second"] == pytest.approx(1e3 * batch / point["step_ms"])
        assert point["bytes_per_second"] == pytest.approx(1e3 * point["nominal_bytes"] / point["step_ms"])
        assert point["of_measured"] == pytest.approx(point["bytes_per_second"] / result["measured_ceilings"]["read_bandwidth"])
        assert point["of_data_sheet"] is None and point["xla_flops"] > 0 and point["step_ms_p95"] >= point["step_ms"] > 0
    assert result["sweep"][0]["xla_flops"] < result["sweep"][1]["xla_flops"]


@pytest.mark.slow
def test_what_does_not_fit_is_skipped_and_said(tmp_path: Path):
    """In 16 bits, as text: a batch that no memory holds, and none where the time is up."""
    found = commands.run(MODULE, *SMALL, *CHECK, "--batches", "1,100000000", cache=tmp_path, JAX_PLATFORMS="cpu")
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    assert "batch 100000000 skipped: needs" in found.stdout and "batch 1 skipped" not in found.stdout
    assert "random:tiny in bfloat16 against f32 on the CPU:" in found.stdout and "random weights: not judged" in found.stdout
    result = check(tmp_path, *SMALL, "--check-rows", "0", "--limit-s", "0.1", JAX_PLATFORMS="cpu")
    assert result["agreement"] is None and result["check_model"] is None
    assert [point["skipped"] for point in result["sweep"]] == ["the time limit was reached"] * 2


@pytest.mark.slow
def test_a_comparison_that_takes_too_long_is_not_waited_for(tmp_path: Path):
    """There is no time at all: the report comes, and the exit code says that nothing was compared."""
    found = commands.run(MODULE, *SMALL, *CHECK, "--limit-s", "0.1", "--json", cache=tmp_path, JAX_PLATFORMS="cpu")
    assert found.returncode == 2 and json.loads(found.stdout)["agreement"] is None
    assert "tokens were not compared: f32 on this CPU takes longer than --limit-s 0.1" in error_line(found.stderr)


@pytest.mark.slow
def test_a_batch_that_runs_out_of_memory_costs_no_other(monkeypatch: pytest.MonkeyPatch):
    """The first batch fails as XLA does, with the pool already taken over; the second is timed with a new one."""
    sweep = Sweep(load_model("random:tiny", dtype="float32", context=32), (1, 2), 32)
    sweep.wait(300)
    program = sweep.building[2].result()

    class Failing:
        bucket = program.bucket

        def __call__(self, pool: KV, work: tuple[Work, ...]) -> None:
            program(pool, work)
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nmore")

    failing: Future[Any] = Future()
    failing.set_result(Failing())
    sweep.building[2] = failing
    limits = Ceilings("host", "date", 0.0, 1e9, "read", 1e9, "f32", 1e9, "bf16")
    lost, kept = (sweep.measure(batch, 2, limits, None) for batch in (2, 1))
    assert lost.skipped == "the device ran out of memory (RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.)"
    assert kept.skipped is None and kept.step_ms is not None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--batches", "0"), "--batches is 0; it must be at least 1"),
        (("--context", "0"), "--context': 0 is not in the range 1<=x<=1000000"),
        (("--steps", "0"), "--steps': 0 is not in the range 1<=x<=1000000"),
        (("--context", "2000", *SMALL[:2]), "--context is 2000; random:tiny takes 1 to 1024 tokens"),
    ],
)
@pytest.mark.slow
def test_bad_input(arguments: tuple[str, ...], line: str, tmp_path: Path):
    found = commands.run(MODULE, *arguments, "--allow-cpu", cache=tmp_path, JAX_PLATFORMS="cpu")
    assert found.returncode == 2 and found.stdout == "" and line in error_line(found.stderr)
