"""What a Hugging Face config is taken to mean, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig, RopeConfig
from models.config.presets import PRESETS
from models.errors import UserError
from tests.models.checkpoints import CLASSES, hf_config

NULL = object()  # null in the file: `hf_config` leaves a key that is None out
NEEDED = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "rms_norm_eps"]


def test_head_dim_is_its_own_number():
    config = from_hf(hf_config(hidden_size=20, num_attention_heads=4, head_dim=8))
    assert (config.head_dim, config.heads * config.head_dim, config.qkv_dim, config.group) == (8, 32, 64, 2)
    assert from_hf(hf_config(head_dim=None)).head_dim == 16
    assert from_hf(hf_config(hidden_size=64.0, head_dim=32.0)).hidden == 64


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


# the defaults of the classes of transformers 5.24: MISSING is not null
@pytest.mark.parametrize(
    ("kind", "kv_heads", "head_dim"),
    [("llama", 32, 16), ("mistral", 8, 16), ("qwen2", 32, 16), ("qwen3", 32, 128), ("gemma3", 4, 256)],
)
def test_sizes_that_are_missing(kind: str, kv_heads: int, head_dim: int):
    config = hf_config(kind, num_attention_heads=32, hidden_size=512, num_key_value_heads=None, head_dim=None)
    got = from_hf(config)
    assert (got.kv_heads, got.head_dim) == (kv_heads, head_dim)
    for key, value, kinds in (("num_key_value_heads", 32, ("gemma3",)), ("head_dim", 16, ("qwen3", "gemma3"))):
        null = {**hf_config(kind, num_attention_heads=32, hidden_size=512, num_key_value_heads=32, head_dim=16), key: None}
        if kind in kinds:
            with pytest.raises(UserError, match=f"key '{key}' is missing"):
                from_hf(null)
        else:
            assert (from_hf(null).kv_heads if key == "num_key_value_heads" else from_hf(null).head_dim) == value


def test_gemma_defaults():
    config = from_hf(hf_config("gemma3", query_pre_attn_scalar=None, hidden_activation=None, hidden_act="silu"))
    assert config.attention_scale == 1 / 16 and config.activation == "gelu_tanh"
    assert from_hf(hf_config("llama", hidden_activation="gelu")).activation == "silu"


FULL, SLIDE = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("kind", "changes", "windows"),
    [
        ("llama", {"sliding_window": 8}, (None, None, None)),
        ("llama", {"sliding_window": 8, "layer_types": [FULL] * 3}, (None, None, None)),
        ("mistral", {"sliding_window": 8}, (8, 8, 8)),
        ("mistral", {}, (4096, 4096, 4096)),
        ("mistral", {"sliding_window": NULL}, (None, None, None)),
        ("mistral", {"sliding_window": NULL, "use_sliding_window": False}, (None, None, None)),
        ("mistral", {"sliding_window": 8.0, "layer_types": [SLIDE] * 3}, (8, 8, 8)),
        ("qwen2", {}, (None, None, None)),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 2}, (None, None, 4096)),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8}, (None, None, None)),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, (8, 8, 8)),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "layer_types": [SLIDE, "attention", SLIDE]}, (8, None, 8)),
        ("qwen3", {"sliding_window": 8, "layer_types": [FULL] * 3}, (None, None, None)),
        ("gemma3", {"sliding_window": None, "sliding_window_pattern": None}, (4096, 4096, 4096)),
        ("gemma3", {"sliding_window": NULL, "sliding_window_pattern": 1}, (None, None, None)),
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
    config = hf_config(kind, num_hidden_layers=3, **changes)
    assert from_hf({key: None if value is NULL else value for key, value in config.items()}).windows == windows


def test_defaults_of_windows_over_many_layers():
    gemma = from_hf(hf_config("gemma3", num_hidden_layers=12, sliding_window_pattern=None))
    assert [i for i, window in enumerate(gemma.windows) if window is None] == [5, 11]
    for kind in ("qwen2", "qwen3"):
        qwen = from_hf(hf_config(kind, num_hidden_layers=30, use_sliding_window=True))
        assert qwen.windows == (None,) * 28 + (4096,) * 2


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
    assert from_hf(hf_config(eos_token_id=None)).eos_tokens == ()


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
    ({"num_hidden_layers": 1 << 40}, "num_hidden_layers is 1099511627776; it must be a whole number from 1 to 1024"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"num_key_value_heads": 3}, "4 attention heads do not divide into 3 KV heads"),
    ({"head_dim": 7}, "head_dim is 7; rotary embedding needs an even number"),
    ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'; it must be a positive number"),
    ({"hidden_act": "relu"}, "hidden_act is 'relu'; that activation is not supported; supported are silu"),
    ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'; it must be a token id"),
    ({"layer_types": ["chunked_attention"] * 2}, "layer type 'chunked_attention' is not supported"),
    ({"layer_types": [{}] * 2}, "layer type {} is not supported"),
    ({"layer_types": ["full_attention"]}, "layer_types is .*; it must be a list with a type for each of the 2 layers"),
    ({"layer_types": 3}, "layer_types is 3; it must be a list"),
    (
        {"layer_types": [FULL, SLIDE]},
        "layer_types is .*; a llama model with this sliding_window has full_attention in every layer",
    ),
    ({"rope_theta": -1.0}, "rope_theta is -1.0; it must be a positive number"),
    ({"rope_theta": 1}, "rope_theta is 1; it must be above 1"),
    ({"rope_theta": 10**400}, "rope_theta is a whole number of about 401 digits; it must be a positive number"),
    ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be an object"),
    ({"rope_scaling": {"factor": 8.0}}, "rope_scaling.rope_type is None; beside 'factor' it must be one of default, linear"),
    (
        {"rope_scaling": {"type": "longrope", "factor": 2.0}},
        "RoPE type 'longrope' is not supported; supported are default, linear",
    ),
    ({"rope_scaling": {"type": ["yarn"], "factor": 2.0}}, r"RoPE type \['yarn'\] is not supported"),
    ({"rope_scaling": {"type": "linear"}}, "RoPE type 'linear' needs the key 'factor'"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor is '2'"),
    ({"rope_scaling": {"type": "default", "factor": 2.0}}, "rope_scaling.factor is 2.0; RoPE type 'default' takes no such key"),
    (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 1000}},
        "rope_scaling.alpha is 1000; RoPE type 'dynamic' takes no",
    ),
    (
        {"rope_scaling": {"type": "yarn", "factor": 2.0, "attn_factor": 2}},
        "rope_scaling.attn_factor is 2; RoPE type 'yarn' takes no",
    ),
    (
        {"rope_scaling": {"type": "linear", "factor": 2.0**20}},
        "rope_scaling.factor is 1048576.0; the context, 256 times it, must",
    ),
    (
        {"rope_scaling": {"type": "linear", "factor": 0.001}},
        "rope_scaling.factor is 0.001; the context, 256 times it, must be from 1",
    ),
    (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "head_dim": 2},
        "RoPE type 'dynamic' needs a head_dim of at least 4; it is 2",
    ),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs the key 'original_max_position_embeddings'"),
    (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1}},
        "RoPE type 'llama3' needs the key 'high_freq_factor'",
    ),
    ({"rope_parameters": {"full_attention": {}}}, "rope_parameters is .*; only Gemma 3 has a RoPE for each kind of layer"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "attention_factor": "x"}}, "rope_scaling.attention_factor is 'x'"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}}, "beta_fast is 1; it must not be below"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": None}}, "truncate is None; it must be true or false"),
    (
        {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "linear", "factor": 4}},
        "rope_scaling is .*; rope_parameters is given too and says something else",
    ),
    (
        {"rope_parameters": {"rope_theta": 5e5}},
        "rope_parameters.rope_theta is 500000.0; rope_theta beside it is 10000; keep one",
    ),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 1 is supported"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor is 0.5; only 1 is supported"),
    (
        {"hidden_size": 62, "head_dim": None},
        "hidden_size is 62; it must be a multiple of the 4 heads where head_dim is not given",
    ),
    (
        {"num_attention_heads": 1 << 20, "head_dim": 64},
        "num_attention_heads is 1048576; times head_dim 64 it must be at most 16777216",
    ),
    ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
    ({"mlp_bias": 1}, "mlp_bias is 1; it must be true or false"),
    ({"eos_token_id": True}, "eos_token_id is True; it must be a token id"),
    ({"architectures": ["LlamaForCausalLM", "OtherForCausalLM"]}, "it must be a list with one of"),
    ({"architectures": [["LlamaForCausalLM"]]}, r"architecture \['LlamaForCausalLM'\] is not supported"),
    ({"architectures": ["Llama\nForCausalLM"]}, "is not supported"),
    ({"model_type": "mistral"}, "model_type is 'mistral'; for the architecture LlamaForCausalLM it must be 'llama'"),
]

BY_KIND = [
    ("mistral", {"sliding_window": "all"}, "sliding_window is 'all'; it must be a whole number from 1"),
    (
        "mistral",
        {"sliding_window": 8, "layer_types": [FULL, SLIDE]},
        "a mistral model with this sliding_window has sliding_attention",
    ),
    (
        "mistral",
        {"sliding_window": 8, "use_sliding_window": False},
        "use_sliding_window is False; transformers does not heed it",
    ),
    ("qwen2", {"layer_types": [FULL, SLIDE]}, "use_sliding_window is None; some layers are sliding_attention"),
    (
        "gemma3",
        {"sliding_window": NULL},
        "sliding_window is None; some layers are sliding_attention, so it must say their window",
    ),
    ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0; it must be a positive number"),
    ("gemma3", {"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0; it must be a positive number"),
    (
        "gemma3",
        {"rope_parameters": {"rope_type": "default"}},
        "rope_parameters is .*; for Gemma 3 it must hold full_attention and",
    ),
    ("gemma3", {"rope_parameters": {"full_attention": 3}}, "rope_parameters.full_attention is 3; it must be an object"),
    ("gemma3", {"model_type": "gemma3"}, "for the architecture Gemma3ForCausalLM it must be 'gemma3_text'"),
    ("gemma3", {"hidden_activation": "relu"}, "hidden_activation is 'relu'; that activation is not supported"),
]


@pytest.mark.parametrize(("changes", "pattern"), WRONG)
def test_wrong_values_are_refused_in_one_line(changes: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        from_hf(hf_config(**changes))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("kind", "changes", "pattern"), BY_KIND)
def test_what_one_architecture_refuses(kind: str, changes: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern):
        from_hf({key: None if value is NULL else value for key, value in hf_config(kind, **changes).items()})


# (changes, tokens): vLLM's rule, worked out by hand; max_position_embeddings is 256
CONTEXTS: list[tuple[dict[str, Any], int]] = [
    ({}, 256),
    ({"type": "default"}, 256),
    ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),  # Qwen's advice
    ({"type": "yarn", "factor": 4.0}, 1024),
    ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),  # the scaled context is stated
    ({"type": "yarn", "factor": 1.5, "original_max_position_embeddings": 33}, 49),
    ({"type": "linear", "factor": 4}, 1024),
    ({"type": "linear", "factor": 4, "original_max_position_embeddings": 64}, 256),
    ({"type": "dynamic", "factor": 2.0}, 512),
    (
        {
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1,
            "high_freq_factor": 4,
            "original_max_position_embeddings": 32,
        },
        256,
    ),
]


@pytest.mark.parametrize(("rope", "tokens"), CONTEXTS)
def test_context_under_scaled_rope(rope: dict[str, Any], tokens: int):
    assert from_hf(hf_config(rope_scaling=rope)).max_positions == tokens
    assert from_hf(hf_config("qwen3", rope_theta=None, rope_parameters={**rope, "rope_theta": 1e6})).max_positions == tokens
    top = dict(rope)
    if "original_max_position_embeddings" in rope:  # transformers takes it from beside rope_scaling too, and there first
        top["original_max_position_embeddings"] = 7
        outside = rope["original_max_position_embeddings"]
        assert from_hf(hf_config(rope_scaling=top, original_max_position_embeddings=outside)).max_positions == tokens


def test_gemma_states_its_context_with_the_scaling_in_it():
    assert from_hf(hf_config("gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0})).max_positions == 256


def test_dynamic_is_stretched_from_max_position_embeddings():
    rope = {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}
    assert from_hf(hf_config(rope_scaling=rope)).rope.original_positions == 256


def test_gemma_ropes_that_are_missing_have_their_own_theta():
    only = from_hf(hf_config("gemma3", rope_theta=None, rope_parameters={"full_attention": {"rope_theta": 5e5}}))
    assert (only.layer_rope(1).theta, only.layer_rope(0).theta) == (5e5, 10_000.0)
    none = from_hf(hf_config("gemma3", rope_theta=None))
    assert (none.layer_rope(1).theta, none.layer_rope(0).theta) == (1e6, 10_000.0)


def test_presets_are_configs_of_their_own():
    assert all(isinstance(config, ModelConfig) for config in PRESETS.values())
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert PRESETS["mistral-7b"].windows == (4096,) * 32
    assert PRESETS["gemma-3-1b"].windows[:7] == (512, 512, 512, 512, 512, None, 512)
