"""From settings to an engine, before anything is loaded. Oracles: sizes of random:tiny by hand, and memory that is said to be there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.analytical.step import step_cost
from costmodel.hardware.ceilings import Ceilings
from jaxserve.engine import build as setup
from jaxserve.engine import kv_budget as room
from jaxserve.engine.build import choose, next_log
from jaxserve.engine.config import EngineConfig
from jaxserve.kv.layout import KVLayout
from jaxserve.programs import memory
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.plan import Plan
from models.checkpoint import load
from models.errors import UserError
from tests.jaxserve import commands

TOKEN = 2 * 2 * 2 * 16 * 4  # B of KV of a token of random:tiny in float32: K and V, 2 layers, 2 heads of 16
LIMITS = Ceilings("here", "2026-01-31", 0.0, 20e9, "made up", 100e9, "made up", 200e9, "made up")


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a choice got as far as expensive work")

    monkeypatch.setattr(setup, "load_model", refuse)
    monkeypatch.setattr(setup, "Engine", refuse)
    monkeypatch.setattr(load, "load", refuse)
    monkeypatch.setattr(memory, "process_bytes", lambda *given: 5000)  # what this process holds changes
    there_is(monkeypatch, 10**9)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def there_is(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (room, memory):
        monkeypatch.setattr(module, "available_bytes", lambda: size)


def tiny(**given: Any) -> setup.EngineBuild:
    return choose(EngineConfig("random:tiny", **{"dtype": "float32", **given}))


def test_what_is_chosen_where_nothing_is_said():
    """64 sequences of the model's own 1,024 tokens: 64 pages of 16 each."""
    chosen = tiny()
    assert (chosen.context, chosen.rows) == (1024, 64)
    assert chosen.room.pool == KVLayout(64 * 64, 16, "float32", "paged", prefix=True)
    assert chosen.room.reason == "4096 pages of 16 tokens, enough for 64 sequences of 1024 tokens"
    assert chosen.ladder.batches == (1, 2, 4, 8, 16, 32, 64)
    assert chosen.policy.limits.rows == 64


@pytest.mark.parametrize(
    ("given", "pool", "reason"),
    [
        (
            {"context": 50, "rows": 3},
            KVLayout(12, 16, prefix=True),
            "12 pages of 16 tokens, enough for 3 sequences of 50 tokens",
        ),
        (
            {"context": 50, "rows": 3, "page_size": 10, "prefix_cache": False},
            KVLayout(15, 10),
            "15 pages of 10 tokens, enough for 3 sequences of 50 tokens",
        ),
        (
            {"context": 50, "rows": 3, "kv": "contiguous", "kv_dtype": "bfloat16"},
            KVLayout(3, 50, "bfloat16", "contiguous"),
            "3 slots of 50 tokens, enough for 3 sequences of 50 tokens",
        ),
        (
            {"context": 64, "rows": 3, "pages": 6},
            KVLayout(6, 16, prefix=True),
            "6 pages of 16 tokens, as asked: 1.5 sequences of 64 tokens",
        ),
        (
            {"context": 64, "rows": 2, "policy": "disaggregated"},
            KVLayout(8, 16, prefix=True),
            "8 pages of 16 tokens on each of 2 workers, enough for 2 sequences of 64 tokens",
        ),
    ],
)
def test_pools(given: dict[str, Any], pool: KVLayout, reason: str):
    found = tiny(**given).room
    assert (found.pool, found.reason) == (pool, reason)


def test_a_few_pages_bound_the_context():
    assert tiny(context=64, pages=3).context == 48


@pytest.mark.parametrize(("policy", "workers", "of"), [("continuous", 1, ""), ("disaggregated", 2, " on each of 2 workers")])
def test_memory_bounds_the_pool(policy: str, workers: int, of: str, monkeypatch: pytest.MonkeyPatch):
    """Half of what weights and workspace leave, of all workers; a sequence needs 4 pages."""
    given = {"context": 64, "rows": 8, "policy": policy}
    page = workers * 16 * TOKEN
    rest = tiny(pages=1, **given).room.need.total - page
    there_is(monkeypatch, rest + 2 * 10 * page + 100)
    found = tiny(**given).room
    assert found.pool.units == 10 and found.need.total == rest + 10 * page
    assert found.reason == f"10 pages of 16 tokens{of}, 50% of the free memory: 2.5 sequences of 64 tokens, not 8"
    there_is(monkeypatch, rest + 2 * 3 * page + 100)
    assert tiny(**given).room.reason.endswith("one sequence of 64 tokens, for which more than 50% of the free memory is taken")
    there_is(monkeypatch, rest + 3 * page + 100)
    with pytest.raises(UserError, match=r"this engine needs about 0\.0 GB .* are available; lower context or rows, or take"):
        tiny(**given)
    assert tiny(pages=3, **given).context == 48  # as asked, all of the rest may be taken


def test_more_memory_than_there_is():
    gb = r"\d+\.\d GB"
    parts = rf"{gb} weights in float32, {gb} KV pool, {gb} workspace, {gb} process and programs"
    line = rf"this engine needs about {gb} of memory \({parts}\), but 1.0 GB are available"
    with pytest.raises(UserError, match=line + "; lower pages or rows, or take a smaller model or dtype bfloat16"):
        tiny(pages=10**6)
    with pytest.raises(UserError, match=r"weights in bfloat16.*or take a smaller model$"):
        choose(EngineConfig("random:llama-3.2-1b"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "smolm2"}, "'smolm2' is no model name"),
        ({"context": 1025}, "context is 1025; random:tiny takes 1 to 1024 tokens"),
        ({"ladder": "none.json"}, r"none\.json: no such file"),
    ],
)
def test_refused(given: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        choose(EngineConfig(**{"model": "random:tiny", "dtype": "float32", **given}))


def test_a_ladder_file_says_rows_context_and_pages(tmp_path: Path):
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(Buckets((1, 5), (6,), (2, 16), 8).to_json()))
    chosen = tiny(ladder=file)
    assert (chosen.rows, chosen.context, chosen.room.pool.unit, chosen.room.pool.units) == (5, 48, 8, 30)
    assert tiny(ladder=file, rows=1, context=40).ladder == Buckets((1,), (6,), (2, 16), 8)


def test_budget_and_link_follow_from_the_rest():
    """A chunked step has room for all rows and the largest prefill; a transfer is accounted with the bytes of a token."""
    chunked: Any = tiny(policy="chunked", rows=4, context=512).policy
    assert chunked.budget == 4 + 4 * 64
    apart: Any = tiny(policy="disaggregated", rows=4, context=512, kv_dtype="bfloat16").policy
    assert apart.link.token_bytes == TOKEN // 2 and apart.limits.ahead == 0


def test_steps_are_predicted_where_the_machine_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Oracle: the cost model itself, asked for the same step."""
    chosen = tiny(context=64, rows=2)
    assert chosen.predictor() is None
    monkeypatch.setenv("XDG_CACHE_HOME", commands.environment(tmp_path)["XDG_CACHE_HOME"])
    predictor = chosen.predictor()
    assert predictor is not None
    plan = Plan(step=0, worker=0, ids=(0,), starts=(9,), counts=(1,), draws=(1,), tables=((0,),))
    cost = step_cost("random:tiny".removeprefix("random:"), batch=1, context=10, chip=LIMITS.chip(), dtype="float32")
    assert predictor(plan) == pytest.approx(cost.seconds())


def test_each_engine_has_a_log_of_its_own():
    assert [str(next_log("a/steps.jsonl", i)) for i in (1, 2, 3)] == ["a/steps.jsonl", "a/steps-2.jsonl", "a/steps-3.jsonl"]


def test_rows_are_paid_for_like_pages():
    """Each row's logits alone are 512 numbers of 4 B: a million of them are more than the 1 GB that there is."""
    with pytest.raises(
        UserError, match=r"this engine needs about [\d.]+ GB .* process and programs\), but 1.0 GB are available; lower .*rows"
    ):
        tiny(rows=1_000_000, context=16)
    with pytest.raises(UserError, match=r"rows is 2147483648; it must be at most 2147483647"):
        tiny(rows=2**31)
