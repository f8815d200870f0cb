"""The GGUF container: every type against a scalar dequantiser, the header against the gguf package, and damaged files."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.gguf_file import SUPPORTED, GGUFFile
from models.checkpoint.gguf_keys import KEYS
from models.errors import UserError
from tests.models import blocks, checkpoints


def tiny(path: Path, **how: Any) -> Path:
    config = checkpoints.hf_config()
    return checkpoints.write_gguf(path / "m.gguf", "llama", config, checkpoints.hf_tensors("llama", config), **how)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_are_read_as_stored(tmp_path: Path, kind: str):
    dtype = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[kind]
    found = GGUFCheckpoint(tiny(tmp_path, quantised=Kind[kind]))
    for name, tensor in checkpoints.hf_tensors("llama", checkpoints.hf_config()).items():
        read = found.read(name)
        assert read.shape == found.shape(name) == tensor.shape and read.dtype == (dtype if tensor.ndim == 2 else np.float32)
        np.testing.assert_array_equal(read, tensor.astype(read.dtype))


@pytest.mark.parametrize("kind", sorted(blocks.SCALAR))
def test_quantised_types_equal_a_scalar_dequantiser(tmp_path: Path, kind: str):
    size, block_bytes = gguf.GGML_QUANT_SIZES[Kind[kind]]
    draw = np.random.default_rng(0)
    if kind.endswith("_K"):  # the package only reads these: random bytes, with scales that are numbers
        rows = draw.integers(0, 256, (3, 2 * block_bytes), dtype=np.uint8)
        for at in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind]:
            for block in range(2):
                scales = draw.standard_normal(3).astype("<f2")
                rows[:, block * block_bytes + at : block * block_bytes + at + 2] = scales.view(np.uint8).reshape(3, 2)
    else:
        values = draw.standard_normal((3, 2 * size)).astype(np.float32)
        rows = quantize(values, Kind[kind])
    path = tiny(tmp_path, raw={"extra.weight": (rows, Kind[kind])})
    found = GGUFFile(path).read("extra.weight")
    scalar = [
        x for row in rows for b in range(2) for x in blocks.SCALAR[kind](row[b * block_bytes : (b + 1) * block_bytes].tobytes())
    ]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.reshape(scalar, (3, 2 * size)), rtol=1e-5, atol=1e-5)
    if not kind.endswith("_K"):
        steps = 2 ** int(kind[1]) - 1
        assert np.abs(found - values).max() < 1.2 * (values.max() - values.min()) / steps


def test_all_supported_types_are_covered():
    assert {*blocks.SCALAR, "F32", "F16", "BF16"} == set(SUPPORTED)


def test_other_types_are_refused_by_name(tmp_path: Path):
    raw = {"blk.9.x.weight": (np.zeros((1, 84), np.uint8), Kind.Q2_K)}
    with pytest.raises(UserError, match=r"tensor blk.9.x.weight has type Q2_K; supported are F32, F16, BF16, Q8_0"):
        GGUFFile(tiny(tmp_path, raw=raw))


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"PK\3\4 a zip", "not a GGUF file"),
        (b"GGUF\1\0\0\0", "GGUF version 1 is not supported"),
        (b"GGUF\0\0\0\3", "the file is big-endian, which is not supported; convert the model again, little-endian"),
        (b"GGUF\4\0\0\0", "GGUF version 4 is not supported; supported are 2 and 3"),
        (b"GGUF\0\0\0\0", "GGUF version 0 is not supported"),
    ],
)
def test_what_is_no_gguf_file(tmp_path: Path, content: bytes | None, pattern: str):
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=pattern):
        GGUFCheckpoint(path)


class Sample(NamedTuple):
    """A file, and where its tensors start."""

    data: bytes
    start: int

    def __repr__(self) -> str:
        return "a sample"  # hypothesis prints its arguments


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    path = tiny(tmp_path_factory.mktemp("sample"))
    return Sample(path.read_bytes(), min(info.start for info in GGUFFile(path).tensors.values()))


def read(folder: Path, data: bytes) -> str:
    """What comes of a file with these bytes: "" or the one line that refuses it. Never anything else, and never much memory."""
    path = folder / "any.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        checkpoint = GGUFCheckpoint(path)
        checkpoint.tokenizer().encode("hello <|im_end|> 12")
        for name in checkpoint.names():
            checkpoint.shape(name)
        told = ""
    except UserError as error:
        told = str(error)
        assert "\n" not in told and told.startswith(str(folder)) and len(told) < len(str(folder)) + 1500
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20
    return told


@given(where=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_anywhere_is_one_clear_error(tmp_path: Path, sample: Sample, where: float):
    data, start = sample
    for cut in (4 + int(where * (start - 4)), start + int(where * (len(data) - start))):
        assert "any.gguf: truncated" in read(tmp_path, data[:cut])


extremes = st.sampled_from([0, 1, 2**16, 2**20, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1])


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_header_is_never_a_traceback(tmp_path: Path, sample: Sample, data: st.DataObject):
    """Bytes changed, counts and lengths of any size put in, bytes taken out or put in."""
    damaged = bytearray(sample.data)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, sample.start - 1))
        match data.draw(st.sampled_from(["byte", "number", "cut", "insert"])):
            case "byte":
                damaged[at] = data.draw(st.integers(0, 255))
            case "number":
                damaged[at : at + 8] = struct.pack("<Q", data.draw(extremes))
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 9))]
            case "insert":
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    read(tmp_path, bytes(damaged))


@given(body=st.binary(max_size=300), version=st.sampled_from([2, 3]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_behind_the_magic_are_one_clear_error(tmp_path: Path, body: bytes, version: int):
    assert read(tmp_path, b"GGUF" + struct.pack("<I", version) + body)


scalars = st.one_of(st.integers(0, 2**32 - 1), st.floats(width=32), st.booleans(), st.text(max_size=9))
lists = st.one_of(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    st.lists(st.floats(width=32), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(st.text(max_size=9), min_size=1, max_size=4),
)
PRESENT = [*checkpoints.gguf_keys("llama", checkpoints.hf_config()), *checkpoints.vocabulary(320)]
OTHERS = [key.name.replace("{arch}", "llama").replace("*", "x") for key in KEYS if key.name != "general.architecture"]


@given(keys=st.dictionaries(st.sampled_from([*PRESENT, *OTHERS]), st.one_of(st.none(), scalars, lists), max_size=3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_of_any_key_is_read_or_one_clear_error(tmp_path: Path, keys: dict[str, Any]):
    read(tmp_path, tiny(tmp_path, keys=keys).read_bytes())


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(*keys: bytes, tensors: int = 0, count: int | None = None) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(keys) if count is None else count) + b"".join(keys)


ARCH = text("general.architecture") + struct.pack("<I", 8) + text("llama")
HUGE = 2**63


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (header(count=HUGE), "it claims 9223372036854775808 metadata keys; at most 65536 are supported"),
        (header(tensors=HUGE), "it claims 9223372036854775808 tensors; at most 65536 are supported"),
        (header(struct.pack("<Q", HUGE)), "truncated: it ends at byte 32, within its header"),
        (header(text("a") + struct.pack("<IQ", 8, HUGE)), "truncated: it ends at byte 45, within its header"),
        (header(text("a") + struct.pack("<IIQ", 9, 8, HUGE)), "it claims 9223372036854775808 elements of a; at most 1048576"),
        (header(text("a") + struct.pack("<IIQ", 9, 4, HUGE)), "it claims 9223372036854775808 elements of a; at most 1048576"),
        (header(text("a") + struct.pack("<IIQ", 9, 4, 2**20)), "truncated: it ends at byte"),
        (header(text("a") + struct.pack("<IIQ", 9, 9, 1)), "metadata key a has value type 9, which is not supported"),
        (header(text("a") + struct.pack("<I", 13)), "metadata key a has value type 13, which is not supported"),
        (header(text("a\nb") + struct.pack("<I", 13)), r"metadata key 'a\\nb' has value type 13"),
        (header(ARCH, ARCH), "damaged: metadata key general.architecture stands twice"),
        (header(text("a")[:-1] + b"\xff"), "damaged: the text at byte 32 is not UTF-8"),
    ],
)
def test_headers_that_claim_too_much(tmp_path: Path, data: bytes, pattern: str):
    assert re.search(pattern, read(tmp_path, data)), read(tmp_path, data)


def entry(name: str, shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("entries", "pattern"),
    [
        ([entry("a", ())], "the entry of tensor a is damaged"),
        ([entry("a", (1, 1, 1, 1, 1))], "the entry of tensor a is damaged"),
        ([entry("a"), entry("a", offset=32)], "the entry of tensor a is damaged"),
        ([entry("a", (0,))], r"tensor a has shape \[0\]; no size is 0"),
        ([entry("a", (31,), 8)], r"tensor a has shape \[31\]; no size is 0 and a row of type Q8_0 is a multiple of 32"),
        ([entry("a", (8, HUGE))], "truncated: tensor a ends at byte"),
        ([entry("a"), entry("b", offset=0)], "tensor b is at 0 and must be at 32"),  # over another
        ([entry("a"), entry("b", offset=33)], "tensor b is at 33 and must be at 32"),
        ([entry("a", offset=HUGE)], "tensor a is at 9223372036854775808 and must be at 0"),
        ([entry("a", kind=10)], "tensor a has type Q2_K; supported are"),
        ([entry("a", kind=4)], "tensor a has type number 4; supported are"),  # Q4_2, dropped in 2023
        ([entry("a\nb", kind=255)], r"tensor 'a\\nb' has type number 255"),
    ],
)
def test_tables_of_tensors_that_are_damaged(tmp_path: Path, entries: list[bytes], pattern: str):
    told = read(tmp_path, header(ARCH, tensors=len(entries)) + b"".join(entries) + bytes(128))
    assert re.search(pattern, told), told


@pytest.mark.parametrize("alignment", [1, 8, 64])
def test_tensors_begin_at_multiples_of_the_alignment(tmp_path: Path, alignment: int):
    """Oracle: two tensors laid out by hand."""
    key = text("general.alignment") + struct.pack("<II", 4, alignment)
    second = -(-12 // alignment) * alignment
    data = header(ARCH, key, tensors=2) + entry("a", (3,)) + entry("b", (2,), offset=second)
    data += bytes(-len(data) % alignment) + np.array([1, 2, 3], "<f4").tobytes()
    data += bytes(second - 12) + np.array([4, 5], "<f4").tobytes()
    (tmp_path / "m.gguf").write_bytes(data)
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.read("a").tolist() == [1, 2, 3] and file.read("b").tolist() == [4, 5]


@pytest.mark.parametrize("alignment", [0, 3, 2**32 - 1])
def test_an_alignment_is_a_power_of_two(tmp_path: Path, alignment: int):
    key = text("general.alignment") + struct.pack("<II", 4, alignment)
    assert f"general.alignment is {alignment}; it must be a power of 2" in read(tmp_path, header(ARCH, key))


def growth(path: Path) -> tuple[str, int]:
    """Read a file in a process of its own: what refused it, and by how many MiB its memory grew at most."""
    code = f"""
import resource
from pathlib import Path
from models.checkpoint.gguf import GGUFCheckpoint
from models.errors import UserError
told, before = "", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    GGUFCheckpoint(Path({str(path)!r})).tokenizer()
except UserError as error:
    told = str(error)
print(told, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    told, _, grown = run.stdout.strip().rpartition(" ")
    return told, int(grown)


def array(name: str, kind: int, body: bytes) -> bytes:
    """A key with 2**20 elements, the most that are read."""
    return text(name) + struct.pack("<IIQ", 9, kind, 1 << 20) + body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "size", "pattern"),
    [
        (lambda: header(array("a", 8, b"")), 8 << 30, "general.architecture|GGUF architecture"),  # a hole: endless empty texts
        (lambda: header(*(array(f"k{i}", 8, text("ab") * (1 << 20)) for i in range(7))), 0, "its header is longer than 64 MiB"),
        (lambda: header(*(array(f"k{i}", 3, b"\1\x80" * (1 << 20)) for i in range(36))), 0, "its header is longer than 64 MiB"),
        (
            lambda: (
                header(ARCH, tensors=1 << 16)
                + b"".join(entry(f"{i:x}", offset=32 * i) for i in range(1 << 16))
                + bytes(33 << 16)
            ),
            0,
            "metadata key llama.block_count is missing",
        ),
    ],
    ids=["hole", "texts", "numbers", "tensors"],
)
def test_no_header_costs_a_gigabyte_or_hangs(tmp_path: Path, data: Callable[[], bytes], size: int, pattern: str):
    path = tmp_path / "m.gguf"
    path.write_bytes(data())
    os.truncate(path, max(size, path.stat().st_size))
    told, grown = growth(path)
    assert re.search(pattern, told) and grown < 1024, (told, grown)


def largest_bpe() -> dict[str, Any]:
    tokens = [f"{i:x}" for i in range(1 << 19)]
    long = tokens[16:]
    merges = [f"{t[:-1]} {t[-1]}" for t in long] + [f"{t[0]} {t[1:]}" for t in long if t[1] != "0"]
    return {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "token_type": [3] * len(tokens), "merges": merges}


def largest_sentencepiece() -> dict[str, Any]:
    tokens = [f"{i:06x}" * 40 for i in range(1 << 16)]
    return {"tokens": tokens, "token_type": [1] * len(tokens), "scores": [0.0] * len(tokens)}


@pytest.mark.slow
@pytest.mark.parametrize("keys", [largest_bpe, largest_sentencepiece])
def test_no_vocabulary_costs_a_gigabyte_or_hangs(tmp_path: Path, keys: Callable[[], dict[str, Any]]):
    assert growth(tiny(tmp_path, keys={f"tokenizer.ggml.{key}": value for key, value in keys().items()})) < ("", 1024)


def test_header_equals_that_of_the_gguf_package(tmp_path: Path):
    path = tiny(
        tmp_path, keys={"a.float": 0.5, "a.flag": True, "a.list": [1, 2, 3], "a.texts": ["x", "ä"]}, quantised=Kind.Q8_0
    )
    ours, theirs = GGUFFile(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in ours.metadata.items()} == fields
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert (info.start, info.bytes, info.kind) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)
        assert info.shape == tuple(tensor.shape[::-1].tolist())
