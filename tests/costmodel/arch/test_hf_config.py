"""Configs of models that the engine does not run: what is read, and what is refused."""

import pytest

from costmodel.arch.architecture import FLAX
from costmodel.arch.catalog import CONFIGS
from costmodel.arch.hf_config import from_config
from models.errors import UserError

MIXTRAL, QWEN, DEEPSEEK, LITE = (CONFIGS[n] for n in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "deepseek-v2-lite"))
QWEN2 = {  # Qwen1.5-MoE-A2.7B
    "architectures": ["Qwen2MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "max_position_embeddings": 8192,
    "sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 21,
}  # fmt: skip


def test_sizes():
    mixtral, qwen, deepseek = map(from_config, (MIXTRAL, QWEN, DEEPSEEK))
    assert mixtral.experts and (mixtral.experts.count, mixtral.experts.top_k, mixtral.experts.ffn) == (8, 2, 14336)
    assert qwen.experts and (qwen.experts.count, qwen.experts.top_k, qwen.experts.ffn, qwen.head_dim) == (128, 8, 768, 128)
    assert deepseek.experts and (deepseek.experts.dense_layers, deepseek.experts.shared_ffn) == (3, 2048)
    assert deepseek.latent and (deepseek.latent.kv_rank, deepseek.latent.rope_dim, deepseek.latent.q_rank) == (512, 64, 1536)
    assert deepseek.head_dim == 192 and mixtral.windows == (None,) * 32
    lite = from_config(LITE).latent
    assert lite and lite.q_rank is None


def test_qwen2_moe_published_count():
    """14.3 B in all; its shared expert has a gate of its own."""
    model = from_config(QWEN2)
    assert model.parameter_count == 14_315_784_192
    assert model.parameters["router"] == 24 * (60 + 1) * 2048
    assert model.windows == (None,) * 24


def test_windows():
    assert from_config({**MIXTRAL, "sliding_window": 4096}).windows == (4096,) * 32
    sliding = from_config({**QWEN2, "use_sliding_window": True})
    assert sliding.windows == (None,) * 21 + (32768,) * 3


def test_context_under_scaled_rope():
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert from_config({**QWEN, "rope_scaling": yarn}).max_positions == 131_072
    assert (
        from_config(
            {**DEEPSEEK, "rope_scaling": {**yarn, "factor": 40, "original_max_position_embeddings": 4096}}
        ).max_positions
        == 163_840
    )


def test_sizes_written_with_a_point():
    assert from_config({**MIXTRAL, "hidden_size": 4096.0}) == from_config(MIXTRAL)


def test_layers_without_experts():
    every_second = from_config({**QWEN, "decoder_sparse_step": 2, "mlp_only_layers": [1]})
    assert every_second.experts and every_second.experts.dense_layers == 25
    assert every_second.parameters["gate_up"] == 25 * 2 * 6144 * 2048


def test_the_engines_own_configs_go_to_the_module():
    llama = {
        "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
    }  # fmt: skip
    assert from_config(llama, name="small").source == FLAX and from_config(llama, name="small").name == "small"
    with pytest.raises(UserError, match="mine: key 'rms_norm_eps' is missing"):
        from_config({key: value for key, value in llama.items() if key != "rms_norm_eps"}, origin="mine")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (MIXTRAL, "num_local_experts"),
        (MIXTRAL, "intermediate_size"),
        (QWEN, "moe_intermediate_size"),
        (DEEPSEEK, "kv_lora_rank"),
        (DEEPSEEK, "num_experts_per_tok"),
        (QWEN, "hidden_size"),
    ],
)
def test_a_missing_key_is_named(config, key):
    with pytest.raises(UserError, match=rf"here: key '{key}' is missing; a \w+ForCausalLM config needs it"):
        from_config({name: value for name, value in config.items() if name != key}, origin="here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_local_experts": -1}, "num_local_experts is -1; it must be a whole number from 1 to"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5; it must be a whole number"),
        ({"num_experts_per_tok": 9}, "top_k is 9; it must be from 1 to 8 experts"),
        ({"num_key_value_heads": 7}, "32 attention heads do not divide into 7 KV heads"),
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture GPT2LMHeadModel is not supported; supported are LlamaForCausalLM.*Mixtral",
        ),
        ({"architectures": None}, r"architecture \(none\) is not supported"),
        ({"architectures": [["Mixtral"]]}, r"architecture \['Mixtral'\] is not supported"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
        ({"num_hidden_layers": 1 << 24}, "num_hidden_layers is 16777216; it must be a whole number from 1 to 1024"),
        ({"rope_scaling": {"factor": 4.0}}, "rope_scaling.rope_type is None; beside 'factor' it must be one of"),
    ],
)
def test_values_that_no_model_has(change, message):
    with pytest.raises(UserError, match=message):
        from_config({**MIXTRAL, **change})


def test_layers_without_experts_are_a_list():
    with pytest.raises(UserError, match="mlp_only_layers is 3; it must be a list of layers"):
        from_config({**QWEN, "mlp_only_layers": 3})
