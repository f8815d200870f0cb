"""How a recorded service was set up, in our own terms: the model, the chip, the policy and the pool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from costmodel.arch.architecture import Architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.cli.choices import choose_model
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import chip_of_device, find_chip
from jaxserve.kv.paged import Paged
from jaxserve.recorded_service.recorded import META, Recorded
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.state import State
from models.errors import UserError

UTILIZATION = 0.9  # vLLM's gpu_memory_utilization where none is given
PAGE = 16  # its block_size
ALWAYS = 1_000_000  # preemptions of one answer: vLLM sets no limit
# Published names whose shapes a preset has; what differs (positions, rotary scaling) is no part of a step's cost.
SHAPES: Mapping[str, str] = {"llama-3.1-8b": "llama-3-8b", "llama-3.1-70b": "llama-3-70b"}


class Deployed(NamedTuple):
    """What served.

    Attributes:
      budget: tokens of a step; rows: sequences at once.
      page: tokens; pages: of the pool.
      assumed: what the recording does not say and was derived, in words.
    """

    architecture: Architecture
    chip: Chip
    budget: int
    rows: int
    page: int
    pages: int
    ahead: int
    dtype: str
    kv_dtype: str
    assumed: tuple[str, ...]

    @property
    def policy(self) -> Chunked:
        """vLLM's V1 scheduler as one of ours: first come, first served, chunks of prompts beside all decodes."""
        limits = Limits(self.rows, preemptions=ALWAYS, ahead=self.ahead)
        return Chunked(limits, self.budget)

    @property
    def state(self) -> State:
        """Before anything came. Pages are not shared, for what prompts say was not recorded."""
        return State.of(Paged.of(self.pages, self.page))


def deployed(recorded: Recorded, *, model: str | None = None, chip: str | None = None) -> Deployed:
    """What a recording says of its service, and what follows where it is silent.

    Args:
      model, chip: instead of those in the recording, by name.

    Raises:
      UserError: neither the recording nor the caller names them, or nobody here knows the name; a setting is no number; weights
        that leave no room.
    """
    meta, assumed = recorded.meta, list[str]()
    where = f"{recorded.name}/{META}"
    arguments = _object(meta, "engine_kwargs", where) or {}
    scheduler = _object(meta, "scheduler_config", where)
    cache = _object(meta, "kv_cache", where) or {}
    architecture = choose_model(model).architecture if model else _model(meta, where)
    on = _chip(recorded, chip, where, assumed)
    dtype = arguments.get("dtype") or "bfloat16"
    kv = arguments.get("kv_cache_dtype") or "auto"
    kv = dtype if kv == "auto" else kv
    if (degree := arguments.get("tensor_parallel_size") or 1) != 1:
        raise UserError(f"{where}: tensor_parallel_size is {degree}; only services on one GPU are simulated")
    page = _count(cache, "block_size", where) or PAGE
    pages = _count(cache, "num_gpu_blocks", where)
    if pages is None:
        share = cache.get("gpu_memory_utilization") or UTILIZATION
        held = Deployment(architecture, Storage.of(dtype, kv))
        room = share * float(on.memory) - held.all_weight_bytes
        pages = int(room // (page * held.kv_bytes_per_token))
        if pages < 1:
            raise UserError(f"{where}: the weights of {architecture.name} leave no room for KV on {on.name}; give --chip")
        assumed.append(
            f"pages are not recorded: {pages:,} of {page} tokens, what {share:.0%} of {float(on.memory) / 1e9:.0f} GB leave beside weights"
        )
    if scheduler is None:
        assumed.append("scheduler settings are not recorded: chunked prefill, first come first served, one step planned ahead")
    ahead = 1 if scheduler is None or scheduler.get("async_scheduling") else 0
    assumed.append("no prefix hits: prompts are not published")
    budget = _count(arguments, "max_num_batched_tokens", where)
    rows = _count(arguments, "max_num_seqs", where)
    if budget is None or rows is None:
        raise UserError(f"{where}: engine_kwargs lacks max_num_batched_tokens or max_num_seqs; write both down")
    return Deployed(architecture, on, budget, rows, page, pages, ahead, dtype, kv, tuple(assumed))


def _model(meta: Mapping[str, Any], where: str) -> Architecture:
    name = meta.get("model")
    if not isinstance(name, str) or not name:
        raise UserError(f"{where}: model is {name!r}; give --model")
    short = name.rpartition("/")[2].lower()
    try:
        return choose_model(SHAPES.get(short, short)).architecture
    except UserError as error:
        raise UserError(f"{where}: model is {name}; {error}; or give --model with its config.json") from None


def _chip(recorded: Recorded, given: str | None, where: str, assumed: list[str]) -> Chip:
    """The one that is asked for, or whose device is recorded, or that the folder is called after."""
    if given is not None:
        return find_chip(given)
    hardware = _object(recorded.meta, "hardware", where) or {}
    device = hardware.get("device_name")
    if device is not None:
        if (known := chip_of_device(str(device))) is None:
            raise UserError(f"{where}: no data sheet is held of a {device}; give --chip with one that is alike")
        return known
    name = re.split(r"[_ ]", recorded.name)[0]
    try:
        chip = find_chip(name)
    except UserError:
        raise UserError(f"{where} names no GPU, and neither does the folder's name {recorded.name}; give --chip") from None
    assumed.append(f"the GPU is not recorded: {chip.name}, after the folder's name")
    return chip


def _object(meta: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any] | None:
    value = meta.get(name)
    if value is not None and not isinstance(value, dict):
        raise UserError(f"{where}: {name} is a JSON {type(value).__name__}, not an object")
    return value


def _count(of: Mapping[str, Any], name: str, where: str) -> int | None:
    value = of.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise UserError(f"{where}: {name} is {value!r}, not a number of at least 1")
    return value
