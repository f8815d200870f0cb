"""Decode speed of jaxserve beside transformers and llama.cpp, interleaved in one run.

All engines decode the same weights greedily with the same contexts: each round steps every engine in turn, so that a disturbance of
the machine falls on all. Printed are milliseconds a step and, from each round's medians, the ratio of tokens/s over each peer's
fastest dtype, with its spread over the rounds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console

from costmodel.hardware.clock import RunQueue, Timings
from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from costmodel.terminal.tables import Table
from models.errors import UserError
from scripts.options import whole
from scripts.peers import Engine, LlamaCpp, Ours, Transformers, packaged_file, write_gguf

HOPELESS = 2.0  # an engine's dtype this many times slower than its best at one batch size is left out at the next
TARGETS = {1: (1.5, 0.4), 8: (1.7, 0.9), 32: (1.7, 1.05), 64: (1.9, 1.15)}  # over transformers, over llama.cpp


@dataclasses.dataclass
class Lane:
    """One engine and the seconds of its steps, a list a round."""

    label: str
    engine: Engine
    rounds: list[list[float]] = dataclasses.field(default_factory=list)

    def time(self, count: int, run: Callable[[], None]) -> None:
        laps = []
        for _ in range(count):
            start = time.perf_counter()
            run()
            laps.append(time.perf_counter() - start)
        self.rounds.append(laps)

    @property
    def timings(self) -> Timings:
        return Timings(tuple(lap for laps in self.rounds for lap in laps))


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Tokens/s of one lane over another: the median over rounds, and the smallest and largest round."""

    ours: str
    peer: str
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Lane, peer: Lane) -> Ratio:
        each = [statistics.median(b) / statistics.median(a) for a, b in zip(ours.rounds, peer.rounds, strict=True)]
        return cls(ours.label, peer.label, statistics.median(each), min(each), max(each))


def best(lanes: Sequence[Lane], prefix: str) -> Lane:
    """The engine's fastest dtype, by the median step."""
    return min((lane for lane in lanes if lane.label.startswith(prefix)), key=lambda lane: lane.timings.median)


@click.command(epilog="Example: python -m scripts.bench_peers --batch 1,8,32,64 --rounds 8")
@click.option("--batch", "batches", type=cli.Numbers(), default="1,8,32,64", show_default=True, help="Batch sizes.")
@click.option("--context", type=whole(), default=128, show_default=True, help="Tokens in the cache when decoding starts.")
@click.option("--steps", type=whole(), default=72, show_default=True, help="Steps of each engine, over all rounds.")
@click.option("--rounds", type=whole(), default=8, show_default=True, help="How often the engines take turns.")
@click.option("--prompt", type=whole(0), default=512, show_default=True, help="Tokens of the prefill comparison; 0: none.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(batches: tuple[int, ...], context: int, steps: int, rounds: int, prompt: int, as_json: bool) -> None:
    """Compare the speed of a decode step, of the whole decode loop, and of a prefill with transformers and llama.cpp."""
    if steps < rounds:
        raise UserError(f"--steps is {steps} for {rounds} rounds; give at least one step a round")
    sizes = tuple(sorted(set(batches)))
    rng, results = np.random.default_rng(0), []
    facts = {"machine": host_key(), "date": today(), **versions()}
    if not as_json:
        print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    with tempfile.TemporaryDirectory() as folder, cli.Bars() as bars:
        lanes = make_lanes(Path(folder), sizes, context + steps + 2, prompt, bars)
        for size in sizes:
            advance = bars.bar(f"batch {size}, rounds", rounds)
            prompts = rng.integers(10, 40_000, (size, context))
            for lane in lanes:
                lane.engine.start(prompts, steps)
                lane.engine.step()
                lane.rounds = []
            with RunQueue() as queue:
                for _ in range(rounds):
                    for lane in lanes:
                        time.sleep(0.05)  # let the other engine's threads stop spinning
                        lane.time(steps // rounds, lane.engine.step)
                    advance(1)
            results.append(summary(f"decode, batch {size}, context {context} to {context + steps}", size, lanes, queue, size))
            tell(results[-1], as_json)
            lanes = hopeful(lanes)
        if prompt:
            tokens = rng.integers(10, 40_000, prompt)
            chosen = [lane for lane in lanes if "step" not in lane.label]
            for lane in chosen:
                lane.engine.start(tokens[None], 1)
                lane.engine.prefill(tokens)
                lane.rounds = []
            with RunQueue() as queue:
                for _ in range(rounds):
                    for lane in chosen:
                        time.sleep(0.05)
                        lane.time(1, functools.partial(lane.engine.prefill, tokens))
            results.append(summary(f"prefill of {prompt} tokens", prompt, chosen, queue, None))
            tell(results[-1], as_json)
    if as_json:
        print(json.dumps({**facts, "results": results}, indent=1))


def hopeful(lanes: list[Lane]) -> list[Lane]:
    """The lanes without those dtypes that are far behind their own engine's best: a larger batch would only take longer."""
    engine = {lane.label: lane.label.split(",")[0] for lane in lanes}
    return [x for x in lanes if x.timings.median < HOPELESS * best(lanes, engine[x.label]).timings.median]


def make_lanes(folder: Path, batches: tuple[int, ...], context: int, prompt: int, bars: cli.Bars) -> list[Lane]:
    """Ours in each pair of dtypes that it offers, step alone and whole loop, and both peers in each of theirs."""
    advance = bars.bar("loading engines", 9)
    lanes = []
    for dtype, kv in (("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16")):
        step = Ours(dtype, kv, batches, context, max(context, prompt + 2))
        loop = step.twin()
        lanes += [Lane(f"jaxserve step, {step.dtype}", step), Lane(f"jaxserve loop, {loop.dtype}", loop)]
        advance(2)
    for dtype in ("float32", "bfloat16"):
        lanes.append(Lane(f"transformers, {dtype}", Transformers(dtype)))
        advance(1)
    for name, kind in (("f32", np.float32), ("f16", np.float16)):
        lanes.append(Lane(f"llama.cpp, {name}", LlamaCpp(write_gguf(folder / f"{name}.gguf", kind), name)))
        advance(1)
    # Not a dtype of the same computation: the kernel rounds activations to 8 bits. Shown, and kept out of the ratios.
    lanes.append(Lane("(llama.cpp), Q4_1", LlamaCpp(packaged_file(), "Q4_1")))
    advance(1)
    return lanes


def summary(title: str, tokens: int, lanes: list[Lane], queue: RunQueue, batch: int | None) -> dict:
    """One comparison as plain data."""
    ratios = []
    for ours in ("jaxserve step", "jaxserve loop"):
        for peer in ("transformers", "llama.cpp"):
            if any(lane.label.startswith(ours) for lane in lanes):
                ratios.append(dataclasses.asdict(Ratio.of(best(lanes, ours), best(lanes, peer))))
    return {
        "title": title,
        "batch": batch,
        "contention": queue.contention,
        "lanes": {
            lane.label: {
                "median_ms": lane.timings.median * 1e3,
                "p5_ms": lane.timings.percentile(5) * 1e3,
                "p95_ms": lane.timings.p95 * 1e3,
                "tokens_per_second": tokens / lane.timings.median,
            }
            for lane in lanes
        },
        "ratios": ratios,
    }


def tell(result: dict, as_json: bool) -> None:
    """Print one comparison for people, as soon as it is there."""
    if as_json:
        return
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    view = Table(title=f"{result['title']} (contention {result['contention'] or 0:.2f})")
    for name in ("engine", "ms, median", "P5", "P95", "tokens/s"):
        view.add_column(name, justify="left" if name == "engine" else "right")
    for label, lane in result["lanes"].items():
        times = [f"{lane[key]:.1f}" for key in ("median_ms", "p5_ms", "p95_ms")]
        view.add_row(label, *times, f"{lane['tokens_per_second']:,.0f}")
    console.print(view)
    for ratio in result["ratios"]:
        wanted = TARGETS.get(result["batch"], (None, None))["llama.cpp" in ratio["peer"]]
        goal = f", wanted {wanted}" if wanted else ""
        spread = f"rounds {ratio['low']:.2f} to {ratio['high']:.2f}"
        console.print(f"  {ratio['ours']} over {ratio['peer']}: {ratio['median']:.2f} ({spread}{goal})")


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("jax", "transformers", "torch", "llama-cpp-python")}


if __name__ == "__main__":
    cli.run(main)
