"""Every metadata key of a GGUF file: what is read from it, or why it is ignored, or why it is refused. docs/models.md is this table.

Sources: the keys that llama.cpp takes for the architectures that run here (llama-arch.cpp, llama-model.cpp, llama-vocab.cpp), those that
the gguf package can write, and those of Ollama's converters. Three rules decide. A key that changes what a model computes and that is
not carried out is refused, never passed over. A key that changes nothing is ignored and named in `--json`. A key that no one knows is
ignored too, as every reader does, or a new converter's remarks would shut its files out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from models.checkpoint.gguf_file import shown_value
from models.config.architectures import gguf_architectures
from models.errors import UserError, short
from models.files.provenance import Key
from models.files.reading import shown


class Kind(Enum):
    """Which values a key can have, in the words of an error."""

    SIZE = "a whole number of at least 1"
    WHOLE = "a whole number of at least 0"
    POSITIVE = "a number above 0"
    REAL = "a number"
    TEXT = "a text"
    FLAG = "true or false"
    TEXTS = "a list of texts"
    WHOLES = "a list of whole numbers"
    REALS = "a list of numbers"
    LAYERS = "a whole number, or a list of true or false for each layer"


@dataclasses.dataclass(frozen=True)
class MetadataKey(Key):
    """A metadata key, or with a `*` at the end all that begin alike; its name has ``{arch}`` for the value of ``general.architecture``.

    Attributes:
      kind: what a value can be; None for a key that is not read.
      unless: a refused key is accepted with these values (or a list of nothing else).
      hf: the key of a Hugging Face config that it becomes, if it is one.
      needed: the model cannot be read without it.
      only: the one architecture that has it; in a file of another it is refused unless it is 0.
    """

    kind: Kind | None = None
    unless: tuple[Any, ...] = ()
    hf: str | None = None
    needed: bool = False
    only: str | None = None


def _config(
    name: str, hf: str, kind: Kind = Kind.SIZE, *, needed: bool = False, what: str = "", only: str | None = None
) -> MetadataKey:
    told = what or (f"{only}: `{hf}`" if only else f"`{hf}`")
    return MetadataKey(f"{{arch}}.{name}", "read", told, kind, hf=hf, needed=needed, only=only)


def _read(name: str, kind: Kind, what: str) -> MetadataKey:
    return MetadataKey(name, "read", what, kind)


def _ignored(name: str, why: str) -> MetadataKey:
    return MetadataKey(name, "ignored", why)


def _refused(name: str, why: str, *unless: Any) -> MetadataKey:
    return MetadataKey(name, "refused", why, unless=unless)


_GGML, _ROPE = "tokenizer.ggml.", "{arch}.rope."

KEYS: tuple[MetadataKey, ...] = (
    _read("general.architecture", Kind.TEXT, "llama, qwen2, qwen3 or gemma3; any other is refused by name"),
    _read("general.alignment", Kind.WHOLE, "tensors begin at multiples of it, 32 by default; refused unless a power of 2"),
    _refused("general.type", "only whole models run, no adapter, projector or importance matrix", "model"),
    _ignored("general.file_type", "each tensor says its own type"),
    _ignored("general.quantization_version", "each tensor says its own type"),
    _ignored("general.sampling.*", "a request decides how it is sampled"),
    _ignored("general.*", "says what the file is"),
    _read(
        "split.count", Kind.WHOLE, "how many files hold the model; all are read, by llama.cpp's names NAME-00001-of-00003.gguf"
    ),
    _read("split.no", Kind.WHOLE, "which of them this one is, from 0; give the first"),
    _read("split.tensors.count", Kind.WHOLE, "tensors of all files together; refused if there are more or fewer"),
    _config("block_count", "num_hidden_layers", needed=True),
    _config("context_length", "max_position_embeddings", needed=True),
    _config("embedding_length", "hidden_size", needed=True),
    _config("feed_forward_length", "intermediate_size", needed=True),
    _config("attention.head_count", "num_attention_heads", needed=True),
    _config("attention.head_count_kv", "num_key_value_heads"),
    _config("attention.key_length", "head_dim", what="`head_dim`; by default embedding_length / head_count"),
    _config("attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind.POSITIVE, needed=True),
    _config(
        "attention.sliding_window",
        "sliding_window",
        Kind.WHOLE,
        what="`sliding_window`; 0 is none; a llama file that has one is a Mistral; qwen2 and qwen3 never slide",
    ),
    _config("attn_logit_softcapping", "attn_logit_softcapping", Kind.REAL, only="gemma3"),
    _config("final_logit_softcapping", "final_logit_softcapping", Kind.REAL, only="gemma3"),
    _config("rope.freq_base", "rope_theta", Kind.POSITIVE),
    _config("rope.global.freq_base", "rope_theta", Kind.POSITIVE, what="Ollama's name for rope.freq_base"),
    _config("rope.freq_base_swa", "rope_local_base_freq", Kind.POSITIVE, only="gemma3"),
    _config(
        "rope.local.freq_base",
        "rope_local_base_freq",
        Kind.POSITIVE,
        what="gemma3: Ollama's name for rope.freq_base_swa",
        only="gemma3",
    ),
    MetadataKey(
        "{arch}.attention.sliding_window_pattern",
        "read",
        "gemma3: every how many layers one sees all, or which slide",
        Kind.LAYERS,
        only="gemma3",
    ),
    _read("{arch}.attention.value_length", Kind.WHOLE, "refused unless it is head_dim"),
    _read("{arch}.attention.head_dim", Kind.WHOLE, "refused unless it is head_dim"),
    _read("{arch}.attention.key_length_swa", Kind.WHOLE, "refused unless it is head_dim"),
    _read("{arch}.attention.value_length_swa", Kind.WHOLE, "refused unless it is head_dim"),
    _read(_ROPE + "dimension_count", Kind.WHOLE, "refused unless it is head_dim"),
    _read(_ROPE + "dimension_count_swa", Kind.WHOLE, "refused unless it is head_dim"),
    _read(
        "{arch}.vocab_size", Kind.WHOLE, "rows of the embedding, where the file has no tokens; else the rows themselves decide"
    ),
    _read(_ROPE + "scaling.type", Kind.TEXT, "none, linear or yarn; linear where only a factor is given; any other is refused"),
    _read(_ROPE + "scaling.factor", Kind.REAL, "`rope_scaling` factor; 0 is none"),
    _read(_ROPE + "scale_linear", Kind.REAL, "the same, as files of 2023 call it"),
    _read(
        _ROPE + "scaling.original_context_length", Kind.WHOLE, "`original_max_position_embeddings`; by default context_length"
    ),
    _read(_ROPE + "scaling.yarn_beta_fast", Kind.REAL, "`beta_fast`"),
    _read(_ROPE + "scaling.yarn_beta_slow", Kind.REAL, "`beta_slow`"),
    _read(_ROPE + "scaling.beta_fast", Kind.REAL, "Ollama's name for it"),
    _read(_ROPE + "scaling.beta_slow", Kind.REAL, "Ollama's name for it"),
    _ignored(_ROPE + "scaling.finetuned", "says how the model was trained; llama.cpp only prints it"),
    _refused(_ROPE + "scaling.attn_factor", "another attention temperature is not supported", 1.0),
    _refused(_ROPE + "scaling.yarn_attn_factor", "another attention temperature is not supported", 1.0),
    _refused(_ROPE + "scaling.yarn_log_multiplier", "another attention temperature is not supported", 0.0),
    _refused(_ROPE + "scaling.yarn_ext_factor", "YaRN without its ramp is not supported", 1.0, -1.0),
    _refused(_ROPE + "scaling.extrapolation_factor", "YaRN without its ramp is not supported", 1.0, -1.0),
    _refused(_ROPE + "scaling.alpha", "a base stretched by alpha is not supported", 0.0, 1.0),
    _ignored(_ROPE + "dimension_sections", "for images; a token of text has one position"),
    _ignored(_ROPE + "mrope_section", "for images; a token of text has one position"),
    _refused("{arch}.expert_count", "a mixture of experts is not supported; use a dense model", 0),
    _refused("{arch}.nextn_predict_layers", "layers that predict several tokens are not supported", 0),
    _refused("{arch}.n_deepstack_layers", "layers that take in images are not supported", 0),
    _refused("{arch}.use_parallel_residual", "attention beside the MLP is not supported", False),
    _refused("{arch}.logit_scale", "scaled logits are not supported", 0.0, 1.0),
    _refused("{arch}.residual_scale", "scaled residuals are not supported", 0.0, 1.0),
    _refused("{arch}.embedding_scale", "a scaled embedding is not supported", 0.0, 1.0),
    _refused("{arch}.attention.scale", "an attention scale of its own is not supported", 0.0),
    _refused("{arch}.attention.output_scale", "a scaled attention output is not supported", 0.0, 1.0),
    _refused("{arch}.attention.value_scale", "scaled values are not supported", 0.0, 1.0),
    _refused("{arch}.attention.clamp_kqv", "clamped q, k and v are not supported", 0.0),
    _refused("{arch}.attention.max_alibi_bias", "ALiBi is not supported", 0.0),
    _refused("{arch}.attention.causal", "attention to later tokens is not supported", True),
    _refused("{arch}.attention.temperature_length", "an attention temperature by position is not supported", 0),
    _refused("{arch}.attention.temperature_scale", "an attention temperature by position is not supported", 0.0),
    _refused("{arch}.attention.shared_kv_layers", "layers that share their KV are not supported", 0),
    _ignored("{arch}.expert_*", "there are no experts"),
    _ignored("{arch}.attention.layer_norm_epsilon", "of another norm; that of RMSNorm has its own key"),
    _ignored("{arch}.tensor_data_layout", "says where the weights came from; they are stored alike"),
    _ignored("{arch}.pooling_type", "for embedding models"),
    _ignored("{arch}.vision.*", "only text runs"),
    _ignored("{arch}.mm.*", "only text runs"),
    _read(_GGML + "model", Kind.TEXT, "gpt2 (byte-level BPE) or llama (SentencePiece); any other is refused by name"),
    _read(_GGML + "pre", Kind.TEXT, "the splitting rules of gpt2, by the names below; refused where it is missing"),
    _read(_GGML + "tokens", Kind.TEXTS, "the vocabulary; refused if a text stands twice"),
    _read(
        _GGML + "token_type", Kind.WHOLES, "normal, unknown, control, user-defined, unused or byte; normal where it is missing"
    ),
    _read(_GGML + "scores", Kind.REALS, "llama: which pieces are joined first"),
    _read(_GGML + "merges", Kind.TEXTS, "gpt2: which pieces are joined, in this order"),
    _read(_GGML + "bos_token_id", Kind.WHOLE, "begins a text; 1 by default for llama; refused outside the vocabulary"),
    _read(_GGML + "eos_token_id", Kind.WHOLE, "ends an answer; 2 by default for llama; refused outside the vocabulary"),
    _read(_GGML + "eos_token_ids", Kind.WHOLES, "end an answer, in Ollama's files; refused outside the vocabulary"),
    _read(_GGML + "eot_token_id", Kind.WHOLE, "ends an answer; refused outside the vocabulary"),
    _read(_GGML + "eom_token_id", Kind.WHOLE, "ends an answer; refused outside the vocabulary"),
    _read(_GGML + "fim_pad_token_id", Kind.WHOLE, "ends an answer, as in llama.cpp"),
    _read(_GGML + "fim_rep_token_id", Kind.WHOLE, "ends an answer, as in llama.cpp"),
    _read(_GGML + "fim_sep_token_id", Kind.WHOLE, "ends an answer, as in llama.cpp"),
    _read(_GGML + "unknown_token_id", Kind.WHOLE, "`unk_token` of a template, and what an unknown character becomes"),
    _read(_GGML + "padding_token_id", Kind.WHOLE, "`pad_token` of a template"),
    _read(_GGML + "seperator_token_id", Kind.WHOLE, "`sep_token` of a template (the key is spelt so)"),
    _read(_GGML + "cls_token_id", Kind.WHOLE, "`cls_token` of a template"),
    _read(_GGML + "mask_token_id", Kind.WHOLE, "`mask_token` of a template"),
    _read(
        _GGML + "add_bos_token", Kind.FLAG, "whether a plain text begins with bos; by default as llama.cpp does for these rules"
    ),
    _read(_GGML + "add_eos_token", Kind.FLAG, "whether a plain text ends with eos; false by default"),
    _read(_GGML + "add_space_prefix", Kind.FLAG, "llama: whether a text begins with a space; true by default"),
    _read("tokenizer.chat_template", Kind.TEXT, "the chat template called default"),
    _read("tokenizer.chat_template.*", Kind.TEXT, "the one of that name; tool_use is rendered where a conversation has tools"),
    _ignored("tokenizer.chat_templates", "each template has a key with its name"),
    _refused(_GGML + "remove_extra_whitespaces", "no tokenizer that runs drops spaces", False),
    _refused(_GGML + "precompiled_charsmap", "no tokenizer that runs rewrites characters by a table"),
    _refused(_GGML + "normalizer.lowercase", "no tokenizer that runs changes case", False),
    _refused(_GGML + "normalizer.strip_accents", "no tokenizer that runs drops accents", False),
    _refused(_GGML + "suppress_tokens", "tokens that may never be drawn are not supported"),
    *(
        _ignored(f"{_GGML}{name}_token_id", "marks a text to fill in; llama.cpp ends no answer there")
        for name in ("fim_pre", "fim_suf", "fim_mid", "prefix", "suffix", "middle")
    ),
    _ignored(_GGML + "add_sep_token", "for BERT; neither gpt2 nor llama adds it"),
    _ignored(_GGML + "*", "no reader takes it"),
    _ignored("tokenizer.*", "the tokenizer is built from tokenizer.ggml"),
    _ignored("quantize.imatrix.*", "says how the weights were rounded"),
)

UNKNOWN = "llama.cpp reads no such key for this architecture"


def understood(metadata: Mapping[str, Any], origin: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What `KEYS` says of the keys of one file.

    Args:
      metadata: all keys and values, as `GGUFFile` has them.
      origin: named in errors.

    Returns:
      (the keys that are read, with values of the kind that each must have; the keys that are ignored, with the reason). A list with
      the same number for every layer becomes that number.

    Raises:
      UserError: the architecture is not supported; a key has a value of another kind, differs from layer to layer, or is refused.
    """
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in gguf_architectures():
        found = "(none)" if arch is None else short(arch)
        raise UserError(
            f"{origin}: GGUF architecture {found} is not supported; supported are {', '.join(gguf_architectures())}"
        )
    layers = metadata.get(f"{arch}.block_count")
    read: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for name, value in metadata.items():
        key = _find(name, arch)
        if key is None or key.use == "ignored":
            ignored[name] = key.why if key else UNKNOWN
        elif key.only not in (None, arch) and any(_items(value)):
            raise UserError(f"{origin}: {name} is {shown_value(value)}: only {key.only} has such a key")
        elif key.use == "read":
            read[name] = _value(name, key, value, layers, origin)
        elif not all(item in key.unless for item in _items(value)):
            only = (
                f"; only {' or '.join(str(item) for item in key.unless)} is" if key.unless and isinstance(value, float) else ""
            )
            raise UserError(f"{origin}: {name} is {shown_value(value)}: {key.why}{only}")
    return read, ignored


_EXACT = {key.name: key for key in KEYS if not key.name.endswith("*")}
_PREFIXES = sorted((key for key in KEYS if key.name.endswith("*")), key=lambda key: -len(key.name))


def _find(name: str, arch: str) -> MetadataKey | None:
    if name.startswith(f"{arch}."):
        name = "{arch}" + name[len(arch) :]
    beginning = (key for key in _PREFIXES if name.startswith(key.name[:-1]))
    return _EXACT.get(name) or next(beginning, None)


def _items(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, list) else [value]


def _value(name: str, key: MetadataKey, value: Any, layers: Any, origin: str) -> Any:
    """The value, if `key.kind` has it."""
    assert key.kind is not None
    check = _SINGLE.get(key.kind)
    array = isinstance(value, np.ndarray)
    if check:
        if array and len(value) and _by_layer(key):
            value = _common(name, value, layers, origin)
        good = check(value)
    elif key.kind is Kind.TEXTS:
        good = isinstance(value, list)
    elif key.kind is Kind.LAYERS:
        good = _whole(value) or (array and value.dtype.kind in "bui")
    else:
        good = array and value.dtype.kind in ("uif" if key.kind is Kind.REALS else "ui")
    if not good and not (isinstance(value, list | np.ndarray) and not len(value) and not check):  # an empty list has no kind
        raise UserError(
            f"{origin}: {shown(name)} is {shown_value(value)}; it must be {key.kind.value}; convert the model again"
        )
    return value.tolist() if isinstance(value, np.ndarray) else value


def _common(name: str, values: np.ndarray, layers: Any, origin: str) -> Any:
    """The one number of all layers."""
    if _whole(layers) and len(values) != layers:
        raise UserError(f"{origin}: {name} lists {len(values)} layers and the model has {layers}; convert the model again")
    if (values != values[0]).any():
        raise UserError(f"{origin}: {name} is {shown_value(values)}: it differs from layer to layer, which is not supported")
    return values[0].item()


def _by_layer(key: MetadataKey) -> bool:
    return key.name.startswith("{arch}.") and key.name != "{arch}.block_count"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_SINGLE: Mapping[Kind, Callable[[Any], bool]] = {
    Kind.SIZE: lambda value: _whole(value) and value > 0,
    Kind.WHOLE: _whole,
    Kind.POSITIVE: lambda value: _real(value) and value > 0,
    Kind.REAL: _real,
    Kind.TEXT: lambda value: isinstance(value, str),
    Kind.FLAG: lambda value: isinstance(value, bool),
}
