"""`python -m jaxserve.simulate` as users meet it. Oracles: the times of a few steps of 1 s by hand, `simulated` called from Python, the
roofline of `costmodel.step_cost`, and what a step log itself says."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from costmodel.analytical.step import step_cost
from costmodel.arch.catalog import as_architecture
from costmodel.hardware.chips import find_chip
from costmodel.sizing import Placement
from jaxserve import simulate as command
from jaxserve.deployment import deployment
from jaxserve.deployment.step_times import StepTimes, decode_plan, step_times
from jaxserve.kv.paged import Paged
from jaxserve.load.result import Run
from jaxserve.load.trace import read_trace, requests
from jaxserve.predict.analytical import Analytical
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.simulate import main
from jaxserve.simulator.faults import Fault, Leave, Slow, Stall
from jaxserve.simulator.records import simulated
from tests.jaxserve import commands
from tests.jaxserve.steplogs import altered, numbers, small_log

EVEN = ("--rate", "6/min", "--arrivals", "constant", "--prompt", "5", "--output", "4", "--requests", "3")  # at 0, 10 and 20 s
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:4{i // 10}.{i % 10},{90 + 37 * i},{5 + 3 * i}\n" for i in range(20)
)

Here = Callable[..., str]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Runs the command in this process, in a folder with a trace: its standard output."""
    (tmp_path / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with main.make_context("simulate", list(arguments)) as context:
            main.invoke(context)
        return capsys.readouterr().out

    return run


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1 s."""
    by_hand = StepTimes("analytical", "by hand", lambda plan: 1.0)
    monkeypatch.setattr(deployment, "step_times", lambda placement, witness, silicon: by_hand)


def run_of(out: str) -> Run:
    return Run.from_json(json.loads(out))


def times(out: str) -> list[tuple[float, ...]]:
    """When the tokens of every answer came, from when it was due."""
    return [tuple(round(at - each.intended, 3) for at in each.tokens) for each in run_of(out).records]


@pytest.mark.parametrize(
    ("faults", "second"),
    [
        ((), (1, 2, 3, 4)),
        (("stall 11s for 2s",), (1, 4, 5, 6)),
        (("stall 8s for 4s",), (3, 4, 5, 6)),  # of which 2 s are left at 10 s
        (("slow 10s x3",), (3, 4, 5, 6)),
        (("slow 10s..12s x3",), (3, 4, 5, 6)),  # the next begins at 13 s
        (("slow 10.5s..13s x1.5", "slow step 4 x2"), (2, 3.5, 4.5, 5.5)),  # steps 0 to 3 are the first answer's
        (("leave 1 after 2 tokens",), (1, 2)),
        (("leave 1 at 12500ms",), (1, 2)),
        (("burst 11s 1 of 3+2",), (1, 2, 3, 4)),
    ],
)
def test_faults_by_hand(here: Here, seconds: None, faults: tuple[str, ...], second: tuple[float, ...]):
    """Each answer is alone and takes four steps; the second is due at 10 s. What it suffers the others do not."""
    found = times(here(*EVEN, *(word for fault in faults for word in ("--fault", fault)), "--json"))
    assert [found[0], found[1], found[-1]] == [(1, 2, 3, 4), second, (1, 2, 3, 4)]
    assert found[2:-1] == ([(1, 2)] if "burst" in "".join(faults) else [])


def test_a_closed_loop_by_hand(here: Here, seconds: None):
    """Two clients, answers of 4 s, a second to think: they ask at 0, 5 and 10 s; at 10 s nothing is due any more."""
    run = run_of(here("--clients", "2", "--think", "1s", "--output", "4", "--duration", "10s", "--json"))
    assert [record.intended for record in run.records] == [0, 0, 5, 5] and run.duration == 9
    assert run.witness == "simulated" and run.warm == 0 and run.complete


def test_plans_made_ahead(here: Here, seconds: None):
    """The second comes at 0.5 s. The step that runs ends at 1 s, and where the next was made ahead, that one at 2 s."""
    for ahead, first in (("0", 1.5), ("1", 2.5)):
        assert times(here("--rate", "2/s", *EVEN[2:-1], "2", "--ahead", ahead, "--json"))[1][0] == first


def test_workers_apart(here: Here, seconds: None):
    """The prefill worker draws the first token; the decode worker stalls for 2 s. KV of 5 tokens takes 0.66 ms at 1 GB/s."""
    apart = (*EVEN, "--policy", "disaggregated", "--link", "1", "--fault", "stall 10500ms for 2s worker 1")
    assert times(here(*apart, "--json"))[1] == pytest.approx((1, 3.5, 4.5, 5.5), abs=2e-3)
    assert "2 workers (1 to prefill, 1 to decode), each on chips of its own" in here(*apart)


def test_the_same_as_from_python(here: Here):
    """Records are equal to the last bit; faults included."""
    options = ("--trace", "trace.csv", "--policy", "chunked", "--rows", "8", "--budget", "256", "--pages", "400")
    faults: list[Fault] = [Stall(0, 0.5, 0.25), Slow(3.0, at=1.0, until=1.1), Leave(7, tokens=3)]
    texts = ("stall 0.5s for 250ms", "slow 1s..1.1s x3", "leave 7 after 3 tokens")
    run = run_of(here(*options, *(word for text in texts for word in ("--fault", text)), "--json"))
    trace = requests(read_trace(Path("trace.csv")))
    steps = Analytical("llama-3-8b", "h100")
    policy, state = Chunked(Limits(rows=8), 256), State.of(Paged.of(400, 16))
    assert list(run.records) == simulated(policy, state, trace, steps, faults=faults)


def test_step_times_are_the_roofline(here: Here):
    """A request alone: its prompt is one prefill, and each further token a decode of one row."""
    (record,) = run_of(here("--clients", "1", "--requests", "1", "--prompt", "100", "--output", "3", "--json")).records
    took = [step_cost("llama-3-8b", kind="prefill", batch=1, context=100, chip="h100").seconds()]
    took += [step_cost("llama-3-8b", batch=1, context=context, chip="h100").seconds() for context in (101, 102)]
    assert record.tokens == pytest.approx([sum(took[:i]) for i in (1, 2, 3)])


def test_calibrated_step_times(here: Here):
    """Those that a study of `jaxserve.size` takes: the same records from Python, and the interval of a step is said."""
    options = ("--trace", "trace.csv", "--requests", "6", "--rows", "4", "--pages", "400", "--step-times", "calibrated")
    placement = Placement(as_architecture("llama-3-8b"), find_chip("h100"))
    steps = step_times(placement, "calibrated", None)
    trace, state = requests(itertools.islice(read_trace(Path("trace.csv")), 6)), State.of(Paged.of(400, 16))
    run = run_of(here(*options, "--json"))
    assert list(run.records) == simulated(Continuous(Limits(rows=4)), state, trace, steps.seconds)
    full = decode_plan(4, 294)  # the longest has 90 + 37 * 5 tokens and 20 to follow, of which the last is never run
    assert steps.quick is not None and steps.slow is not None
    took, quick, slow = (f"{seconds(full) * 1e3:.2f}" for seconds in (steps.seconds, steps.quick, steps.slow))
    said = f"such as {took} ms for one token of each of 4 sequences that hold 294 tokens; 90% of such steps take {quick} to {slow} ms"
    assert said in here(*options)


@pytest.mark.slow
def test_compiled_step_times(tmp_path: Path):
    """A program moves at least what the analytical model says, so a full step takes no less, and within five times as long."""
    tiny = ("--model", "tiny", "--chip", "host", "--dtype", "float32", "--prompt", "20-60", "--output", "8", "--rate", "50/s",
            "--requests", "20", "--pages", "200", "--rows", "8")  # fmt: skip
    took = {}
    for witness in ("analytical", "compiled"):
        done = commands.run("jaxserve.simulate", *tiny, "--step-times", witness, cache=tmp_path)
        assert done.returncode == 0 and f"step times: {witness}, " in done.stdout, done.stderr
        took[witness] = float(done.stdout.split("such as ")[1].split()[0])
    assert "8 programs compiled for" in done.stdout and 0.9 < took["compiled"] / took["analytical"] < 5


@pytest.mark.parametrize("later", [0, 64])
def test_a_log_again(here: Here, tmp_path: Path, later: int):
    """Tokens come when the log says that their steps were over, counted from the first arrival, whatever its clock said then."""
    log = small_log(tmp_path / "steps.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    folded = sorted(line["now"] for line in lines if line["event"] == "folded" for _ in range(line["drawn"]))
    moved = [line | {key: line[key] + later for key in ("now", "arrival") if key in line} for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in moved))
    run = run_of(here("--log", "steps.jsonl", "--json"))
    assert sorted(at for record in run.records for at in record.tokens) == pytest.approx(folded) and len(folded) == 7
    assert min(record.intended for record in run.records) == 0 and run.duration == pytest.approx(folded[-1])
    assert run.pool is not None and run.pool[:2] == (3, 3) and run.settings["step_times"]["witness"] == "measured"
    text = here("--log", "steps.jsonl", "--slo", "ttft-p95=1h", "--warmup", "1")
    assert "each with the hash that the log has" in text and "met" in text


def test_tables(here: Here, seconds: None):
    text = here(*EVEN, "--slo", "e2e-p95=5s", "--fault", "slow step 3 x2", "--fault", "stall 1h for 1s", "--policy", "static")
    for said in (
        "No server ran: the scheduler that serves decided on a virtual clock (witness: simulated)",
        "llama-3-8b on 1 x h100-sxm, weights bfloat16, KV bfloat16",
        "policy static: 64 sequences at once, prefix cache off",
        "step times: analytical, by hand; of the device alone, nothing of the host",
        "such as 1000.00 ms for one token of each of 64 sequences that hold 8 tokens",
        "fault: step 3 takes 2 times as long",
        "constant 0.1/s, simulation, llama-3-8b, static (simulated)",
        "Latencies (simulated)",
        "Little's law",
        "Steps (simulated)",
        "nothing came of a fault in constant 0.1/s: worker 0 does nothing from 3600 s on for 1 s, but all was over at 24 s",
    ):
        assert said in text, said


def test_several_loads_and_saturation(here: Here, seconds: None):
    """One row and steps of 1 s: an answer of 2 tokens takes 2 s, so that at most 0.5/s can be borne."""
    one = ("--rows", "1", "--output", "2", "--arrivals", "constant")
    both = json.loads(here(*one, "--rate", "0.2/s,0.4/s", "--requests", "9", "--json"))
    assert [run["settings"]["load"] for run in both["runs"]] == ["constant 0.2/s", "constant 0.4/s"]
    found = json.loads(here(*one, "--rate", "0.1/s", "--requests", "60", "--slo", "ttft-p95=1500ms", "--saturate", "--json"))
    assert 0.4 < found["saturation"]["rate"] <= 0.52


def test_cut_short(here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Ctrl-C while the seventh step is priced: one answer is over, and one of two tokens is under way."""

    def strike(plan: Plan) -> float:
        if plan.step == 6:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr(deployment, "step_times", lambda *_: StepTimes("analytical", "by hand", strike))
    with pytest.raises(click.exceptions.Exit) as left_with:
        here(*EVEN, "--json")
    out, err = capsys.readouterr()
    assert left_with.value.exit_code == 130 and "interrupted by Ctrl-C; results up to then are above" in err
    run = run_of(out)
    assert not run.complete and [(each.reason, each.output) for each in run.records] == [("length", 4), ("unfinished", 2)]


def test_the_page_is_kept_where_the_output_is_full(here: Here, seconds: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(command, "_print", full)
    with pytest.raises(OSError, match="No space left"):
        here(*EVEN, "--report", str(tmp_path / "page.html"))
    assert "</html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_as_a_process(tmp_path: Path):
    """The example of --help, shorter; a page; and a mistake."""
    help = commands.run("jaxserve.simulate", "--help", cache=tmp_path)
    assert "Example: python -m jaxserve.simulate --model llama-3-8b" in help.stdout and help.returncode == 0
    load = ("--rate", "5/s", "--requests", "40", "--policy", "chunked", "--fault", "stall 2s for 1s")
    done = commands.run("jaxserve.simulate", *load, "--report", "out.html", cache=tmp_path)
    assert done.returncode == 0 and done.stderr == "the report is in out.html\n" and "Steps (simulated)" in done.stdout
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "worker 0 does nothing from 2 s on for 1 s" in page and "No server ran" in page
    done = commands.run("jaxserve.simulate", "--rate", "5", cache=tmp_path)
    assert done.returncode == 2 and "--rate is '5', which has no unit" in commands.error_line(done.stderr)


def test_a_log_that_was_changed(here: Here, tmp_path: Path):
    log = small_log(tmp_path / "steps.jsonl")
    altered(log, numbers(log, "planned")[2], digest="0" * 32)
    with pytest.raises(Exception, match="differs when it is run again, so it can't be used"):
        here("--log", "steps.jsonl")
