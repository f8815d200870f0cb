"""A Hugging Face ``config.json`` as a `ModelConfig`, in the spelling of transformers 4 or 5.

What becomes of each key is in `models.config.hf_keys.KEYS`. An architecture that is not listed in `ARCHITECTURES` is refused by
name; a key that decides shapes or arithmetic and is missing or makes no sense is named. Defaults are those of the
architecture's class in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.config import hf_keys
from models.config.architectures import ARCHITECTURES, Entry
from models.config.hf_rope import read_ropes
from models.config.model_config import ModelConfig
from models.errors import UserError, short
from models.files.json_keys import MAX_SIZE, JsonKeys
from models.files.provenance import Ignored

_WINDOW, _WINDOW_LAYERS, _PATTERN = 4096, 28, 6  # sliding_window, max_window_layers, sliding_window_pattern
_MAX_LAYERS = 1024
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_LAYER_TYPES = {"full_attention": False, "attention": False, "sliding_attention": True}  # whether the layer has a window


def from_hf(config: Mapping[str, Any], *, origin: str = "config.json") -> ModelConfig:
    """Build a `ModelConfig` from the keys of a Hugging Face ``config.json``.

    Args:
      config: the parsed JSON object, in the spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).
      origin: named in errors, usually the file's path.

    Raises:
      UserError: unknown architecture, a needed key is missing, a value that no model can have, or a key that would change answers
        and is not run.
    """
    entry = _architecture(config, origin)
    keys, gemma = JsonKeys(config, origin, f"a {entry.hf_class} config"), entry.gemma
    hf_keys.refuse(keys, entry.rows)
    heads, hidden = keys.size("num_attention_heads"), keys.size("hidden_size")
    layers = keys.size("num_hidden_layers", most=_MAX_LAYERS)
    head_dim = _head_dim(keys, entry, hidden, heads)
    ropes = read_ropes(keys, gemma=gemma)
    if ropes.full.kind == "dynamic" and head_dim == 2:
        raise UserError(f"{origin}: RoPE type 'dynamic' needs a head_dim of at least 4; it is 2")
    bias = keys.flag("attention_bias") if entry.bias == "key" else False
    return ModelConfig(
        architecture=entry.name,
        vocab_size=keys.size("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(keys, entry, heads),
        head_dim=head_dim,
        ffn=keys.size("intermediate_size"),
        norm_eps=keys.real("rms_norm_eps"),
        max_positions=ropes.context,
        rope=ropes.full,
        rope_local=ropes.local,
        windows=_windows(keys, entry, layers),
        tied_head=keys.flag("tie_word_embeddings", gemma),
        qkv_bias=entry.bias == "always" or bias,
        out_bias=bias,
        mlp_bias=keys.flag("mlp_bias"),
        qk_norm=entry.qk_norm,
        sandwich_norms=gemma,
        norm_offset=1.0 if gemma else 0.0,
        activation=_activation(keys, gemma),
        embedding_scale=hidden**0.5 if gemma else 1.0,
        attention_scale=keys.real("query_pre_attn_scalar", 256.0) ** -0.5 if gemma else 0.0,
        attention_softcap=keys.real("attn_logit_softcapping") if keys.given("attn_logit_softcapping") else None,
        logit_softcap=keys.real("final_logit_softcapping") if keys.given("final_logit_softcapping") else None,
        eos_tokens=keys.tokens("eos_token_id"),
    )


def ignored_keys(config: Mapping[str, Any], file: str) -> tuple[Ignored, ...]:
    """The keys of a config that `from_hf` takes which change nothing."""
    return hf_keys.ignored(config, ARCHITECTURES[config["architectures"][0]].rows, file)


def _architecture(config: Mapping[str, Any], origin: str) -> Entry:
    """Its entry, where `model_type` does not contradict."""
    given, known = config.get("architectures"), ", ".join(sorted(ARCHITECTURES))
    if not isinstance(given, list) or len(given) != 1:
        found = "missing" if given is None else short(given)
        raise UserError(f"{origin}: key 'architectures' is {found}; it must be a list with one of {known}")
    name = given[0]
    if not isinstance(name, str) or name not in ARCHITECTURES:
        shown = name if isinstance(name, str) and name.isidentifier() and len(name) < 80 else short(name)
        raise UserError(f"{origin}: architecture {shown} is not supported; supported are {known}")
    entry, said = ARCHITECTURES[name], config.get("model_type")
    if said not in (None, entry.model_type):
        raise UserError(f"{origin}: model_type is {short(said)}; for the architecture {name} it must be {entry.model_type!r}")
    return entry


def _kv_heads(keys: JsonKeys, entry: Entry, heads: int) -> int:
    null = None if entry.gemma else heads
    missing = entry.kv_heads or heads
    kv_heads = keys.size("num_key_value_heads", null if "num_key_value_heads" in keys.values else missing)
    if heads % kv_heads:
        raise keys.refused("num_key_value_heads", f"{heads} attention heads do not divide into {kv_heads} KV heads")
    return kv_heads


def _head_dim(keys: JsonKeys, entry: Entry, hidden: int, heads: int) -> int:
    default = entry.head_dim
    if default is None and not keys.given("head_dim") and hidden % heads:
        raise keys.refused("hidden_size", f"it must be a multiple of the {heads} heads where head_dim is not given")
    missing, null = (hidden // heads, hidden // heads) if default is None else (default, None)
    head_dim = keys.size("head_dim", null if "head_dim" in keys.values else missing)
    if head_dim % 2:
        raise keys.refused("head_dim", "rotary embedding needs an even number")
    if heads * head_dim > MAX_SIZE:
        raise keys.refused("num_attention_heads", f"times head_dim {head_dim} it must be at most {MAX_SIZE}")
    return head_dim


def _activation(keys: JsonKeys, gemma: bool) -> str:
    key, default = ("hidden_activation", "gelu_pytorch_tanh") if gemma else ("hidden_act", "silu")
    given = keys.values[key] if keys.given(key) else default
    if not isinstance(given, str) or given not in _ACTIVATIONS:
        raise keys.refused(key, f"that activation is not supported; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[given]


def _windows(keys: JsonKeys, entry: Entry, layers: int) -> tuple[int | None, ...]:
    """The window of each layer: `layer_types` where the architecture has it, else the rule of the architecture."""
    qwen, kind = entry.windows == "later", entry.name
    window = None
    on = keys.flag("use_sliding_window") if qwen else entry.windows != "none"
    if on and (keys.given("sliding_window") or "sliding_window" not in keys.values):  # null is no window, missing is not
        window = keys.size("sliding_window", _WINDOW)
    types = _layer_types(keys, layers)
    if entry.windows == "pattern":
        every = keys.size("sliding_window_pattern", _PATTERN)
        rule = [bool((i + 1) % every) for i in range(layers)]
    elif qwen:
        first = keys.size("max_window_layers", _WINDOW_LAYERS, least=0)
        rule = [window is not None and i >= first for i in range(layers)]
    else:
        rule = [window is not None] * layers
        if types is not None and types != rule:
            says = "sliding_attention" if window else "full_attention"
            raise keys.refused("layer_types", f"a {kind} model with this sliding_window has {says} in every layer")
    slides = rule if types is None else types
    if any(slides) and window is None:
        key = "use_sliding_window" if qwen and not on else "sliding_window"
        raise keys.refused(key, "some layers are sliding_attention, so it must say their window")
    if window and not keys.flag("use_sliding_window", True):
        raise keys.refused("use_sliding_window", f"transformers does not heed it in a {kind} model; set sliding_window to null")
    return tuple(window if slide else None for slide in slides)


def _layer_types(keys: JsonKeys, layers: int) -> list[bool] | None:
    """Whether each layer slides, or None where the config does not say."""
    if not keys.given("layer_types"):
        return None
    types = keys.values["layer_types"]
    if not isinstance(types, list) or len(types) != layers:
        raise keys.refused("layer_types", f"it must be a list with a type for each of the {layers} layers")
    unknown = [kind for kind in types if not isinstance(kind, str) or kind not in _LAYER_TYPES]
    if unknown:
        raise UserError(
            f"{keys.origin}: layer type {short(unknown[0])} is not supported; supported are {', '.join(_LAYER_TYPES)}"
        )
    return [_LAYER_TYPES[kind] for kind in types]
