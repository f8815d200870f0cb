"""What a recording says of its service. Oracles: the figures of its meta.json; memory by hand; README of ../shared/service."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jaxserve.recorded_service.deployed import ALWAYS, Deployed, deployed
from jaxserve.recorded_service.recorded import Recorded
from jaxserve.scheduling.chunked import Chunked
from models.errors import UserError
from tests.jaxserve.recorded_service.services import META


def of(name: str = "x", given: str | None = None, chip: str | None = None, **changed: Any) -> Deployed:
    return deployed(Recorded(name, (), copy.deepcopy(META) | changed, {}), model=given, chip=chip)


def test_what_is_recorded_is_taken():
    found = of()
    assert (found.architecture.name, found.chip.name) == ("llama-3-8b", "rtx-4090")
    assert (found.budget, found.rows, found.page, found.pages, found.ahead) == (512, 16, 16, 700, 1)
    assert (found.dtype, found.kv_dtype) == ("bfloat16", "bfloat16")
    policy = found.policy
    assert isinstance(policy, Chunked) and policy.budget == 512
    assert (policy.limits.rows, policy.limits.ahead, policy.limits.preemptions) == (16, 1, ALWAYS)
    assert found.state.workers[0].memory.capacity == 700 * 16
    assert found.assumed == ("no prefix hits: prompts are not published",)
    assert of(scheduler_config={"async_scheduling": False}).ahead == 0


def test_what_is_not_recorded_is_derived_and_said():
    """Llama-3-8B has 8.03e9 weights of 2 B and 32 layers of 8 KV heads of 128: a page of 16 tokens is 2 MiB."""
    found = of("rtxpro6000_llama-3.1-8b", kv_cache=None, hardware=None, scheduler_config=None)
    assert (found.chip.name, found.page, found.ahead) == ("rtx-pro-6000", 16, 1)
    assert found.pages == int((0.9 * 96e9 - 8_030_261_248 * 2) // 2**21)
    said = " ".join(found.assumed)
    for part in (
        "pages are not recorded: 33,540 of 16 tokens",
        "90%",
        "96 GB",
        "the GPU is not recorded: rtx-pro-6000",
        "one step planned",
    ):
        assert part in said


def test_what_is_asked_for_goes_first():
    found = of(chip="h100", given="llama-3.2-1b", hardware={"device_name": "of nobody"}, model=3)
    assert (found.chip.name, found.architecture.name) == ("h100-sxm", "llama-3.2-1b")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hardware": {"device_name": "Riva TNT2"}}, "no data sheet is held of a Riva TNT2; give --chip"),
        ({"hardware": None}, "names no GPU, and neither does the folder's name x; give --chip"),
        ({"model": None}, "x/meta.json: model is None; give --model"),
        ({"model": "somebody/else-9b"}, "model is somebody/else-9b; unknown model 'else-9b'"),
        ({"engine_kwargs": []}, "engine_kwargs is a JSON list, not an object"),
        ({"engine_kwargs": {"max_num_seqs": 4}}, "lacks max_num_batched_tokens or max_num_seqs"),
        (
            {"engine_kwargs": {"max_num_seqs": "4", "max_num_batched_tokens": 9}},
            "max_num_seqs is '4', not a number of at least 1",
        ),
        (
            {"engine_kwargs": META["engine_kwargs"] | {"tensor_parallel_size": 2}},
            "tensor_parallel_size is 2; only services on one GPU",
        ),
        ({"kv_cache": {"num_gpu_blocks": 0}}, "num_gpu_blocks is 0"),
        ({"kv_cache": None, "model": "meta-llama/Llama-3.1-70B"}, "leave no room for KV on rtx-4090"),
    ],
)
def test_what_can_not_be(changed: dict[str, Any], said: str):
    with pytest.raises(UserError) as error:
        of(**changed)
    assert said in str(error.value) and "\n" not in str(error.value)
