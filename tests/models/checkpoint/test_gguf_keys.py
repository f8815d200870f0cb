"""Metadata keys of a GGUF file: the registry against docs/models.md and the gguf package, and what each line of it does.

Oracles: the table of the docs, written for people; the keys that the gguf package can write; configs worked out by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.gguf_file import SUPPORTED
from models.checkpoint.gguf_keys import KEYS, UNKNOWN, Kind, MetadataKey, understood
from models.config.architectures import gguf_architectures
from models.config.model_config import ModelConfig
from models.errors import UserError
from models.text.gguf_tokenizer import ALIASES, RULES, end_tokens
from tests.models import checkpoints

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
SECTION = DOCS.split("\n## GGUF\n")[1].split("\n## ")[0]


def base(**keys: Any) -> dict[str, Any]:
    """Metadata of a small llama as `GGUFFile` returns it, with more keys below the architecture's name."""
    given = {"general.architecture": "llama", "llama.block_count": 2} | {f"llama.{key}": value for key, value in keys.items()}
    return {key: np.array(value) if isinstance(value, list) else value for key, value in given.items()}


def tiny(folder: Path, kind: str = "llama", **keys: Any) -> ModelConfig:
    """The config of a file with other keys below the architecture's name; None removes one."""
    folder.mkdir(exist_ok=True)
    config = checkpoints.hf_config(kind)
    changed = {f"{kind}.{key.replace('__', '.')}": value for key, value in keys.items()}
    tensors = checkpoints.hf_tensors(kind, config)
    return GGUFCheckpoint(checkpoints.write_gguf(folder / "m.gguf", kind, config, tensors, keys=changed)).config


def row(key: MetadataKey) -> tuple[str, str, str]:
    unless = " or ".join(str(value) for value in key.unless) or "empty"
    return f"`{key.name}`", f"refused unless {unless}" if key.use == "refused" else key.use, key.why


def rows(header: str) -> list[tuple[str, ...]]:
    table = SECTION.split(f"| {header} |\n")[1].split("\n\n")[0].splitlines()[1:]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in table]


def test_the_docs_hold_the_registry_line_by_line():
    assert rows("key | what becomes of it | what it is, or why") == [row(key) for key in KEYS]
    assert len({key.name for key in KEYS}) == len(KEYS)


def test_the_docs_hold_the_other_lists():
    names = [(f"`{rule}`", ", ".join(f"`{name}`" for name, of in ALIASES.items() if of == rule) or "none") for rule in RULES]
    assert rows("rules | other names") == names
    assert f"Tensors can be\n{', '.join(SUPPORTED)};" in SECTION
    told = set(re.findall("`([^`]+)`", SECTION.split("### End tokens")[1].split("whatever its type:")[1].split(".\n")[0]))
    vocabulary = {"tokenizer.ggml.tokens": [*sorted(told), "<|end|>x", "end"]}
    assert set(end_tokens(vocabulary, "m.gguf")) == set(range(len(told))) - {sorted(told).index("<|end|>")}


@pytest.mark.parametrize("group", ["General", "Split", "Rope", "Tokenizer"])
def test_every_key_that_the_gguf_package_writes_is_known(group: str):
    """Those of LLM and Attention are of a hundred architectures; what these four say every architecture can have."""
    named = [value for name, value in vars(getattr(gguf.Keys, group)).items() if name.isupper() and isinstance(value, str)]
    assert len(named) >= 3
    for name in named:
        key = name.format(arch="llama", id=0, name="tool_use") if "{" in name else name
        try:
            read, ignored = understood(base() | {key: "x"}, "m.gguf")
        except UserError as error:
            assert str(error).startswith(f"m.gguf: {'GGUF architecture' if key.endswith('architecture') else key}")
        else:
            assert key in read or ignored[key] != UNKNOWN, key


WRONG: dict[Kind, list[Any]] = {
    Kind.SIZE: [0, -1, True, 1.0, "2", ["2"], [0, 0], [1.5, 1.5], []],
    Kind.WHOLE: [-1, True, 1.0, "2", ["2"], [-1, -1]],
    Kind.POSITIVE: [0.0, -1.0, float("nan"), float("inf"), True, "1", ["1"]],
    Kind.REAL: [float("nan"), float("inf"), False, "1", ["1"]],
    Kind.TEXT: [1, 1.0, True, ["a"], [1]],
    Kind.FLAG: [1, 0, "true", ["a"], [1]],
    Kind.TEXTS: [1, "a", 1.0, [1, 2]],
    Kind.WHOLES: [1, "a", ["a"], [1.0], [True]],
    Kind.REALS: [1.0, "a", ["a"], [True]],
    Kind.LAYERS: [1.0, "a", ["a"], True, -1, [1.5, 2.5]],
}


@pytest.mark.parametrize("key", [key for key in KEYS if key.use == "read"], ids=lambda key: key.name)
def test_a_value_of_another_kind_is_named(key: MetadataKey):
    assert key.kind is not None and WRONG[key.kind]
    name = key.name.replace("{arch}", "llama")
    for value in WRONG[key.kind]:
        as_read = np.array(value) if isinstance(value, list) and not any(isinstance(item, str) for item in value) else value
        with pytest.raises(UserError) as raised:
            understood(base() | {name: as_read}, "m.gguf")
        wanted = "GGUF architecture" if name == "general.architecture" else name
        assert str(raised.value).startswith(f"m.gguf: {wanted} ") and "\n" not in str(raised.value)


@pytest.mark.parametrize("key", [key for key in KEYS if key.use == "refused"], ids=lambda key: key.name)
def test_what_is_refused_and_with_which_values_it_is_not(key: MetadataKey):
    name = key.name.replace("{arch}", "llama")
    for value in key.unless or ([],):
        assert name not in {**understood(base() | {name: value}, "m.gguf")[0]}
    for value in (7, 0.25, "x", np.array([1, 2]), np.array([0.0, 7.0])):
        with pytest.raises(UserError, match=re.escape(f"m.gguf: {name} is ")) as raised:
            understood(base() | {name: value}, "m.gguf")
        assert key.why in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("key", [key for key in KEYS if key.use == "ignored"], ids=lambda key: key.name)
def test_what_is_ignored_is_told_with_its_reason(key: MetadataKey):
    name = key.name.replace("{arch}", "llama").replace("*", "anything")
    read, ignored = understood(base() | {name: "a\nb"}, "m.gguf")
    assert ignored == {name: key.why} and name not in read


def test_a_key_that_no_one_knows_is_ignored_and_told():
    for name in ("llama.new_idea", "qwen2.expert_count", "mine", ""):
        assert understood(base() | {name: 1}, "m.gguf")[1] == {name: UNKNOWN}


EFFECTS: list[tuple[str, dict[str, Any], Callable[[ModelConfig], Any], Any]] = [
    ("llama", {"block_count": 3}, lambda c: c.layers, 3),
    ("llama", {"context_length": 128}, lambda c: c.max_positions, 128),
    ("llama", {"embedding_length": 32}, lambda c: c.hidden, 32),
    ("llama", {"feed_forward_length": 48}, lambda c: c.ffn, 48),
    ("llama", {"feed_forward_length": [96, 96]}, lambda c: c.ffn, 96),
    ("llama", {"attention__head_count": 2}, lambda c: c.heads, 2),
    ("llama", {"attention__head_count": [4, 4]}, lambda c: c.heads, 4),
    ("llama", {"attention__head_count_kv": [2, 2]}, lambda c: c.kv_heads, 2),
    ("llama", {"attention__head_count_kv": None}, lambda c: c.kv_heads, 4),
    ("llama", {"attention__layer_norm_rms_epsilon": 0.5}, lambda c: c.norm_eps, 0.5),
    ("llama", {"attention__layer_norm_rms_epsilon": [0.5, 0.5]}, lambda c: c.norm_eps, 0.5),
    ("llama", {"attention__sliding_window": 16}, lambda c: (c.architecture, c.windows), ("mistral", (16, 16))),
    ("llama", {"attention__sliding_window": 0}, lambda c: (c.architecture, c.windows), ("llama", (None, None))),
    ("qwen2", {"attention__sliding_window": 16}, lambda c: c.windows, (None, None)),
    ("llama", {"rope__freq_base": 5e5}, lambda c: c.rope.theta, 5e5),
    ("llama", {"rope__freq_base": None}, lambda c: c.rope.theta, 10_000.0),
    ("gemma3", {"rope__freq_base": None, "rope__global__freq_base": 2e6}, lambda c: c.rope.theta, 2e6),
    ("gemma3", {"rope__global__freq_base": 2e6}, lambda c: c.rope.theta, 1e6),
    ("gemma3", {"rope__freq_base_swa": 5e3}, lambda c: c.rope_local and c.rope_local.theta, 5e3),
    ("gemma3", {"rope__local__freq_base": 6e3}, lambda c: c.rope_local and c.rope_local.theta, 6e3),
    ("gemma3", {"attn_logit_softcapping": 50.0}, lambda c: c.attention_softcap, 50.0),
    ("gemma3", {"final_logit_softcapping": 30.0}, lambda c: c.logit_softcap, 30.0),
    ("gemma3", {"final_logit_softcapping": 0.0}, lambda c: c.logit_softcap, None),
    ("gemma3", {"attention__sliding_window_pattern": 2}, lambda c: c.windows, (8, None)),
    ("gemma3", {"attention__sliding_window_pattern": [False, True]}, lambda c: c.windows, (None, 8)),
    ("gemma3", {"attention__sliding_window": 0}, lambda c: c.windows, (None, None)),
    ("gemma3", {"attention__sliding_window": None}, lambda c: c.windows, (None, None)),
    ("llama", {"attn_logit_softcapping": 0.0}, lambda c: c.attention_softcap, None),
    (
        "llama",
        {"rope__scaling__type": "linear", "rope__scaling__factor": 2.0},
        lambda c: (c.rope.kind, c.rope.factor),
        ("linear", 2),
    ),
    ("llama", {"rope__scaling__factor": 2.0}, lambda c: (c.rope.kind, c.rope.factor), ("linear", 2)),
    ("llama", {"rope__scale_linear": 2.0}, lambda c: (c.rope.kind, c.rope.factor), ("linear", 2)),
    ("llama", {"rope__scale_linear": 2.0, "rope__scaling__factor": 4.0}, lambda c: c.rope.factor, 4),
    ("llama", {"rope__scaling__type": "none", "rope__scaling__factor": 2.0}, lambda c: c.rope.kind, "default"),
    ("llama", {"rope__scaling__type": "linear"}, lambda c: c.rope.kind, "default"),
    ("llama", {"rope__scaling__factor": 0.0}, lambda c: c.rope.kind, "default"),
    ("llama", {"rope__scaling__finetuned": True}, lambda c: c.rope.kind, "default"),
    ("llama", {"vocab_size": 999}, lambda c: c.vocab_size, 320),
]


@pytest.mark.parametrize(("kind", "keys", "of", "expected"), EFFECTS)
def test_what_a_key_becomes(tmp_path: Path, kind: str, keys: dict[str, Any], of: Callable[[ModelConfig], Any], expected: Any):
    assert of(tiny(tmp_path, kind, **keys)) == expected


YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 64}


def test_yarn(tmp_path: Path):
    rope = tiny(tmp_path, "qwen2", **YARN).rope
    assert (rope.kind, rope.factor, rope.original_positions, rope.beta_fast, rope.beta_slow) == ("yarn", 4.0, 64, 32.0, 1.0)
    rope = tiny(tmp_path, "qwen2", **YARN, rope__scaling__yarn_beta_fast=16.0, rope__scaling__yarn_beta_slow=2.0).rope
    assert (rope.beta_fast, rope.beta_slow) == (16.0, 2.0)
    rope = tiny(tmp_path, "gemma3", **YARN, rope__scaling__beta_fast=64.0, rope__scaling__beta_slow=3.0).rope  # Ollama's names
    assert (rope.beta_fast, rope.beta_slow) == (64.0, 3.0)
    assert tiny(tmp_path, "qwen2", **YARN, rope__scaling__attn_factor=1.0).rope.kind == "yarn"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"attention__head_count_kv": [2, 1]}, r"llama.attention.head_count_kv is \[2, 1\]: it differs from layer to layer"),
    ({"feed_forward_length": [96, 96, 96]}, "llama.feed_forward_length lists 3 layers and the model has 2"),
    ({"block_count": [2, 2]}, r"llama.block_count is \[2, 2\]; it must be a whole number of at least 1"),
    ({"attention__value_length": 16}, "llama.attention.value_length is 16 and head_dim is 32"),
    ({"attention__head_dim": 16}, "llama.attention.head_dim is 16 and head_dim is 32"),
    ({"attention__key_length_swa": 16}, "llama.attention.key_length_swa is 16 and head_dim is 32"),
    ({"attention__value_length_swa": 16}, "llama.attention.value_length_swa is 16 and head_dim is 32"),
    ({"rope__dimension_count": 16}, "llama.rope.dimension_count is 16 and head_dim is 32"),
    ({"rope__dimension_count_swa": 16}, "llama.rope.dimension_count_swa is 16 and head_dim is 32"),
    ({"attention__key_length": None}, "llama.attention.value_length is 32 and head_dim is 16"),
    ({"attention__key_length": 16}, "llama.attention.value_length is 32 and head_dim is 16"),
    ({"attention__head_count_kv": 3}, "num_key_value_heads is 3; 4 attention heads do not divide into 3 KV heads"),
    (
        {"attention__key_length": 7, "attention__value_length": 7, "rope__dimension_count": 7},
        "head_dim is 7; rotary embedding needs an even number",
    ),
    ({"rope__scaling__type": "longrope"}, "llama.rope.scaling.type is 'longrope'; supported are none, linear, yarn"),
    ({"rope__scaling__type": "yarn"}, "llama.rope.scaling.factor is missing; RoPE scaling 'yarn' needs it"),
    ({**YARN, "rope__scaling__yarn_log_multiplier": 0.5}, r"yarn_log_multiplier is 0.5: .*; only 0.0 is"),
    ({"rope__scaling__attn_factor": 0.5}, r"llama.rope.scaling.attn_factor is 0.5: .*; only 1.0 is"),
    *(({key.name.removeprefix("{arch}.").replace(".", "__"): None}, f"{key.name.removeprefix('{arch}.')} is missing")
      for key in KEYS if key.needed),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "pattern"), REFUSED)
def test_what_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        tiny(tmp_path, **keys)
    assert str(raised.value).startswith(f"{tmp_path / 'm.gguf'}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize("key", [key for key in KEYS if key.only], ids=lambda key: key.name)
def test_what_only_gemma_has_is_refused_elsewhere(key: MetadataKey):
    name = key.name.replace("{arch}", "llama")
    with pytest.raises(UserError, match=re.escape(f"m.gguf: {name} is 2: only gemma3 has such a key")):
        understood(base() | {name: 2}, "m.gguf")


def test_the_context_under_scaled_rope(tmp_path: Path):
    """As in a config.json: original, or context_length, times the factor; Llama 3's and Gemma's is stated with it."""
    assert tiny(tmp_path, "qwen2", **YARN).max_positions == 256  # 64 x 4
    assert tiny(tmp_path, "qwen2", rope__scaling__type="yarn", rope__scaling__factor=4.0).max_positions == 1024
    assert tiny(tmp_path, rope__scaling__factor=2.0).max_positions == 512
    assert tiny(tmp_path, "gemma3", rope__scaling__factor=8.0).max_positions == 256


def test_a_pattern_of_layers_has_one_entry_a_layer(tmp_path: Path):
    with pytest.raises(UserError, match=r"gemma3.attention.sliding_window_pattern lists 3 layers and the model has 2"):
        tiny(tmp_path, "gemma3", attention__sliding_window_pattern=[True, False, True])


def test_provenance_names_what_is_ignored(tmp_path: Path):
    config = checkpoints.hf_config()
    keys = {"general.name": "Mine", "llama.new_idea": 1, "llama.pooling_type": 1}
    path = checkpoints.write_gguf(tmp_path / "m.gguf", "llama", config, checkpoints.hf_tensors("llama", config), keys=keys)
    told = GGUFCheckpoint(path).provenance
    assert told.weights == told.config == ("m.gguf",)
    assert ("m.gguf", "general.name", "says what the file is") in told.ignored
    assert ("m.gguf", "llama.new_idea", UNKNOWN) in told.ignored
    assert {entry.what for entry in told.ignored} == {*keys}


values = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=6),
    st.lists(st.text(max_size=3), max_size=3),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(lambda items: np.array(items, np.int32)),
    st.lists(st.floats(width=32), max_size=3).map(lambda items: np.array(items, np.float32)),
)
names = st.one_of(st.sampled_from([key.name for key in KEYS]), st.text(max_size=12))


@given(arch=st.sampled_from([*gguf_architectures(), "phi3", "a\nb", ""]), keys=st.dictionaries(names, values, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_value_of_any_key_is_read_or_one_line(arch: str, keys: dict[str, Any]):
    metadata = {"general.architecture": arch} | {name.replace("{arch}", arch): value for name, value in keys.items()}
    try:
        read, ignored = understood(metadata, "m.gguf")
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert not read.keys() & ignored.keys() and not any(isinstance(value, np.ndarray) for value in read.values())
