"""One block of each GGUF quantisation to numbers, a scalar at a time, after the layouts in ggml's `ggml-common.h`."""

from __future__ import annotations

import struct
from collections.abc import Callable


def half(data: bytes, at: int) -> float:
    return struct.unpack_from("<e", data, at)[0]


def low_high(quants: bytes, i: int) -> int:
    """Element i of 32: the low nibbles hold the first 16, the high ones the last 16."""
    return quants[i] & 15 if i < 16 else quants[i - 16] >> 4


def q4_0(b: bytes) -> list[float]:
    return [half(b, 0) * (low_high(b[2:], i) - 8) for i in range(32)]


def q4_1(b: bytes) -> list[float]:
    return [half(b, 0) * low_high(b[4:], i) + half(b, 2) for i in range(32)]


def q5_0(b: bytes) -> list[float]:
    bits = int.from_bytes(b[2:6], "little")
    return [half(b, 0) * ((low_high(b[6:], i) | (bits >> i & 1) << 4) - 16) for i in range(32)]


def q5_1(b: bytes) -> list[float]:
    bits = int.from_bytes(b[4:8], "little")
    return [half(b, 0) * (low_high(b[8:], i) | (bits >> i & 1) << 4) + half(b, 2) for i in range(32)]


def q8_0(b: bytes) -> list[float]:
    return [half(b, 0) * struct.unpack_from("<b", b, 2 + i)[0] for i in range(32)]


def scale_min(packed: bytes, group: int) -> tuple[int, int]:
    """6-bit scale and minimum of one of 8 groups: the upper two bits of the last four lie above the first four."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    scale = packed[group + 4] & 15 | (packed[group - 4] >> 6) << 4
    return scale, packed[group + 4] >> 4 | (packed[group] >> 6) << 4


def q4_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        group, byte = i // 32, b[16 + i // 64 * 32 + i % 32]
        scale, minimum = scale_min(b[4:16], group)
        out.append(half(b, 0) * scale * (byte >> 4 if group % 2 else byte & 15) - half(b, 2) * minimum)
    return out


def q5_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        group, byte = i // 32, b[48 + i // 64 * 32 + i % 32]
        scale, minimum = scale_min(b[4:16], group)
        quant = (byte >> 4 if group % 2 else byte & 15) | (b[16 + i % 32] >> group & 1) << 4
        out.append(half(b, 0) * scale * quant - half(b, 2) * minimum)
    return out


def q6_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        part, quarter, column = i // 128, i % 128 // 32, i % 32
        byte = b[64 * part + column + (32 if quarter % 2 else 0)]
        quant = (byte >> 4 if quarter >= 2 else byte & 15) | (b[128 + 32 * part + column] >> 2 * quarter & 3) << 4
        scale = struct.unpack_from("<b", b, 192 + i // 16)[0]
        out.append(half(b, 208) * scale * (quant - 32))
    return out


SCALAR: dict[str, Callable[[bytes], list[float]]] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
