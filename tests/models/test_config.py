"""What a Hugging Face config is taken to mean, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from models.config import ModelConfig, RopeConfig
from models.errors import UserError
from models.hf_config import from_hf
from models.presets import PRESETS
from tests.models.checkpoints import CLASSES, hf_config

NEEDED = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "rms_norm_eps"]


def test_head_dim_is_its_own_number():
    config = from_hf(hf_config(hidden_size=20, num_attention_heads=4, head_dim=8))
    assert (config.head_dim, config.heads * config.head_dim, config.qkv_dim, config.group) == (8, 32, 64, 2)
    assert from_hf(hf_config(head_dim=None)).head_dim == 16


def test_kv_bytes_count_kv_heads():
    assert PRESETS["llama-3-8b"].kv_bytes_per_token(2) == 131_072
    assert from_hf(hf_config(num_key_value_heads=None)).kv_heads == 4


@pytest.mark.parametrize("kind", CLASSES)
def test_what_each_architecture_switches_on(kind: str):
    config = from_hf(hf_config(kind))
    assert config.architecture == kind
    assert config.qkv_bias == (kind == "qwen2") and not config.out_bias
    assert config.qk_norm == (kind in ("qwen3", "gemma3"))
    gemma = kind == "gemma3"
    assert (config.sandwich_norms, config.norm_offset, config.tied_head) == (gemma, float(gemma), gemma)
    assert config.embedding_scale == (8.0 if gemma else 1.0)
    assert config.activation == ("gelu_tanh" if gemma else "silu")


def test_biases():
    config = from_hf(hf_config(attention_bias=True, mlp_bias=True))
    assert config.qkv_bias and config.out_bias and config.mlp_bias


@pytest.mark.parametrize(
    ("kind", "changes", "windows"),
    [
        ("llama", {"sliding_window": 8}, (None, None, None)),
        ("mistral", {"sliding_window": 8}, (8, 8, 8)),
        ("mistral", {"sliding_window": None}, (None, None, None)),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": False}, (None, None, None)),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (None, 8, 8)),
        ("gemma3", {"sliding_window": 8, "sliding_window_pattern": 3}, (8, 8, None)),
        (
            "gemma3",
            {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            (None, 8, None),
        ),
    ],
)
def test_windows(kind: str, changes: dict[str, Any], windows: tuple[int | None, ...]):
    assert from_hf(hf_config(kind, num_hidden_layers=3, **changes)).windows == windows


def test_gemma_has_a_rope_for_each_kind_of_layer():
    local, full = RopeConfig(theta=10_000.0), RopeConfig(theta=1e6, kind="linear", factor=8.0, original_positions=256)
    old = from_hf(hf_config("gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0}, rope_local_base_freq=10_000.0))
    parameters = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    new = from_hf(hf_config("gemma3", rope_theta=None, rope_parameters=parameters))
    for config in (old, new):
        assert (
            config.layer_rope(1) == full
            and config.layer_rope(0).theta == local.theta
            and config.layer_rope(0).kind == "default"
        )
    assert from_hf(hf_config("gemma3", query_pre_attn_scalar=168)).attention_scale == pytest.approx(168**-0.5)


def test_eos_is_one_or_several_or_none():
    assert from_hf(hf_config(eos_token_id=[1, 106])).eos_tokens == (1, 106)
    assert from_hf(hf_config(eos_token_id=7)).eos_tokens == (7,)
    none = from_hf(hf_config(eos_token_id=None, bos_token_id=None))
    assert none.eos_tokens == () and none.bos_token is None


@pytest.mark.parametrize("key", [*NEEDED, "max_position_embeddings"])
def test_missing_keys_are_named(key: str):
    config = {name: value for name, value in hf_config().items() if name != key}
    with pytest.raises(UserError, match=f"config.json: key '{key}' is missing"):
        from_hf(config)


WRONG = [
    ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel is not supported; supported are Gemma3ForCausalLM"),
    ({"architectures": None}, "key 'architectures' is missing; it must be a list with one of Gemma3ForCausalLM, "),
    ({"architectures": "LlamaForCausalLM"}, "key 'architectures' is 'LlamaForCausalLM'; it must be a list with one of"),
    ({"architectures": []}, r"key 'architectures' is \[\]; it must be a list with one of"),
    ({"hidden_size": "64"}, "hidden_size is '64'; it must be a whole number"),
    ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
    ({"num_hidden_layers": 1 << 40}, "num_hidden_layers is 1099511627776; it must be a whole number from 1 to 16777216"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"num_key_value_heads": 3}, "4 attention heads do not divide into 3 KV heads"),
    ({"head_dim": 7}, "head_dim is 7; rotary embedding needs an even number"),
    ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'; it must be a positive number"),
    ({"hidden_act": "relu"}, "activation 'relu' is not supported; supported are silu"),
    ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'; it must be a token id"),
    ({"sliding_window": "all"}, "sliding_window is 'all'"),
    ({"sliding_window": 8, "layer_types": ["chunked_attention"] * 2}, "layer type 'chunked_attention' is not supported"),
    ({"sliding_window": 8, "layer_types": ["full_attention"]}, "1 layer windows for 2 layers"),
    ({"rope_theta": -1.0}, "rope_theta is -1.0; it must be a positive number"),
    ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be an object"),
    (
        {"rope_scaling": {"type": "longrope", "factor": 2.0}},
        "RoPE type 'longrope' is not supported; supported are default, linear",
    ),
    ({"rope_scaling": {"type": "linear"}}, "RoPE type 'linear' needs the key 'factor'"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "RoPE key factor is '2'"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs the key 'original_max_position_embeddings'"),
    ({"layer_types": 3, "sliding_window": 8}, "layer type 3 is not supported"),
    ({"rope_parameters": {"full_attention": 3}}, "full_attention is 3; it must be an object"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "attention_factor": "x"}}, "RoPE key attention_factor is 'x'"),
    ({"final_logit_softcapping": "x"}, "final_logit_softcapping is 'x'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
]


@pytest.mark.parametrize(("changes", "pattern"), WRONG)
def test_wrong_values_are_refused_in_one_line(changes: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        from_hf(hf_config(**changes))
    assert "\n" not in str(raised.value)


def test_presets_are_configs_of_their_own():
    assert all(isinstance(config, ModelConfig) for config in PRESETS.values())
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert PRESETS["mistral-7b"].windows == (4096,) * 32
    assert PRESETS["gemma-3-1b"].windows[:7] == (512, 512, 512, 512, 512, None, 512)
