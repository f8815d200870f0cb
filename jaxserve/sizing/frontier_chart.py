"""The frontier of throughput against latency as a figure of a report's page."""

from __future__ import annotations

from jaxserve.reporting.figure import Figure, Section, Table, blank, graduate, number, points, reference
from jaxserve.sizing.search import Option, Search

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
