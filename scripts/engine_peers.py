"""Other engines that serve many requests at once: transformers' own continuous batching, and llama.cpp's parallel decoding.

Both run the weights of the installed SmolLM2 package dequantised to 32 bits, greedily, and give every request exactly the tokens that
it asks for. Both get room for all their rows, so that neither has to preempt, and no cache of prefixes, which ours has not either.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.hardware.host import cores
from scripts.peers import LlamaCpp, Transformers
from scripts.served import Served
from scripts.workload import Workload

PAGE = 16


class TransformersBatching:
    """`ContinuousBatchingManager` of transformers 5, with paged attention.

    On a CPU its attention is "sdpa" under one mask over all rows and all that is in their cache: of the two implementations that work
    without flash attention the faster one. Each step so costs rows times all cached tokens, which is why more rows are not always faster.

    Args:
      rows: requests in a step at most.
      tokens: of a step at most.
    """

    name = "transformers"

    def __init__(self, rows: int, tokens: int):
        self.rows, self.tokens = rows, max(rows, tokens)
        self.model = Transformers("float32").model
        self.settings = f"float32, {rows} rows, {self.tokens} tokens a step"

    def serve(self, workload: Workload) -> Served:
        import torch
        from transformers import ContinuousBatchingConfig, GenerationConfig

        config = ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=workload.room(self.rows, PAGE) + self.rows,  # and one each: it takes a new one a token early
            max_batch_tokens=self.tokens,
            max_requests_per_batch=self.rows,
            allow_block_sharing=False,
            safety_margin=0.0,
        )
        greedy = GenerationConfig(do_sample=False, eos_token_id=-1)  # -1: no token ends an answer
        with (
            torch.inference_mode(),
            self.model.continuous_batching_context_manager(
                generation_config=greedy, continuous_batching_config=config
            ) as manager,
        ):
            start, ids, done = time.perf_counter(), list[str](), dict[str, Any]()
            for item in workload.items:
                time.sleep(max(start + item.arrival - time.perf_counter(), 0))
                ids.append(manager.add_request(list(item.prompt), max_new_tokens=item.output, record_timestamps=True))
            while len(done) < len(ids):
                result = manager.get_result(timeout=1)
                if result is not None and result.error:
                    raise RuntimeError(f"transformers failed on a request: {result.error}")
                if result is not None and result.is_finished():
                    done[result.request_id] = result
                elif result is None and not manager.is_running():
                    raise RuntimeError("transformers' generation thread has died; see its messages above")
        results = [done[id] for id in ids]
        times = [result.timestamps for result in results]
        return Served(max(each[-1] for each in times) - start, [result.generated_tokens for result in results], times)


@dataclasses.dataclass
class _Slot:
    """A sequence of llama.cpp's cache, and the request in it."""

    request: int = -1  # none
    done: int = 0  # tokens of its prompt that are in the cache, or in the batch


class LlamaParallel:
    """llama.cpp with several sequences in a batch, admitted as others end: what its `parallel` example and its server do.

    A batch takes a token of every row that decodes, and fills up with prompts. Every sequence has a stream of the cache of its own
    (not "unified"). `seconds_inside` is what passed within `llama_decode`: all but this driver's own.

    Args:
      gguf: a model file.
      rows: sequences at once.
      tokens: of a batch at most.
      context: tokens of the longest sequence.
      kv: of the cache, "f32" or "f16".
    """

    name = "llama.cpp"

    def __init__(self, gguf: Path, rows: int, tokens: int, context: int, kv: str = "f32"):
        self.settings = f"f32, KV {kv}, {rows} rows, {tokens} tokens a step"
        self.engine = LlamaCpp(gguf, "f32")
        api = self.api = self.engine.api
        params = api.llama_context_default_params()
        params.n_ctx = rows * (-(-context // 256) * 256)
        params.n_batch, params.n_ubatch, params.n_seq_max = tokens, min(tokens, 512), rows
        params.n_threads = params.n_threads_batch = cores()
        params.type_k = params.type_v = {"f32": api.GGML_TYPE_F32, "f16": api.GGML_TYPE_F16}[kv]
        params.kv_unified = False
        self.context = api.llama_init_from_model(self.engine.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp could not make a context of this size")
        self.memory = api.llama_get_memory(self.context)
        self.batch, self.rows, self.tokens = api.llama_batch_init(tokens, 0, 1), rows, tokens
        self.seconds_inside = 0.0

    def serve(self, workload: Workload) -> Served:
        items, waiting = workload.items, deque(range(len(workload.items)))
        tokens: list[list[int]] = [[] for _ in items]
        times: list[list[float]] = [[] for _ in items]
        slots = [_Slot() for _ in range(self.rows)]
        self.seconds_inside, start = 0.0, time.perf_counter()
        while waiting or any(slot.request >= 0 for slot in slots):
            due = lambda: waiting and start + items[waiting[0]].arrival <= time.perf_counter()  # noqa: E731
            wanted = self._fill(workload, tokens, slots, waiting, due)
            if not self.batch.n_tokens:
                time.sleep(max(start + items[waiting[0]].arrival - time.perf_counter(), 0))
                continue
            before = time.perf_counter()
            code = self.api.llama_decode(self.context, self.batch)
            self.seconds_inside += time.perf_counter() - before
            if code:
                raise RuntimeError(f"llama_decode returned {code}")
            drawn = [(slot, self._argmax(at)) for slot, at in wanted]
            now = time.perf_counter()
            for slot, token in drawn:
                request = slots[slot].request
                tokens[request].append(token)
                times[request].append(now)
                if len(tokens[request]) == items[request].output:
                    self.api.llama_memory_seq_rm(self.memory, slot, -1, -1)
                    slots[slot] = _Slot()
        return Served(max(each[-1] for each in times) - start, tokens, times)

    def _fill(
        self,
        workload: Workload,
        tokens: list[list[int]],
        slots: list[_Slot],
        waiting: deque[int],
        due: Callable[[], object],
    ) -> list[tuple[int, int]]:
        """The next batch; (slot, place in the batch) of each token after which one is drawn."""
        items, wanted = workload.items, []
        self.batch.n_tokens = 0
        for i, slot in enumerate(slots):
            if slot.request >= 0 and tokens[slot.request]:
                prompt, answer = items[slot.request].prompt, tokens[slot.request]
                wanted.append((i, self._put(answer[-1], len(prompt) + len(answer) - 1, i, True)))
        for i, slot in enumerate(slots):
            if self.batch.n_tokens == self.tokens:
                break
            if slot.request < 0 and due():
                slot.request = waiting.popleft()
            if slot.request < 0 or tokens[slot.request]:
                continue
            prompt = items[slot.request].prompt
            for at in range(slot.done, min(len(prompt), slot.done + self.tokens - self.batch.n_tokens)):
                last = at == len(prompt) - 1
                place = self._put(prompt[at], at, i, last)
                slot.done = at + 1
                if last:
                    wanted.append((i, place))
        return wanted

    def _put(self, token: int, position: int, slot: int, draw: bool) -> int:
        batch, at = self.batch, self.batch.n_tokens
        batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, position, 1, draw
        batch.seq_id[at][0] = slot
        batch.n_tokens = at + 1
        return at

    def _argmax(self, place: int) -> int:
        logits = self.api.llama_get_logits_ith(self.context, place)
        return int(np.ctypeslib.as_array(logits, (self.engine.vocab,)).argmax())
