"""Offline generation. Oracles: `tests.oracle` on the same weights, and what a lone request of the same engine gives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import jaxserve
from jaxserve.engine import build as setup
from jaxserve.llm import LLM
from jaxserve.programs.features import PLAIN
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.observer import Observer
from jaxserve.steplog.replay import replay
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
    prompts: list[Any] = [*PROMPTS, list(b"hello")]
    found = llm.generate(prompts, SIX)
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
        (None, SIX, "prompts is None; give a list of prompts"),
        (b"ab", SIX, "prompts is b'ab'; give a list of prompts"),
        ({"a", "b"}, SIX, "prompts is .*; give a list of prompts"),
        (np.array(3), SIX, "prompts is .*; give a list of prompts"),
        ({"a": 1}, SIX, "^prompt 1: the prompt is {'a': 1}; give .*prompt_token_ids"),
        ([b"a"], SIX, "^prompt 1: the prompt is b'a'; give a text, token ids as whole numbers"),
        ([True], SIX, "^prompt 1: the prompt is True; give a text"),
        (["a", {1, 2}], SIX, "^prompt 2: the prompt is {1, 2}; give a text"),
        ([{"role": "user", "content": "a"}], SIX, "^prompt 1: .*give llm.chat a list of messages"),
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
        found = replay(tmp_path / name, Observer())
        assert found.difference is None and found.plans > 0 and not found.cut


def test_one_prompt_of_any_kind_is_a_list_of_one(llm: LLM):
    """Oracle: the same prompt as a text in a list."""
    kinds: list[Any] = [
        "hello",
        {"prompt": "hello"},
        {"prompt_token_ids": list(b"hello")},
        list(b"hello"),
        np.array(list(b"hello")),
    ]
    for kind in kinds:
        (found,) = llm.generate(kind, SIX)
        assert found.answers[0].tokens == expected("hello", 6)
    assert [one.text for one in llm.generate(np.array([[104, 105], [97, 98]]), SIX)] == [
        one.text for one in llm.generate(["hi", "ab"], SIX)
    ]


def test_the_habits_of_vllm(shared: Path):
    """A script as it stands in its documentation, but for the name of the package. Oracle: the dense model; log-probabilities by hand."""
    llm = LLM("random:tiny", dtype="float32", ladder=shared, max_num_seqs=2, max_model_len=48, tensor_parallel_size=1,
              trust_remote_code=False, tokenizer="random:tiny", enable_prefix_caching=True, seed=0)  # fmt: skip
    assert (llm.setup.rows, llm.context, llm.setup.settings.prefix_cache) == (2, 48, True)
    params = SamplingParams(temperature=0, max_tokens=6, stop_token_ids=[3], logprobs=1, stop=None, top_k=-1)  # type: ignore[call-arg]
    prompts: list[Any] = [{"prompt": "hello"}, {"prompt_token_ids": [97]}]
    outputs = llm.generate(prompts, sampling_params=params, use_tqdm=False)
    for output, prompt in zip(outputs, ("hello", "a"), strict=True):
        assert output.prompt_token_ids == list(prompt.encode()) and output.finished
        assert tuple(output.outputs[0].token_ids) == expected(prompt, 6) and output.outputs[0].finish_reason == "length"
        assert output.outputs[0].text == output.text
        total = sum(each.logprob or 0 for each in output.answers[0].logprobs)
        assert output.outputs[0].cumulative_logprob == pytest.approx(total, rel=1e-12)
    assert [output.prompt for output in outputs] == ["hello", [97]] and outputs[0].request_id != outputs[1].request_id
    assert llm.generate("hello", params)[0].answers[0].tokens == expected("hello", 6)
    with pytest.raises(UserError, match=r"llm.generate was given sampling_params and params, which are the same"):
        llm.generate("a", SIX, sampling_params=SIX)
    with pytest.raises(UserError, match=r"llm.generate has no lora_request \(it was given 'x'\): there are no LoRA adapters"):
        llm.generate("a", SIX, lora_request="x")
    with pytest.raises(UserError, match=r"llm.generate has no argument 'sampling_param'; did you mean sampling_params\?"):
        llm.generate("a", sampling_param=SIX)


TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}{% if add_generation_prompt %}a{% endif %}"


def test_turns_and_raw_text(llm: LLM):
    """Where there is a template a text is the user's turn, unless it is raw. Oracle: the template by hand, and the dense model."""
    llm.setup.tokenizer.templates["default"] = TEMPLATE
    system, user = {"role": "system", "content": "B"}, {"role": "user", "content": "hello"}
    turn, raw = llm.generate("hello", SIX)[0], llm.generate("hello", SIX, raw=True)[0]
    assert (turn.prompt_tokens, raw.prompt_tokens) == (tuple(b"uhello;a"), tuple(b"hello"))
    assert (turn.answers[0].tokens, raw.answers[0].tokens) == (expected("uhello;a", 6), expected("hello", 6))
    (one,) = llm.chat([system, user], SIX)
    assert one.prompt == [system, user] and one.prompt_tokens == tuple(b"sB;uhello;a")
    assert one.answers[0].tokens == expected("sB;uhello;a", 6)
    several = llm.chat([[user], [system, user]], sampling_params=SIX, use_tqdm=False, add_generation_prompt=True)
    assert [each.answers[0].tokens for each in several] == [expected("uhello;a", 6), expected("sB;uhello;a", 6)]
    assert llm.chat([], SIX) == []
    streamed = [token for piece in llm.stream([system, user], SIX) for token in piece.tokens]
    assert tuple(streamed) == expected("sB;uhello;a", 6)
    streamed = [token for piece in llm.stream("hello", SIX, raw=True) for token in piece.tokens]
    assert tuple(streamed) == expected("hello", 6)


@pytest.mark.parametrize(
    ("messages", "more", "message"),
    [
        ("hello", {}, "messages is 'hello'; give a list of messages"),
        ({"role": "user", "content": "a"}, {}, "messages is .*; give a list of messages"),
        (["hello"], {}, "conversation 1 is 'hello'; give messages such as"),
        ([[]], {}, r"conversation 1 is \[\]; give messages"),
        ([[{"role": "user", "content": "a"}], ["b"]], {}, r"conversation 2 is \['b'\]"),
        ([{"role": "user", "content": 5}], {}, "^prompt 1: message 1 has the content 5; give a text"),
        ([{"role": 5, "content": "a"}], {}, "^prompt 1: message 1 is .*role"),
        ([{"role": "user", "content": "a"}], {"raw": True}, "llm.chat has no argument 'raw'"),
        (
            [{"role": "user", "content": "a"}],
            {"tools": [1]},
            r"llm.chat has no tools \(it was given \[1\]\): templates get no tools",
        ),
        (
            [{"role": "user", "content": "a"}],
            {"chat_template": "x"},
            "llm.chat has no chat_template .*: the template is the model's own",
        ),
        ([{"role": "user", "content": "a"}], {"progress": 1}, "progress is 1; give True or False"),
    ],
)
def test_wrong_messages(messages: Any, more: dict[str, Any], message: str, llm: LLM):
    llm.setup.tokenizer.templates["default"] = TEMPLATE
    with pytest.raises(UserError, match=message) as error:
        llm.chat(messages, SIX, **more)
    assert "\n" not in str(error.value)


def test_a_model_without_a_template_has_no_chats(llm: LLM):
    with pytest.raises(UserError, match=r"^prompt 1: .*the model has no chat template; send a plain prompt instead"):
        llm.chat([{"role": "user", "content": "a"}], SIX)


def test_every_request_that_draws_has_noise_of_its_own(llm: LLM):
    """Four of one prompt are four answers, and each can be had again by what its result names. Random weights draw nearly evenly from 512
    tokens, so that two answers of 8 tokens are equal by chance once in 10^20.
    """
    params = SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True)
    found = llm.generate(["hello"] * 4, params)
    assert len({one.answers[0].tokens for one in found}) == 4 and len({one.seed for one in found}) == 4
    for one in found:
        assert one.params == dataclasses.replace(params, seed=one.seed)
        (again,) = llm.generate("hello", one.params)
        assert (again.answers, again.seed) == ((again.answers[0]._replace(tokens=one.answers[0].tokens),), one.seed)
    assert {one.seed for one in llm.generate(["hello"] * 2, SIX)} == {None}  # nothing is drawn
    (several,) = llm.generate("hello", dataclasses.replace(params, n=2))
    assert several.answers[0].tokens != several.answers[1].tokens
    assert llm.generate("hello", several.params.of_sample(1))[0].answers[0].tokens == several.answers[1].tokens


def test_a_seed_of_the_whole(shared: Path):
    """The same calls in the same order give the same answers; the engine that is built anew between them changes nothing."""
    params = SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True)

    def drawn(seed: int) -> list[tuple[int, ...]]:
        llm = LLM("random:tiny", dtype="float32", ladder=shared, seed=seed)
        first = llm.generate(["hello", "a"], [params, SIX])
        second = llm.generate(["hello"] * 2, dataclasses.replace(params, logprobs=0))
        return [one.answers[0].tokens for one in (*first, *second)]

    found = drawn(7)
    assert found == drawn(7) != drawn(8) and len(set(found)) == 4


def test_prompts_are_refused_before_anything_is_compiled(shared: Path, monkeypatch: pytest.MonkeyPatch):
    """Case: token ids without an embedding row, and its kind."""
    llm = LLM("random:tiny", dtype="float32", ladder=shared)
    monkeypatch.setattr(setup, "load_model", None)
    for wrong, params in (
        ([512], SIX),
        ([], SIX),
        ("b" * 44, SIX),
        ("a", SamplingParams(n=3)),
        ("a", SamplingParams(stop_ids=[512])),
    ):
        with pytest.raises(UserError, match=r"^prompt 2: "):
            llm.generate(["a", cast(Any, wrong)], [SIX, params])
    with pytest.raises(UserError, match="the prompt has token 512"):
        next(llm.stream([512], SIX))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": 5}, "model is 5; give smollm2, a path"),
        ({"model": None}, "model is None; give smollm2, a path"),
        ({"model": b"a"}, "model is b'a'; give smollm2, a path"),
        ({"model": "5"}, "'5' is no model name and no such file exists"),
        ({"prefix_cache": "x"}, "prefix_cache is 'x'; give True or False"),
        ({"log": 5}, "log is 5; give a path"),
        ({"log": ""}, "log is ''; give a path"),
        ({"log": "."}, r"the step log \. is a folder; give the name of a file"),
        (
            {"log": "nowhere/at/all.jsonl"},
            "the step log nowhere/at/all.jsonl can't be written: No such file or directory; make the folder nowhere/at",
        ),
        ({"log": "x" * 5000}, "the step log 'xx.*can't be written: File name too long; give another name"),
        ({"ladder": 5}, "ladder is 5; give a path"),
        ({"compile_cache": 5}, "compile_cache is 5; give a folder, or False to keep no compiled programs"),
        ({"dtype": ["float32"]}, r"dtype \['float32'\] is unknown; give auto, float32, bfloat16"),
        ({"dtype": "half"}, "dtype 'half' is unknown; give auto, float32, bfloat16"),
        ({"rows": True}, "rows is True; it must be a whole number of at least 1"),
        ({"rows": "8"}, "rows is '8'; it must be"),
        ({"multi_step": None}, "multi_step is None; it must be"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"queue_timeout": float("nan")}, "queue_timeout is nan; it must be above 0 and at most"),
        ({"policy": "dynamic", "preferred": "48"}, "preferred is '48'; give whole numbers, in a list"),
        ({"rowz": 3}, r"LLM has no argument 'rowz'; did you mean rows\?"),
        ({"qwertz": 3}, r"LLM has no argument 'qwertz'; help\(LLM\) names all that it takes"),
        ({"rows": 2, "max_num_seqs": 2}, "LLM was given max_num_seqs and rows, which are the same; leave max_num_seqs out"),
        (
            {"tensor_parallel_size": 2},
            r"LLM has no tensor_parallel_size \(it was given 2\): a model runs on one device; leave it out",
        ),
        ({"gpu_memory_utilization": 0.9}, r"LLM has no gpu_memory_utilization .*: memory for KV is pages=N"),
        ({"enforce_eager": True}, "LLM has no enforce_eager .*: every step is a program that was compiled ahead of time"),
        ({"max_num_batched_tokens": 64, "policy": "static"}, "budget is given, but a static policy has none"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, dict) else "",
)
def test_wrong_settings_name_the_llm_and_the_fix(settings: dict[str, Any], message: str):
    with pytest.raises(UserError, match=f"^{message}") as error:
        LLM(**{"model": "random:tiny", **settings})
    assert "\n" not in str(error.value) and "ServeSettings" not in str(error.value)


def test_a_failed_engine_is_replaced(llm: LLM):
    before = llm.generate("hello", SIX)[0].answers[0].tokens
    failed = llm.engine

    def lost(*given: Any) -> None:
        raise RuntimeError("the device is gone")

    failed._loop.step = lost  # type: ignore[assignment, method-assign]
    with pytest.raises(RuntimeError, match="the device is gone"):
        llm.generate("hello", SIX)
    assert llm.generate("hello", SIX)[0].answers[0].tokens == before and llm.engine is not failed
