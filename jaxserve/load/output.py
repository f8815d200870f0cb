"""How runs of a load are handed to whoever asked: tables or JSON on standard output, and an exit code where they are not complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from costmodel.endings import CODES
from costmodel.terminal.tables import Table, console
from jaxserve.load.session import Found

CUT_SHORT = 3  # exit code of runs that are not complete for another reason than a signal


def show(found: Found, as_json: bool, more: Sequence[Table | str] = ()) -> None:
    """All runs on standard output; as JSON a run alone, or {runs, saturation} where there are several. more: for people."""
    if not as_json:
        from jaxserve.load import tables

        tables.show(console(), found.runs, found.saturation, more)
    else:
        print(json.dumps(to_json(found), allow_nan=False))


def to_json(found: Found) -> dict[str, Any]:
    """A run alone where there is one, else all of them."""
    if len(found.runs) == 1 and found.saturation is None and not found.cut:
        return found.runs[0].to_json()
    saturation = found.saturation.to_json() if found.saturation else None
    more = {"why": found.cut} if found.cut else {}
    return {"runs": [run.to_json() for run in found.runs], "saturation": saturation, **more}


def leave(found: Found) -> None:
    """Say so and leave the command where something came between.

    Raises:
      click.exceptions.Exit: it did.
    """
    if found.why:
        marked = "of the runs that were over" if found.cut else "up to then"
        click.echo(f"error: {found.why}; results {marked} are above{', marked as incomplete' * (not found.cut)}", err=True)
        raise click.exceptions.Exit(CODES.get(found.why, CUT_SHORT))
