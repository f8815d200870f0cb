"""Whether a table loses nothing where the screen is narrow: every word of it, and so every figure, must stand there as often as wide."""

from __future__ import annotations

import io
import re
from collections import Counter

from rich.console import Console

from costmodel.tables import Table

WIDTHS = (40, 60, 80, 100, 200)
RULES = re.compile(r"[─━│┃┏┓┗┛└┘┌┐├┤┬┴┼╇╈╡╞┡┩╺╸╴╶ⁿ]")


def shown(table: Table, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, color_system=None).print(table)
    return out.getvalue()


def words(text: str) -> Counter[str]:
    return Counter(RULES.sub(" ", text).split())


def whole(table: Table) -> None:
    """Raises AssertionError, with what is missing."""
    wide = words(shown(table, 5000))
    for width in WIDTHS:
        text = shown(table, width)
        found, broken = words(text), "".join(RULES.sub(" ", text).split())
        for word, count in wide.items():
            kept = found[word] >= count or (len(word) > width - 4 and word in broken)
            assert kept or found[f"{word}:"] >= count, (
                f"{word!r} is {found[word]} times at {width} columns, not {count}:\n{text}"
            )
        assert all(len(line) <= width for line in text.splitlines()), f"wider than {width}:\n{text}"
