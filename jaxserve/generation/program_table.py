"""The compiled programs of a run: what each took to compile, and what XLA says that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from costmodel.terminal.tables import Table
from jaxserve.programs.program_set import Program


def programs_table(programs: Sequence[Program]) -> Table:
    """What was compiled: seconds, and XLA's argument, temp and alias bytes. A kept program's seconds are those of loading it."""
    kept = sum(p.kept for p in programs)
    note = f"; {kept} of {len(programs)} from the compile cache, loaded in these seconds" if kept else ""
    view = Table(title=f"Compiled programs{note}")
    for name in ("program", "pages wide", "compile s", "arguments MB", "temp MB", "alias MB"):
        view.add_column(name, "left" if name == "program" else "right")
    for p in programs:
        sizes = (p.totals.argument_bytes, p.totals.temp_bytes, p.totals.alias_bytes)
        cells = ["unknown" if x is None else f"{x / 1e6:,.1f}" for x in sizes]
        view.add_row(p.bucket.name, str(p.bucket.width), f"{p.seconds:.1f}", *cells)
    return view


def programs_json(programs: Sequence[Program]) -> list[dict[str, Any]]:
    """For machines: the same, with all of XLA's totals, per program."""
    return [
        {
            "program": p.bucket.name,
            "width": p.bucket.width,
            "compile_seconds": p.seconds,
            "kept": p.kept,
            "loops": p.loops,
            "xla": dataclasses.asdict(p.totals),
        }
        for p in programs
    ]
