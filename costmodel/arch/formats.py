"""How numbers are stored: bits of each, and the scales that go with them. Weights and the KV cache share one table.

A scale belongs to a block of a matrix: of [outputs, inputs] for a weight, of [tokens, head_dim] for what one head caches. So `int8` is
a scale an output channel for weights and a scale a token and head for K and V, which is what each is quantised by in practice.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping

from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Format:
    """One way to store a matrix.

    Attributes:
      bits: of one number.
      compute: the dtype that a matmul takes such weights in, as `Chip.peaks` spells it: what they are widened to, or their own.
      block: (rows, columns) that share a scale; None is all of that axis.
      scale_bytes: B of what a block carries beside its numbers: scale, minimum; 0 where there is none.
    """

    name: str
    bits: float
    compute: str
    source: str
    block: tuple[int | None, int | None] = (None, None)
    scale_bytes: float = 0.0

    def bytes(self, rows: float, columns: float) -> float:
        """B of a matrix, its scales included."""
        return rows * columns * self.bits / 8 + self.scale_bytes * self._blocks(rows, 0) * self._blocks(columns, 1)

    def row_bytes(self, columns: float) -> float:
        """B of one row read by itself, as an embedding is, with the scales of every block that it touches."""
        return columns * self.bits / 8 + self.scale_bytes * self._blocks(columns, 1)

    def _blocks(self, size: float, axis: int) -> int:
        block = self.block[axis]
        return 1 if block is None else math.ceil(size / block)


def _llama(name: str, bits: float, numbers: int, scale_bytes: int) -> Format:
    return Format(name, bits, "bfloat16", "the block format of llama.cpp's GGUF", (1, numbers), scale_bytes)


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("float32", 32, "float32", "IEEE 754"),
        Format("bfloat16", 16, "bfloat16", "bfloat16"),
        Format("float16", 16, "float16", "IEEE 754"),
        Format("float8", 8, "float8", "one f32 scale a tensor, or a head of the cache", (None, None), 4),
        Format("float8-channel", 8, "float8", "an f32 scale an output channel, or a token and head", (1, None), 4),
        Format("float8-block128", 8, "float8", "an f32 scale a block of 128 x 128 (DeepSeek-V3, section 3.3)", (128, 128), 4),
        Format("float8-page16", 8, "float8", "for KV: an f32 scale a page of 16 tokens and head", (16, None), 4),
        Format("int8", 8, "bfloat16", "an f32 scale an output channel, or a token and head", (1, None), 4),
        Format("int4-g32", 4, "bfloat16", "an f16 scale a group of 32 inputs (GPTQ, AWQ)", (1, 32), 2),
        Format("int4-g128", 4, "bfloat16", "an f16 scale a group of 128 inputs (GPTQ, AWQ)", (1, 128), 2),
        _llama("q4_0", 4, 32, 2),
        _llama("q4_1", 4, 32, 4),
        _llama("q5_0", 5, 32, 2),
        _llama("q5_1", 5, 32, 4),
        _llama("q8_0", 8, 32, 2),
        _llama("q4_k", 4, 256, 16),
        _llama("q6_k", 6, 256, 18),
    )
}

_SPELLINGS = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "f32": "float32", "fp32": "float32", "fp8": "float8"}


def find_format(name: str | Format) -> Format:
    """The format called `name`.

    Raises:
      UserError: no such format; the message suggests the nearest names.
    """
    if isinstance(name, Format):
        return name
    key = _SPELLINGS.get(name.strip().lower(), name.strip().lower())
    if key in FORMATS:
        return FORMATS[key]
    near = difflib.get_close_matches(key, FORMATS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown dtype {name!r}; {hint}known dtypes are {', '.join(FORMATS)}")
