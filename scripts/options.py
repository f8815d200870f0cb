"""Numbers as options of scripts: each has a least and a most, so that a slip is told at once and no run is endless."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 1_000_000


def whole(least: int = 1, most: int = MOST) -> click.IntRange:
    """A whole number."""
    return click.IntRange(least, most)


class Real(click.FloatRange):
    """A number above 0, or from 0 on; nan is none."""

    def __init__(self, most: float = MOST, *, zero: bool = False):
        super().__init__(0, most, min_open=not zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is no number; give one above 0 and at most {self.max:g}.", param, ctx)
        return found
