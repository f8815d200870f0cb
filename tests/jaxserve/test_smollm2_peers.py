"""SmolLM2 in f32 against transformers and llama.cpp, on the same dequantised weights.

Greedy tokens are ours; the peer runs once over prompt and answer and must have chosen each of them too. That is the same as letting it
generate, and many times faster: up to the first difference it sees what it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.jaxserve import smollm2
from tests.jaxserve.smollm2 import NEW

Tell = Callable[[str, object], None]  # (name, value): the report shows what is named "found"

pytestmark = [pytest.mark.peers, pytest.mark.slow]


def differences(logits: np.ndarray, prompt: tuple[int, ...], answer: tuple[int, ...]) -> list[tuple[int, int, int, float]]:
    """(position in the answer, our token, theirs, how much lower theirs is for ours) where the peer chooses another token.

    logits f32 [tokens, vocab] are the peer's, over prompt + answer.
    """
    at = np.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
    theirs, chosen = logits[at].argmax(axis=1), logits[at, list(answer)]
    gaps = logits[at].max(axis=1) - chosen
    return [(i, answer[i], int(theirs[i]), float(gaps[i])) for i in range(len(answer)) if theirs[i] != answer[i]]


def llama_in_transformers() -> Any:
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    checkpoint = smollm2.checkpoint()
    c = checkpoint.config
    assert c.architecture == "llama" and c.rope.kind == "default" and c.tied_head
    settings = transformers.LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.hidden,
        intermediate_size=c.ffn,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=c.kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.max_positions,
        rms_norm_eps=c.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope.theta},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(settings).eval().float()
    tensors = {name: torch.from_numpy(np.array(checkpoint.read(name), np.float32)) for name in checkpoint.names()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model


def count(found: Mapping[int, Sequence[tuple[int, int, int, float]]], tokens: int, peer: str) -> str:
    """For the report: differences, and which of them are no more than the order of two equal logits."""
    gaps = [gap for wrong in found.values() for *_, gap in wrong]
    return (
        f"{len(gaps)} of {tokens} greedy tokens differ from {peer}, {gaps.count(0.0)} of these are argmax ties; {dict(found)}"
    )


def test_greedy_tokens_equal_transformers(record_property: Tell):
    """64 prompts x 64 tokens. Where the argmax differs, transformers must hold the two tokens exactly equal."""
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    model, found = llama_in_transformers(), {}
    for i, (prompt, answer) in enumerate(smollm2.texts()):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0].numpy()
        if wrong := differences(logits, prompt, answer):
            found[i] = wrong
    record_property("found", count(found, 64 * NEW, "transformers"))
    assert all(gap == 0 for wrong in found.values() for *_, gap in wrong), found


def dequantised(folder: Path) -> Path:
    """The GGUF file with every tensor in f32, in the file's own names and row order, and its metadata as it was."""
    gguf = pytest.importorskip("gguf", reason="a core dependency")
    reader = gguf.GGUFReader(smollm2.checkpoint().origin)
    path = folder / "f32.gguf"
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# llama.cpp and ours differ by f32 rounding (its own kernels, exp and RoPE): logits of up to 30 by less than this (1.3e-4 seen)
LLAMA_CPP = 1e-3


def test_greedy_tokens_equal_llama_cpp(tmp_path: Path, record_property: Tell):
    """8 prompts x 32 tokens on the same GGUF in f32, KV in f32. A difference must lie within the two programs' rounding."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the extra 'llama'")
    ours = smollm2.Scorer("float32", "float32")
    f32 = llama_cpp.GGML_TYPE_F32
    path = str(dequantised(tmp_path))
    model = llama_cpp.Llama(path, n_ctx=256, n_threads=2, logits_all=True, type_k=f32, type_v=f32, verbose=False)
    found, rounding = {}, 0.0
    for i, (prompt, answer) in enumerate(list(smollm2.texts())[::8]):
        tokens = prompt + answer[:32]
        model.reset()
        model.eval(list(tokens))
        logits = np.array(model.scores[: len(tokens)], np.float32)
        rounding = max(rounding, float(np.abs(logits - ours(tokens)).max()))
        if wrong := differences(logits, prompt, answer[:32]):
            found[i * 8] = wrong
    model.close()
    record_property("found", f"{count(found, 8 * 32, 'llama.cpp')}; largest difference of a logit {rounding:.2e}")
    assert rounding < LLAMA_CPP
    assert all(gap <= 2 * rounding for wrong in found.values() for *_, gap in wrong), found


def test_differences_are_seen():
    """The judge itself: a wrong answer is listed with its gap."""
    logits = np.zeros((4, 5), np.float32)
    logits[1, 3], logits[2, 2], logits[2, 4] = 2.0, 1.0, 1.0
    assert differences(logits, (0, 0), (3, 2)) == []
    assert differences(logits, (0, 0), (1, 4)) == [(0, 1, 3, 2.0), (1, 4, 2, 0.0)]
    assert NEW == 64
    found = {0: [(0, 1, 3, 2.0), (1, 4, 2, 0.0)]}
    assert count(found, 64, "x").startswith(
        "2 of 64 greedy tokens differ from x, 1 of these are argmax ties; {0: [(0, 1, 3, 2.0)"
    )
