"""Tiny random checkpoints of every architecture against transformers on the same file, in f32.

transformers builds, randomises and saves the model; we load the folder. Its one full forward pass gives the logits of every
position, which ours must match in a prefill chunk and in every decode step after it.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from models.checkpoint.load import load
from models.checkpoint.safetensors import SafetensorsCheckpoint
from tests import oracle
from tests.jaxserve.driver import Driver

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")

LENGTH, PREFILL = 40, 13  # the window of 8 is passed within the prefill, and again in decode
TOLERANCE = 1e-4  # max |ours - theirs| / max |theirs|, in f32

SHAPE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **more}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5)
ALTERNATING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
GEMMA_ROPES = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, one KV head": ("Llama", {"num_key_value_heads": 1}),
    "llama, as many KV heads": ("Llama", {"num_key_value_heads": 4}),
    "llama, llama3 rope": ("Llama", LLAMA3),
    "llama, linear rope": ("Llama", rope("linear", factor=4.0)),
    "llama, dynamic rope": ("Llama", {**rope("dynamic", factor=2.0), "max_position_embeddings": 16}),
    "llama, yarn rope": ("Llama", YARN),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, heads wider than hidden": ("Llama", {"hidden_size": 20, "head_dim": 8}),
    "smollm2": ("Llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 36, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "mistral, no window": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied, sliding": ("Qwen2", {"tie_word_embeddings": True, "use_sliding_window": True, **ALTERNATING}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3, tied, biases": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True}),
    "gemma3": ("Gemma3", {**GEMMA, "sliding_window": 8, "sliding_window_pattern": 3}),
    "gemma3, ropes of the larger ones": ("Gemma3", {**GEMMA, **GEMMA_ROPES, **ALTERNATING}),
    "gemma3, untied, no caps": ("Gemma3", {"head_dim": 16, "tie_word_embeddings": False, **ALTERNATING}),
}


@pytest.fixture(autouse=True)
def gemma_caps_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers 5.24 reads Gemma 3's attn_logit_softcapping and then forgets to hand it to its own attention function.

    No published Gemma 3 sets the key, but where a config has it we apply it, as Gemma 2 does. So it is handed over here.
    """
    module = pytest.importorskip("transformers.models.gemma3.modeling_gemma3", reason="needs the extra 'transformers'")
    plain = module.eager_attention_forward

    @functools.wraps(plain)
    def capped(attention: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(attention, *args, **{"softcap": attention.attn_logit_softcapping, **kwargs})

    monkeypatch.setattr(module, "eager_attention_forward", capped)


def saved(folder: Path, name: str, **save: Any) -> np.ndarray:
    """Build and save one case -> their logits f32 [LENGTH, vocab]."""
    family, changes = CASES[name]
    settings = getattr(transformers, "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config")(**{**SHAPE, **changes})
    settings._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(settings).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():  # a fresh model has norms of 1 and biases of 0, which hide a mistake
            spread = 1.5 / parameter.shape[1] ** 0.5 if parameter.ndim == 2 else 0.3
            parameter.copy_(torch.randn_like(parameter) * spread + (parameter if parameter.ndim == 1 else 0))
    model.save_pretrained(folder, **save)
    with torch.no_grad():
        return model(torch.tensor([tokens()])).logits[0].numpy()


def tokens() -> list[int]:
    return np.random.default_rng(0).integers(0, SHAPE["vocab_size"], LENGTH).tolist()


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_transformers(tmp_path: Path, name: str):
    theirs = saved(tmp_path, name)
    checkpoint = SafetensorsCheckpoint(tmp_path)
    driver = Driver(checkpoint.config, load(checkpoint, jnp.float32), context=LENGTH, every_token=True)
    s = driver.sequence(tokens()[:PREFILL])
    prefill = driver.prefill(s)[0][0]
    s.tokens = tokens()
    decode = driver.decode([s], LENGTH - PREFILL, feed=False)[0]
    assert oracle.relative(prefill, theirs[:PREFILL]) < TOLERANCE
    assert max(oracle.relative(a, b) for a, b in zip(decode, theirs[PREFILL:], strict=True)) < TOLERANCE


@pytest.mark.parametrize("name", ["llama", "smollm2", "gemma3"])
def test_sharded_checkpoints(tmp_path: Path, name: str):
    theirs = saved(tmp_path, name, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    checkpoint = SafetensorsCheckpoint(tmp_path)
    driver = Driver(checkpoint.config, load(checkpoint, jnp.float32), context=LENGTH, every_token=True)
    assert oracle.relative(driver.prefill(driver.sequence(tokens()))[0][0], theirs) < TOLERANCE


def test_the_comparison_can_fail(tmp_path: Path):
    """Each trait that a case sets is visible in the logits: the same weights without it are far beyond the tolerance."""
    traits: dict[str, dict[str, Any]] = {
        "mistral": {"windows": (None,) * 3},
        "gemma3": {"attention_softcap": None},
        "gemma3, ropes of the larger ones": {"rope_local": None},
        "llama, heads wider than hidden": {"attention_scale": 5**-0.5},
    }
    for i, (name, change) in enumerate(traits.items()):
        theirs = saved(tmp_path / str(i), name)
        checkpoint = SafetensorsCheckpoint(tmp_path / str(i))
        config = dataclasses.replace(checkpoint.config, **change)
        driver = Driver(config, load(checkpoint, jnp.float32), context=LENGTH, every_token=True)
        ours = driver.prefill(driver.sequence(tokens()))[0][0]
        assert oracle.relative(ours, theirs) > 10 * TOLERANCE, name
