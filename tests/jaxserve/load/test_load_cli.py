"""`python -m jaxserve.load` as users meet it. Oracles: a server that counts what it is asked, JSON's own grammar, and exit codes."""

from __future__ import annotations

import errno
import functools
import importlib.util
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine.engine import Engine
from jaxserve.load import output
from jaxserve.load.__main__ import main
from jaxserve.load.result import Run
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line
from tests.jaxserve.in_process import Ran, in_process
from tests.jaxserve.load.dialects import events, text
from tests.jaxserve.load.fake_server import serving
from tests.jaxserve.shared_programs import shared

__all__ = ["in_process", "shared"]

TINY = ("--model", "random:tiny", "--dtype", "float32", "--ladder", "ladder.json", "--prompt", "6", "--output", "3")
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:40.0,30,5\n2023-11-16 18:15:40.1,900,100\n"
needs_http = pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="needs the extra http")


@pytest.fixture
def here(in_process: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command in a folder with traces."""
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "empty.csv").write_text(TRACE.partition("\n")[0] + "\n")
    (tmp_path / "wrong.csv").write_text(TRACE + "2023-11-16 18:15:41.0,5,\n")
    return functools.partial(in_process, main)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "nothing says how requests come"),
        ("--rate 5", "--rate is '5', which has no unit; give one of /s, /min, /h, such as 20/s"),
        ("--rate 5ms", "--rate is '5ms', which has the unit 'ms'"),
        ("--rate 1/s,0/s", "above 0"),
        ("--clients 0", "--clients is 0"),
        ("--clients 2 --rate 1/s", "--rate is of an open loop"),
        ("--rate 1/s --slo ttft-p95=250", "ttft-p95 is '250', which has no unit"),
        ("--rate 1/s --slo ttft=1s", "METRIC-pN=TIME"),
        ("--rate 1/s --slo latency-p95=1s", "ttft, itl, tpot, e2e"),
        ("--rate 1/s --saturate", "--saturate looks for"),
        ("--rate 1/s --duration 10", "--duration is '10', which has no unit"),
        ("--trace none.csv", "no such file"),
        ("--trace empty.csv", "empty.csv holds no request"),
        ("--trace wrong.csv", "wrong.csv line 4: GeneratedTokens is ''"),
        ("--rate 1/s --policy dynamic --budget 5", "budget is given"),
        ("--rate 1/s --rows 0", "rows is 0"),
        ("--rate 1/s --url http://localhost:1 --rows 4", "--rows is of an engine in this process"),
        ("--rate 1/s --timeout 5s", "--timeout is of a server at a URL"),
        ("--rate 1/s --tokenizer smollm2", "--tokenizer is of a server at a URL"),
        ("--rate 1/s --no-ignore-eos", "--ignore-eos is of a server at a URL"),
        ("--rate 1/s --model random:none", "random:none"),
        ("--rate 1/s --report none/report.html", "none"),
        (
            "--trace trace.csv --model random:tiny --context 500",
            "trace.csv line 3: 900 prompt tokens and 100 to follow need a context of 999, but --context takes 500; give --length-scale 0.5",
        ),
        (
            "--rate 1/s --model random:tiny --context 500 --prompt 900",
            "a prompt of 900 tokens with 64 to follow needs a context of 963, but --context takes 500",
        ),
        ("--clients 30 --model random:tiny --prompt 20 --output 5 --pages 40", "30 clients with at least 2 pages"),
    ],
)
def test_bad_input(here: Any, arguments: str, said: str):
    ran = here(*arguments.split())
    assert ran.code == 2 and said in error_line(ran.err) and not ran.out


def test_help(here: Any):
    ran = here("--help")
    assert ran.code == 0 and "Example: python -m jaxserve.load" in ran.out and "--policy" in ran.out and "--slo" in ran.out


def test_an_engine(here: Any, shared: Path):
    ran = here(*TINY, *"--clients 2 --requests 6 --warmup 2 --slo ttft-p95=10s --seed 3 --json".split())
    run = Run.from_json(ran.json)
    assert ran.code == 0 and run.complete and (len(run.records), len(run.warmup)) == (4, 2)
    assert all(record.answered and record.output == 3 for record in run.records) and run.steps and run.summary.met
    assert run.settings["rows"] == 2 and run.settings["policy"] == "continuous" and run.settings["seed"] == 3
    assert run.warm == 0 and run.pool is not None and run.pool.units == 6
    plain = ran.json["summary"]
    assert plain["definitions"]["percentile"].startswith("nearest rank") and plain["ttft"]["few"] == [
        "p50",
        "p90",
        "p95",
        "p99",
    ]


def test_several_for_people(here: Any, shared: Path):
    """The measurement plan in small: several closed loops, then rates."""
    ran = here(*TINY, *"--clients 1,2 --requests 4".split())
    assert ran.code == 0 and "All runs" in ran.out and "1 client" in ran.out and "2 clients" in ran.out
    assert "Little's law" in ran.out and "TTFT by part" in ran.out and "nearest rank" in ran.out
    ran = here(*TINY, *"--rate 50/s,100/s --requests 4 --policy chunked --budget 8 --json".split())
    assert [run["settings"]["load"] for run in ran.json["runs"]] == ["poisson 50/s", "poisson 100/s"]


def test_a_trace_on_an_engine(here: Any, shared: Path):
    arguments = ("--model", "random:tiny", "--dtype", "float32", "--ladder", "ladder.json", "--trace", "trace.csv")
    ran = here(*arguments, *"--length-scale 0.04 --time-scale 0.5 --json".split())
    run = Run.from_json(ran.json)
    assert [(r.prompt, r.output) for r in run.records] == [(1, 1), (36, 4)] and run.settings["source"]["length_scale"] == 0.04
    assert [r.intended for r in run.records] == pytest.approx([0.0, 0.05])
    ran = here(*arguments)  # the ladder holds 48 tokens
    offered = error_line(ran.err).partition("--length-scale ")[2].partition(",")[0]
    assert ran.code == 2 and here(*arguments, "--length-scale", offered, "--json").code == 0


def test_ctrl_c_keeps_what_there_is(here: Any, shared: Path, monkeypatch: pytest.MonkeyPatch):
    """Hit in the thirtieth step."""
    step, count = Engine.step, itertools.count()

    def hit(engine: Engine) -> Any:
        if next(count) == 30:
            signal.raise_signal(signal.SIGINT)
        return step(engine)

    monkeypatch.setattr(Engine, "step", hit)
    ran = here(*TINY, *"--rate 20/s --requests 100000 --json".split())
    assert ran.code == 130 and "interrupted by Ctrl-C" in error_line(ran.err)
    run = Run.from_json(ran.json)
    assert not run.complete and "Ctrl-C" in run.why and any(record.answered for record in run.records)


def test_a_limit_below_one_step(here: Any, shared: Path):
    ran = here(*TINY, *"--rate 20/s --requests 5 --saturate --slo itl-p95=1us".split())
    assert ran.code == 2 and "itl-p95 is 0.001 ms, below one step" in error_line(ran.err)


@needs_http
def test_a_server_at_a_url(here: Any):
    with serving(token=0.001, cached=True) as server:
        arguments = ("--url", server.url, *"--rate 200/s --requests 12 --prompt 5 --output 4 --json".split())
        first, second = here(*arguments), here(*arguments)
    runs = [Run.from_json(ran.json) for ran in (first, second)]
    assert [ran.code for ran in (first, second)] == [0, 0] and [len(run.records) for run in runs] == [12, 12]
    assert [run.warm for run in runs] == [0, 12 * 4]  # the same load twice: the second finds the first one's prompts
    assert sorted(body["prompt"] for body in server.asked[:12]) == sorted(body["prompt"] for body in server.asked[12:])
    assert runs[0].settings["url"] == server.url and runs[0].settings["model"] == "fake"
    assert max(max(body["prompt"]) for body in server.asked) < 10_000


def test_the_page_is_kept_where_the_output_is_full(here: Any, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(output, "show", full)
    ran = here(*TINY, *"--clients 1 --requests 2 --report page.html".split())
    assert ran.code == 2 and "output cannot be written: No space left on device" in ran.err
    assert "</html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@needs_http
def test_tokens_that_nobody_counted(here: Any, tmp_path: Path):
    """A server without usage sends two chunks: tokens are said to be chunks wherever they show, or a tokenizer counts their text.

    Oracle: the tokens of random:tiny are bytes, of which the text has 11.
    """
    body = events(text("two words"), text("!?", "length"), "[DONE]")
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving(lambda number: head + body) as server:
        arguments = ("--url", server.url, *"--clients 1 --requests 2 --prompt 5 --output 4 --slo tpot-p50=1s".split())
        ran = here(*arguments, "--report", "page.html")
        found = here(*arguments, "--json")
        counted = here(*arguments, "--json", "--tokenizer", "random:tiny")
    assert (
        ran.code == 0 and all(f"{each}†" in ran.out for each in ("TPOT, ms", "TPOT P50", "10, 0, 4")) and "tokens/s" in ran.out
    )
    assert "† of 2 answers the server sent no usage, so their tokens are CHUNKS" in ran.out and "give --tokenizer" in ran.out
    assert "of 2 answers the server sent no usage" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [json_of["summary"]["tokens_counted_by"] for json_of in (found.json, counted.json)] == [
        {"chunks": 2},
        {"tokenizer": 2},
    ]
    assert [record["output"] for record in found.json["records"]] == [2, 2]
    run = Run.from_json(counted.json)
    assert [(record.output, record.counted) for record in run.records] == [(11, "tokenizer")] * 2 and not run.summary.by_chunks
    with serving() as server:
        assert "†" not in here("--url", server.url, *arguments[2:]).out
        ran = here("--url", server.url, *arguments[2:], "--tokenizer", "owner/name")
    assert ran.code == 2 and "--tokenizer owner/name is no folder here" in error_line(ran.err)


@needs_http
def test_a_server_that_dies(here: Any):
    """While the twentieth request is under way."""

    def die(number: int) -> str:
        if number == 20:
            threading.Thread(target=server.stop).start()
        return ""

    with serving(die) as server:
        ran = here("--url", server.url, *"--rate 100/s --requests 1000 --output 2 --json".split())
    run = Run.from_json(ran.json)
    assert ran.code == 3 and "is gone" in error_line(ran.err) and not run.complete
    assert 5 < run.summary.answered < 1000 and run.summary.counts["failed"] >= 1


@needs_http
@pytest.mark.parametrize(
    ("sent", "named", "code"), [("SIGINT", "Ctrl-C", 130), ("SIGTERM", "SIGTERM", 143), ("SIGHUP", "SIGHUP", 129)]
)
def test_a_signal_to_a_process(sent: str, named: str, code: int, tmp_path: Path):
    """Sent with the tenth request: what was measured is printed and marked, and every request that was sent has a record."""
    number = getattr(signal, sent)
    children: list[subprocess.Popen[str]] = []

    def hit(request: int) -> str:
        if request == 10:
            children[0].send_signal(number)
        return ""

    before = signal.signal(number, signal.SIG_DFL)  # a child inherits it where it is ignored, as under nohup
    try:
        with serving(hit) as server:
            command = [
                sys.executable,
                "-m",
                "jaxserve.load",
                "--url",
                server.url,
                *"--clients 2 --requests 100000 --output 2 --json".split(),
            ]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=commands.environment(tmp_path)) as child:
                children.append(child)
                out, err = child.communicate(timeout=120)
    finally:
        signal.signal(number, before)
    assert child.returncode == code
    assert error_line(err) == f"error: interrupted by {named}; results up to then are above, marked as incomplete"
    run = Run.from_json(json.loads(out))
    assert not run.complete and run.why == f"interrupted by {named}" and run.summary.answered >= 8
    assert [record.id for record in run.records] == list(range(len(run.records))) and len(run.records) >= len(server.asked)


@needs_http
def test_saturation_over_http(here: Any):
    with serving(token=0.0, first=0.02) as server:
        ran = here(
            "--url", server.url, *"--rate 50/s --requests 20 --output 1 --saturate --probes 2 --slo ttft-p50=5s --json".split()
        )
    assert ran.code == 0 and ran.json["saturation"]["rate"] == 100.0 and len(ran.json["runs"]) == 2


@needs_http
def test_a_key(here: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "abc")
    with serving() as server:
        arguments = ("--url", server.url, *"--clients 1 --requests 1 --json".split())
        for more in ((), ("--key-variable", "SECRET")):
            ran = here(*arguments, *more)
            assert ran.code == 0 and "abc" not in ran.out
        assert server.keys == {None, "Bearer abc"}
        assert "--key-variable NONE is empty" in error_line(here(*arguments, "--key-variable", "NONE").err)


@needs_http
def test_nobody_there(here: Any):
    with serving() as server:
        server.stop()
        ran = here("--url", server.url, "--rate", "5/s", "--model", "some")
    assert ran.code == 2 and "no server answers at" in error_line(ran.err)


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path):
    commands.folder(tmp_path / "m")
    arguments = "--model ./m --rows 2 --clients 2 --requests 4 --prompt 6 --output 3 --json --report report.html".split()
    ran = commands.run("jaxserve.load", *arguments, cache=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert len(Run.from_json(json.loads(ran.stdout)).records) == 4 and "<html" in (tmp_path / "report.html").read_text()
