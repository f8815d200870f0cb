"""Whether a table loses nothing where the screen is narrow: every word of it, and so every figure, must stand there as often as in it."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult

from costmodel.terminal.tables import Table

WIDTHS = (40, 60, 80, 100, 200)
RULES = re.compile(r"[\u2500-\u257f]")  # what boxes are drawn with


def shown(table: Table, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, color_system=None).print(table)
    return out.getvalue()


def words(text: str) -> Counter[str]:
    return Counter(RULES.sub(" ", text).split())


def expected(table: Table) -> Counter[str]:
    """The words of title, caption and values, each as often as it stands there, and those of the names of columns that have a value."""
    columns = list(zip(table._names, *table._rows, strict=True))
    named = [name for name, *values in columns if any(value.strip() for value in values)]
    return words(" ".join([table.title, table.caption, *named, *itertools.chain(*table._rows)]))


def whole(table: Table) -> None:
    """Raises AssertionError, with what is missing."""
    for width in WIDTHS:
        text = shown(table, width)
        found, run_on = words(text), "".join(RULES.sub(" ", text).split())
        for word, count in expected(table).items():
            kept = found[word] + found[f"{word}:"] >= count  # in a block a colon ends a name
            assert kept or (len(word) > width - 4 and word in run_on), (
                f"{word!r} is {found[word]} times at {width} columns, not {count}:\n{text}"
            )
        assert all(cell_len(line) <= width for line in text.splitlines()), f"wider than {width}:\n{text}"


@contextlib.contextmanager
def every_one_that_is_printed() -> Iterator[None]:
    """Within it each table that anything prints is looked at, once; what it would lose is an AssertionError."""
    inner, seen = Table.__rich_console__, set[tuple[object, ...]]()

    def checked(self: Table, console: Console, options: ConsoleOptions) -> RenderResult:
        content = (self.title, self.caption, tuple(self._names), tuple(self._rows))
        if content not in seen and type(self) is Table:
            seen.add(content)
            whole(self)
        yield from inner(self, console, options)

    Table.__rich_console__ = checked  # type: ignore[method-assign]
    try:
        yield
    finally:
        Table.__rich_console__ = inner  # type: ignore[method-assign]
