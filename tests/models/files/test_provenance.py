"""Where a model's parts come from: joined from readers, told to machines and to people."""

from __future__ import annotations

from models.files.provenance import Ignored, Provenance

FILES = Provenance(weights=("a", "b", "c", "d"), end_tokens=((2, ("config.json eos_token_id",)),))
TEXT = Provenance(
    tokenizer=("tokenizer.json",),
    end_tokens=(
        (5, ("tokenizer_config.json eos_token",)),
        (2, ("config.json eos_token_id", "generation_config.json eos_token_id")),
    ),
    ignored=(Ignored("config.json", "torch_dtype", "the dtype is --dtype"),),
)


def test_readers_are_joined_and_each_source_is_told_once():
    joined = (FILES | TEXT | TEXT).to_json()
    assert joined["weights"] == ["a", "b", "c", "d"] and joined["chat_template"] == []
    assert joined["end_tokens"] == [
        {"id": 2, "sources": ["config.json eos_token_id", "generation_config.json eos_token_id"]},
        {"id": 5, "sources": ["tokenizer_config.json eos_token"]},
    ]
    assert joined["ignored"] == [{"file": "config.json", "what": "torch_dtype", "why": "the dtype is --dtype"}]


def test_people_read_one_line():
    assert str(FILES | TEXT) == (
        "weights from a and 3 more; tokenizer from tokenizer.json; no chat template; "
        "end tokens 2 (config.json eos_token_id and generation_config.json eos_token_id), 5 (tokenizer_config.json eos_token); "
        "1 entry ignored (--json lists it)"
    )
    assert str(Provenance()) == "no weights; no tokenizer; no chat template; no end tokens"
