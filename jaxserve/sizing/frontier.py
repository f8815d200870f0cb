"""The frontier of throughput against latency, as a picture that is readable in black and white."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from costmodel.plot import check_path
from jaxserve.reporting.figure import Figure, Section, Table, blank, graduate, number, points, reference
from jaxserve.sizing.search import Option, Search
from models.errors import UserError

MARKERS = "osD^vP*X<>"  # one for each number of chips of a kind
FACES = {"chunked": "black", "continuous": "white", "static": "0.7", "dynamic": "0.45"}  # of a policy
OTHER = "0.85"


def draw_frontier(path: Path, found: Search) -> None:
    """Write the picture: tokens of answers a second and chip over the P95 of ITL, of engines that are never short of work.

    Args:
      path: where to; the suffix says the format: .png, .pdf or .svg.

    Raises:
      UserError: as `costmodel.plot.check_path`; nothing was simulated; the file cannot be written.
    """
    check_path(path)
    ran = [option for option in found.options if option.saturated_throughput is not None]
    if not ran:
        raise UserError("--plot: no configuration was left to simulate, so there is no frontier to draw; see the table for why")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(option.chips for option in ran))
    for kind, marker in zip(kinds, MARKERS * (len(kinds) // len(MARKERS) + 1), strict=False):
        for policy in dict.fromkeys(option.configuration.policy for option in ran if option.configuration):
            mine = [
                option
                for option in ran
                if option.chips == kind and option.configuration and option.configuration.policy == policy
            ]
            if mine:
                _points(axes, mine, marker, FACES.get(policy, OTHER), f"{kind}, {policy}")
    edge = found.frontier
    axes.step(*zip(*map(_place, edge), strict=True), where="post", color="black", linewidth=1, zorder=1, label="frontier")
    limit = found.asked.itl_p95
    if limit is not None:
        axes.axvline(limit * 1e3, color="black", linestyle=":", linewidth=1, label=f"ITL P95 {limit * 1e3:g} ms")
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.6)))
    axes.set_xlabel("ITL P95, ms, never short of work")
    axes.set_ylabel("tokens of answers a second and chip")
    axes.set_title(
        textwrap.fill(f"{found.chosen.name}: {found.traffic.source}; simulated, steps {found.asked.step_times}", 90),
        fontsize=10,
    )
    axes.grid(which="both", color="0.9", linewidth=0.5)
    title = "cap at each point;\ncircled: meets the SLO at the load"
    figure.legend(loc="outside right upper", title=title, fontsize=8, title_fontsize=8)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"--plot {path} cannot be written: {error.strerror}; give a file in a folder that exists") from None


def _points(axes: Any, options: list[Option], marker: str, face: str, label: str) -> None:
    x, y = zip(*map(_place, options), strict=True)
    axes.plot(x, y, marker, markerfacecolor=face, markeredgecolor="black", markersize=6, label=label)
    for option, at in zip(options, zip(x, y, strict=True), strict=True):
        assert option.configuration is not None
        axes.annotate(str(option.configuration.cap), at, (4, -10), textcoords="offset points", fontsize=7)
        if option.meets:
            axes.plot(*at, "o", markerfacecolor="none", markeredgecolor="black", markersize=11, linewidth=0.8)


def _place(option: Option) -> tuple[float, float]:
    assert option.saturated_throughput is not None
    return option.saturated_throughput.itl * 1e3, option.per_chip


# The frontier of throughput against latency as a figure of a report's page.

LOOK = (
    "Each configuration flooded with work, so that its batch is as full as cap and pages let it be: up and to the left is better, and what "
    "lies below the stepped line is beaten on both counts. Numbers are caps; large markers met the SLO at the load that was asked for."
)
ID, TITLE = "frontier", "Throughput against latency"


def frontier_section(found: Search) -> Section:
    """Of all configurations that were simulated."""
    return Section(ID, TITLE, (frontier_figure(found),))


def frontier_figure(found: Search) -> Figure:
    """A point for each configuration, a line for those that no other beats, and the limit of the SLO."""
    ran = [option for option in found.options if option.saturated_throughput is not None]
    witness = f"simulated, steps {found.asked.step_times}"
    if not ran:
        return Figure("frontier-points", TITLE, LOOK, witness, None, ("No configuration was left to simulate.",))
    chart = blank("P95 of ITL, never short of work, ms", "tokens of answers a second and chip", log_x=True)
    groups: dict[str, list[Option]] = {}
    for option in ran:
        groups.setdefault(_kind(option), []).append(option)
    for place, (name, mine) in enumerate(groups.items()):
        points(
            chart,
            [_itl(option) for option in mine],
            [option.per_chip for option in mine],
            name,
            place,
            mode="markers+text",
            text=[_cap(option) for option in mine],
            textposition="bottom right",
            marker={"size": [13 if option.meets else 7 for option in mine]},
            hovertemplate="cap %{text}: %{x:.4g} ms, %{y:,.0f} tokens/s and chip",
        )
    edge = found.frontier
    reference(chart, [_itl(o) for o in edge], [o.per_chip for o in edge], "frontier", dash="solid")
    chart.data[-1].line.shape = "hv"
    limit, most = found.asked.itl_p95, max(option.per_chip for option in ran)
    if limit is not None:
        reference(chart, [limit * 1e3] * 2, [0, most], f"wanted: ITL P95 ≤ {limit * 1e3:g} ms", dash="dot")
    graduate(chart.layout.xaxis, [*map(_itl, ran), *([limit * 1e3] if limit is not None else [])])
    head = ("configuration", "cap", "ITL P95, ms", "tokens/s and chip", "SLO at the load")
    rows = tuple(
        (_kind(option), _cap(option), number(_itl(option)), number(option.per_chip), "met" if option.meets else "missed")
        for option in edge
    )
    notes = ("The table has what lies on the frontier.", *([_left(found)] if found.left else []))
    return Figure("frontier-points", TITLE, LOOK, witness, chart, notes, Table(head, rows))


def _kind(option: Option) -> str:
    """What its points have in common: all but the cap."""
    assert option.configuration is not None
    return f"{option.chips}, {option.configuration.name}"


def _itl(option: Option) -> float:
    assert option.saturated_throughput is not None
    return option.saturated_throughput.itl * 1e3


def _cap(option: Option) -> str:
    assert option.configuration is not None
    return str(option.configuration.cap)


def _left(found: Search) -> str:
    return f"{found.left} more that the model allows were not run (--most)."
