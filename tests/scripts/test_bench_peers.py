"""The benchmark's arithmetic and its command, with engines whose steps take as long as the test says. Oracle: worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.hardware.clock import RunQueue
from scripts import bench_peers
from scripts.bench_peers import Lane, Ratio, best, hopeful, summary
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line


class Scripted:
    """An engine that counts what it is asked for."""

    name, dtype = "scripted", "float32"

    def __init__(self) -> None:
        self.started: list[tuple[int, ...]] = []
        self.steps = self.prefills = 0

    def start(self, prompts: np.ndarray, steps: int) -> None:
        self.started.append(prompts.shape)

    def step(self) -> None:
        self.steps += 1

    def prefill(self, prompt: np.ndarray) -> None:
        self.prefills += 1


def lane(label: str, *rounds: list[float]) -> Lane:
    return Lane(label, Scripted(), list(rounds))


OURS = lane("jaxserve step, float32", [2.0, 2.0, 9.0], [1.0, 1.0, 1.0], [4.0, 4.0, 4.0])
PEER = lane("transformers, bfloat16", [3.0, 3.0, 3.0], [3.0, 0.1, 3.0], [2.0, 2.0, 2.0])
SLOW = lane("transformers, float32", [8.0], [8.0], [8.0])
LLAMA = lane("llama.cpp, f16", [2.0], [2.0], [2.0])


def test_a_ratio_is_of_the_rounds_medians():
    """2 and 3, 1 and 3, 4 and 2 s a step: tokens/s of 1.5, 3 and 0.5 times the peer's."""
    assert Ratio.of(OURS, PEER) == Ratio(OURS.label, PEER.label, 1.5, 0.5, 3.0)


def test_the_peer_is_taken_at_its_best_dtype():
    assert best([OURS, SLOW, PEER, LLAMA], "transformers") is PEER
    found = summary("t", 4, [OURS, SLOW, PEER, LLAMA], RunQueue(), 4)
    assert [(r["peer"], r["median"]) for r in found["ratios"]] == [(PEER.label, 1.5), (LLAMA.label, 1.0)]
    assert found["lanes"][LLAMA.label] == {"median_ms": 2e3, "p5_ms": 2e3, "p95_ms": 2e3, "tokens_per_second": 2.0}


def test_a_hopeless_dtype_is_dropped_and_an_only_one_kept():
    """8 s is more than twice 3 s; llama.cpp and ours have one dtype each, however slow."""
    assert hopeful([OURS, SLOW, PEER, LLAMA]) == [OURS, PEER, LLAMA]


def test_every_engine_does_the_same_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """2 batch sizes x (1 to warm up + 3 rounds of 2 steps); of the prefill 1 to warm up and one a round, not for the bare step."""
    labels = ("jaxserve step, float32", "jaxserve loop, float32", "transformers, float32", "llama.cpp, f16")
    made = [lane(label) for label in labels]
    monkeypatch.setattr(bench_peers, "make_lanes", lambda *_: made)
    monkeypatch.setattr(bench_peers, "versions", lambda: {"jax": "x"})
    monkeypatch.setattr(bench_peers, "hopeful", lambda lanes: lanes)
    arguments = ["--batch", "4,2", "--context", "7", "--steps", "6", "--rounds", "3", "--prompt", "5", "--json"]
    bench_peers.main.main(arguments, standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)
    assert [(r["title"], r["batch"]) for r in printed["results"]] == [
        ("decode, batch 2, context 7 to 13", 2),
        ("decode, batch 4, context 7 to 13", 4),
        ("prefill of 5 tokens", None),
    ]
    for each in made:
        engine: Any = each.engine
        assert engine.started[:2] == [(2, 7), (4, 7)] and engine.steps == 14
        assert engine.prefills == (0 if "step" in each.label else 4)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--batch", "0"), "--batch is 0; it must be at least 1"),
        (("--batch", "a"), "--batch is 'a'; give a whole number or several"),
        (("--rounds", "0"), "0 is not in the range"),
        (("--steps", "2", "--rounds", "3"), "--steps is 2 for 3 rounds; give at least one step a round"),
    ],
)
@pytest.mark.slow
def test_bad_input(arguments: tuple[str, ...], line: str, tmp_path: Path):
    found = commands.run("scripts.bench_peers", *arguments, cache=tmp_path)
    assert found.returncode == 2 and found.stdout == "" and line in error_line(found.stderr)
