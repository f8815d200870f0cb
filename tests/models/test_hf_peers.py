"""A config that is taken means what transformers' own class makes of it; torch is not needed for that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config.architectures import ARCHITECTURES
from models.config.hf_config import from_hf
from models.errors import UserError
from tests.models.checkpoints import hf_config

pytestmark = pytest.mark.peers

LAYERS = 4
GONE = object()  # the key is left out
FLAG, TYPES = st.booleans(), st.sampled_from(["full_attention", "sliding_attention", "attention"])
ROPE = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(["linear", "dynamic", "yarn"]), "factor": st.sampled_from([2.0, 4.0])},
    optional={"original_max_position_embeddings": st.sampled_from([64, 256])},
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "num_key_value_heads": st.sampled_from([1, 2, 4, None]),
    "num_attention_heads": st.sampled_from([4, 32, 64]),
    "head_dim": st.sampled_from([2, 16, None]),
    "tie_word_embeddings": FLAG,
    "attention_bias": FLAG,
    "mlp_bias": FLAG,
    "sliding_window": st.sampled_from([8, 64, None]),
    "use_sliding_window": FLAG,
    "max_window_layers": st.integers(0, 5),
    "sliding_window_pattern": st.integers(1, 6),
    "layer_types": st.lists(TYPES, min_size=LAYERS, max_size=LAYERS),
    "query_pre_attn_scalar": st.sampled_from([16, 32]),
    "hidden_act": st.sampled_from(["silu", "gelu"]),
    "hidden_activation": st.sampled_from(["silu", "gelu_pytorch_tanh"]),
    "rope_theta": st.sampled_from([5e5, 1e6]),
    "rope_local_base_freq": st.sampled_from([1e3, 1e4]),
    "rope_scaling": ROPE,
    "rope_parameters": ROPE | st.fixed_dictionaries({"full_attention": ROPE}, optional={"sliding_attention": ROPE}),
    "original_max_position_embeddings": st.sampled_from([32, 128]),
}
CHANGES = st.fixed_dictionaries({}, optional={key: value | st.just(GONE) for key, value in VALUES.items()})


@given(st.sampled_from([entry.name for entry in ARCHITECTURES.values()]), CHANGES)
@settings(max_examples=500, deadline=None)
def test_a_config_means_what_transformers_says(kind: str, changes: dict[str, Any]):
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    config = {**hf_config(kind, num_hidden_layers=LAYERS, hidden_size=256, rope_theta=None), **changes}
    config = {key: value for key, value in config.items() if value is not GONE}
    if kind == "mistral" and config.get("num_key_value_heads", 1) is None:
        return  # transformers 4 took it for the heads, as we do; the class of transformers 5 refuses it before its code for that is reached
    try:
        ours = from_hf(config)
    except UserError:
        return
    classes = {"qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "gemma3": "Gemma3TextConfig"}
    given_ = {
        key: dict(value) if isinstance(value, dict) else value for key, value in config.items()
    }  # the class writes into them
    theirs = getattr(transformers, classes.get(kind, f"{kind.title()}Config"))(**given_)
    theirs.standardize_rope_params()  # as its functions of RoPE do before they look
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert (ours.kv_heads, ours.head_dim, ours.tied_head) == (theirs.num_key_value_heads, head_dim, theirs.tie_word_embeddings)
    window = None if kind == "llama" else theirs.sliding_window
    kinds = theirs.layer_types if kind not in ("llama", "mistral") else ["sliding_attention"] * LAYERS
    assert ours.windows == tuple(window if of == "sliding_attention" else None for of in kinds)
    assert ours.out_bias == (kind not in ("mistral", "qwen2") and theirs.attention_bias)
    assert ours.mlp_bias == (kind == "llama" and theirs.mlp_bias)
    activation = theirs.hidden_activation if kind == "gemma3" else theirs.hidden_act
    assert ours.activation == {"gelu_pytorch_tanh": "gelu_tanh"}.get(activation, activation)
    if kind == "gemma3":
        assert ours.attention_scale == theirs.query_pre_attn_scalar**-0.5
    ropes = theirs.rope_parameters if kind == "gemma3" else {"full_attention": theirs.rope_parameters}
    for name, rope in ropes.items():
        mine = ours.rope if name == "full_attention" else ours.rope_local
        assert mine is not None
        assert (mine.kind, mine.theta, mine.factor) == (rope["rope_type"], rope["rope_theta"], rope.get("factor", 1.0))
        if mine.kind == "yarn":
            assert mine.original_positions == rope["original_max_position_embeddings"]
