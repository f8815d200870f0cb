"""What becomes of each key of a Hugging Face ``config.json``: read, ignored, or refused. `docs/models.md` shows this table.

The rule is what transformers does with the key in the class of the architecture. A key that transformers ignores and that would change
answers if it meant something (vLLM may heed it, or the weights may have been made for it) is refused unless its value is neutral.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from models.files.json_keys import JsonKeys
from models.files.provenance import Ignored, Key, Use

LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3 = "llama", "mistral", "qwen2", "qwen3", "gemma3"


@dataclasses.dataclass(frozen=True)
class ConfigKey(Key):
    """A key of config.json.

    Attributes:
      kinds: the architectures that the row is about, by name; () for all.
      neutral: of a refused key, the values that are let pass.
    """

    kinds: tuple[str, ...] = ()
    neutral: tuple[Any, ...] = (None,)

    def about(self, kind: str) -> bool:
        """Whether the row is about an architecture."""
        return not self.kinds or kind in self.kinds


def _rows(use: Use, why: str, *names: str) -> list[ConfigKey]:
    return [ConfigKey(name, use, why) for name in names]


_OFF: tuple[Any, ...] = (None, False)

KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("architectures", "read", "the architecture; one name"),
    ConfigKey("model_type", "read", "must be the architecture's, for transformers chooses by it"),
    *_rows(
        "read",
        "needed",
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "rms_norm_eps"),
    ),
    ConfigKey("max_position_embeddings", "read", "needed; the context, before RoPE scaling for linear, dynamic and yarn"),
    ConfigKey(
        "num_key_value_heads",
        "read",
        "missing: Llama as many as heads, Mistral 8, Qwen 32, Gemma 3 4; null (not Gemma 3): as many as heads",
    ),
    ConfigKey("head_dim", "read", "missing or null: hidden_size / heads; for Qwen 3 missing: 128, for Gemma 3 missing: 256"),
    ConfigKey("hidden_act", "read", "missing: silu", (LLAMA, MISTRAL, QWEN2, QWEN3)),
    ConfigKey("hidden_activation", "read", "missing: gelu_pytorch_tanh", (GEMMA3,)),
    ConfigKey("tie_word_embeddings", "read", "missing: false, for Gemma 3 true; an lm_head.weight that differs wins"),
    ConfigKey("attention_bias", "read", "biases of q, k, v and o; missing: false", (LLAMA, QWEN3, GEMMA3)),
    ConfigKey("mlp_bias", "read", "missing: false", (LLAMA,)),
    ConfigKey("rope_theta", "read", "missing: 10000, for Gemma 3 1000000"),
    ConfigKey("rope_scaling", "read", "RoPE in the spelling of transformers 4; see below"),
    ConfigKey("rope_parameters", "read", "RoPE in the spelling of transformers 5; see below"),
    ConfigKey(
        "original_max_position_embeddings",
        "read",
        "wins over the one within rope_scaling or rope_parameters",
        (LLAMA, MISTRAL, QWEN2, QWEN3),
    ),
    ConfigKey("partial_rotary_factor", "read", "must be 1: the whole head is rotated"),
    ConfigKey("rope_local_base_freq", "read", "theta of layers with a window; missing: 10000", (GEMMA3,)),
    ConfigKey(
        "sliding_window",
        "read",
        "missing: 4096 (Qwen: only with use_sliding_window); null: none",
        (MISTRAL, QWEN2, QWEN3, GEMMA3),
    ),
    ConfigKey("use_sliding_window", "read", "missing: false", (QWEN2, QWEN3)),
    ConfigKey("use_sliding_window", "read", "false must not contradict a window", (MISTRAL, GEMMA3)),
    ConfigKey("max_window_layers", "read", "layers below it have no window; missing: 28", (QWEN2, QWEN3)),
    ConfigKey("layer_types", "read", "which layers have a window: full_attention or sliding_attention", (QWEN2, QWEN3, GEMMA3)),
    ConfigKey("layer_types", "read", "must be what the other keys say, for transformers does not heed it", (LLAMA, MISTRAL)),
    ConfigKey("sliding_window_pattern", "read", "every so many layers one has no window; missing: 6", (GEMMA3,)),
    ConfigKey("query_pre_attn_scalar", "read", "scores are divided by its root; missing: 256", (GEMMA3,)),
    ConfigKey("attn_logit_softcapping", "read", "missing: none; transformers 5.24 reads it and does not apply it", (GEMMA3,)),
    ConfigKey("final_logit_softcapping", "read", "missing: none", (GEMMA3,)),
    ConfigKey("bos_token_id", "ignored", "the tokenizer's own files say what begins a text"),
    ConfigKey("eos_token_id", "read", "one source of the tokens that end an answer"),
    ConfigKey("quantization_config", "refused", "the weights are stored quantised"),
    ConfigKey("compression_config", "refused", "the weights are stored quantised"),
    ConfigKey(
        "text_config", "refused", "the model is part of a larger one; give a checkpoint of its text model", neutral=(None, {})
    ),
    ConfigKey("pruned_heads", "refused", "heads were taken out, so layers differ in size", neutral=(None, {})),
    ConfigKey("per_layer_config", "refused", "layers differ", neutral=(None, {})),
    ConfigKey("use_bidirectional_attention", "refused", "only causal attention is run", neutral=_OFF),
    ConfigKey("is_causal", "refused", "only causal attention is run", neutral=(None, True)),
    ConfigKey("is_encoder_decoder", "refused", "only decoders are run", neutral=_OFF),
    ConfigKey("add_cross_attention", "refused", "only decoders are run", neutral=_OFF),
    ConfigKey("alibi", "refused", "positions are RoPE's", neutral=_OFF),
    ConfigKey("rotary_pct", "refused", "the whole head is rotated", neutral=(None, 1)),
    ConfigKey("rotary_emb_fraction", "refused", "the whole head is rotated", neutral=(None, 1)),
    ConfigKey("rotary_emb_base", "refused", "its name is rope_theta"),
    ConfigKey("rope_interleaved", "refused", "pairs are (i, i + head_dim / 2)", neutral=_OFF),
    ConfigKey("bias", "refused", "its name is attention_bias", neutral=_OFF),
    ConfigKey("qkv_bias", "refused", "its name is attention_bias", (LLAMA, MISTRAL, QWEN3, GEMMA3), _OFF),
    ConfigKey("logit_scale", "refused", "vLLM multiplies logits by it and transformers does not", neutral=(None, 1)),
    ConfigKey("llama_4_scaling", "refused", "queries scaled by their position are not run"),
    ConfigKey("attention_bias", "refused", "the architecture has none", (MISTRAL,), _OFF),
    ConfigKey("mlp_bias", "refused", "the architecture has none", (MISTRAL, QWEN2, QWEN3, GEMMA3), _OFF),
    *(
        ConfigKey(name, "refused", "only Gemma 3 has it", (LLAMA, MISTRAL, QWEN2, QWEN3))
        for name in ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "rope_local_base_freq")
    ),
    ConfigKey("attention_bias", "ignored", "q, k and v always have biases, o none", (QWEN2,)),
    ConfigKey("qkv_bias", "ignored", "q, k and v always have biases, o none", (QWEN2,)),
    ConfigKey("original_max_position_embeddings", "ignored", "only the one within rope_parameters counts", (GEMMA3,)),
    ConfigKey("sliding_window", "ignored", "transformers' Llama has no windows", (LLAMA,)),
    ConfigKey("use_sliding_window", "ignored", "transformers' Llama has no windows", (LLAMA,)),
    *_rows("ignored", "the stored tensors say their dtype, --dtype chooses ours", "torch_dtype", "dtype"),
    *_rows("ignored", "of training only", "attention_dropout", "initializer_range", "pretraining_tp"),
    *_rows("ignored", "nothing is padded", "pad_token_id"),
    *_rows("ignored", "there is always a cache", "use_cache", "cache_implementation"),
    *_rows(
        "ignored",
        "of transformers itself",
        *("transformers_version", "_name_or_path", "_commit_hash", "auto_map", "output_attentions", "output_hidden_states"),
        *("return_dict", "torchscript", "is_decoder", "_attn_implementation", "attn_implementation", "chunk_size_feed_forward"),
    ),
)

OTHERS = "no key of the architecture's class in transformers"


def refuse(keys: JsonKeys, kind: str) -> None:
    """Raise UserError for a key that would change answers and is not run."""
    for key in KEYS:
        if key.use == "refused" and key.about(kind) and not _neutral(keys.values.get(key.name), key.neutral):
            allowed = " or ".join({None: "null", True: "true", False: "false"}.get(v, str(v)) for v in key.neutral if v != {})
            raise keys.refused(key.name, f"{key.why}; only {allowed} is supported")


def ignored(config: Mapping[str, Any], kind: str, file: str) -> tuple[Ignored, ...]:
    """The keys of a config that change nothing, in its order, and why."""
    why = {key.name: key.why if key.use == "ignored" else None for key in KEYS if key.about(kind)}
    told = [(name, why.get(name, OTHERS)) for name, value in config.items() if value is not None]
    return tuple(Ignored(file, name, reason) for name, reason in told if reason is not None)


def _neutral(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is one of `allowed`; true is not 1 here."""
    return any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in allowed)
