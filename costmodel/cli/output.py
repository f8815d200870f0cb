"""What a command has to say, for people, for machines and for spreadsheets."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

from costmodel.terminal.tables import Table, console


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
            shown = console()
            for part in self.parts:
                shown.print(part, markup=False, soft_wrap=isinstance(part, str) and not shown.is_terminal)


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
    view = Table(title=title, ruled=False)
    for i, name in enumerate(columns):
        view.add_column(name, "left" if i < left or i >= len(columns) - words else "right")
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
