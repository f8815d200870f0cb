"""Safetensors folders: every dtype, shards, and what is refused."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from models.checkpoint.load import check
from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.errors import UserError
from tests.models import checkpoints


def folder_of(tmp_path: Path) -> Path:
    config = checkpoints.hf_config()
    return checkpoints.write_folder(tmp_path / "model", config, checkpoints.hf_tensors("llama", config))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shards", [1, 3])
def test_read_returns_what_was_stored(tmp_path: Path, dtype: Any, shards: int):
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    found = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors, dtype=dtype, shards=shards))
    assert found.names() == sorted(tensors)
    for name, tensor in tensors.items():
        read = found.read(name)
        assert read.dtype == dtype and found.shape(name) == tensor.shape
        np.testing.assert_array_equal(read, tensor.astype(dtype))


def test_generation_config_adds_to_eos(tmp_path: Path):
    folder = folder_of(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106]}))
    assert SafetensorsCheckpoint(folder).config.eos_tokens == (2, 1, 106)
    (folder / "generation_config.json").write_text("{}")
    assert SafetensorsCheckpoint(folder).config.eos_tokens == (2,)


BREAKS = {
    "config missing": ("config.json", None, "there is no config.json"),
    "config not JSON": ("config.json", b'{"architectures": [', "config.json: not valid JSON"),
    "config not an object": ("config.json", b"[]", "config.json: it holds a list, not an object; download it again"),
    "config not text": ("config.json", b"\xff\xfe", "config.json: not valid JSON"),
    "config nested without end": ("config.json", b'{"a":' + b"[" * 100_000, "config.json: not valid JSON"),
    "weights missing": ("model.safetensors", None, "neither model.safetensors nor"),
    "weights empty": ("model.safetensors", b"", "truncated or not a safetensors file"),
    "index broken": ("model.safetensors.index.json", b"{", "index.json: not valid JSON"),
    "index empty": ("model.safetensors.index.json", b"{}", "'weight_map' is missing"),
    "index of a list": (
        "model.safetensors.index.json",
        b'{"weight_map": ["a.safetensors"]}',
        "'weight_map' is missing or names no",
    ),
    "index of nothing": ("model.safetensors.index.json", b'{"weight_map": {}}', "'weight_map' is missing or names no files"),
    "index of numbers": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": 1}}',
        "'weight_map' is missing or names no files",
    ),
    "index says twice": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}}',
        "the key 'x' stands twice",
    ),
    "index too large": (
        "model.safetensors.index.json",
        b" " * (16 << 20) + b"{}",
        "it holds more than 16 MiB, the most that is read",
    ),
    "shard outside": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "../model/model.safetensors"}}',
        "'x' lies in '../model/model.safetensors', which is no file of this folder",
    ),
    "shard at the root": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "/etc/passwd"}}',
        "which is no file of this folder",
    ),
    "shard without a name": ("model.safetensors.index.json", b'{"weight_map": {"x": ""}}', "which is no file of this folder"),
    "shard with NUL": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "a\\u0000b"}}',
        "which is no file of this folder",
    ),
    "shard of a long name": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "' + b"a" * 5000 + b'"}}',
        "no such file, though model.safetensors.index.json puts 1 tensors there",
    ),
    "single file beside the index": (
        "model.safetensors.index.json",
        b'{"weight_map": {"lm_head.weight": "b.safetensors"}}',
        "both model.safetensors and model.safetensors.index.json are in it",
    ),
    "adapter": ("adapter_config.json", b"{}", "adapter_config.json: an adapter lies in the folder; merge it into the model"),
    "shard missing": ("model.safetensors.index.json", b'{"weight_map": {"x": "a.safetensors"}}', "a.safetensors: no such file"),
    "tensor not in shard": (
        "model.safetensors.index.json",
        b'{"weight_map": {"x": "model.safetensors"}}',
        "tensor x is missing",
    ),
    "generation config": ("generation_config.json", b"?", "generation_config.json: not valid JSON"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_folders_say_what_is_wrong(tmp_path: Path, name: str):
    folder = folder_of(tmp_path)
    file, content, pattern = BREAKS[name]
    shutil.copy(folder / "model.safetensors", folder / "m")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    (folder / "b.safetensors").write_bytes((folder / "m").read_bytes())
    with pytest.raises(UserError, match=pattern) as raised:
        SafetensorsCheckpoint(folder)
    assert "\n" not in str(raised.value)


def test_a_config_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    folder = folder_of(tmp_path)
    monkeypatch.setattr("models.files.reading._open", refuse)
    with pytest.raises(UserError, match=r"config.json: cannot be read \(Permission denied\)"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("dtype", [np.int8, np.float64, ml_dtypes.float8_e4m3fn])
def test_other_dtypes_are_refused_by_name(tmp_path: Path, dtype: Any):
    folder = folder_of(tmp_path)
    save_file({"model.norm.weight": np.zeros(64, dtype)}, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"tensor model.norm.weight has dtype (I8|F64|F8_E4M3); supported are F32, F16, BF16"):
        SafetensorsCheckpoint(folder)


@given(where=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_anywhere_is_one_clear_error(tmp_path: Path, where: float):
    folder = folder_of(tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    for cut in {int(where * len(data)), int(where * 64), len(data) - 1}:  # data, header length and header start, last byte
        (folder / "model.safetensors").write_bytes(data[:cut])
        with pytest.raises(UserError, match=r"model.safetensors: truncated"):
            SafetensorsCheckpoint(folder)


def ignored(checkpoint: SafetensorsCheckpoint) -> list[tuple[str, str]]:
    return [(entry.file, entry.what) for entry in checkpoint.provenance.ignored]


def sharded(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A folder of two shards: its tensors, and which shard the index says each lies in."""
    config = checkpoints.hf_config()
    tensors = checkpoints.hf_tensors("llama", config)
    checkpoints.write_folder(folder, config, tensors, shards=2)
    return tensors, json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]


def rewrite(folder: Path, shard: str, tensors: dict[str, np.ndarray], where: dict[str, str], **more: np.ndarray) -> None:
    save_file({name: t for name, t in tensors.items() if where[name] == shard} | more, folder / shard)


def test_the_index_decides_which_file_gives_a_tensor(tmp_path: Path):
    tensors, where = sharded(tmp_path)
    name, q = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.weight"
    first, last = sorted(set(where.values()))
    for stale, right in ((last, first), (first, last)):  # whichever is opened first
        where[name] = right
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
        rewrite(tmp_path, right, tensors, where)
        rewrite(tmp_path, stale, tensors, where, **{q: np.zeros_like(tensors[q])})
        found = SafetensorsCheckpoint(tmp_path)
        np.testing.assert_array_equal(found.read(name), tensors[name])
        assert ignored(found) == [(stale, name)]
        assert found.provenance.weights == (first, last)


def test_tensors_that_the_index_does_not_name_are_ignored(tmp_path: Path):
    tensors, where = sharded(tmp_path)
    shard = sorted(set(where.values()))[0]
    rewrite(tmp_path, shard, tensors, where, extra=np.zeros(3, np.int8))  # whatever its dtype
    found = SafetensorsCheckpoint(tmp_path)
    assert found.names() == sorted(tensors) and ignored(found) == [(shard, "extra")]
    check(found)


def test_other_weights_in_the_folder_are_told(tmp_path: Path):
    folder = folder_of(tmp_path)
    for name in ("consolidated.safetensors", "pytorch_model.bin", "notes.txt"):
        (folder / name).write_bytes(b"whatever")
    (folder / "original").mkdir()
    found = SafetensorsCheckpoint(folder)
    assert found.provenance.weights == ("model.safetensors",)
    assert ignored(found) == [("consolidated.safetensors", "the file"), ("pytorch_model.bin", "the file")]
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")  # as transformers, which wants an index
    with pytest.raises(
        UserError, match=r"there is 'consolidated.safetensors' and 2 more; save the model again with transformers'"
    ):
        SafetensorsCheckpoint(folder)


def test_an_index_may_name_the_single_file_and_a_folder_below(tmp_path: Path):
    folder = folder_of(tmp_path)
    (folder / "sub").mkdir()
    for file in ("model.safetensors", "sub/a.safetensors"):
        if file != "model.safetensors":
            (folder / "model.safetensors").rename(folder / file)
        where = dict.fromkeys(checkpoints.hf_tensors("llama", checkpoints.hf_config()), file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
        assert SafetensorsCheckpoint(folder).provenance.weights == (file,)


def test_keys_and_buffers_that_are_ignored_are_told(tmp_path: Path):
    config = checkpoints.hf_config(torch_dtype="bfloat16")
    buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
    tensors = checkpoints.hf_tensors("llama", config) | {buffer: np.ones(16, np.float64)}
    found = SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, tensors, dtype=np.float32))
    assert ignored(found) == [("config.json", "torch_dtype"), ("model.safetensors", buffer)]
    assert not found.provenance.remarks
    check(found)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [320, 3])  # compared at once, or a few rows at a time
def test_a_head_that_the_config_does_not_expect_is_looked_at(
    tmp_path: Path, dtype: Any, rows: int, monkeypatch: pytest.MonkeyPatch
):
    """What transformers 5 gives: one copy of two equal ones, two different ones apart, and either for both where one is missing."""
    monkeypatch.setattr("models.checkpoint.safetensors._COMPARED", rows * 64)
    config = checkpoints.hf_config(tie_word_embeddings=True)
    tensors = checkpoints.hf_tensors("llama", config)
    embed = tensors["model.embed_tokens.weight"]

    def opened(**more: np.ndarray) -> SafetensorsCheckpoint:
        given = {name: t for name, t in {**tensors, **more}.items() if t is not None}
        return SafetensorsCheckpoint(checkpoints.write_folder(tmp_path, config, given, dtype=dtype))

    equal = opened(**{"lm_head.weight": embed.copy()})
    assert equal.config.tied_head and "lm_head.weight" not in equal.names() and not equal.provenance.remarks
    assert ignored(equal) == [("model.safetensors", "lm_head.weight")]
    check(equal)

    other = embed.copy()
    other[-1, -1] += 1  # the last number of all
    different = opened(**{"lm_head.weight": other})
    assert not different.config.tied_head and not ignored(different)
    assert different.provenance.remarks[0].startswith(
        "lm_head.weight is the head, for it differs from the embedding though tie_"
    )
    np.testing.assert_array_equal(different.read("lm_head.weight"), other.astype(dtype))
    check(different)

    with pytest.raises(UserError, match=r"lm_head.weight is \[5, 64\]; by the config it must be \[320, 64\]"):
        check(opened(**{"lm_head.weight": embed[:5]}))

    del tensors["model.embed_tokens.weight"]
    alone = opened(**{"lm_head.weight": other})
    assert alone.config.tied_head and "lm_head.weight" not in alone.names()
    np.testing.assert_array_equal(alone.read("model.embed_tokens.weight"), other.astype(dtype))
    assert alone.provenance.remarks[0].startswith("lm_head.weight serves as the embedding too")
    check(alone)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HEADERS = {
    "no object": b"[]",
    "text": b"not json",
    "nested": b'{"a":' * 3000,
    "twice": json.dumps({"a": F32})[:-1].encode() + b',"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}',
    "overlapping": json.dumps({"a": F32, "b": F32}).encode(),
    "a gap": json.dumps({"a": {**F32, "data_offsets": [4, 12]}}).encode(),
    "backwards": json.dumps({"a": {**F32, "data_offsets": [8, 0]}}).encode(),
    "beyond the file": json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode(),
    "a shape that overflows": json.dumps({"a": {**F32, "shape": [1 << 40, 1 << 40]}}).encode(),
    "a negative shape": json.dumps({"a": {**F32, "shape": [-2]}}).encode(),
    "another size": json.dumps({"a": {**F32, "shape": [3]}}).encode(),
    "no such dtype": json.dumps({"a": {**F32, "dtype": "F33"}}).encode(),
    "no dtype": json.dumps({"a": {"shape": [2], "data_offsets": [0, 8]}}).encode(),
    "metadata of numbers": json.dumps({"__metadata__": {"format": 3}, "a": F32}).encode(),
}


def header(folder: Path, head: bytes, data: bytes = bytes(8), length: int | None = None) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head) if length is None else length) + head + data)


@pytest.mark.parametrize("name", HEADERS)
def test_broken_headers(tmp_path: Path, name: str):
    folder = folder_of(tmp_path)
    header(folder, HEADERS[name])
    with pytest.raises(UserError, match=r"model.safetensors: truncated or not a safetensors file \(") as raised:
        SafetensorsCheckpoint(folder)
    assert "\n" not in str(raised.value) and str(raised.value).endswith("; download it again")


@pytest.mark.parametrize("length", [(16 << 20) + 1, 99_000_000, (1 << 63) - 1, (1 << 64) - 1])
def test_a_header_that_costs_too_much_is_not_read(tmp_path: Path, length: int):
    folder = folder_of(tmp_path)
    header(folder, b"{}", length=length)
    with (folder / "model.safetensors").open("ab") as file:
        file.truncate(min(length, 1 << 31) + 16)  # sparse
    with pytest.raises(UserError, match=f"its header is said to have {length} bytes, and at most 16777216 are read"):
        SafetensorsCheckpoint(folder)


def reference(content: bytes) -> dict[str, np.ndarray]:
    """The format as its page states it, for files that are right."""
    length = struct.unpack("<Q", content[:8])[0]
    head, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    dtypes = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
    head.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[slice(*of["data_offsets"])], dtypes[of["dtype"]]).reshape(of["shape"])
        for name, of in head.items()
    }


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the weights of each example."""
    return checkpoints.write_folder(tmp_path_factory.mktemp("bare"), checkpoints.hf_config(), {})


SMALL = st.integers(-1, 9) | st.sampled_from([1 << 31, 1 << 62, 1 << 64, 2.0, None, "2", True])
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "F16", "BF16", "I8", "F8_E4M3", "F4", "x", 3]),
        "shape": st.lists(SMALL, max_size=3) | SMALL,
        "data_offsets": st.lists(st.sampled_from([0, 2, 4, 6, 8]), min_size=2, max_size=2)
        | st.lists(SMALL, max_size=3)
        | SMALL,
    },
)
RIGHT = st.builds(
    lambda name, more: {**{name: {"dtype": "F16", "shape": [2, 1], "data_offsets": [0, 4]}}, **more},
    st.text(max_size=4),
    st.dictionaries(
        st.sampled_from(["a", "b", "__metadata__"]), ENTRY | st.just({"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]})
    ),
)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda head: struct.pack("<Q", len(head)) + head + bytes(8),
        st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    ),
    st.builds(
        lambda head, data: struct.pack("<Q", len(head)) + head + data,
        (RIGHT | st.dictionaries(st.text(max_size=4), ENTRY, max_size=3)).map(lambda head: json.dumps(head).encode()),
        st.binary(min_size=8, max_size=8) | st.just(bytes(4)) | st.just(b""),
    ),
)


@given(content=CONTENTS)
@settings(max_examples=250, deadline=None)
def test_any_file_is_read_right_or_is_one_line(content: bytes, bare: Path):
    folder = bare
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    (folder / "model.safetensors").write_bytes(content)
    try:
        found = SafetensorsCheckpoint(folder)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return
    expected = reference(content)
    assert found.names() == sorted(expected)
    for name, array in expected.items():
        assert found.shape(name) == array.shape
        np.testing.assert_array_equal(found.read(name).view(np.uint8), array.view(np.uint8))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["model.safetensors", "..", "a/b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("lm_head.weight"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(index=JSON | st.fixed_dictionaries({"weight_map": JSON}))
@settings(max_examples=120, deadline=None)
def test_any_index_is_read_right_or_is_one_line(index: Any, bare: Path):
    folder = bare
    save_file({"lm_head.weight": np.zeros((1, 2), np.float32)}, folder / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    try:
        found = SafetensorsCheckpoint(folder)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
    else:
        assert found.names() == sorted(index["weight_map"]) == ["lm_head.weight"]
