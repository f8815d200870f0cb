"""Offline generation. Oracles: `tests.oracle` on the same weights, and what a lone request of the same engine gives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import jaxserve
from jaxserve import setup
from jaxserve.features import PLAIN
from jaxserve.llm import LLM
from jaxserve.rerun import rerun
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.watch import Watch
from models.errors import UserError
from tests.jaxserve.shared_programs import expected, shared

__all__ = ["shared"]

PROMPTS = ("hello", "a", "good morning")
SIX = SamplingParams(max_tokens=6)


@pytest.fixture
def llm(shared: Path) -> LLM:
    """Two rows of 48 tokens."""
    return LLM("random:tiny", dtype="float32", ladder=shared)


def test_the_package_offers_it():
    assert jaxserve.LLM is LLM and jaxserve.SamplingParams is SamplingParams


def test_answers_in_order(llm: LLM):
    """Three prompts on two rows; ids and text are the same prompt."""
    found = llm.generate([*PROMPTS, list(b"hello")], SIX)
    assert [one.answers[0].tokens for one in found] == [expected(prompt, 6) for prompt in (*PROMPTS, "hello")]
    assert [one.prompt for one in found] == [*PROMPTS, list(b"hello")]
    assert [one.prompt_tokens for one in found] == [tuple(text.encode()) for text in (*PROMPTS, "hello")]
    for one in found:
        (answer,) = one.answers
        assert answer.finish == ("length", None) and answer.logprobs == () and one.prompt_logprobs is None
        assert len(answer.times) == 6 and 0 < answer.times[0] <= answer.times[-1]
        assert (one.ttft, one.seconds) == (answer.times[0], answer.times[-1])
    assert llm.engine.idle


def test_one_params_for_each(llm: LLM):
    each = [SIX, SamplingParams(max_tokens=2), SamplingParams(max_tokens=4, temperature=1.0, seed=3, n=2)]
    found = llm.generate(PROMPTS, each)
    assert found[0].answers[0].tokens == expected("hello", 6) and found[1].answers[0].tokens == expected("a", 2)
    one, other = (answer.tokens for answer in found[2].answers)
    assert one != other and found[2].text == found[2].answers[0].text
    alone = [llm.generate([PROMPTS[2]], each[2].of_sample(i))[0].answers[0].tokens for i in range(2)]
    assert [one, other] == alone


def test_programs_are_compiled_for_what_is_asked(llm: LLM):
    """The engine stays for as long as it can do what is asked of it; a new one can do what the old one could."""
    first = llm.engine
    llm.generate(["a"], SIX)
    assert llm.engine is first and first.prepared.features == PLAIN
    found = llm.generate(["hello"], dataclasses.replace(SIX, logprobs=1))
    second = llm.engine
    assert second is not first and second.prepared.features == dataclasses.replace(PLAIN, logprobs=1)
    assert [each.token for each in found[0].answers[0].logprobs] == list(expected("hello", 6))
    assert all(each.top[0] == (each.token, each.logprob) for each in found[0].answers[0].logprobs)  # greedy: the likeliest
    llm.generate(["a"], SIX)
    assert llm.engine is second


def test_an_engine_at_work_is_not_replaced(llm: LLM):
    other = llm.engine.submit("b", SIX)
    with pytest.raises(
        UserError, match=r"need programs with Features\(.*logprobs=2.*still serves others; wait until they have ended"
    ):
        llm.generate(["hello"], SamplingParams(logprobs=2))
    assert llm.generate(["hello"], SIX)[0].answers[0].tokens == expected("hello", 6)  # beside it
    for _ in llm.engine.stream(other):
        pass


def test_streaming(llm: LLM):
    pieces = list(llm.stream("hello", SIX))
    assert tuple(token for piece in pieces for token in piece.tokens) == expected("hello", 6)
    assert "".join(piece.text for piece in pieces) == llm.generate(["hello"], SIX)[0].text
    for _ in llm.stream("a", SIX):
        break
    assert llm.engine.snapshot()["requests"] == []  # whoever leaves early gives it up


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ("hello", SIX, "prompts is the string 'hello'; give a list, of one prompt if there is only one"),
        ([1, 2], SIX, "prompts are whole numbers, as if they were one prompt's tokens; give a list of prompts"),
        (None, SIX, "prompts is 'None'; give a list of prompts"),
        ({"a": 1}, SIX, "prompts is .*; give a list of prompts"),
        (PROMPTS, None, "params is 'None'; give a list of params"),
        (PROMPTS, {"max_tokens": 3}, "params is .*max_tokens.*; give a list of params"),
        (
            ["a"],
            [{"max_tokens": 3}],
            r"params is .*max_tokens.*; give SamplingParams, such as SamplingParams\(max_tokens=16\)",
        ),
        (PROMPTS, [SIX], "3 prompts came with 1 params; give one for all, or one for each prompt"),
        (["a", ""], SIX, "^prompt 2: the prompt is empty"),
        (["a", [512]], SIX, "^prompt 2: the prompt has token 512; ids lie in 0 to 511"),
        (
            ["a", "b" * 44],
            SIX,
            "^prompt 2: a prompt of 44 tokens with up to 6 to follow needs room for 49, but the limit is 48",
        ),
        (["a"], SamplingParams(n=3), "^prompt 1: .* asks for 3 samples, but at most 2 rows run at once"),
    ],
)
def test_bad_prompts_leave_nothing_behind(prompts: Any, params: Any, message: str, llm: LLM):
    with pytest.raises(UserError, match=message):
        llm.generate(prompts, params)
    assert llm.engine.idle
    assert llm.generate(["a"], SIX)[0].answers[0].tokens == expected("a", 6)


def test_a_short_queue_finds_a_bad_prompt_no_later(shared: Path):
    """The fourth one would enter the queue when the first has ended."""
    llm = LLM("random:tiny", dtype="float32", ladder=shared, queue_size=1)
    with pytest.raises(UserError, match=r"^prompt 4: the prompt is empty"):
        llm.generate([*PROMPTS, ""], SIX)
    with pytest.raises(UserError, match=r"^prompt 3: .* asks for 3 samples, but at most 2 rows run at once"):
        llm.generate(["a", "b", "c"], [SIX, SIX, SamplingParams(max_tokens=6, n=3)])
    assert llm.engine.status().steps == 0
    assert llm.generate(["a"], SIX)[0].answers[0].tokens == expected("a", 6)


def test_no_prompts_build_nothing(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(setup, "load_model", None)
    assert llm.generate([], SIX) == []


def test_bad_settings_are_told_at_once(shared: Path):
    with pytest.raises(UserError, match="rows is 0"):
        LLM("random:tiny", rows=0)
    with pytest.raises(UserError, match="context is 2000; random:tiny takes 1 to 1024 tokens"):
        LLM("random:tiny", context=2000)


def test_a_log_can_be_replayed(shared: Path, tmp_path: Path):
    """Each engine writes its own; closed, it is whole, and a later call opens the next."""
    with LLM("random:tiny", dtype="float32", ladder=shared, log=tmp_path / "steps.jsonl") as llm:
        llm.generate(PROMPTS, SIX)
        llm.generate(["a"], dataclasses.replace(SIX, logprobs=1))
    llm.generate(["a"], dataclasses.replace(SIX, logprobs=1))
    llm.close()
    for name, requests in (("steps.jsonl", 3), ("steps-2.jsonl", 1), ("steps-3.jsonl", 1)):
        lines = (tmp_path / name).read_text().splitlines()
        assert sum(json.loads(line)["event"] == "submitted" for line in lines) == requests
        found = rerun(tmp_path / name, Watch())
        assert found.difference is None and found.plans > 0 and not found.cut
