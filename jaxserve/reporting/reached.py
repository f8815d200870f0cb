"""What the programs of a run reached: for each, what a step should move and compute, and the time that it took."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxserve.load.percentile import percentile
from jaxserve.load.result import Run
from jaxserve.reporting.figure import Figure, Table, number

NOTES = (
    "¹ analytical: what a perfect kernel moves and computes for these rows and contexts, padding included; mean of a step",
    "² those, over the mean time of a step",
    "³ compiled: XLA's own counts of the programs; + marks loops (attention), whose bodies it counts once",
)


class Point(NamedTuple):
    """Steps of a run that ran the same programs; means of a step.

    Attributes:
      letter: by which chart and table name it.
      run, programs: names.
      flops, bytes: analytical, padding included.
      seconds: it took, mean; low, high: P10 and P90.
      steps, share: how many, and their share of the time of all steps.
      compiled: XLA's counts of the programs: flops, bytes, loops; None where they are not known.
    """

    letter: str
    run: str
    programs: str
    flops: float
    bytes: float
    seconds: float
    low: float
    high: float
    steps: int
    share: float
    compiled: Mapping[str, Any] | None

    @property
    def intensity(self) -> float:
        """FLOP/B."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds


def reached(runs: Mapping[str, Run]) -> list[Point]:
    """A point for each set of programs that ran in each run, by the time that it took; none of a run without costs or steps."""
    letters = _letters()
    found = []
    for name, run in runs.items():
        mine = sorted(_points(name, run), key=lambda point: -point.share)
        found += [point._replace(letter=next(letters)) for point in mine]
    return found


def programs_table(number: int, chip: Mapping[str, Any], points: list[Point]) -> Figure:
    """What stands at the points of a roofline."""
    several = len({point.run for point in points}) > 1
    head = ("", *(("run",) if several else ()), "programs of a step", "steps", "of time", "ms (P10 to P90)", "GFLOP ¹", "MB ¹",
            "FLOP/B ¹", "GB/s (of roof) ²", "GFLOP/s (of roof) ²", "GFLOP, XLA ³", "MB, XLA ³")  # fmt: skip
    rows = tuple((point.letter, *((point.run,) if several else ()), *_cells(point, chip)) for point in points)
    title = f"What programs reached: {chip['name']}"
    look = "The figures at the letters of the roofline, by the time that they took: where to begin is at the top."
    return Figure(
        f"programs-{number}", title, look, "analytical, compiled and clock, as marked", None, NOTES, Table(head, rows)
    )


def _points(name: str, run: Run) -> Iterator[Point]:
    priced = run.settings.get("programs") or {}
    compiled, known = priced.get("compiled", ()), Counter(entry["program"] for entry in priced.get("compiled", ()))
    one = {
        entry["program"]: entry for entry in compiled if known[entry["program"]] == 1
    }  # not those with tables of several widths
    seconds: dict[tuple[str, ...], list[float]] = {}
    for step in run.steps:
        seconds.setdefault(tuple(step.programs), []).append(step.measured)
    whole = sum(map(sum, seconds.values()))
    for entry in priced.get("steps", ()):
        took = seconds.get(tuple(entry["programs"]))
        if took and entry["steps"] and entry["bytes"]:
            title = " + ".join(entry["programs"])
            figures = (entry["flops"] / entry["steps"], entry["bytes"] / entry["steps"], sum(took) / len(took))
            times = (percentile(took, 10), percentile(took, 90))
            yield Point("", name, title, *figures, *times, len(took), sum(took) / whole, _together(entry["programs"], one))


def _together(names: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """XLA's counts of several programs; None where one of them is not known."""
    if not all(name in known for name in names):
        return None
    entries = [known[name] for name in names]
    sums = {field: [entry[field] for entry in entries] for field in ("flops", "bytes", "loops")}
    return {field: None if None in values else sum(values) for field, values in sums.items()}


def _cells(point: Point, chip: Mapping[str, Any]) -> tuple[str, ...]:
    moved = point.bytes / point.seconds
    return (
        point.programs,
        f"{point.steps:,}",
        f"{point.share:.1%}",
        f"{number(1e3 * point.seconds)} ({number(1e3 * point.low)} to {number(1e3 * point.high)})",
        number(point.flops / 1e9),
        number(point.bytes / 1e6),
        f"{point.intensity:,.3g}",
        f"{number(moved / 1e9)} ({moved / chip['bandwidth']:.0%})",
        f"{number(point.rate / 1e9)} ({point.rate / chip['peak']:.0%})",
        _xla(point.compiled, "flops", 1e9),
        _xla(point.compiled, "bytes", 1e6),
    )


def _xla(entry: Mapping[str, Any] | None, field: str, unit: float) -> str:
    if entry is None or entry[field] is None:
        return "-"
    return number(entry[field] / unit) + ("+" if entry["loops"] else "")


def _letters() -> Iterator[str]:
    """A to Z, then A1 to Z1 and so on."""
    number = 0
    while True:
        for letter in string.ascii_uppercase:
            yield f"{letter}{number or ''}"
        number += 1
