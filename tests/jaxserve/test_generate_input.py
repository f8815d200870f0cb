"""Bad input of `python -m jaxserve.generate`, and its help. Oracle: what the one line has to say, for each kind of mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine import build as setup
from jaxserve.scheduling.registry import POLICIES
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line
from tests.jaxserve.generated import here
from tests.jaxserve.in_process import expensive, in_process
from tests.jaxserve.shared_programs import shared

__all__ = ["here", "in_process", "shared"]

TINY = ("--prompts", "prompts.txt", "--model", "random:tiny", "--dtype", "float32")
BAD = {
    "no prompts": ((), "Missing option '--prompts'"),
    "missing prompt file": (("--prompts", "none.txt"), r"none\.txt: no such file; give a UTF-8 text file"),
    "file without a prompt": (("--prompts", "empty.txt"), r"empty\.txt: the file holds no prompt; write at least one"),
    "not JSON": (("--prompts", "bad.jsonl"), r"bad\.jsonl, line 2: not valid JSON"),
    "unknown model": (("--prompts", "prompts.txt", "--model", "smolm2"), "'smolm2' is no model name"),
    "unknown policy": ((*TINY, "--policy", "fair"), "policy 'fair' is unknown; give static, dynamic, continuous"),
    "unknown KV": ((*TINY, "--kv", "heap"), "'heap' is not one of 'paged', 'contiguous'"),
    "rows 0": ((*TINY, "--rows", "0"), "rows is 0; it must be a whole number of at least 1"),
    "another policy's option": ((*TINY, "--delay", "1"), "delay is given, but a continuous policy has none"),
    "dtype": ((*TINY, "--dtype", "int3"), "dtype 'int3' is unknown; give auto, float32, bfloat16"),
    "prompt longer than the context": (
        (*TINY, "--context", "20"),
        "prompt 3 has 18 tokens, and with up to 128 to follow it needs a context of 145, but the limit is 20; .* a larger context$",
    ),
    "prompt longer than the model takes": (
        (*TINY, "--max-tokens", "2000"),
        "prompt 3 has 18 tokens, .* needs a context of 2017, but the limit is 1024; shorten it or ask for fewer tokens$",
    ),
    "context beyond the model": ((*TINY, "--context", "1025"), "context is 1025; random:tiny takes 1 to 1024 tokens"),
    "temperature": ((*TINY, "--temperature", "-0.7"), "temperature is -0.7; it must lie in"),
    "temperature NaN": ((*TINY, "--temperature", "nan"), "temperature is nan; it must lie in"),
    "top-p": ((*TINY, "--top-p", "0"), r"top_p is 0.0; it must lie in \(0, 1\]"),
    "max-tokens": ((*TINY, "--max-tokens", "0"), "max_tokens is 0; it must be at least 1"),
    "more answers than the ladder has rows": (
        (*TINY, "--ladder", "ladder.json", "--max-tokens", "4", "--n", "3"),
        "n is 3 and at most 2 rows run at once; ask for fewer or raise rows",
    ),
    "more answers than rows": ((*TINY, "--n", "3", "--rows", "2"), "n is 3 and at most 2 rows run at once; ask for fewer or raise rows"),
    "bias without a value": ((*TINY, "--logit-bias", "42"), "--logit-bias is '42'; give a token id and what is added .* such as 42=-5"),
    "bias beyond": ((*TINY, "--logit-bias", "42=101"), r"the logit_bias of token 42 is 101.0; values lie in \[-100, 100\]"),
    "bias of no token": ((*TINY, "--logit-bias", "512=1"), "logit_bias names token 512; the vocabulary ends at 511"),
    "stop id of no token": ((*TINY, "--stop-id", "512"), "stop_ids names token 512; the vocabulary ends at 511"),
    "nothing left to draw": (
        (*TINY, "--logit-bias", "256=100", "--min-tokens", "1"),
        "logit_bias and min_tokens together leave no token to draw; allow one that does not end the answer",
    ),
    "prompt-logprobs": ((*TINY, "--prompt-logprobs", "21"), "prompt_logprobs is 21; it must be a whole number from 0 to 20"),
    "prompt longer than its pages": (
        (*TINY, "--pages", "1", "--max-tokens", "4"),
        "prompt 3 has 18 tokens, .* needs a context of 21, but the limit is 16; .*, or raise pages$",
    ),
    "stop": ((*TINY, "--stop", ""), "stop has ''; each must be a string of 1 to 1000"),
    "prompt longer than the ladder's tables": (
        (*TINY, "--ladder", "ladder.json"),
        "prompt 3 has 18 tokens, .* needs a context of 145, but the limit is 48; .*, or serve with a larger context$",
    ),
    "ladder": ((*TINY, "--ladder", "prompts.txt"), r"prompts\.txt: not valid JSON \(.*\); give a file that jaxserve\.buckets"),
    "pages": ((*TINY, "--pages", "100000000"), "this engine needs about .* of memory .* are available; lower pages or rows"),
    "rows without end": ((*TINY, "--rows", "99999999999"), "rows is 99999999999; it must be at most 2147483647$"),
    "multi-step without end": (
        (*TINY, "--multi-step", "1000000000"),
        "multi_step is 1000000000; random:tiny takes 1024 tokens, so no step can draw more; lower it$",
    ),
    "drafts without end": (
        (*TINY, "--speculate", "ngram", "--drafts", "1000000"),
        "drafts is 1000000; random:tiny takes 1024 tokens, so no step can draw more; lower it$",
    ),
    "log in no folder": ((*TINY, "--log", "none/steps.jsonl"), r"the step log none/steps\.jsonl can't be written: No such file"),
    "log over the prompts": ((*TINY, "--log", "./prompts.txt"), r"--log prompts\.txt is the file of --prompts and would be written"),
    "compile cache": ((*TINY, "--compile-cache", "prompts.txt"), r"compile_cache prompts\.txt is not a folder"),
    "unknown option": ((*TINY, "--polcy", "static"), "No such option.*--polcy"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_before_anything_expensive(name: str, here: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(setup, "load_model", expensive)
    Path("prompts.txt").write_text("a\nb\nabcdefghijklmnopqr\n")
    Path("empty.txt").write_text("\n \n")
    Path("bad.jsonl").write_text('{"prompt": "a"}\nb\n')
    arguments, pattern = BAD[name]
    ran = here(*arguments, tiny=False)
    assert ran.code == 2 and ran.out == ""
    assert re.search(pattern, error_line(ran.err)), ran.err


def test_help_has_an_example(tmp_path: Path):
    found = commands.run("jaxserve.generate", "--help", cache=tmp_path)
    assert found.returncode == 0 and found.stderr == ""
    assert "Example: python -m jaxserve.generate --policy continuous --prompts prompts.txt" in " ".join(found.stdout.split())
    for policy in POLICIES:
        assert policy in found.stdout
