"""`python -m costmodel`: what a decode step costs, on any chip, by every witness.

Only the command line stands here; JAX and all that needs it is imported once the options are known to be sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costmodel.terminal import cli
from models.errors import MOST as MOST_COUNT

MODEL = click.option(
    "--model", default="llama-3-8b", show_default=True, help="A name (see `models`), or a config.json or its folder."
)
CHIP = click.option("--chip", default="h100", show_default=True, help="A name (see `chips`); host is this machine, measured.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for machines.")


@click.group(epilog="Example: python -m costmodel decode --model llama-3-8b --chip h100 --batch 1,8,32 --analytical")
def main() -> None:
    """What a batched step costs: modelled, compiled and measured, and why the three differ."""


@main.command(epilog="Example: python -m costmodel decode --model llama-3-8b --chip h100 --batch 1,32,256 --context 1024")
@MODEL
@CHIP
@click.option("--batch", "batches", type=cli.Numbers(), default="1,8,32,64,128,256", show_default=True, help="Rows of a step.")
@click.option("--context", type=int, default=1024, show_default=True, help="Tokens that each row holds when the step ends.")
@click.option("--analytical", is_flag=True, help="The model alone: nothing is compiled, the core install is enough.")
@click.option(
    "--dtype", help="Of the weights. Default: float32 on a CPU, else bfloat16. With --analytical also int8, q4_1, ..."
)
@click.option("--kv-dtype", help="Of the KV cache. Default: the weights'.")
@click.option("--attention", default="gather", show_default=True, help="gather, or blockwise as the engine serves.")
@click.option("--layers", default="auto", show_default=True, help="unrolled, scanned, or auto: scanned on a TPU.")
@click.option(
    "--page-size", "page", type=click.IntRange(1, MOST_COUNT), default=16, show_default=True, help="Tokens of a KV page."
)
@click.option("--slack", type=float, default=1.0, show_default=True, help="Pages of the pool over those that all rows need.")
@click.option("--whole", is_flag=True, help="Compile all layers and extrapolate nothing.")
@click.option(
    "--measure", "repeats", type=click.IntRange(0, 100_000), default=0, help="Run the step so many times (--chip host)."
)
@click.option("--table", type=click.Choice(["lesson"]), help="lesson: the nominal model's table, every doubling of the batch.")
@click.option(
    "--plot", type=Path, help="Write the roofline with its points: .png, .pdf or .svg (pip install 'jaxserve[plots]')."
)
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values on standard output.")
@JSON
def decode(**options: Any) -> None:
    """A decode step at each batch size: analytical, as XLA reports it, with trip counts, as memory traffic, and the waterfall between."""
    with cli.importing():
        from costmodel.cli.decode import run
    with cli.Bars() as bars:
        printed = run(bars.bar, **options)
    printed.print()


@main.command(epilog="Example: python -m costmodel lesson --section 2 --chip a100-sxm-80gb")
@MODEL
@click.option("--large", default="llama-3-70b", show_default=True, help="The model of section 3, which does not fit one chip.")
@CHIP
@click.option(
    "--context", type=click.IntRange(1, MOST_COUNT), default=1024, show_default=True, help="Tokens that each row holds."
)
@click.option(
    "--long-context",
    "long",
    type=click.IntRange(1, MOST_COUNT),
    default=8192,
    show_default=True,
    help="Tokens that each row of the large model holds.",
)
@click.option(
    "--kv-pool", type=click.FloatRange(0, 1e6, min_open=True), default=30, show_default=True, help="KV pool of section 4, GiB."
)
@click.option("--section", "sections", type=click.IntRange(1, 99), multiple=True, help="Only this one; repeat it for several.")
@JSON
def lesson(kv_pool: float, **options: Any) -> None:
    """Why batch 1 wastes an accelerator: roofline, GEMV to GEMM, KV, sizing, waiting, slots; each as formula, numbers and result."""
    with cli.importing():
        from costmodel.cli.lesson import run
        from costmodel.lesson import GIB
    run(kv_pool=kv_pool * GIB, **options).print()


@main.command(epilog="Example: python -m costmodel layouts --model llama-3-70b --chip h100 --chips 8 --batch 64")
@MODEL
@CHIP
@click.option("--chips", type=click.IntRange(1, 4096), default=8, show_default=True, help="Chips that share the model.")
@click.option("--mesh", help="Their grid, such as 2x4 (a torus). Default: every one, as behind a switch.")
@click.option("--batch", type=click.IntRange(1, MOST_COUNT), default=64, show_default=True, help="Sequences.")
@click.option("--context", type=click.IntRange(1, MOST_COUNT), default=2048, show_default=True, help="Tokens that each holds.")
@click.option("--prompt", type=click.IntRange(1, MOST_COUNT), default=2048, show_default=True, help="Tokens of each prompt.")
@click.option(
    "--overlap",
    type=click.Choice(["none", "full"]),
    default="none",
    show_default=True,
    help="Collectives after the matmuls (none), or hidden behind them (full).",
)
@click.option(
    "--links",
    type=click.Choice(["all", "own"]),
    default="all",
    show_default=True,
    help="Links that a collective uses: all of a chip, or those along its mesh axes.",
)
@click.option("--top", type=click.IntRange(1, MOST_COUNT), default=6, show_default=True, help="Layouts to print of each step.")
@JSON
def layouts(**options: Any) -> None:
    """How a model may be split over several chips: memory, bytes sent and seconds of each layout, and which wins for decode and prefill."""
    with cli.importing():
        from costmodel.cli.layouts import run
    run(**options).print()


@main.command(epilog="Example: python -m costmodel chips --json")
@JSON
def chips(as_json: bool) -> None:
    """The chips that a step can be priced on: dense peaks, bandwidths, sources, and which can be compiled for."""
    from costmodel.cli.lists import chips as run

    run(as_json).print()


@main.command(epilog="Example: python -m costmodel models")
@JSON
def models(as_json: bool) -> None:
    """The models that are known by name, their shape, their KV cache, and whether the engine runs them."""
    with cli.importing():
        from costmodel.cli.lists import models as run
    run(as_json).print()


@main.command(epilog="Example: python -m costmodel params --model mixtral-8x7b")
@MODEL
@click.option("--dtype", default="bfloat16", show_default=True, help="Format of the weights: bfloat16, int8, q4_1, ...")
@JSON
def params(model: str, dtype: str, as_json: bool) -> None:
    """Parameters and bytes of a model by component, and where the counts come from."""
    with cli.importing():
        from costmodel.cli.lists import params as run
    run(model, dtype, as_json).print()


@main.command(epilog="Example: python -m costmodel ledger --model llama-3-8b --chip h100 --batch 32 --layers 2 --top 15")
@click.argument("file", type=Path, required=False)
@MODEL
@CHIP
@click.option("--batch", type=click.IntRange(1, MOST_COUNT), default=32, show_default=True, help="Rows of the step.")
@click.option("--context", type=int, default=1024, show_default=True, help="Tokens that each row holds.")
@click.option("--attention", default="gather", show_default=True, help="gather or blockwise.")
@click.option(
    "--layers", type=click.IntRange(1, MOST_COUNT), default=2, show_default=True, help="Only the model's first layers."
)
@click.option("--trips", type=click.IntRange(0, MOST_COUNT), help="Of a FILE: iterations of the loops whose bound is data.")
@click.option("--top", type=click.IntRange(1, MOST_COUNT), default=20, show_default=True, help="Instructions to print.")
@click.option("--text", type=Path, help="Write the program's text there too (.hlo, or .hlo.xz to compress it).")
@JSON
def ledger(**options: Any) -> None:
    """The instructions of a program that move most, with their component: of FILE (HLO text, also .xz), or of a step compiled now."""
    with cli.importing():
        from costmodel.cli.ledger import run
    with cli.Bars() as bars:
        printed = run(bars.bar, **options)
    printed.print()


@main.command(epilog="Example: python -m costmodel calibrate --silicon kernel-times --chip rtx-4090")
@click.option(
    "--silicon", type=Path, required=True, help="Folder with measured kernel times of the H100: h100_sxm_gemm.csv and so on."
)
@click.option(
    "--chip",
    default="h100",
    show_default=True,
    help="Price steps there; one that was not fitted gets its data sheet and wider intervals.",
)
@MODEL
@click.option("--batch", "batches", type=cli.Numbers(), default="1,8,32,64,128,256", show_default=True, help="Rows of a step.")
@click.option(
    "--context", type=click.IntRange(1, MOST_COUNT), default=1024, show_default=True, help="Tokens that each row holds."
)
@click.option("--out", type=Path, help="Write the calibrated kernels of the chip there (JSON), for predictors.")
@JSON
def calibrate(**options: Any) -> None:
    """Fit a few physical parameters to measured kernels, show how well they predict what they have not seen, and price steps with them."""
    with cli.importing():
        from costmodel.cli.calibrate import run
    with cli.Bars() as bars:
        printed = run(bars.bar, **options)
    printed.print()


if __name__ == "__main__":
    cli.run(main)
