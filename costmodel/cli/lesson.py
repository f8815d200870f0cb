"""`python -m costmodel lesson`: every figure of the lesson as formula, numbers put in, and result."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from costmodel.cli.choices import choose_chip, choose_model
from costmodel.cli.output import Output, table
from costmodel.lesson import Lesson, Section
from costmodel.terminal.tables import Table
from models.errors import UserError

WIDTH = 80  # columns that a figure takes at most on one line


def run(
    *,
    model: str,
    large: str,
    chip: str,
    context: int,
    long: int,
    kv_pool: float,
    sections: Sequence[int],
    as_json: bool,
) -> Output:
    """The sections that are asked for; all where none is.

    Raises:
      UserError: no such model, chip or section.
    """
    lesson = Lesson(
        choose_model(model).architecture, choose_model(large).architecture, choose_chip(chip).chip, context, kv_pool, long
    )
    every = lesson.sections()
    if wrong := [number for number in sections if number > len(every)]:
        raise UserError(f"--section is {wrong[0]}; the lesson has sections 1 to {len(every)}")
    found = [section for section in every if not sections or section.number in sections]
    data = {
        "model": lesson.model.name,
        "large_model": lesson.large.name,
        "chip": lesson.chip.name,
        "context": context,
        "witness": "analytical",
        "sections": [section.to_json() for section in found],
    }
    parts: list[str | Table] = []
    for section in found:
        parts += [*_lines(section), *([_steps(section)] if section.table else []), *textwrap.wrap(section.says, WIDTH), ""]
    return Output(
        data,
        [*parts, "All results are analytical: data sheets and shapes; nothing is compiled."],
        (),
        "json" if as_json else "text",
    )


def _lines(section: Section) -> list[str]:
    lines = [f"{section.number}. {section.title}", ""]
    for figure in section.figures:
        line = f"    {figure.formula} = {figure.numbers}"
        result = f" = {figure.shown}"
        fits = len(line) + len(result) <= WIDTH
        lines += textwrap.wrap(figure.name, WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += [line + result] if fits else [line, f"   {result}"]
    return [*lines, ""]


def _steps(section: Section) -> Table:
    cells = [
        (
            str(row["batch"]),
            f"{row['memory_ms']:.2f}",
            f"{row['compute_ms']:.2f}",
            f"{row['flop_per_byte']:.2f}",
            f"{row['tokens_per_second']:,.1f}",
            row["bound"],
        )
        for row in section.table
    ]
    return table(
        "a step at each batch: max(t_mem, t_comp)", ("batch", "t_mem ms", "t_comp ms", "FLOP/B", "tok/s", "bound"), cells
    )
