"""The engine's benchmark as a command, on a tiny model without peers; and each peer against transformers' and llama.cpp's own answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.engine_rounds import PACKAGES, steady
from scripts.served import alike
from scripts.workload import Item, Workload
from tests.jaxserve import commands, smollm2
from tests.jaxserve.commands import error_line

LOAD = ("--model", "random:tiny", "--peers", "none", "--requests", "6", "--rows", "2", "--budget", "34", "--context", "48")


@pytest.mark.slow
def test_the_command_measures_policies(tmp_path: Path):
    """Oracle: what was asked for; both policies give the same tokens; a step's parts sum to the run."""
    some = ("--policies", "static,chunked", "--repeat", "2", "--json")
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
    assert len(result["targets"]) == 3


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
        ((*LOAD, "--trace", "nowhere.csv"), "trace nowhere.csv cannot be read"),
        ((*LOAD, "--budget", "1"), "a budget of 1 tokens a step is too small for 2 rows"),
    ],
)
@pytest.mark.slow
def test_bad_input(arguments: tuple[str, ...], line: str, tmp_path: Path):
    found = commands.run("scripts.bench_engine", *arguments, cache=tmp_path)
    assert found.returncode == 2 and found.stdout == "" and line in error_line(found.stderr)


def texts() -> Workload:
    """Seven built-in prompts with answers of 1 to 13 tokens, which a batch of three has to take in one after the other."""
    outputs = (1, 13, 5, 2, 9, 7, 3)
    return Workload(tuple(Item(prompt, output) for prompt, output in zip(smollm2.prompts()[:7], outputs, strict=True)))


def expected(load: Workload) -> list[list[int]]:
    """What transformers says follows each prompt, one prompt at a time, without a cache."""
    torch = pytest.importorskip("torch", reason="needs the extra 'transformers'")
    from scripts.peers import Transformers

    model, answers = Transformers("float32").model, []
    for item in load.items:
        tokens = list(item.prompt)
        with torch.inference_mode():
            for _ in range(item.output):
                tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        answers.append(tokens[len(item.prompt) :])
    return answers


@pytest.mark.peers
@pytest.mark.slow
def test_both_peers_give_every_request_its_own_tokens(tmp_path: Path):
    """Oracle: the model without a cache. llama.cpp rounds otherwise: it may take the other side of a near-tie, no more."""
    for package in PACKAGES["transformers"] + ("llama_cpp",):
        pytest.importorskip(package.replace("-", "_"))
    from scripts.engine_peers import LlamaParallel, TransformersBatching
    from scripts.peers import write_gguf

    load = texts()
    wanted = expected(load)
    batching = TransformersBatching(3, 40)
    llama = LlamaParallel(write_gguf(tmp_path / "f32.gguf", np.float32), 3, 40, load.longest)
    for system in (batching, llama, llama):  # the second time in the same context, as the benchmark does
        served = system.serve(load)
        same = alike(wanted, served.tokens)
        assert same.same == 7 or (system is llama and same.share > 0.9), (system.name, same)
        assert [len(times) for times in served.times] == [item.output for item in load.items]
        assert all(list(times) == sorted(times) for times in served.times) and served.seconds > 0


@pytest.mark.peers
@pytest.mark.slow
def test_peers_wait_for_requests_that_have_not_arrived(tmp_path: Path):
    """The last request arrives after 3 s, long after the others have ended, and no token of it can come before."""
    for package in PACKAGES["transformers"] + ("llama_cpp",):
        pytest.importorskip(package.replace("-", "_"))
    from scripts.engine_peers import LlamaParallel, TransformersBatching
    from scripts.peers import write_gguf

    load = Workload((*texts().items[:2], texts().items[2]._replace(arrival=3.0)))
    gguf = write_gguf(tmp_path / "f32.gguf", np.float32)
    for system in (TransformersBatching(2, 64), LlamaParallel(gguf, 2, 64, load.longest)):
        served = system.serve(load)
        start = served.times[2][-1] - served.seconds
        assert served.times[2][0] - start > 3.0 and served.times[0][0] < served.times[2][0]
