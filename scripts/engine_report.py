"""What `scripts/bench_engine.py` has found, for people: tables, and for each target whether it is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from costmodel.terminal.tables import Table

Result = Mapping[str, Any]


def show(result: Result, console: Console) -> None:
    """Print everything; where a target is not met also the profiles, which say why."""
    _facts(result, console)
    _systems(result, console)
    _targets(result, console)
    if not all(target["met"] for target in result["targets"]):
        _profiles(result, console)


def several(values: Sequence[float | None], form: str) -> str:
    """The values of all rounds, such as 1.52, 1.49."""
    return ", ".join("none" if value is None else format(value, form) for value in values)


def _facts(result: Result, console: Console) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in result["facts"].items()))
    load = result["workload"]
    console.print(
        f"{load['requests']} requests drawn (seed {load['seed']}) from {load['source']}, lengths x {load['scale']:.4g}, answers a further "
        f"x {load['stretch']:g}, gaps x {load['time_scale']:g}: {load['prompt_tokens']:,} prompt and {load['output_tokens']:,} answer "
        f"tokens, the longest sequence {load['longest']}"
    )
    static, least = load["least_steps"]
    console.print(
        f"With {result['rows']} rows static batches take at least {static} decode steps, any other order at least {least} (analytical): "
        f"were prompts for nothing and all steps alike, at most {static / least:.2f} times the tokens/s"
    )


def _systems(result: Result, console: Console) -> None:
    console.print("\nThe same requests, tokens/s (measured; a value a round)")
    view = Table()
    for name in ("system", "s", "of answers", "with prompts", "ITL median, ms", "ITL P99, ms", "contention", "tokens as ours"):
        view.add_column(name, justify="left" if name == "system" else "right")
    for label, system in result["systems"].items():
        runs, same = system["runs"], system["alike"]
        columns = [("seconds", ".1f"), ("useful", ".1f"), ("total", ".1f"), ("itl_median_ms", ".0f"), ("itl_p99_ms", ".0f")]
        cells = [several([run[key] for run in runs], form) for key, form in columns]
        contention = several([run["contention"] or 0.0 for run in runs], ".2f")
        first = f", first apart at {same['first'][1]} of {same['first'][0]}" if same["first"] else ""
        agreed = f"{same['share']:.1%} ({same['same']} of {same['requests']}{first})"
        view.add_row(f"{label}\n{system['settings']}", *cells, contention, agreed)
    console.print(view)
    for how, runs in result["overhead"].items():
        for number, found in enumerate(runs, 1):
            few = "" if found["steps"] >= 100 else ", too few for P99: the most"
            host = f"host {found['median_ms']:.2f} ms median, {found['p99_ms']:.2f} P99, {found['share']:.2%} of the time"
            console.print(
                f"pure decode of {result['rows']} rows, {how}, round {number} (measured, {found['steps']} steps{few}): step "
                f"{found['step_ms']:.1f} ms, {host}"
            )


def _targets(result: Result, console: Console) -> None:
    console.print("\nTargets")
    view = Table()
    for name in ("what", "measured, a value a round", "target", ""):
        view.add_column(name, justify="left" if name in ("what", "") else "right")
    for target in result["targets"]:
        bound = f"{'at most' if target['most'] else 'at least'} {target['bound']:g}"
        view.add_row(target["what"], several(target["values"], ".3f"), bound, "met" if target["met"] else "NOT met")
    console.print(view)


def _profiles(result: Result, console: Console) -> None:
    for label, profile in result["profiles"].items():
        padded = f"{profile['padded']:.0%} of the programs' rows were padding"
        console.print(f"\nWhere the time of {label} went, last round (measured; {padded})")
        view = Table()
        for name in ("kind of step", "steps", "s", "share", "ms a step", "tokens/s"):
            view.add_column(name, justify="left" if name == "kind of step" else "right")
        for kind, part in profile["parts"].items():
            each = f"{part['seconds'] / part['steps'] * 1e3:.1f}" if part["steps"] else ""
            rate = f"{part['tokens'] / part['seconds']:,.0f}" if part["tokens"] else ""
            steps = str(part["steps"]) if part["steps"] else ""
            view.add_row(kind, steps, f"{part['seconds']:.2f}", f"{part['share']:.1%}", each, rate)
        console.print(view)
    console.print("\nThe host, ms a step of pure decode (measured under Python's profiler, slower than without)")
    view = Table()
    view.add_column("task")
    view.add_column("ms", justify="right")
    for name, value in sorted(result["host_parts_ms"].items(), key=lambda part: -part[1]):
        view.add_row(name, f"{value:.3f}")
    console.print(view)
