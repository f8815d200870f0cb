"""The roofline (Williams et al. 2009) with what steps reached beneath it: intensity from the model, time from the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxserve.load.result import Run
from jaxserve.reporting.figure import Figure, blank, graduate, points, reference
from jaxserve.reporting.reached import Point, programs_table, reached

LEAST = 0.002  # of the time of steps; what runs more rarely is in the table alone
LOOK = (
    "Left of the corner memory bounds a step, right of it arithmetic. How far a point lies below the roof is what is left to gain: "
    "kernels, launches, the host. Larger markers took more of the time; letters stand in the table."
)


def rooflines(runs: Mapping[str, Run]) -> list[Figure]:
    """For each chip that runs were priced on a chart and a table, and a figure that says why other runs have none."""
    chips: dict[tuple[Any, ...], dict[str, Run]] = {}
    missing = []
    for name, run in runs.items():
        if reached({name: run}):
            chips.setdefault(tuple(run.settings["programs"]["chip"].items()), {})[name] = run
        else:
            missing.append(
                f"{name}: neither costs nor times of its steps are known; an engine in this process or a simulation has them."
            )
    found = []
    for number, (facts, mine) in enumerate(chips.items()):
        chip, every = dict(facts), reached(mine)
        found += [_chart(number, chip, mine, every), programs_table(number, chip, every)]
    if missing or not found:
        found.append(Figure("roofline-missing", "Roofline", "", "none", None, tuple(missing)))
    return found


def _chart(number: int, chip: Mapping[str, Any], runs: Mapping[str, Run], every: Sequence[Point]) -> Figure:
    peak, bandwidth = chip["peak"], chip["bandwidth"]
    ridge = peak / bandwidth
    chart = blank("arithmetic intensity, FLOP/B", "rate, FLOP/s", log_x=True, log_y=True)
    drawn = [point for point in every if point.share >= LEAST]
    for place, name in enumerate(runs):
        mine = [point for point in drawn if point.run == name]
        points(
            chart,
            [point.intensity for point in mine],
            [point.rate for point in mine],
            name,
            place,
            mode="markers+text",
            text=[point.letter for point in mine],
            textposition="bottom right",
            marker={"size": [7 + 16 * point.share**0.5 for point in mine]},
            customdata=[[point.programs, 1e3 * point.seconds] for point in mine],
            hovertemplate="%{text}: %{customdata[0]}<br>%{customdata[1]:.4g} ms, %{x:.4g} FLOP/B, %{y:.4g}FLOP/s",
        )
    low = min([ridge / 30, *(point.intensity / 2 for point in drawn)])
    high = max([ridge * 8, *(point.intensity * 2 for point in drawn)])
    reference(chart, [low, ridge, high], [low * bandwidth, peak, peak], "roof", dash="solid")
    graduate(chart.layout.xaxis, [low, high])
    graduate(chart.layout.yaxis, [low * bandwidth, *(point.rate for point in drawn)])
    taken = " and ".join(dict.fromkeys(run.witness for run in runs.values()))
    roof = f"{_si(bandwidth)}B/s, {_si(peak)}FLOP/s dense {chip['dtype']}; they meet at {ridge:.4g} FLOP/B. Source: {chip['source']}."
    notes = (f"The roof: {roof}",)
    return Figure(f"roofline-{number}", f"Roofline: {chip['name']}", LOOK, f"analytical intensity, {taken} time", chart, notes)


def _si(value: float) -> str:
    """With the prefix that keeps it short: 9.89e14 -> "989 T"."""
    steps: Sequence[tuple[str, float]] = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1.0))
    prefix, unit = next((p, u) for p, u in steps if value >= u or not p)
    return f"{value / unit:.4g} {prefix}"
