"""What `python -m jaxserve.simulate` refuses, in a line that names the value, the limit and the fix. Oracle: the lines, as a reader wants
them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costmodel.cli.choices import choose_model
from jaxserve.deployment.lengths import Lengths
from jaxserve.deployment.step_times import grid
from jaxserve.load.spec import LoadSpec
from jaxserve.simulate import main
from jaxserve.simulated_load import run
from jaxserve.simulated_load.fault_text import read_fault, told
from jaxserve.simulator.faults import Burst, Fault, Leave, Slow, Stall
from models.errors import UserError

RATE = ("--rate", "5/s")
SHOWN = {
    "slow": 'write "slow 10s..12s x3", "slow 10s x3" (one step) or "slow step 120 x3"',
    "stall": 'write "stall 20s for 5s" or "stall 20s for 5s worker 1"',
    "burst": 'write "burst 30s 50 of 768+256" (requests, tokens of a prompt and of an answer)',
    "leave": 'write "leave 17 at 12s" or "leave 17 after 5 tokens" (17 is a request\'s number, from 0)',
}


@pytest.mark.parametrize(
    ("text", "fault", "said"),
    [
        ("slow 1.5s x3", Slow(3.0, at=1.5), "the first step from 1.5 s on takes 3 times as long"),
        (
            "slow 10.5s..2min x0.5",
            Slow(0.5, at=10.5, until=120.0),
            "steps that begin from 10.5 to 120 s take 0.5 times as long",
        ),
        ("slow step 120 x3", Slow(3.0, step=120), "step 120 takes 3 times as long"),
        ("slow 0s..1s  x2", Slow(2.0, at=0.0, until=1.0), "steps that begin from 0 to 1 s take 2 times as long"),
        ("stall 20s for 250ms", Stall(0, 20.0, 0.25), "worker 0 does nothing from 20 s on for 0.25 s"),
        ("stall 20s for 5s worker 1", Stall(1, 20.0, 5.0), "worker 1 does nothing from 20 s on for 5 s"),
        (
            "burst 30s 50 of 768+256",
            Burst(30.0, 50, 768, 256),
            "at 30 s 50 requests more come, each of 768 + 256 tokens",
        ),
        ("leave 17 at 12s", Leave(17, at=12.0), "the client of request 17 leaves at 12 s"),
        ("leave 17 after 1 token", Leave(17, tokens=1), "the client of request 17 leaves after 1 tokens"),
    ],
)
def test_faults_as_written(text: str, fault: Fault, said: str):
    assert read_fault(text) == fault and told(fault) == said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow 5 x2", "its time is '5', which has no unit; give one of us, ms, s"),
        ("slow 5/s x2", "has the unit '/s'"),
        ("slow -5s x2", "its time is '-5s'; it must be at least 0"),
        ("slow 5s x-2", "factor is -2.0; it must be above 0"),
        ("slow 5s xyz", "the factor is 'yz'; give a number above 0, such as x3"),
        ("slow 5s..4s x2", "slow steps from 5.0 to 4.0 s; give a time to begin with, and a later one"),
        ("stall 5s for 0s", "how long it is is '0s'; it must be above 0"),
        ("burst 5s 0 of 10+10", "requests is 0; it must be at least 1"),
        ("leave 5 after 0 tokens", "leaves after 0 tokens; give at least 1"),
        ("slow 5s", SHOWN["slow"]),
        ("stall 5s", SHOWN["stall"]),
        ("burst 5s 10", SHOWN["burst"]),
        ("leave 5", SHOWN["leave"]),
        ("crash 5s", f"none of slow, stall, burst, leave; {SHOWN['slow']}; {SHOWN['stall'].removeprefix('write ')}"),
        ("", "none of slow, stall, burst, leave"),
    ],
)
def test_faults_that_cannot_be(text: str, message: str):
    with pytest.raises(UserError) as caught:
        read_fault(text)
    assert (
        message in str(caught.value) and str(caught.value).startswith(f"--fault is {text!r}") and "\n" not in str(caught.value)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing says how requests come; give --rate 5/s"),
        (("--rate", "5"), "--rate is '5', which has no unit"),
        ((*RATE, "--model", "llama-9"), "unknown model 'llama-9'"),
        ((*RATE, "--chip", "h900"), "unknown chip 'h900'"),
        ((*RATE, "--kv-pool", "30"), "--kv-pool is '30', which has no unit"),
        ((*RATE, "--kv-pool", "300GiB"), r"does not fit one h100-sxm of 80 GB .* give a smaller --kv-pool"),
        ((*RATE, "--model", "llama-3-70b"), "the smallest that does is tensor-parallel degree 2"),
        ((*RATE, "--tensor-parallel", "3"), "attention heads 32 does not divide by tensor_parallel 3"),
        ((*RATE, "--pages", "5"), r"the longest request has 191 tokens in 12 pages, and the pool has 5 of 16 tokens each"),
        ((*RATE, "--pages", "50", "--kv-pool", "1GiB"), "--pages and --kv-pool both say how large the pool is"),
        (("--clients", "9", "--pages", "96"), r"9 clients .* would need 108 at once, and the pool has 96"),
        ((*RATE, "--prompt", "9000"), "needs a context of 9063, but llama-3-8b takes 8192; lower --prompt or --output"),
        ((*RATE, "--fault", "burst 1s 2 of 9000+9"), "takes 8192; lower the lengths of --fault burst"),
        ((*RATE, "--fault", "leave 100 at 1s"), "the client of request 100 leaves, and there are 100, counted from 0"),
        ((*RATE, "--fault", "stall 1s for 1s worker 1"), "a stall is of worker 1, and the last one is worker 0"),
        ((*RATE, "--budget", "64"), "budget is given, but a continuous policy has none"),
        ((*RATE, "--policy", "chunked", "--budget", "8", "--rows", "9"), "a budget of 8 tokens a step is too small for 9 rows"),
        ((*RATE, "--policy", "disaggregated", "--ahead", "1"), "disaggregated ones run one plan each; leave it out"),
        ((*RATE, "--slo", "itl-p95=1ms"), r"itl-p95 is 1 ms, below one step, which takes 4\.48\d* ms \(analytical\)"),
        ((*RATE, "--silicon", "x"), "add --step-times calibrated, or leave it out"),
        ((*RATE, "--machine", "x.json"), "give it with --step-times calibrated"),
        ((*RATE, "--step-times", "calibrated", "--dtype", "float32"), "kernels were measured in bfloat16 and float16"),
        ((*RATE, "--step-times", "compiled", "--dtype", "int8"), "programs for h100-sxm hold bfloat16, and --dtype is int8"),
        ((*RATE, "--step-times", "compiled", "--tensor-parallel", "2"), "compiled is of one chip"),
        ((*RATE, "--step-times", "compiled", "--model", "palm-8b"), "the engine has no program of palm-8b"),
        ((*RATE, "--step-times", "log"), "add --log FILE"),
        (("--log", "none.jsonl"), "the step log none.jsonl: no such file"),
        (("--log", "none.jsonl", "--step-times", "calibrated"), "--log has step times of its own"),
        (("--log", "none.jsonl", "--fault", "slow 1s x2"), "--fault is given, and a --log says itself what ran"),
        ((*RATE, "--report", "out.pdf"), "give a name that ends in .html"),
        (("--trace", "trace.csv"), "trace.csv line 3: 9000 prompt tokens and 5 to follow need a context of 9004"),
        (("--trace", "empty.csv"), "holds no request|is empty"),
    ],
)
def test_bad_input(options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is said before anything is simulated."""
    monkeypatch.setattr(run, "simulate", lambda *_, **__: pytest.fail("it was simulated"))
    monkeypatch.chdir(tmp_path)
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    (tmp_path / "trace.csv").write_text(f"{header}2023-11-16 18:15:40.0,30,5\n2023-11-16 18:15:41.0,9000,5\n")
    (tmp_path / "empty.csv").write_text(header)
    with pytest.raises(UserError) as caught, main.make_context("simulate", list(options)) as context:
        main.invoke(context)
    assert re.search(message, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)


def test_lengths_of_a_load():
    """Of 3 requests and a burst of 2: the longest runs all its tokens but the last."""
    load = LoadSpec(rates=(1.0,), prompt="10", output="5", requests=3)
    faults: list[Fault] = [Burst(1.0, 2, 4, 20), Leave(4, at=1.0)]
    assert Lengths.of(load, faults, choose_model("tiny")) == (5, 23, 4)
    assert Lengths.of(load, [], choose_model("tiny")) == (3, 14, 10)


@pytest.mark.parametrize(
    ("rows", "piece", "longest", "most"), [(64, 512, 1024, 8192), (1, 1, 2, 64), (8, 64, 64, 64), (8, 4096, 8192, 8192)]
)
def test_the_programs_that_are_compiled(rows: int, piece: int, longest: int, most: int):
    """Two of each for a plane, no step longer than its context, no context longer than the model's."""
    sizes = grid(rows, piece, longest, most)
    assert len(set(sizes)) == 8 and all(size.query <= size.context <= most for size in sizes)
    decodes, prefills = ([size for size in sizes if (size.query == 1) == one] for one in (True, False))
    assert {size.rows for size in decodes} == {1, max(rows, 2)} and len({size.context for size in decodes}) == 2
    assert len({size.query for size in prefills}) == len({size.context for size in prefills}) == 2
