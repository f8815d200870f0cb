"""A figure of the page: a chart that plotly draws, what to look for in it, and which witness speaks.

Charts are SVG on a transparent ground, so that they print and follow the page into the dark. Runs are told apart by colour and by dash or
marker, never by colour alone.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from models.errors import UserError

Values: TypeAlias = Sequence[float] | np.ndarray

COLOURS = (
    "#2f7ed8",
    "#e07b18",
    "#2f9e6b",
    "#a05bc4",
    "#d1495b",
    "#6f7f8f",
)  # of runs, or of parts; as strong on white as on black
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
GREY = "#8a8f98"  # axes, lines of reference
NONE = "rgba(0,0,0,0)"
HEIGHT = 340  # px
FINE = 200.0  # ratio of the largest to the least value up to which there is room for labels between powers of ten


class Table(NamedTuple):
    """Rows of text."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Figure(NamedTuple):
    """One figure.

    Attributes:
      id: of its element in the page.
      title, look: what it shows, and what to look for.
      witness: where its figures come from.
      chart: plotly's figure; None where there is nothing to draw.
      notes: what was thinned or left out and what the figures come to; where there is nothing to show, why.
      table: beneath the chart, or in its place.
    """

    id: str
    title: str
    look: str
    witness: str
    chart: Any
    notes: tuple[str, ...] = ()
    table: Table | None = None


class Section(NamedTuple):
    """Figures under one heading."""

    id: str
    title: str
    figures: tuple[Figure, ...]


def plotly(module: str) -> Any:
    """A module of plotly, which is not needed for anything but reports.

    Raises:
      UserError: it is not installed.
    """
    try:
        return importlib.import_module(f"plotly.{module}")
    except ImportError:
        raise UserError("--report needs plotly, which is not installed; pip install 'jaxserve[report]'") from None


def blank(x: str, y: str, *, log_x: bool = False, log_y: bool = False) -> Any:
    """A chart without data.

    Args:
      x, y: titles of the axes, each with its unit.
    """
    layout = {
        "template": "none",
        "font": {"family": "system-ui, sans-serif", "size": 12.5},
        "paper_bgcolor": NONE,
        "plot_bgcolor": NONE,
        "height": HEIGHT,
        "margin": {"l": 62, "r": 14, "t": 12, "b": 50},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": NONE, "traceorder": "normal"},
        "modebar": {"bgcolor": NONE, "color": GREY, "activecolor": COLOURS[0]},
        "hovermode": "closest",
        "dragmode": False,  # a finger on a chart scrolls the page
        "xaxis": _axis(x, log_x),
        "yaxis": _axis(y, log_y),
    }
    return plotly("graph_objects").Figure(layout=layout)


def line(chart: Any, x: Values, y: Values, name: str, number: int = 0, **more: Any) -> None:
    """A curve in the colour and dash of the run, or part, of this number."""
    style = {"color": COLOURS[number % len(COLOURS)], "width": 1.8, "dash": _other(DASHES, number)}
    chart.add_scatter(x=x, y=y, name=name, mode="lines", line={**style, **more.pop("line", {})}, **more)


def points(chart: Any, x: Values, y: Values, name: str, number: int = 0, **more: Any) -> None:
    """Markers in the colour and shape of the run of this number."""
    style = {"color": COLOURS[number % len(COLOURS)], "symbol": _other(MARKERS, number), "size": 7, "opacity": 0.75}
    chart.add_scatter(x=x, y=y, name=name, mode=more.pop("mode", "markers"), marker={**style, **more.pop("marker", {})}, **more)


def reference(chart: Any, x: Values, y: Values, name: str, *, dash: str = "dash", **more: Any) -> None:
    """A line to compare with: a limit, a roof, equality."""
    chart.add_scatter(
        x=x, y=y, name=name, mode="lines", line={"color": GREY, "width": 1.6, "dash": dash}, hoverinfo="name", **more
    )


def hatched(colour: str, shape: str) -> dict[str, Any]:
    """The filling of a bar, which is told from its neighbours on paper too."""
    pattern = {"shape": shape, "fgcolor": "rgba(255,255,255,0.6)", "size": 6, "solidity": 0.25, "fillmode": "overlay"}
    return {"color": colour, "line": {"width": 0}, "pattern": pattern}


def graduate(axis: Any, values: Sequence[float]) -> None:
    """Label a logarithmic axis at 2 and 5 as well where these values are close enough together that there is room.

    Args:
      axis: of plotly's layout.
    """
    known = [value for value in values if value > 0]
    if known and max(known) <= FINE * min(known):
        axis.dtick = "D2"


def number(value: float | None) -> str:
    """Four digits, or all of a larger number's; "-" for what isn't there."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def _other(styles: Sequence[str], number: int) -> str:
    """The style of this number: where colours begin again, another one goes with each, so that 36 runs can be told apart."""
    return styles[(number + number // len(COLOURS)) % len(styles)]


def _axis(title: str, log: bool) -> dict[str, Any]:
    scale: dict[str, Any] = {"type": "log", "dtick": 1, "minorloglabels": "complete"} if log else {"rangemode": "tozero"}
    lines = {
        "gridcolor": "rgba(138,143,152,0.25)",
        "linecolor": GREY,
        "zerolinecolor": GREY,
        "ticks": "outside",
        "tickcolor": GREY,
    }
    return {**lines, **scale, "title": {"text": title, "font": {"size": 13}}, "exponentformat": "SI"}
