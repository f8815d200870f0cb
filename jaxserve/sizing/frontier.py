"""The frontier of throughput against latency, as a picture that is readable in black and white."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from costmodel.plot import check_path
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
