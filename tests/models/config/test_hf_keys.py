"""The table of a config's keys: each row does what it says, docs/models.md shows it, and no value of any key is more than one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import rotary
from models.config.architectures import ARCHITECTURES
from models.config.hf_config import from_hf, ignored_keys
from models.config.hf_keys import KEYS, ConfigKey
from models.config.hf_rope import TYPES
from models.config.model_config import ModelConfig
from models.errors import UserError
from tests.models.checkpoints import hf_config

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma 3"}
FULL = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "use_sliding_window": True}  # so that other keys count
KINDS = [entry.name for entry in ARCHITECTURES.values()]
CASES = [(key, kind) for key in KEYS for kind in KINDS if key.about(kind)]


def rows(use: str) -> list[Any]:
    return [pytest.param(key, kind, id=f"{key.name}-{kind}") for key, kind in CASES if key.use == use]


def test_no_key_has_two_rows_for_one_architecture():
    seen = [(key.name, kind) for key, kind in CASES]
    assert len(seen) == len(set(seen))


def shown(key: ConfigKey) -> tuple[str, str, str, str]:
    """A row as docs/models.md has it."""
    of = "all" if not key.kinds else ", ".join(NAMES[kind] for kind in key.kinds)
    return f"`{key.name}`", of, key.use, key.why


def test_docs_show_the_table():
    section = DOCS.read_text(encoding="utf-8").split("\n## config.json\n")[1].split("\n##")[0]
    table = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if line.startswith("| `")
    ]
    assert table == [shown(key) for key in KEYS]


def test_docs_show_the_types_of_rope():
    section = DOCS.read_text(encoding="utf-8").split("\n### RoPE and the context\n")[1].split("\n## ")[0]
    table = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    shown_types = {cells[0].strip(" `"): set(re.findall(r"`(\w+)`", cells[1])) for cells in table}
    assert shown_types == {name: set(keys) for name, keys in TYPES.items()}


@pytest.mark.parametrize(("key", "kind"), rows("read"))
def test_a_key_that_is_read_is_refused_where_it_makes_no_sense(key: ConfigKey, kind: str):
    config = {**hf_config(kind, **FULL), key.name: ["no sense"]}
    with pytest.raises(UserError, match="architecture" if key.name == "architectures" else key.name):
        from_hf(config)


@pytest.mark.parametrize(("key", "kind"), rows("refused"))
def test_a_key_that_is_refused(key: ConfigKey, kind: str):
    config = hf_config(kind)
    for neutral in key.neutral:
        assert from_hf({**config, key.name: neutral}) == from_hf(config)
    for value in ("no sense", 7, ["x"], {"x": 1}):
        with pytest.raises(UserError, match=f"{key.name} is .*; {re.escape(key.why)}; only .* is supported"):
            from_hf({**config, key.name: value})


@pytest.mark.parametrize(("key", "kind"), rows("ignored"))
def test_a_key_that_is_ignored_changes_nothing_and_is_told(key: ConfigKey, kind: str):
    config = {**hf_config(kind), key.name: {"no": "sense"}}
    assert from_hf(config) == from_hf(hf_config(kind))
    assert [(entry.file, entry.what, entry.why) for entry in ignored_keys(config, "c")] == [("c", key.name, key.why)]


def test_keys_that_nobody_knows_are_told():
    told = ignored_keys(hf_config(unsloth_version="2025.1"), "config.json")
    assert [(entry.what, entry.why) for entry in told] == [
        ("unsloth_version", "no key of the architecture's class in transformers")
    ]


class Recorded(Mapping[str, Any]):
    """A config that notes which keys are asked for."""

    def __init__(self, values: dict[str, Any]):
        self.values_, self.asked = values, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return self.values_[key]

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return key in self.values_

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_key_is_looked_at(kind: str):
    config = Recorded(hf_config(kind, **FULL))
    from_hf(config)
    assert config.asked <= {key.name for key in KEYS if key.about(kind) and key.use != "ignored"}
    assert config.asked >= {key.name for key in KEYS if key.about(kind) and key.use == "read"} - {"hidden_activation"}


NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([0, 1, -1, 64.0, 10**300, 1e-320, 2**24, 2**63, True]))
ANY = st.recursive(
    st.one_of(st.none(), NUMBERS, st.text(max_size=8), st.sampled_from(["yarn", "full_attention", "silu", "a\nb", "x" * 5000])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
ROPE_KEYS = (
    "rope_type",
    "type",
    "factor",
    "rope_theta",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "truncate",
)
ROPE_MORE = ("attention_factor", "mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor", "partial_rotary_factor")
ROPE = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(sorted(TYPES)), "factor": NUMBERS},
    optional={key: NUMBERS | ANY for key in ROPE_KEYS[3:] + ROPE_MORE},
)


def whole_or_one_line(config: dict[str, Any]) -> ModelConfig | None:
    try:
        model = from_hf(config)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return None
    for rope in (model.rope, model.rope_local):
        if rope is not None and model.head_dim <= 1024:
            with np.errstate(over="ignore"):
                assert np.isfinite(rotary.table(rope, model.head_dim, 3)).all()
            rotary.inverse_frequencies(rope, model.head_dim, model.max_positions)
    return model


@given(st.sampled_from(KINDS), st.sampled_from(sorted({key.name for key in KEYS})), ANY)
@settings(max_examples=250, deadline=None)
def test_any_value_of_any_key_is_a_config_or_one_line(kind: str, key: str, value: Any):
    whole_or_one_line({**hf_config(kind), key: value})


@given(st.sampled_from(["llama", "gemma3"]), st.sampled_from(["rope_scaling", "rope_parameters"]), ROPE)
@settings(max_examples=200, deadline=None)
def test_any_rope_is_a_config_or_one_line(kind: str, key: str, rope: dict[str, Any]):
    given_ = {"full_attention": rope} if kind == "gemma3" and key == "rope_parameters" else rope
    model = whole_or_one_line({**hf_config(kind, rope_theta=None), key: given_})
    if model is not None and model.rope.kind != "default":
        assert model.rope.factor == rope["factor"] and model.rope.kind == rope["rope_type"]
