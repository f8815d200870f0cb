"""Made-up recordings of services, in the form of the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxserve.recorded_service.recorded import Served

META: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "engine_kwargs": {"max_num_seqs": 16, "max_num_batched_tokens": 512, "dtype": "bfloat16", "kv_cache_dtype": "auto"},
    "kv_cache": {"num_gpu_blocks": 700, "block_size": 16, "gpu_memory_utilization": 0.9},
    "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
    "scheduler_config": {"async_scheduling": True},
}


def asked(count: int, seed: int = 0, rate: float = 4.0) -> list[Served]:
    """Requests with no times but those at which they were queued: prompts of 20 to 900 tokens, answers of 10 to 120."""
    draw = np.random.default_rng(seed)
    at = np.cumsum(draw.exponential(1 / rate, count))
    prompts, outputs = draw.integers(20, 900, count), draw.integers(10, 120, count)
    nan = float("nan")
    return [Served(f"r{i}", int(prompts[i]), int(outputs[i]), float(at[i] - at[0]), nan, nan, nan) for i in range(count)]


def write(folder: Path, requests: Sequence[Served], meta: Any = META, zero: float = 1000.0) -> Path:
    """A folder with these, on a clock that begins at `zero`."""
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {
                "request_id": r.name,
                "input_toks": r.prompt,
                "output_toks": r.output,
                "arrival_time": 1e9,
                "queued_ts": zero + r.queued,
                "scheduled_ts": zero + r.scheduled,
                "first_token_ts": zero + r.first,
                "last_token_ts": zero + r.last,
            }
        )
        for r in requests
    ]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder
