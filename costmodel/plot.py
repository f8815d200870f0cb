"""The roofline as a picture (Williams et al. 2009): a roof, its ridge, and each batch's points, readable in black and white."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.hardware.chip import Chip
from models.errors import UserError
from models.files.reading import check_new

# Marker and face of each witness: told apart by shape and filling, never by colour alone.
STYLES = {"analytical": ("o", "white"), "compiled": ("s", "0.6"), "measured": ("D", "black")}
FORMATS = ("png", "pdf", "svg")


@dataclasses.dataclass(frozen=True)
class Point:
    """One step of `batch` rows as one witness sees it: FLOP per byte, and FLOP/s at the time that it takes."""

    witness: str
    batch: int
    intensity: float
    rate: float


def draw_roofline(path: Path, chip: Chip, dtype: str, points: Sequence[Point], title: str) -> None:
    """Write the picture of `points` under the roof of `chip`.

    Args:
      path: where to; the suffix says the format: .png, .pdf or .svg.
      chip: its bandwidth and its dense peak for operands of `dtype` are the roof.
      points: at least one.

    Raises:
      UserError: as `check_path`; no points; the file cannot be written.
    """
    check_path(path)
    if not points:
        raise UserError("roofline: there are no points to draw; give at least one batch size")
    peak, bandwidth = float(chip.peak(dtype)), float(chip.bandwidth)
    ridge = peak / bandwidth
    figure = _figure()(figsize=(8, 5.5), layout="constrained")
    axes = figure.add_subplot()
    low = min([ridge / 30, *(point.intensity / 2 for point in points)])
    high = max([ridge * 4, *(point.intensity * 2 for point in points)])
    axes.loglog([low, ridge, high], [low * bandwidth, peak, peak], color="black", linewidth=1.6)
    axes.axvline(ridge, color="black", linestyle=":", linewidth=1)
    bottom = min(low * bandwidth, *(point.rate / 2 for point in points))
    axes.set(xlim=(low, high), ylim=(bottom, peak * 3))
    axes.set_title(textwrap.fill(title, 90), fontsize=10)
    axes.set_xlabel("arithmetic intensity, FLOP/B")
    axes.set_ylabel("FLOP/s")
    axes.text(high / 1.1, peak * 1.1, f"{_rate(peak)}FLOP/s dense {dtype}", ha="right", va="bottom", fontsize=9)
    axes.text(ridge / 1.05, bottom * 1.3, f"ridge {ridge:.1f} FLOP/B", ha="right", va="bottom", fontsize=9)
    middle = (low * ridge) ** 0.5
    axes.text(middle, middle * bandwidth * 1.25, f"{_rate(bandwidth)}B/s", ha="right", va="bottom", fontsize=9)
    for witness, (marker, face) in STYLES.items():
        mine = [point for point in points if point.witness == witness]
        if mine:
            x, y = [point.intensity for point in mine], [point.rate for point in mine]
            axes.plot(x, y, marker, markerfacecolor=face, markeredgecolor="black", markersize=7, label=witness)
        for point in mine:
            axes.annotate(str(point.batch), (point.intensity, point.rate), (4, -11), textcoords="offset points", fontsize=8)
    axes.legend(title="batch size at each point", loc="upper left", fontsize=9, title_fontsize=9)
    axes.grid(which="both", color="0.9", linewidth=0.5)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"--plot {path} cannot be written: {error.strerror}; give a file in a folder that exists") from None


def _rate(value: float) -> str:
    """With the prefix that keeps it short: 9.89e14 -> "989 T"."""
    prefix, unit = next((p, u) for p, u in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1.0)) if value >= u or not p)
    return f"{value / unit:.4g} {prefix}"


def check_path(path: Path) -> None:
    """Whether a picture could be written there, asked before the work that it shows.

    Raises:
      UserError: matplotlib is not installed, no such format, or no such folder.
    """
    _figure()
    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise UserError(f"--plot is {str(path)!r}; give a name that ends in {', '.join('.' + name for name in FORMATS)}")
    check_new(path, name=f"--plot {path}")


def _figure() -> Any:
    """matplotlib's Figure, which draws without a display and without global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--plot needs matplotlib, which is not installed; pip install 'jaxserve[plots]'") from None
    return Figure
