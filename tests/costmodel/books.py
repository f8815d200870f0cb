"""Ledgers in tests: programs written by hand, and the sums of a ledger by what moves and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from costmodel.ledger.ledger import Ledger, ledger

# For programs of several devices: a mesh of 8, what a reduction calls, and the bytes of the array that is sent.
MESH = {"x": 2, "y": 4}
SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""
SIZE = 4 * 64 * 128  # B of f32[64,128]


def module(entry: str, before: str = "", head: str = "") -> str:
    """The text of a program of one entry; its lines are those of its body."""
    return f"HloModule m, is_scheduled=true{head}\n\n{before}\nENTRY %main {{\n{entry}\n}}\n"


def partitioned(lines: str, partitions: int = 8) -> str:
    """The text of a program over so many devices, in which %sum may be called."""
    return module(lines, SUM, f", num_partitions={partitions}")


def items(book: Ledger) -> dict[tuple[str, str, str], float]:
    """Bytes of a ledger by kind, role and direction."""
    found: dict[Any, float] = {}
    for line in book.lines:
        for item in line.traffic.items:
            key = (item.kind, item.role, item.direction)
            found[key] = found.get(key, 0) + item.bytes * (line.runs or 0)
    return found


def corrections(book: Ledger) -> dict[str, float]:
    """Bytes of a ledger's corrections by their reason."""
    found: dict[Any, float] = {}
    for line in book.lines:
        for reason, amount in line.traffic.corrections:
            found[reason] = found.get(reason, 0) + amount * (line.runs or 0)
    return found


def of_kind(book: Ledger, kind: str) -> dict[tuple[str, str], float]:
    """Bytes of one kind by role and direction."""
    return {(role, way): amount for (of, role, way), amount in items(book).items() if of == kind}


def compiled(function: Callable[..., Any], *shapes: Any, donate: Sequence[int] = (), dtype: Any = jnp.float32) -> Ledger:
    """The ledger of a function compiled here, for arguments given by their shape alone or as a ShapeDtypeStruct."""
    arguments = [shape if isinstance(shape, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return ledger(jax.jit(function, donate_argnums=donate).lower(*arguments).compile())
