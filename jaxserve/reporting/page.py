"""The page itself: a template that is filled in, with the library that draws its charts inside, so that it needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2

from jaxserve.reporting.figure import Figure, Section, plotly

CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["zoom2d", "resetScale2d", "toImage"]],  # and none that asks a network
    "toImageButtonOptions": {"format": "svg"},
}


def render(sections: Sequence[Section], **facts: Any) -> str:
    """HTML. Charts are drawn at its end, when all of it is laid out, so that each knows its width.

    Args:
      facts: what else the template asks for, see `page.html`; text is escaped there.
    """
    figures = [figure for section in sections for figure in section.figures if figure.chart is not None]
    to_json = plotly("io.json").to_json_plotly  # which escapes whatever could end a script
    charts = {f"chart-{figure.id}": figure.chart for figure in figures}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_own("page.html")).render(
        css=_own("page.css"),
        library=plotly("offline").get_plotlyjs(),
        sections=sections,
        charts={figure.id: _height(figure) for figure in figures},
        figures=to_json({"charts": charts, "config": CONFIG}),
        **facts,
    )


def told(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings as lines of text: nested ones by their path; long ones cut short."""
    lines: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            lines += told(value, f"{prefix}{key}.")
        else:
            text = str(value)
            lines.append((f"{prefix}{key}", text if len(text) <= 300 else f"{text[:300]} ... ({len(text):,} characters)"))
    return lines


def _height(figure: Figure) -> int:
    """px, reserved before it is drawn, so that nothing moves."""
    return int(figure.chart.layout.height)


def _own(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
