"""One entry makes an architecture known to loader, engine and cost model. Oracle: the same weights under the name that it is a copy of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from costmodel.analytical.step import step_cost
from costmodel.cli.choices import choose_model
from jaxserve import LLM, SamplingParams
from models.checkpoint.gguf_keys import understood
from models.config.architectures import ARCHITECTURES, Entry, gguf_architectures
from models.config.hf_config import from_hf
from models.errors import UserError
from tests.jaxserve import commands
from tests.models.checkpoints import hf_config

MADE_UP = Entry("koala", "KoalaForCausalLM", "koala", "koala", like="llama")


@pytest.fixture
def koala(monkeypatch: pytest.MonkeyPatch) -> Entry:
    monkeypatch.setitem(ARCHITECTURES, MADE_UP.hf_class, MADE_UP)
    return MADE_UP


def test_a_config_of_it_is_read(koala: Entry):
    ours, llama = from_hf({**hf_config(), "architectures": [koala.hf_class], "model_type": "koala"}), from_hf(hf_config())
    assert ours == dataclasses.replace(llama, architecture="koala")
    with pytest.raises(UserError, match="model_type is 'llama'; for the architecture KoalaForCausalLM it must be 'koala'"):
        from_hf({**hf_config(), "architectures": [koala.hf_class], "model_type": "llama"})
    with pytest.raises(UserError, match="final_logit_softcapping"):  # the rows of the architecture that it is like
        from_hf({**hf_config(), "architectures": [koala.hf_class], "final_logit_softcapping": 30.0})


def test_it_is_loaded_run_and_priced(koala: Entry, tmp_path: Path):
    llama = commands.folder(tmp_path / "llama")
    ours = commands.folder(tmp_path / "koala", architectures=[koala.hf_class])
    params, answers = SamplingParams(max_tokens=6, ignore_eos=True), []
    for model in (llama, ours):
        llm = LLM(str(model), dtype="float32", rows=1, context=32, compile_cache=False)
        answers.append(llm.generate(["hello"], params)[0].outputs[0].token_ids)
    assert answers[0] == answers[1] and len(answers[0]) == 6
    chosen, same = choose_model(str(ours)), choose_model(str(llama))
    assert chosen.config is not None and chosen.config.architecture == "koala"
    cost, expected = (step_cost(each.best, batch=4, context=64) for each in (chosen, same))
    assert cost.bytes == expected.bytes and cost.flops == expected.flops


def test_a_gguf_file_of_it_is_understood(koala: Entry):
    assert gguf_architectures()["koala"] is koala
    assert understood({"general.architecture": "koala"}, "file")
    with pytest.raises(
        UserError, match="GGUF architecture 'bear' is not supported; supported are llama, qwen2, qwen3, gemma3, koala"
    ):
        understood({"general.architecture": "bear"}, "file")


def test_without_its_entry_it_is_refused_by_name():
    with pytest.raises(
        UserError, match="architecture KoalaForCausalLM is not supported; supported are Gemma3ForCausalLM, Llama"
    ):
        from_hf({**hf_config(), "architectures": ["KoalaForCausalLM"]})
