"""Tables for people, of which nothing is ever cut: where a table is wider than the screen, each row is a block of lines instead.

A line of a block is "name: value", the name being that of the column. So every figure of the wide table stands in the narrow one as well,
digit by digit; `tests/costmodel/terminal/test_tables.py` holds that for all commands.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

WIDTH = 168  # cells of a line where standard output is no terminal
WHOLE = 24  # cells of a value that is never wrapped; longer ones are prose, and a column of them has at least so many


def console() -> Console:
    """Standard output: as wide as the terminal, or `WIDTH` where there is none."""
    return Console(width=None if Console().is_terminal else WIDTH, highlight=False)


class Table:
    """Rows under the names of columns; `Console.print` shows it.

    Args:
      columns: names, of words to the left; `add_column` takes more.
      title: a line above.
      caption: lines below.
      ruled: with lines between columns.

    Values are plain text: brackets are no markup.
    """

    def __init__(self, *columns: str, title: str = "", caption: str = "", ruled: bool = True):
        self.title, self.caption, self.ruled = title, caption, ruled
        self._names, self._justify = list[str](), list[Literal["left", "right"]]()
        self._rows: list[tuple[str, ...]] = []
        self._sections: set[int] = set()  # rows after which a rule stands
        for name in columns:
            self.add_column(name)

    def add_column(self, name: str, justify: Literal["left", "right"] = "left") -> None:
        """name: may have several lines."""
        self._names.append(name)
        self._justify.append(justify)

    def add_row(self, *values: str) -> None:
        """Raises ValueError for more or fewer values than columns."""
        if len(values) != len(self._names):
            raise ValueError(f"a row of {len(values)} values in a table of {len(self._names)} columns: {values}")
        self._rows.append(values)

    def add_section(self) -> None:
        """A rule stands before the next row."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, "bold")
        widths = self._widths(options.max_width, console, options)
        if widths is not None:
            yield self._grid(widths)
        else:
            yield from self._blocks(options.max_width)
        if self.caption:
            yield Text(self.caption, "dim")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _widths(self, limit: int, console: Console, options: ConsoleOptions) -> list[int] | None:
        """Of each column's text; None where they don't fit. The widest ones give way first, and break between words."""
        columns = list(zip(self._names, *self._rows, strict=True))
        widths = [max(cell_len(line) for text in column for line in text.split("\n")) for column in columns]
        least = [max(_words(name), *map(_least, values), 1) for name, *values in columns]
        drawn = Measurement.get(console, options.update(width=10**6, max_width=10**6), self._grid(widths)).maximum
        over = drawn - limit
        while over > 0:
            free = [i for i, width in enumerate(widths) if width > least[i]]
            if not free:
                return None
            widths[max(free, key=widths.__getitem__)] -= 1
            over -= 1
        return widths

    def _grid(self, widths: list[int]) -> Grid:
        grid = Grid(box=box.HEAVY_HEAD if self.ruled else box.SIMPLE_HEAD, pad_edge=self.ruled)
        for name, justify, width in zip(self._names, self._justify, widths, strict=True):
            grid.add_column(Text(name), justify=justify, width=width, overflow="fold")
        for i, values in enumerate(self._rows):
            grid.add_row(*map(Text, values), end_section=i in self._sections)
        return grid

    def _blocks(self, width: int) -> Iterator[Text]:
        """A block a row, with an empty line after each. What is empty is left out; a word that is wider than the screen is broken."""
        for values in self._rows:
            lines: list[str] = []
            for name, value in zip(self._names, values, strict=True):
                named = ": ".join(" ".join(part.split()) for part in (name, value) if part.strip())
                if value.strip():
                    lines += textwrap.wrap(named, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            yield Text("\n".join([*lines, ""]), overflow="fold")


def _words(text: str) -> int:
    """Cells of the longest word."""
    return max(map(cell_len, text.split()), default=0)


def _least(value: str) -> int:
    """Cells that a value needs."""
    whole = max(map(cell_len, value.split("\n")))
    return min(whole, max(WHOLE, _words(value)))
