"""`python -m jaxserve.generate` as users meet it. Oracles: `tests.oracle` on the same weights, replay, and JSON's own grammar."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.endings import heard
from jaxserve.engine.engine import Engine
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.registry import POLICIES
from jaxserve.steplog.replay import replay
from tests.jaxserve.commands import error_line
from tests.jaxserve.generated import PROMPTS, greedy, here
from tests.jaxserve.in_process import in_process
from tests.jaxserve.shared_programs import LADDER, dense_logits, expected, shared

__all__ = ["here", "in_process", "shared"]


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_changes_speed_and_never_the_tokens(policy: str, kv: str, here: Any):
    ran = here("--policy", policy, "--kv", kv, "--max-tokens", "6", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.answers == greedy(6)
    found = ran.summary
    assert (found["witness"], found["policy"]["name"], found["pool"]["kind"]) == ("measured", policy, kv)
    assert (found["prompts"], found["answered"], found["interrupted"]) == (4, 4, False)
    assert found["run"]["tokens"]["drawn"] == sum(len(tokens) for (tokens,) in ran.answers.values())
    assert found["tokens_per_second"] == pytest.approx(found["run"]["tokens"]["drawn"] / found["seconds"])
    assert found["speculation"] is None
    assert [program["program"] for program in found["programs"]] == ["decode 2", "prefill 2x16"]
    first = next(line for line in ran.lines if line.get("request") == 0)
    assert first["prompt"] == "hello" and first["prompt_tokens"] == list(b"hello")
    assert 0 < first["measured_ttft_seconds"] <= first["measured_seconds"]


def test_chunked_steps_run_as_one_program(here: Any, shared: Path):
    shared.write_text(json.dumps(dataclasses.replace(LADDER, mixed=(2,)).to_json()))
    ran = here("--policy", "chunked", "--budget", "8", "--max-tokens", "6", "--log", "steps.jsonl", "--json")
    assert ran.code == 0 and ran.answers == greedy(6)
    steps = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
    assert ["decode 2 + prefill 2x16"] in [step["programs"] for step in steps if step["event"] == "stepped"]


def test_speculation(here: Any):
    """Same tokens; the formula once more by hand."""
    ran = here("--speculate", "ngram", "--drafts", "3", "--max-tokens", "20", "--json")
    assert ran.code == 0 and ran.answers == greedy(20)
    found = ran.summary["speculation"]
    assert found["drafts"] == 3 and 0 < found["accepted"] <= found["tried"] <= found["offered"]
    a = found["acceptance_rate"] = found["accepted"] / found["tried"]
    assert found["tokens_per_step_formula"] == pytest.approx(1 + a + a**2 + a**3)
    gained = found["accepted"] + found["verified"]
    assert found["tokens_per_step"] == gained / found["verified"]  # no answer ends among its drafts
    shown = here("--speculate", "ngram", "--drafts", "3", "--max-tokens", "20")
    assert "(1 - a^(k+1)) / (1 - a), k = 3" in shown.out and "acceptance rate a" in shown.out


def test_a_log_can_be_replayed(here: Any):
    assert here("--max-tokens", "6", "--log", "steps.jsonl").code == 0
    found = replay(Path("steps.jsonl"), Observer())
    assert found.difference is None and found.plans > 6 and not found.cut


def test_for_people(here: Any):
    """Without a terminal: the programs, answers as they end, then the run."""
    ran = here("--max-tokens", "3", "--stop", "x")
    assert (ran.code, ran.err) == (0, "")
    programs, answers, run = (ran.out.index(part) for part in ("Compiled programs", "prompt 1 'hello'", "The run"))
    assert programs < answers < run
    for part in ("decode 2", "prefill 2x16", "compile s", "temp MB", "(length, 3 tokens)", "policy continuous, paged KV: 6 pages of 16",
                 "padded share of the programs' rows", "preemptions", "host gap, ms", "found in the prefix cache",
                 "tokens of answers a second"):  # fmt: skip
        assert part in ran.out
    assert ran.out.count("prompt ") >= 4 and "\x1b" not in ran.out


def test_the_prefix_cache_shows_what_it_found(here: Any):
    """A prompt of two full pages again: all but its last page's worth is found, for the last token must be run."""
    Path("prompts.txt").write_text(f"{'x' * 32}\n" * 2)
    first = here("--rows", "1", "--pages", "6", "--max-tokens", "2", "--json")
    assert first.code == 0 and first.summary["prefix_hit_tokens"] == 16
    without = here("--rows", "1", "--pages", "6", "--max-tokens", "2", "--json", "--no-prefix-cache")
    assert without.summary["prefix_hit_tokens"] == 0 and first.answers == without.answers


def test_sampling(here: Any):
    """Each prompt has a seed of its own, and each answer; a request alone gives the same."""
    Path("prompts.txt").write_text("hello\nhello")
    options = ("--temperature", "1", "--top-k", "50", "--max-tokens", "8", "--json")
    both = here(*options, "--seed", "5", "--n", "2", "--logprobs", "1")
    assert both.code == 0
    drawn = [tokens for answers in both.answers.values() for tokens in answers]
    assert len(set(drawn)) == 4
    alone = here(*options, "--seed", "6")
    assert alone.answers[0][0] == both.answers[1][0]
    found = both.lines[0]["answers"][0]["logprobs"]
    assert len(found) == 8 and all(each["logprob"] < 0 and len(each["top"]) == 1 for each in found)


def test_biases_and_what_the_prompt_was_worth(here: Any):
    """Only A may be drawn. Of the prompt's tokens each but the first has the logarithm that the dense pass gives it."""
    Path("prompts.txt").write_text("hello")
    ran = here("--logit-bias", "65=100", "--prompt-logprobs", "1", "--max-tokens", "3", "--json")
    assert ran.code == 0 and ran.answers == {0: [(65, 65, 65)]}
    first, *found = ran.lines[0]["prompt_logprobs"]
    logits = dense_logits("hello")[:-1]
    each = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert first is None and [one["token"] for one in found] == list(b"ello")
    assert [one["logprob"] for one in found] == pytest.approx(
        [row[token] for row, token in zip(each, b"ello", strict=True)], abs=1e-4
    )
    assert [one["top"][0][0] for one in found] == each.argmax(axis=1).tolist()


def test_an_answer_ends_at_a_stop_id(here: Any):
    second = expected("hello", 6)[1]
    ran = here("--max-tokens", "6", "--stop-id", str(second), "--json")
    assert ran.answers[0] == [expected("hello", 6)[: expected("hello", 6).index(second) + 1]]
    (answer,) = next(line for line in ran.lines if line.get("request") == 0)["answers"]
    assert (answer["finish_reason"], answer["stopped_at"]) == ("stop", second)


def test_a_short_queue_refuses_nobody(here: Any):
    ran = here("--queue-size", "1", "--max-tokens", "6", "--json")
    assert ran.code == 0 and ran.answers == greedy(6) and ran.summary["run"]["refused"] == 0


def test_who_waited_too_long_has_no_answer(here: Any):
    """Nothing can begin within a billionth of a second."""
    ran = here("--queue-timeout", "1e-9", "--max-tokens", "6", "--json")
    assert ran.code == 0 and ran.answers == {i: [()] for i in range(4)}
    assert {line["answers"][0]["finish_reason"] for line in ran.lines[:-1]} == {"timeout"}
    found = ran.summary
    assert (found["answered"], found["expired"], found["interrupted"]) == (0, 4, False)


@pytest.mark.parametrize(("sent", "named"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")])
def test_a_signal_keeps_what_there_is(here: Any, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, named: str):
    """During the fourth step: the first answer has ended, the other is cut, two prompts have none."""
    (Path("prompts.jsonl")).write_text("\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS))
    taken, step = [0], Engine.step

    def interrupted(engine: Engine) -> Any:
        taken[0] += 1
        if taken[0] == 4:
            signal.raise_signal(sent)
        return step(engine)

    monkeypatch.setattr(Engine, "step", interrupted)
    second = expected("hello", 6)[1]
    with heard():
        ran = here(
            *("--prompts", "prompts.jsonl", "--stop-id", str(second), "--log", "steps.jsonl", "--json", "--policy", "static"),
            *("--max-tokens", "30"),
        )
    assert ran.code == 2
    assert error_line(ran.err) == (
        f"error: interrupted by {named} when 1 of 4 prompts had their answers; those of the others end with abort"
    )
    assert ran.answers == {0: [expected("hello", 6)[:2]], 1: [expected("a", 6)[:4]]}
    assert [line["answers"][0]["finish_reason"] for line in ran.lines[:-1]] == ["stop", "abort"]
    assert ran.summary["interrupted"] and ran.summary["answered"] == 1
    assert replay(Path("steps.jsonl"), Observer()).difference is None
