"""Engines of random:tiny that compile no program twice in one process, however many a test file builds."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxserve.engine import build as setup
from jaxserve.engine import compiled_programs as prepared
from jaxserve.engine.compiled_programs import KVCopier
from jaxserve.engine.model import Model, load_model
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.program_set import Program, Programs, compile_programs
from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from tests import oracle
from tests.jaxserve.commands import share_programs

LADDER = Buckets((2,), (3,), (2, 16), 16)

_models: dict[tuple, Model] = {}
_programs: dict[tuple, Program] = {}
_movers: dict[tuple, KVCopier] = {}


def _load(name: str, *, progress: Any = None, checkpoint: Any = None, **options: Any) -> Model:
    key = (name, *sorted(options.items()))
    if key not in _models:
        _models[key] = load_model(name, **options)
    return _models[key]


def _compile(
    step: Any, serving: Any, kv: Any, buckets: Iterable[Bucket], *, done: Any = lambda program: None, cache: Any = None
) -> Programs:
    buckets = list(buckets)
    keys = {bucket: (id(serving), step.features, _shape(kv), bucket) for bucket in buckets}
    missing = [bucket for bucket, key in keys.items() if key not in _programs]
    for program in compile_programs(step, serving, kv, missing, cache=cache):
        _programs[keys[program.bucket]] = program
    for key in keys.values():
        done(_programs[key])
    return Programs({bucket: _programs[key] for bucket, key in keys.items()})


def _mover(kv: Any, most: int, *, workers: bool, cache: Any = None) -> KVCopier:
    key = (_shape(kv), most, workers)
    if key not in _movers:
        _movers[key] = KVCopier(kv, most, workers=workers, cache=cache)
    return _movers[key]


def _shape(kv: Any) -> tuple:
    return (str(jax.tree.structure(kv)), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(kv)))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Engines built by `jaxserve.engine.build` share models and programs, and nothing is known of this machine's speed.

    What it gives is a ladder file: two rows, 48 tokens, and no more than two programs for them.
    """
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(LADDER.to_json()))
    monkeypatch.setattr(setup, "load_model", _load)
    monkeypatch.setattr(prepared, "compile_programs", _compile)
    monkeypatch.setattr(prepared, "KVCopier", _mover)
    share_programs(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return file


@functools.cache
def expected(prompt: str, tokens: int) -> tuple[int, ...]:
    """What the oracle draws greedily after a prompt, up to an end token."""
    checkpoint, tokenizer, weights = _tiny()
    found = oracle.greedy(checkpoint.config, weights, tokenizer.encode(prompt), tokens)
    ends = [i + 1 for i, token in enumerate(found) if token in tokenizer.eos_tokens]
    return tuple(found[: min(ends, default=tokens)])


def dense_logits(prompt: str) -> oracle.Array:
    """The oracle's, f64 [tokens, vocab]: what follows each token of a prompt."""
    checkpoint, tokenizer, weights = _tiny()
    return oracle.logits(checkpoint.config, weights, tokenizer.encode(prompt))


@functools.cache
def _tiny() -> tuple[Any, Any, Any]:
    checkpoint = open_checkpoint("random:tiny")
    return checkpoint, checkpoint.tokenizer(), load(checkpoint, jnp.float32)
