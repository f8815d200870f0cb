"""Small checkpoints for tests. Names, shapes, permutations and offsets are stated here independently of the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize
from safetensors.numpy import save_file

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}


def hf_config(kind: str = "llama", **changes: Any) -> dict[str, Any]:
    """heads * head_dim (4 * 32) differs from hidden (64); 2 KV heads. A change to None removes the key."""
    config: dict[str, Any] = {
        "architectures": [CLASSES.get(kind, kind)],
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": kind == "gemma3",
        "eos_token_id": 2,
    }
    if kind == "gemma3":
        config |= {"sliding_window": 8, "sliding_window_pattern": 2, "query_pre_attn_scalar": 32, "rope_theta": 1e6}
        config |= {"hidden_activation": "gelu_pytorch_tanh"}
    config |= changes
    return {key: value for key, value in config.items() if value is not None}


def hf_tensors(kind: str, config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 tensors of every weight that the architecture has."""
    h, f, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], h), "model.norm.weight": (h,)}
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], h)
    for layer in range(config["num_hidden_layers"]):
        block: dict[str, tuple[int, ...]] = {"self_attn.q_proj.weight": (q, h), "self_attn.k_proj.weight": (kv, h)}
        block |= {
            "self_attn.v_proj.weight": (kv, h),
            "self_attn.o_proj.weight": (h, q),
            "mlp.gate_proj.weight": (f, h),
            "mlp.up_proj.weight": (f, h),
        }
        block |= {"mlp.down_proj.weight": (h, f), "input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,)}
        if kind == "qwen2" or config.get("attention_bias"):
            block |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
        if kind != "qwen2" and config.get("attention_bias"):
            block |= {"self_attn.o_proj.bias": (h,)}
        if config.get("mlp_bias"):
            block |= {"mlp.gate_proj.bias": (f,), "mlp.up_proj.bias": (f,), "mlp.down_proj.bias": (h,)}
        if kind in ("qwen3", "gemma3"):
            block |= {"self_attn.q_norm.weight": (d,), "self_attn.k_norm.weight": (d,)}
        if kind == "gemma3":
            block |= {"pre_feedforward_layernorm.weight": (h,), "post_feedforward_layernorm.weight": (h,)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    draw = np.random.default_rng(seed)
    return {name: (0.1 * draw.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def write_folder(
    folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], *, dtype: Any = np.float32, shards: int = 1
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    stored = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    if shards == 1:
        save_file(stored, folder / "model.safetensors")
        return folder
    where = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(stored)}
    for shard in set(where.values()):
        save_file({name: stored[name] for name in stored if where[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(kind: str, name: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    norms = {"post_attention_layernorm": "ffn_norm"}
    if kind == "gemma3":
        norms = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm"}
        norms |= {"post_feedforward_layernorm": "post_ffw_norm"}
    names = GGUF_NAMES | norms
    if stem in names:
        return f"{names[stem]}.{suffix}"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{names[part]}.{suffix}"


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """What a converter does to q and k of "llama" files: row j * d / 2 + i of a head goes to row 2i + j."""
    out, d = np.empty_like(rows), rows.shape[0] // heads
    for head in range(heads):
        for i in range(d // 2):
            for j in range(2):
                out[head * d + 2 * i + j] = rows[head * d + j * d // 2 + i]
    return out


def gguf_keys(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.dimension_count": config["head_dim"],
        "rope.freq_base": config["rope_theta"],
    }
    if kind == "gemma3":
        keys["attention.sliding_window"] = config["sliding_window"]
    return {f"{kind}.{key}": value for key, value in keys.items()}


def write_gguf(
    path: Path,
    kind: str,
    config: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    quantised: Kind = Kind.F32,
    keys: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
    raw: dict[str, tuple[np.ndarray, Kind]] | None = None,
) -> Path:
    """As llama.cpp's converter does it.

    `quantised` is the type of the matrices; `keys` are added to the metadata (None removes one); `extra` are more tensors, and
    `raw` the bytes and type of more tensors, by their GGUF names.
    """
    writer = gguf.GGUFWriter(path, kind)
    for key, value in (gguf_keys(kind, config) | vocabulary(config["vocab_size"]) | (keys or {})).items():
        if value is not None:
            add_key(writer, key, value)
    for name, tensor in tensors.items():
        data, short = tensor, gguf_name(kind, name)
        if kind == "llama" and ".q_proj." in name:
            data = interleave(tensor, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in name:
            data = interleave(tensor, config["num_key_value_heads"])
        if kind == "gemma3" and name.endswith("norm.weight"):
            data = tensor + 1
        if data.ndim == 2 and quantised != Kind.F32:
            writer.add_tensor(short, quantize(data, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(short, data)
    for name, tensor in (extra or {}).items():
        writer.add_tensor(name, tensor)
    for name, (data, of) in (raw or {}).items():
        writer.add_tensor(name, data, raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_key(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def vocabulary(size: int) -> dict[str, Any]:
    """A SentencePiece vocabulary: specials, all bytes, a few pieces, then unused ones up to `size`."""
    words = ["▁", "a", "b", "c", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "hell", "hello", "▁hello", "▁w", "or", "ld"]
    words += ["▁wor", "▁world", "ab", "bc", "abc", "\n\n"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(words) - 1), 4]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(words))]
    scores[tokens.index("bc")] = -0.5  # better than ab, so "abc" splits as a, bc before it is joined
    unused = size - len(tokens)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens + [f"<unused{i}>" for i in range(unused)],
        "tokenizer.ggml.scores": scores + [-1000.0] * unused,
        "tokenizer.ggml.token_type": types + [5] * unused,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
