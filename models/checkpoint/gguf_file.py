"""The GGUF container: a header of typed metadata and a table of tensors, over one memory-mapped file.

Everything that the header says is checked before memory is taken for it: a count is a claim of a file from a stranger.

The `gguf` package supplies the tables of types and block sizes and the dequantisation. Its reader is not used, for two reasons:
it makes several numpy views of every string of the vocabulary (3 s for SmolLM2, four times that for Llama 3; this one takes
0.1 s), and it answers a truncated file with an IndexError. Tests hold the two readers against each other.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize

from models.errors import UserError, short
from models.files.reading import shown

SUPPORTED = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")

_FLOATS: Mapping[GGMLQuantizationType, Any] = {
    GGMLQuantizationType.F32: np.float32,
    GGMLQuantizationType.F16: np.float16,
    GGMLQuantizationType.BF16: jnp.bfloat16,
}

_SCALARS = {  # for struct and for NumPy
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<B",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}

# More than any model has, and little enough that no header costs a gigabyte. The largest vocabulary so far (Gemma 4) has 262,144 tokens
# and 514,906 merges, in a header of 15 MiB; the most tensors (a mixture of experts) are some ten thousand.
_MAX_HEADER, _MAX_ENTRIES, _MAX_ELEMENTS = 64 << 20, 1 << 16, 1 << 20


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: `shape` in elements with rows first (the file lists it reversed), `start` and `bytes` in bytes."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    bytes: int


class GGUFFile:
    """A GGUF file of version 2 or 3, little-endian.

    Attributes:
      metadata: key -> int, float, bool, str, a list of str, or a read-only array of numbers.
      tensors: name -> `TensorInfo`, every one of them checked to lie within the file and to be of a supported type.

    Raises:
      UserError: not there, not a GGUF file, truncated, damaged, or holding a tensor type that is not in `SUPPORTED`.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except ValueError:  # an empty file cannot be mapped
            raise UserError(f"{path}: the file is empty; download it again") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        if self._map[:4] != b"GGUF":
            raise UserError(f"{path}: not a GGUF file (it starts with {self._map[:4]!r}, not b'GGUF')")
        self._at = 4
        version = self._number("<I")
        if version and version & 0xFFFF == 0:  # 2 or 3 with its bytes turned round
            raise UserError(f"{path}: the file is big-endian, which is not supported; convert the model again, little-endian")
        if version not in (2, 3):
            raise UserError(f"{path}: GGUF version {version} is not supported; supported are 2 and 3, little-endian")
        tensors, keys = self._count("tensors", _MAX_ENTRIES), self._count("metadata keys", _MAX_ENTRIES)
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string()
            if key in self.metadata:
                raise UserError(f"{path}: damaged: metadata key {shown(key)} stands twice; download it again")
            self.metadata[key] = self._value(self._number("<I"), key)
        self.tensors = self._table(tensors)

    def read(self, name: str) -> np.ndarray:
        """One tensor: a view of the file for F32, F16 and BF16, else float32."""
        info = self.tensors[name]
        data = np.frombuffer(self._map, np.uint8, info.bytes, info.start)
        if info.kind in _FLOATS:
            return data.view(_FLOATS[info.kind]).reshape(info.shape)
        return dequantize(data.reshape(*info.shape[:-1], -1), info.kind).reshape(info.shape)

    def _table(self, count: int) -> dict[str, TensorInfo]:
        found: dict[str, tuple[GGMLQuantizationType, tuple[int, ...], int]] = {}
        for _ in range(count):
            name, dimensions = self._string(), self._number("<I")
            if name in found or not 1 <= dimensions <= 4:
                raise UserError(f"{self.path}: the entry of tensor {shown(name)} is damaged; download the file again")
            shape = tuple(self._number("<Q") for _ in range(dimensions))[::-1]
            number, offset = self._number("<I"), self._number("<Q")
            found[name] = (self._supported(name, number), shape, offset)
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise UserError(f"{self.path}: general.alignment is {shown_value(alignment)}; it must be a power of 2")
        base, end, placed = _aligned(self._at, alignment), 0, {}
        for name, (kind, shape, offset) in found.items():
            if offset != end:  # tensors lie one after the other: two that overlap would be read without a word
                raise UserError(
                    f"{self.path}: damaged: tensor {shown(name)} is at {offset} and must be at {end}; download it again"
                )
            placed[name] = self._placed(name, kind, shape, base + offset)
            end = _aligned(offset + placed[name].bytes, alignment)
        return placed

    def _supported(self, name: str, number: int) -> GGMLQuantizationType:
        known = {int(kind): kind for kind in GGMLQuantizationType}
        label = known[number].name if number in known else f"number {number}"
        if label not in SUPPORTED:
            raise UserError(f"{self.path}: tensor {shown(name)} has type {label}; supported are {', '.join(SUPPORTED)}")
        return known[number]

    def _placed(self, name: str, kind: GGMLQuantizationType, shape: tuple[int, ...], start: int) -> TensorInfo:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not all(shape) or shape[-1] % block:
            rule = f"no size is 0 and a row of type {kind.name} is a multiple of {block}"
            raise UserError(f"{self.path}: tensor {shown(name)} has shape {list(shape)}; {rule}")
        size = math.prod(shape) // block * block_bytes
        if start + size > len(self._map):
            raise UserError(
                f"{self.path}: truncated: tensor {shown(name)} ends at byte {start + size} and the file at {len(self._map)}; "
                "download it again"
            )
        return TensorInfo(kind, shape, start, size)

    def _take(self, size: int) -> int:
        """Move on by `size` bytes; returns where they start."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._map):
            raise UserError(f"{self.path}: truncated: it ends at byte {len(self._map)}, within its header; download it again")
        if self._at > _MAX_HEADER:
            raise UserError(f"{self.path}: damaged: its header is longer than {_MAX_HEADER >> 20} MiB; download it again")
        return start

    def _number(self, layout: str) -> Any:
        return struct.unpack_from(layout, self._map, self._take(struct.calcsize(layout)))[0]

    def _count(self, what: str, most: int) -> int:
        count: int = self._number("<Q")
        if count > most:
            raise UserError(f"{self.path}: damaged: it claims {count} {what}; at most {most} are supported; download it again")
        return count

    def _string(self) -> str:
        start = self._take(self._number("<Q"))
        try:
            return self._map[start : self._at].decode()
        except UnicodeDecodeError:
            raise UserError(f"{self.path}: damaged: the text at byte {start} is not UTF-8; download it again") from None

    def _value(self, kind: int, key: str) -> Any:
        if kind == GGUFValueType.STRING:
            return self._string()
        if kind == GGUFValueType.ARRAY:
            inner, count = self._number("<I"), self._count(f"elements of {shown(key)}", _MAX_ELEMENTS)
            if inner == GGUFValueType.STRING:
                return [self._string() for _ in range(count)]
            layout = self._layout(inner, key)
            values = np.frombuffer(self._map, layout, count, self._take(struct.calcsize(layout) * count))
            return values != 0 if inner == GGUFValueType.BOOL else values
        value = self._number(self._layout(kind, key))
        return value != 0 if kind == GGUFValueType.BOOL else value

    def _layout(self, kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise UserError(f"{self.path}: metadata key {shown(key)} has value type {kind}, which is not supported")
        return _SCALARS[GGUFValueType(kind)]


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def shown_value(value: Any) -> str:
    """A value of the metadata, for a message: one short line, whatever it is."""
    return short(value[:7].tolist() if isinstance(value, np.ndarray) else value)
