"""Our own optimised programs as test data: `python -m scripts.make_hlo_fixtures`, with the extras gpu-targets and tpu-targets installed.

Writes tests/costmodel/fixtures/<name>.hlo.xz, the text of each program, and totals.json: what it is, how often its loops run when all rows
are full, the versions that it came from, and XLA's own counts. `compiled` is what the compiler of that target says (null where it
says nothing, as for a GPU that is not there); `generic` is XLA's HloCostAnalysis of that very text, which any target's text can be given.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import lzma
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console

from costmodel.compile.program import Platform, StepProgram
from costmodel.compile.targets import TargetProgram, compile_for
from costmodel.hardware.host import cores
from costmodel.terminal import cli
from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig
from models.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "costmodel" / "fixtures"
TARGETS: Mapping[str, Platform] = {"cpu": "cpu", "h100": "gpu", "v5e": "tpu", "v6e": "tpu"}
CONTEXT = 512


def model(**more: Any) -> ModelConfig:
    """Two layers with the proportions of a real model, and heads as wide as an accelerator's kernels want them."""
    shape = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32000,
        "hidden_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 2816,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    }
    return from_hf({**shape, **more}, origin="fixture")


def programs() -> dict[str, tuple[str, StepProgram]]:
    """(target, step) by name: decode steps in every form that is served, and one each of the other kinds of step and layer."""
    named = {}
    for target, platform in TARGETS.items():
        for batch in (4, 32):
            for attention in ("gather", "blockwise"):
                for scanned in (False, True):
                    form = "scan" if scanned else "unroll"
                    named[f"{target}_{form}_{attention}_B{batch}"] = (
                        target,
                        StepProgram.on(platform, model(), ((batch, 1),), CONTEXT, attention=attention, scanned=scanned),
                    )
        step = StepProgram.on(platform, model(), ((8, 1),), CONTEXT)
        named[f"{target}_pool_of_4"] = target, dataclasses.replace(step, slack=4.0)
        named[f"{target}_mixed"] = target, dataclasses.replace(step, shape=((8, 1), (1, 128)))
        named[f"{target}_verify"] = target, dataclasses.replace(step, shape=((8, 5),), every_token=True)
        gemma = model(architectures=["Gemma3ForCausalLM"], sliding_window=128, layer_types=["sliding_attention", "full_attention"],
                      tie_word_embeddings=True, query_pre_attn_scalar=128, hidden_activation="gelu_pytorch_tanh")  # fmt: skip
        named[f"{target}_windows"] = target, dataclasses.replace(step, config=gemma)
    named["cpu_bf16"] = "cpu", StepProgram.on("cpu", model(), ((8, 1),), CONTEXT, dtype="bfloat16")
    return named


def generic_count(text: str) -> dict[str, float]:
    """XLA's count of a module's text by the rules that all backends start from.

    The one use of what JAX does not document; a release that moves it breaks this script and nothing else.
    """
    try:
        parse = importlib.import_module("jaxlib._hlo").hlo_module_from_text
        count = importlib.import_module("jaxlib._jax").hlo_module_cost_analysis
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"jax {jax.__version__} counts no program's text ({error}); this script was written for 0.10.2"
        ) from error
    counted = count(jax.devices("cpu")[0].client, parse(text))
    return {name: counted.get(name, 0.0) for name in ("flops", "bytes accessed", "transcendentals")}


def describe(step: StepProgram, compiled: TargetProgram) -> dict[str, Any]:
    fields = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    return {
        "target": compiled.target,
        "step": {**fields, "config": dataclasses.asdict(step.config)},
        "trips": step.trips(*[step.context] * len(step.shape)),
        "versions": dict(compiled.versions),
        "compiled": dataclasses.asdict(compiled.totals),
        "generic": generic_count(compiled.text),
    }


@click.command()
@click.option("--only", default="", help="make only those whose name has this in it, and keep what there is of the others")
def main(only: str) -> None:
    """Compile all programs and write them down."""
    FOLDER.mkdir(exist_ok=True)
    index = FOLDER / "totals.json"
    known = json.loads(index.read_text()) if only and index.exists() else {}
    console = Console()

    def make(name: str, target: str, step: StepProgram) -> None:
        compiled = compile_for(target, step, *step.abstract_args(), donate=step.donate)
        text = compiled.text.replace(f"{ROOT}/", "")  # source files by their place in the project
        data = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        (FOLDER / f"{name}.hlo.xz").write_bytes(data)
        known[name] = describe(step, compiled)
        console.print(f"{name}: {compiled.seconds:.1f} s, {len(data)} B")

    with ThreadPoolExecutor(cores()) as pool:
        wanted = [(name, *made) for name, made in programs().items() if only in name]
        for future in [pool.submit(make, *each) for each in wanted]:
            future.result()
    index.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    cli.run(main)
