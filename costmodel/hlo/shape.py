"""Shapes of HLO: element type, dimensions, layout, and the bytes that they hold."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from costmodel.hlo.scan import Scanner

# Bits of one element, as the text names the types.
BITS: Mapping[str, int] = {
    **{"pred": 8, "s1": 1, "s2": 2, "s4": 4, "s8": 8, "s16": 16, "s32": 32, "s64": 64},
    **{"u1": 1, "u2": 2, "u4": 4, "u8": 8, "u16": 16, "u32": 32, "u64": 64},
    **{"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128, "f4e2m1fn": 4},
    **dict.fromkeys(("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4", "f8e8m0fnu"), 8),
    **{"token": 0, "opaque": 0},
}
_ARRAY = re.compile(r"([A-Za-z]\w*)\[([^\[\]]*)\]")
_DIMENSION = re.compile(r"\s*(?:<=)?(\d{1,18})\s*")  # a bound of a dynamic dimension stands for it: what is allocated


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """An array, or a tuple of shapes in `parts` (dtype "tuple"). `layout` is the text in braces: "1,0:T(8,128)(2,1)S(1)"."""

    dtype: str
    dims: tuple[int, ...] = ()
    layout: str = ""
    parts: tuple[Shape, ...] = ()

    @property
    def elements(self) -> int:
        """Elements of the array; of all arrays of a tuple; none of a token."""
        if self.dtype == "tuple":
            return sum(part.elements for part in self.parts)
        return math.prod(self.dims) if BITS[self.dtype] else 0

    @property
    def bytes(self) -> int:
        """Bytes of the data, without padding of tiles.

        Sub-byte types take a byte each, unless the layout packs them, which it says by E(bits); an array then takes whole bytes.
        """
        if self.dtype == "tuple":
            return sum(part.bytes for part in self.parts)
        packed = re.search(r"E\((\d+)\)", self.layout)
        bits = int(packed[1]) if packed else -(-BITS[self.dtype] // 8) * 8
        return -(-self.elements * bits // 8)

    @property
    def memory_space(self) -> int:
        """S(n) of the layout: 0 is the device's main memory, 1 the on-chip memory of a TPU."""
        space = re.search(r"S\((\d+)\)", self.layout)
        return int(space[1]) if space else 0

    def same_data(self, other: Shape) -> bool:
        """Whether both hold the same elements, in whatever layout."""
        same = (self.dtype, self.dims, len(self.parts)) == (other.dtype, other.dims, len(other.parts))
        return same and all(mine.same_data(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))


class ShapeReader:
    """Reads shapes from a scanner; equal texts share one shape."""

    def __init__(self, scan: Scanner) -> None:
        self.scan = scan
        self.known: dict[str, Shape] = {}

    def read(self, at: int) -> tuple[Shape, int]:
        """The shape at `at` and the position behind it.

        Raises:
          UserError: an element type that isn't known, a dimension that is no number, an unbalanced or missing shape.
        """
        text = self.scan.text
        if text.startswith("(", at):
            end = self.scan.close(at)
            if text[at:end] not in self.known:
                self.known[text[at:end]] = self._tuple(at)
            return self.known[text[at:end]], end
        array = self.scan.expect(_ARRAY.pattern, at, "a shape such as f32[8,128]{1,0}")
        end = self.scan.close(array.end()) if text.startswith("{", array.end()) else array.end()
        if text[at:end] not in self.known:
            self.known[text[at:end]] = self._array(array, text[array.end() + 1 : max(end - 1, array.end())])
        return self.known[text[at:end]], end

    def _array(self, array: re.Match[str], layout: str) -> Shape:
        dtype, dims = array[1], array[2].strip()
        if dtype not in BITS:
            fix = f"this version reads {', '.join(BITS)}; compile with those or with a JAX release that the project supports"
            raise self.scan.fail(array.start(), f"element type {dtype!r} is not known", fix)
        sizes = [_DIMENSION.fullmatch(size) for size in dims.split(",")] if dims else []
        if not all(sizes):
            raise self.scan.fail(array.start(), f"the dimensions [{dims}] are not all numbers")
        return Shape(dtype, tuple(int(size[1]) for size in sizes if size), layout)

    def _tuple(self, at: int) -> Shape:
        parts, at = [], self.scan.gap(at + 1)
        while not self.scan.text.startswith(")", at):
            part, at = self.read(at)
            parts.append(part)
            at = self.scan.gap(at)
            if self.scan.text.startswith(",", at):
                at = self.scan.gap(at + 1)
            elif not self.scan.text.startswith(")", at):
                raise self.scan.fail(at, "expected ',' or ')' between the shapes of a tuple")
        return Shape("tuple", parts=tuple(parts))
