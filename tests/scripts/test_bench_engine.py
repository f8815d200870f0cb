"""The engine's benchmark as a command, on a tiny model without peers; and the peers against the model without a cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.engine_rounds import steady
from scripts.served import Tokens
from scripts.workload import Item, Workload
from tests.jaxserve import commands, smollm2
from tests.jaxserve.commands import error_line

LOAD = ("--model", "random:tiny", "--peers", "none", "--requests", "6", "--rows", "2", "--budget", "34", "--context", "48")


@pytest.mark.slow
def test_the_command_measures_policies(tmp_path: Path):
    """Oracle: what was asked for; both policies give the same tokens; a step's parts sum to the run. With a budget of 20 tokens no prompt
    joins more than four decodes, so that chunked never fills its eight rows: the host's work is measured all the same."""
    some = ("--policies", "static,chunked", "--repeat", "2", "--rows", "8", "--budget", "20", "--json")
    found = commands.run("scripts.bench_engine", *LOAD, *some, cache=tmp_path)
    assert found.returncode == 0 and found.stderr == "", found.stderr
    result = json.loads(found.stdout)
    assert result["witness"] == "measured" and result["workload"]["requests"] == 6 and result["workload"]["longest"] <= 48
    assert list(result["systems"]) == ["static", "chunked"]
    for system in result["systems"].values():
        assert len(system["runs"]) == 2 and all(run["useful"] > 0 for run in system["runs"])
        assert system["alike"] == {"requests": 6, "same": 6, "share": 1.0, "first": None}
    for profile in result["profiles"].values():
        assert sum(part["share"] for part in profile["parts"].values()) == pytest.approx(1, abs=0.02)
    for over in result["overhead"].values():
        assert len(over) == 2 and over[0]["steps"] >= 20 and 0 <= over[0]["median_ms"] < over[0]["step_ms"]
    assert all(value > 0 for value in result["host_parts_ms"].values())
    assert len(result["targets"]) == 4


def test_the_run_of_single_steps_fills_every_row():
    """Mean of 4 and 8; 130 tokens of an answer, but no more than half of the context."""
    load = Workload((Item((1, 2, 3, 4), 9), Item((5, 6, 7, 8, 9, 10, 11, 12), 3)))
    items = steady(load, 3, 1000).items
    assert [(len(item.prompt), item.output) for item in items] == [(6, 130)] * 3
    assert items[1].prompt == (7, 8, 9, 10, 11, 12) and items[2].prompt[:4] == (1, 2, 3, 4)
    assert [(len(item.prompt), item.output) for item in steady(load, 1, 10).items] == [(5, 5)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--policies", "none"), "--policies names none; give at least one of static, continuous, chunked"),
        (("--policies", "orca"), "'orca' is unknown here; give some of static, continuous, chunked, or none"),
        (("--model", "random:tiny"), "the peers run smollm2 and --model is random:tiny; add --peers none"),
        ((*LOAD, "--trace", "nowhere.csv"), "trace nowhere.csv: no such file"),
        ((*LOAD, "--budget", "1"), "a budget of 1 tokens a step is too small for 2 rows"),
    ],
)
@pytest.mark.slow
def test_bad_input(arguments: tuple[str, ...], line: str, tmp_path: Path):
    found = commands.run("scripts.bench_engine", *arguments, cache=tmp_path)
    assert found.returncode == 2 and found.stdout == "" and line in error_line(found.stderr)


def texts() -> Workload:
    """Five built-in prompts with answers of 1 to 7 tokens, which a batch of two has to take in one after the other."""
    return Workload(tuple(Item(prompt, output) for prompt, output in zip(smollm2.prompts()[:5], (1, 7, 3, 2, 5), strict=True)))


def gaps(answers: Tokens, load: Workload) -> list[float]:
    """How far each token lies below the likeliest one, in logits of transformers without a cache: 0 for greedy ones."""
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    from scripts.peers import Transformers

    model, found = Transformers("float32").model, list[float]()
    for item, answer in zip(load.items, answers, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([[*item.prompt, *answer[:-1]]])).logits[0, len(item.prompt) - 1 :].numpy()
        found += (logits.max(axis=1) - logits[range(len(answer)), list(answer)]).tolist()
    return found


@pytest.fixture
def peers(tmp_path: Path) -> list[Any]:
    """Both, with two rows and steps of 40 tokens, fewer than a prompt has."""
    for package in ("transformers", "torch", "llama_cpp"):
        pytest.importorskip(package, reason="needs the extras 'transformers' and 'llama'")
    from scripts.engine_peers import LlamaParallel, TransformersBatching
    from scripts.peers import write_gguf

    gguf = write_gguf(tmp_path / "f32.gguf", np.float32)
    return [TransformersBatching(2, 40), LlamaParallel(gguf, 2, 40, texts().longest)]


@pytest.mark.peers
@pytest.mark.slow
def test_peers_give_every_request_its_own_tokens(peers: list[Any]):
    """Whatever else is in the batch, and again in the same context. llama.cpp rounds otherwise (logits of up to 30 by some 1e-4)."""
    load = texts()
    assert min(len(item.prompt) for item in load.items) > 40
    for system, tolerance in zip((*peers, peers[1]), (1e-3, 2e-3, 2e-3), strict=True):
        served = system.serve(load)
        assert [len(answer) for answer in served.tokens] == [item.output for item in load.items]
        assert max(gaps(served.tokens, load)) <= tolerance, system.name
        assert [len(times) for times in served.times] == [item.output for item in load.items]
        assert all(list(times) == sorted(times) for times in served.times) and served.seconds > 0


@pytest.mark.peers
@pytest.mark.slow
def test_peers_wait_for_requests_that_have_not_arrived(peers: list[Any]):
    """The second arrives 3 s after the first: no token of it can come before."""
    load = Workload((texts().items[0], texts().items[0]._replace(arrival=3.0)))
    for system in peers:
        served = system.serve(load)
        start = served.times[1][-1] - served.seconds
        assert served.times[0][0] < served.times[1][0] > start + 3.0
