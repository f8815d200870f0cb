"""What a folder's text files do to the commands: prompts that are refused early, and which file gave what.

Oracles: ids of a vocabulary of bytes and special tokens, by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine import build as setup
from jaxserve.engine.config import EngineConfig
from jaxserve.generation.session import accept
from jaxserve.main_job import job
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests.jaxserve import commands
from tests.models import checkpoints, folders

ROWS = 300
REFUSED = r"token 300 \('<300>'\), and the model's embedding has rows 0 to 299 only; leave it out of the text, or take a model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 300 rows whose vocabulary has 301 tokens. Its files name four end tokens."""
    path = tmp_path_factory.mktemp("model")
    config = checkpoints.hf_config(vocab_size=ROWS, eos_token_id=[2, 4], torch_dtype="float32")
    checkpoints.write_folder(path, config, checkpoints.hf_tensors("llama", config))
    backend = folders.pipeline()
    backend.add_tokens([f"<{i}>" for i in range(folders.SIZE, ROWS + 1)])
    backend.enable_truncation(8)
    folders.write(path, backend, eos_token="<|im_end|>", bos_token="<s>", model_max_length=4)
    folders.put(path, "generation_config.json", {"eos_token_id": [2, 5], "temperature": 0.6})
    return folders.put(path, "chat_template.jinja", folders.CHATML)


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a prompt got as far as expensive work")

    monkeypatch.setattr(job, "load_model", refuse)
    monkeypatch.setattr(job, "ceilings", refuse)
    monkeypatch.setattr(setup, "load_model", refuse)
    monkeypatch.setattr(setup, "Engine", refuse)


def prompts(tmp_path: Path, *texts: str) -> Path:
    (tmp_path / "prompts.txt").write_text("\n".join(texts))
    return tmp_path / "prompts.txt"


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_token_without_an_embedding_row_is_refused_first(folder: Path, tmp_path: Path):
    """The example of an added token with id 300 where vocab_size is 300; token 299 is the last one that runs."""
    texts = ("good", "a <300> token")
    with pytest.raises(UserError, match=REFUSED):
        job.accept(DecodeConfig(str(folder), (2,), prompts(tmp_path, *texts), max_new_tokens=4))
    with pytest.raises(UserError, match=REFUSED):
        accept(EngineConfig(str(folder), dtype="float32"), SamplingParams(max_tokens=4), texts)
    found = job.accept(DecodeConfig(str(folder), (1,), prompts(tmp_path, "<299>"), max_new_tokens=4))
    assert 299 in found.prompts[0]
    _, given = accept(EngineConfig(str(folder), dtype="float32"), SamplingParams(max_tokens=4), ("<299>",))
    assert len(given) == 1


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_long_prompt_stays_long(folder: Path, tmp_path: Path):
    """43 bytes within a turn: 2 special tokens and "user\\n" before it, 1 and "\\n" after it, and 1 with "assistant\\n" as the header."""
    text = "It's a text of 43 bytes, quite exactly: yes"
    found = job.accept(DecodeConfig(str(folder), (1,), prompts(tmp_path, text), max_new_tokens=4))
    assert len(found.prompts[0]) == len(text) + 3 + len("user\n\nassistant\n")


def test_which_file_gave_what(folder: Path):
    told = setup.choose(EngineConfig(str(folder), dtype="float32", rows=2, context=64)).provenance.to_json()
    check(told)


def check(told: dict[str, Any]) -> None:
    assert told["weights"] == ["model.safetensors"] and told["config"] == ["config.json"]
    assert told["tokenizer"] == ["tokenizer.json", "tokenizer_config.json"]
    assert told["chat_template"] == ["chat_template.jinja"]
    assert told["end_tokens"] == [
        {"id": 2, "sources": ["config.json eos_token_id", "generation_config.json eos_token_id"]},
        {"id": 4, "sources": ["config.json eos_token_id"]},
        {"id": 5, "sources": ["generation_config.json eos_token_id"]},
        {"id": 3, "sources": ["tokenizer_config.json eos_token"]},
    ]
    ignored = {(entry["file"], entry["what"]): entry["why"] for entry in told["ignored"]}
    assert ignored["generation_config.json", "temperature"] == "a request says how it is sampled"
    assert ignored["tokenizer.json", "truncation"] == "a training run's state; prompts are never cut"
    assert ("tokenizer_config.json", "model_max_length") in ignored and ("config.json", "torch_dtype") in ignored


@pytest.mark.slow
def test_the_commands_say_it(folder: Path, tmp_path: Path):
    file = str(prompts(tmp_path, "hello"))
    more = ["--model", str(folder), "--dtype", "float32", "--json"]
    ran = commands.run("jaxserve.decode", *more, "--batch", "1", "--max-new-tokens", "2", "--prompt-file", file, cache=tmp_path)
    check(json.loads(ran.stdout)["provenance"])
    ran = commands.run("jaxserve.generate", *more, "--prompts", file, "--max-tokens", "2", cache=tmp_path)
    check(json.loads(ran.stdout.splitlines()[-1])["summary"]["provenance"])
