"""The GGUF container: every type against a scalar dequantiser, the header against the gguf package, and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        (b"GGUF\0\0\0\3", "little-endian"),
    ],
)
def test_what_is_no_gguf_file(tmp_path: Path, content: bytes | None, pattern: str):
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=pattern):
        GGUFCheckpoint(path)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A file and where its tensors start."""
    path = tiny(tmp_path_factory.mktemp("sample"))
    return path.read_bytes(), min(info.start for info in GGUFFile(path).tensors.values())


@given(where=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_anywhere_is_one_clear_error(tmp_path: Path, sample: tuple[bytes, int], where: float):
    data, start = sample
    path = tmp_path / "cut.gguf"
    for cut in (4 + int(where * (start - 4)), start + int(where * (len(data) - start))):
        path.write_bytes(data[:cut])
        with pytest.raises(UserError, match=r"cut.gguf: truncated"):
            GGUFCheckpoint(path)


@given(where=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_header_is_never_a_traceback(tmp_path: Path, sample: tuple[bytes, int], where: float, value: int):
    data, start = bytearray(sample[0]), sample[1]
    data[int(where * start)] = value
    (tmp_path / "bad.gguf").write_bytes(data)
    try:
        GGUFCheckpoint(tmp_path / "bad.gguf").tokenizer()
    except UserError as error:
        assert "\n" not in str(error)


def test_header_equals_that_of_the_gguf_package(tmp_path: Path):
    path = tiny(
        tmp_path, keys={"a.float": 0.5, "a.flag": True, "a.list": [1, 2, 3], "a.texts": ["x", "ä"]}, quantised=Kind.Q8_0
    )
    ours, theirs = GGUFFile(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata == fields
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert (info.start, info.bytes, info.kind) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)
        assert info.shape == tuple(tensor.shape[::-1].tolist())
