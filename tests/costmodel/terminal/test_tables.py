"""The one printer of tables. Oracle: the words that were put into it, counted; and lines by hand."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.terminal.tables import Table
from tests.test_layers import ROOT, imports, sources
from tests.whole_tables import WIDTHS, shown, whole

figures = st.one_of(
    st.floats(-1e12, 1e12).map(lambda value: f"{value:,.3f}"),
    st.integers(-(10**15), 10**15).map(str),
    st.tuples(st.integers(0, 999), st.integers(0, 99)).map(lambda two: f"{two[0]}.5 ({two[1]}%)"),
    st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)).map(lambda two: f"[{two[0]:.2f}, {two[1]:.2f}]"),
    st.sampled_from(["", "-", "unknown", "3.0+1.0", "100.00*", "[bold]12[/bold]", "0.12\n0.34", "x" * 70, "多い 12"]),
    st.lists(st.sampled_from(["said", "of", "4.25", "tokens,", "16", "a-b-c"]), max_size=40).map(" ".join),
)
names = st.sampled_from(["", "batch", "ms/step\nmedian", "tokens of answers a second", "P95", "GFLOP/s (of max) ³", "[x]"])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    title, caption = (draw(st.sampled_from(["", "all 12 runs, side by side: 3.5 ms"])) for _ in range(2))
    table = Table(title=title, caption=caption, ruled=draw(st.booleans()))
    columns = draw(st.integers(1, 15))
    for _ in range(columns):
        table.add_column(draw(names), draw(st.sampled_from(["left", "right"])))
    for _ in range(draw(st.integers(0, 4))):
        table.add_row(*(draw(figures) for _ in range(columns)))
        if draw(st.booleans()):
            table.add_section()
    return table


@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_nothing_is_cut_at_any_width(table: Table):
    whole(table)


def test_lines_by_hand():
    """Three columns of 7, 15 and 24 cells, two cells of space in each and four rules: 56 cells. In 55 the words break."""
    table = Table("program", title="What ran, in ms", caption="¹ counted")
    table.add_column("ms\nmedian", "right")
    table.add_column("why")
    table.add_row("decode", "1,234,567.891 ¹", "it was the longest of all")
    table.add_row("mixed", "", "")
    assert shown(table, 57).splitlines() == [
        "What ran, in ms",
        "┏━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┓",
        "┃         ┃              ms ┃                           ┃",
        "┃ program ┃          median ┃ why                       ┃",
        "┡━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━┩",
        "│ decode  │ 1,234,567.891 ¹ │ it was the longest of all │",
        "│ mixed   │                 │                           │",
        "└─────────┴─────────────────┴───────────────────────────┘",
        "¹ counted",
    ]
    assert "│ decode  │ 1,234,567.891 ¹ │ it was the longest of    │" in shown(table, 56).splitlines()
    assert shown(table, 55).splitlines() == [
        "What ran, in ms",
        "program: decode",
        "ms median: 1,234,567.891 ¹",
        "why: it was the longest of all",
        "",
        "program: mixed",
        "",
        "¹ counted",
    ]
    assert shown(table, 20).splitlines()[1:6] == [
        "program: decode",
        "ms median:",
        "  1,234,567.891 ¹",
        "why: it was the",
        "  longest of all",
    ]


def test_a_row_has_a_value_for_each_column():
    with pytest.raises(ValueError, match="a row of 1 values in a table of 2 columns"):
        Table("a", "b").add_row("1")


@pytest.mark.parametrize("folder", ["models", "costmodel", "jaxserve", "scripts"])
def test_nobody_else_prints_tables(folder: str):
    """rich's own cut figures where the screen is narrow."""
    guilty = [
        str(path.relative_to(ROOT))
        for path in sources(folder)
        if any(name.startswith(("rich.table", "rich.columns")) for name in imports(path.read_text(encoding="utf-8"), folder))
    ]
    assert guilty == (["costmodel/terminal/tables.py"] if folder == "costmodel" else [])


@pytest.mark.parametrize("folder", ["costmodel", "jaxserve", "scripts"])
def test_nothing_that_is_printed_is_cut(folder: str):
    """Neither by an ellipsis nor by a crop: no module asks rich for one, but for the line beside a progress bar."""
    for path in sources(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "overflow" and path.name != "cli.py":
                assert isinstance(node.value, ast.Constant) and node.value.value == "fold", path


def test_the_check_sees_what_is_cut():
    """A table that cuts fails it, so that it can't pass unseen."""

    class Cut(Table):
        def _widths(self, limit: int, *more: object) -> list[int]:
            return [max(limit // 9, 1)] * len(self._names)

    table = Cut("a", "b")
    table.add_row("1,234,567.89 and more", "2")
    with pytest.raises(AssertionError, match=r"1,234,567\.89"):
        whole(table)
    assert WIDTHS[0] == 40
