"""How large an engine a file of prompts gets. Oracle: lengths and counts by hand; random:tiny's tokens are bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxserve import decode, generate
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.input_processor import Prompt
from jaxserve.generation.session import Session, accept
from jaxserve.main_job import job
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.sampling_params import SamplingParams
from models.checkpoint.base import RandomCheckpoint
from models.errors import UserError
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.jaxserve.shared_programs import shared

__all__ = ["shared"]

TEXTS = ("hello", "good morning", "a")


@pytest.mark.parametrize(
    ("given", "params", "rows", "context"),
    [
        ({}, {"max_tokens": 4}, 3, 12 + 3),  # the last token that is drawn is never run
        ({}, {"max_tokens": 4, "n": 2}, 6, 15),
        ({"rows": 2}, {"max_tokens": 4, "n": 2}, 2, 15),
        ({"context": 100}, {"max_tokens": 4}, 3, 100),
        ({"policy": "dynamic", "preferred": (2, 5)}, {"max_tokens": 4}, 5, 15),
        ({"policy": "chunked", "budget": 2}, {"max_tokens": 4}, 2, 15),  # a budget that every row can go on in
        ({"pages": 1}, {"max_tokens": 4}, 3, 15),
        ({}, {"max_tokens": 1024 - 11}, 3, 1024),
    ],
)
def test_as_large_as_it_has_to_be(given: dict[str, Any], params: dict[str, Any], rows: int, context: int):
    setup, prompts = accept(EngineConfig("random:tiny", dtype="float32", **given), SamplingParams(**params), TEXTS)
    assert [prompt.tokens for prompt in prompts] == [tuple(text.encode()) for text in TEXTS]
    assert (setup.rows, setup.context) == (rows, context)


def test_a_ladder_says_it_itself(shared: Path):
    setup, _ = accept(EngineConfig("random:tiny", dtype="float32", ladder=shared), SamplingParams(max_tokens=4), TEXTS)
    assert (setup.rows, setup.context) == (2, 48)


@pytest.mark.parametrize(
    ("given", "params", "message"),
    [
        (
            {"pages": 1, "page_size": 8},
            {"max_tokens": 4},
            "prompt 2 has 12 tokens, .* needs a context of 15, but the limit is 8",
        ),
        ({"rows": 2}, {"n": 3, "max_tokens": 4}, "n is 3 and at most 2 rows run at once"),
    ],
)
def test_refused(given: dict[str, Any], params: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        accept(EngineConfig("random:tiny", dtype="float32", **given), SamplingParams(**params), TEXTS)


def test_raw_prompts_are_no_turns_of_a_chat(monkeypatch: pytest.MonkeyPatch):
    """Oracle: the template by hand; one token a byte."""
    template = "{% for m in messages %}u{{ m.content }};{% endfor %}a"
    tokenizer = Tokenizer(byte_tokenizer(512).backend, bos_token=None, eos_tokens=(256,), origin="test", chat_template=template)
    monkeypatch.setattr(RandomCheckpoint, "tokenizer", lambda self: tokenizer)
    for raw, text in ((False, "uhello;a"), (True, "hello")):
        _, (prompt,) = accept(EngineConfig("random:tiny", dtype="float32"), SamplingParams(max_tokens=4), ["hello"], raw=raw)
        assert prompt == Prompt(tuple(text.encode()), continued=raw)


@pytest.mark.parametrize(("given", "raw"), [((), False), (("--raw",), True)])
def test_commands_pass_it_on(given: tuple[str, ...], raw: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Both commands end where the work would begin."""
    seen = list[bool]()
    (tmp_path / "prompts.txt").write_text("hello\n")

    def begin(*arguments: Any, raw: bool) -> None:
        seen.append(raw)
        raise UserError("enough")

    def work(settings: DecodeConfig, bar: Any) -> None:
        begin(raw=settings.raw)

    monkeypatch.setattr(Session, "begin", begin)
    monkeypatch.setattr(job, "run", work)
    for command, words in ((generate.main, ["--prompts", str(tmp_path / "prompts.txt")]), (decode.main, ["--batch", "1"])):
        with pytest.raises(UserError, match="enough"):
            command.main(["--model", "random:tiny", *words, *given], standalone_mode=False)
    assert seen == [raw, raw]


def test_the_job_reads_raw_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    template = "{% for m in messages %}u{{ m.content }};{% endfor %}a"
    tokenizer = Tokenizer(byte_tokenizer(512).backend, bos_token=None, eos_tokens=(256,), origin="test", chat_template=template)
    monkeypatch.setattr(RandomCheckpoint, "tokenizer", lambda self: tokenizer)
    (tmp_path / "prompts.txt").write_text("hello\n")
    for raw, text in ((False, "uhello;a"), (True, "hello")):
        settings = DecodeConfig("random:tiny", batches=(1,), prompt_file=tmp_path / "prompts.txt", raw=raw, max_new_tokens=4)
        assert job.accept(settings).prompts == [list(text.encode())]
