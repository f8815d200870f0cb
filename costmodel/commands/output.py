"""What a command has to say, for people, for machines and for spreadsheets."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 168  # of tables where standard output is no terminal


@dataclasses.dataclass(frozen=True)
class Output:
    """A finished answer.

    Attributes:
      data: for --json.
      parts: lines and tables in the order in which people read them.
      rows: for --csv, each a dict with the same keys.
      form: text, json or csv.
    """

    data: Any
    parts: Sequence[str | Table]
    rows: Sequence[dict[str, Any]] = ()
    form: str = "text"

    def print(self) -> None:
        """To standard output."""
        if self.form == "json":
            print(json.dumps(self.data, indent=1))
        elif self.form == "csv":
            text = io.StringIO()
            writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            print(text.getvalue(), end="")
        else:
            terminal = Console().is_terminal
            console = Console(width=None if terminal else WIDTH, highlight=False, soft_wrap=not terminal)
            for part in self.parts:
                console.print(part, markup=False) if isinstance(part, str) else console.print(part)


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    words: int = 0,
    rules: Sequence[int] = (),
) -> Table:
    """A table of figures. The first `left` columns are names and the last `words` prose; a rule stands before the rows `rules`."""
    view = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for i, name in enumerate(columns):
        prose = i >= len(columns) - words
        view.add_column(name, justify="left" if i < left or prose else "right", no_wrap=not prose)
    for i, row in enumerate(rows):
        if i in rules:
            view.add_section()
        view.add_row(*row)
    return view


def giga(amount: float, digits: int = 4) -> str:
    """An amount in billions with so many significant digits, and no exponent: 16,084,705,280 -> 16.08."""
    value = amount / 1e9
    if value == 0:
        return "0"
    places = max(0, digits - 1 - max(0, len(str(int(abs(value)))) - 1)) if abs(value) >= 1 else digits
    return f"{value:,.{places}f}"
