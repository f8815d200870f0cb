"""Layouts: which axes of a mesh of chips split the batch, the hidden size and the width of each layer (Pope et al. 2022, section 3).

Notation of the paper: B sequences of L tokens in this step, E hidden, F the feed-forward width, H query heads of size Q, n = X Y Z
chips. A subscript splits a dimension over mesh axes: BLE_xyz is split n ways along E.

| layout | weights stay as | activations at a matmul | moved over links |
|---|---|---|---|
| ws-1d (3.2.1) | E F_xyz | BLE -> BLF_xyz -> BLE | activations: all-gather and reduce-scatter of BLE, whatever n |
| ws-2d (3.2.2) | E_x F_yz | BLE_x -> BLF_yz -> BLE_x | activations over both axes: falls as 1/sqrt(n) |
| wg-x, wg-xy, wg-xyz (3.2.3) | E_x F_yz | B split over the named axes, F over the rest | weights over the named axes |

Every one of them is the same program with three degrees: the batch is split `data` ways, E `hidden` ways and F (and the heads) `width`
ways, with data * hidden * width = n. Weight-stationary has data 1; ws-1d has hidden 1 as well; weight-gathered has hidden 1 and gathers
the weights over the data axes. Weight-gathered layouts keep the weights as ws-2d does, so that prefill and decode share one copy.

Attention (3.3) is split over heads, or over the batch on all axes, which divides the KV cache by n even when there is one KV head.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from costmodel.arch.architecture import Architecture
from models.errors import UserError


class Axes(NamedTuple):
    """Which mesh axes split the batch, E, and F with the heads. A string of axis names; empty for none."""

    data: str
    hidden: str
    width: str


FEEDFORWARD: Mapping[str, Axes] = {
    "ws-1d": Axes("", "", "xyz"),
    "ws-2d": Axes("", "x", "yz"),
    "wg-x": Axes("x", "", "yz"),
    "wg-xy": Axes("xy", "", "z"),
    "wg-xyz": Axes("xyz", "", ""),
}
ATTENTION = ("heads", "batch")


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Chips in a grid of x by y by z, as a TPU's torus is. Chips behind a switch are a mesh with any factors."""

    x: int = 1
    y: int = 1
    z: int = 1

    def __post_init__(self) -> None:
        for axis in "xyz":
            size = getattr(self, axis)
            if not isinstance(size, int) or size < 1:
                raise UserError(f"mesh: axis {axis} is {size!r}; give a whole number of at least 1")

    @classmethod
    def parse(cls, text: str, chips: int) -> Mesh:
        """The mesh that `text` names, such as 4x4x4; fewer axes are the first ones, so that 8 is 8x1x1.

        Raises:
          UserError: not one to three whole numbers, or not a mesh of `chips` chips.
        """
        sizes = text.strip().lower().split("x")
        if not 1 <= len(sizes) <= 3 or not all(size.isdecimal() for size in sizes):
            raise UserError(f"mesh {text!r}: give one to three whole numbers, such as 4x4x4")
        mesh = cls(*map(int, sizes))
        if mesh.chips != chips:
            raise UserError(f"mesh {text}: it has {mesh.chips} chips, not {chips}; give axes whose product is {chips}")
        return mesh

    def __str__(self) -> str:
        return f"{self.x}x{self.y}x{self.z}"

    @property
    def chips(self) -> int:
        return self.size("xyz")

    def size(self, axes: str) -> int:
        """Chips along the named axes together; 1 for none."""
        return math.prod(getattr(self, axis) for axis in axes)

    def share_of_links(self, axes: str) -> float:
        """Part of a chip's links that lie along `axes`: every axis longer than 1 has as many links as any other (a torus)."""
        long = [axis for axis in "xyz" if getattr(self, axis) > 1]
        return len([axis for axis in axes if axis in long]) / len(long) if long else 1.0

    @classmethod
    def all_of(cls, chips: int) -> Iterator[Mesh]:
        """Every mesh of that many chips; y and z change places freely in every layout but wg-xy, so both orders are given."""
        if not isinstance(chips, int) or chips < 1:
            raise UserError(f"mesh: {chips!r} chips; give a whole number of at least 1")
        for x in (d for d in range(1, chips + 1) if chips % d == 0):
            for y in (d for d in range(1, chips // x + 1) if (chips // x) % d == 0):
                yield cls(x, y, chips // (x * y))


@dataclasses.dataclass(frozen=True)
class Layout:
    """A feed-forward layout (a key of `FEEDFORWARD`) and an attention layout (of `ATTENTION`) on a mesh."""

    mesh: Mesh
    feedforward: str
    attention: str

    def __post_init__(self) -> None:
        for field, known in (("feedforward", FEEDFORWARD), ("attention", ATTENTION)):
            if getattr(self, field) not in known:
                raise UserError(f"layout: {field} is {getattr(self, field)!r}; it must be one of {', '.join(known)}")

    def __str__(self) -> str:
        return f"{self.feedforward}, attention by {self.attention}, {self.mesh}"

    @property
    def axes(self) -> Axes:
        """The axes at work in a matmul."""
        return FEEDFORWARD[self.feedforward]

    @property
    def stored(self) -> Axes:
        """The axes along which the weights rest between steps: those of ws-2d, but for ws-1d."""
        return FEEDFORWARD["ws-1d" if self.feedforward == "ws-1d" else "ws-2d"]

    @property
    def data(self) -> int:
        return self.mesh.size(self.axes.data)

    @property
    def hidden(self) -> int:
        return self.mesh.size(self.axes.hidden)

    @property
    def width(self) -> int:
        return self.mesh.size(self.axes.width)

    @property
    def stored_hidden(self) -> int:
        return self.mesh.size(self.stored.hidden)

    @property
    def stored_width(self) -> int:
        return self.mesh.size(self.stored.width)

    def check(self, model: Architecture, batch: int) -> None:
        """Whether every dimension divides.

        Raises:
          UserError: it does not, or the batch is smaller than the number of chips that split it.
        """
        n, group = self.mesh.chips, self.hidden * self.width
        by_heads = self.attention == "heads"
        for what, size, ways in (
            ("hidden size", model.hidden, n // self.data),
            ("hidden size", model.hidden, self.stored_hidden),
            ("feed-forward width", model.ffn, group),
            ("feed-forward width", model.ffn, self.stored_width),
            ("number of heads", model.heads, group if by_heads else self.width),
        ):
            if size % ways:
                padded = math.ceil(size / ways) * ways
                raise UserError(
                    f"layout {self}: the {what}, {size}, does not divide {ways} ways; pad it to {padded}, or change the mesh"
                )
        for ways in {group if by_heads else self.width, self.stored_width}:
            if model.kv_heads % ways and ways % model.kv_heads:
                raise UserError(
                    f"layout {self}: {model.kv_heads} KV heads neither divide {ways} ways nor into {ways} chips; change the mesh"
                )
        split = self.data if by_heads else n
        if batch % split:
            least = max(split, batch // split * split)
            raise UserError(f"layout {self}: a batch of {batch} does not divide {split} ways; take {least}, or another layout")
