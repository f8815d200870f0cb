"""`python -m jaxserve.size` as a user runs it. Oracles: facts.md section 4, and the options of the load harness itself."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from costmodel.sizing import Demand
from jaxserve.load.__main__ import main as load
from jaxserve.load.asked import Asked
from jaxserve.load.record import Record
from jaxserve.load.result import Run
from jaxserve.load.slo import SLO
from jaxserve.serve_settings import ServeSettings
from jaxserve.size import main
from jaxserve.sizing import study
from jaxserve.sizing.measured import Measured
from models.errors import UserError
from tests.jaxserve import commands

GIB = 2**30
FACTS = ("--kv-pool", "30GiB", "--context", "1024", "--ttft-p95", "250ms", "--itl-p95", "12ms", "--rate", "20/s")
SHORT = (*FACTS, "--answer", "16", "--requests", "30")  # for what does not depend on how long it runs
Here = Callable[..., str]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs the command in this process: its standard output."""

    def run(*arguments: str) -> str:
        main.main(list(arguments), prog_name="size", standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module", autouse=True)
def a_shorter_search() -> Iterator[None]:
    """For the admission limit, than a user would have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "PROBES", 2)
        yield


@pytest.fixture(scope="module")
def facts() -> Any:
    """The study of the facts, with fewer requests than a user would take."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main.main([*FACTS, "--requests", "80", "--json"], prog_name="size", standalone_mode=False)
    return json.loads(out.getvalue())


def test_the_facts(facts: Any):
    """0.125 GiB a sequence, 240 before metadata and headroom; 8, 16 and 32 GiB, the last over by 2; steps of 7.34 and 9.90 ms."""
    assert facts["pool"]["sequence_bytes"] == GIB / 8 and facts["pool"]["sequences_before"] == 240
    assert facts["pool"]["sequences"] == 237
    found = facts["candidates"]
    assert [(each["batch"], each["kv_bytes"] / GIB, each["over_bytes"] / GIB) for each in found] == [
        (64, 8, 0),
        (128, 16, 0),
        (256, 32, 2),
    ]
    assert [round(each["nominal_step"] * 1e3, 2) for each in found[:2]] == [7.34, 9.90]
    assert [each["verdict"] for each in found] == ["undecided until measured"] * 2 + ["infeasible by capacity"]
    assert facts["clients"] == [32, 64, 96, 128]


def test_three_numbers_are_kept_apart(facts: Any):
    """Never more rows in a step than are active, nor more active than the cap; and a cap of 256 does not take 32 GiB."""
    for each in facts["candidates"]:
        ran = each["simulated"]
        assert ran["step"]["most"] <= ran["active"]["most"] <= each["batch"] and ran["step"]["mean"] <= ran["active"]["mean"]
        assert ran["summary"]["ttft"]["p95"] < 0.25 and ran["summary"]["itl"]["p95"] < 0.012
    large = facts["candidates"][2]["simulated"]
    assert large["pages_most"] < facts["pool"]["usable_pages"] / 2 and large["preemptions"] == 0


def test_little(facts: Any):
    """Clients in the system: rate times mean residence, and a request stays at least for its 256 steps of 4.48 ms."""
    for each in facts["candidates"]:
        assert each["simulated"]["clients_mean"] > 20 * 256 * 4.48e-3


def test_the_admission_limit(facts: Any):
    found = facts["admission"]
    best = next(probe for probe in found["probes"] if probe["rate"] == found["rate"])
    assert found["cap"] == 128 and found["rate"] >= 20 and best["holds"]
    assert found["limit"] == math.ceil(found["rate"] * best["residence"])


def test_a_run_that_is_too_short_names_no_limit(here: Here):
    """Ten requests, two of which fill the system, at 20/s: over long before a request has ended, even four times as many."""
    short = (*FACTS, "--answer", "512", "--requests", "10")
    assert json.loads(here(*short, "--json"))["admission"] is None
    assert "so few requests say nothing of it; give more --requests" in here(*short)


def parsed(text: str) -> dict[str, Any]:
    """What the load harness makes of a command of the plan, as far as that goes without a server."""
    words = shlex.split(text.partition(" > ")[0])
    assert words[:3] == ["python", "-m", "jaxserve.load"]
    given = dict(load.make_context("load", words[3:]).params)
    engine = {field.name: given.pop(field.name) for field in dataclasses.fields(ServeSettings) if field.name in given}
    slo, url = SLO.parse(given["limits"]), given["url"]
    asked = Asked(
        slo=slo,
        **{
            field.name: given[field.name]
            for field in dataclasses.fields(Asked)
            if field.name in given and given[field.name] is not None
        },
    )
    return {"server": None if url else ServeSettings(**engine), "url": url, "asked": asked}


def test_the_plan_runs_as_it_stands(facts: Any):
    """Each command is one that the harness takes: closed loop, open loop for both caps, saturation."""
    closed, small, large, saturation = (parsed(each["text"]) for each in facts["plan"])
    assert closed["asked"].clients == (32, 64, 96, 128) and closed["server"].rows == 128
    assert (small["server"].rows, large["server"].rows) == (64, 128)
    for each in (small, large):
        rates = each["asked"].rates
        assert rates == tuple(sorted(rates)) and 20.0 in rates and len(rates) >= 4 and each["asked"].kind == "poisson"
        assert each["server"].model == "random:llama-3-8b" and each["server"].policy == "chunked"
        assert each["server"].pages == facts["pool"]["usable_pages"] and each["server"].context == 1024
    assert saturation["asked"].saturate and saturation["asked"].rates == (20.0,)
    assert all(
        each["asked"].slo == SLO(ttft={95: 0.25}, itl={95: 0.012}) and each["asked"].requests == 80
        for each in (closed, small, large, saturation)
    )


def test_a_plan_for_what_the_engine_does_not_run(here: Here):
    """Two chips are asked over HTTP."""
    found = json.loads(here(*SHORT, "--tensor-parallel", "2", "--json"))
    assert found["plan"] and all(parsed(each["text"])["url"] == "http://127.0.0.1:8000" for each in found["plan"])


def test_the_page_for_people(here: Here):
    shown = here(*SHORT)
    for words in (
        "0.125 GiB a full sequence of 1024 tokens, 240 full sequences before block metadata and headroom, 237 after",
        "7.34",
        "9.90",
        "infeasible by capacity: 256 full sequences need 32 GiB, 2 GiB more than the pool of 30 GiB",
        "undecided until measured: it fits, and model steps are estimates, not bounds",
        "A cap reserves no memory",
        "python -m jaxserve.load --model random:llama-3-8b",
        "*",  # 21 requests that are judged are too few for a P95
    ):
        assert words in " ".join(shown.split()), words


def test_70b_does_not_fit_one_chip(here: Here):
    """Weights of 141 GB: ruled out by capacity whatever the batch, with the degree that would do; nothing to measure."""
    found = json.loads(here("--model", "llama-3-70b", *FACTS, "--requests", "30", "--json"))
    assert not found["fits"] and found["least_degree"] == 4 and found["plan"] == [] and found["admission"] is None
    assert {each["verdict"] for each in found["candidates"]} == {"infeasible by capacity"}
    assert "the smallest that does is tensor-parallel degree 4" in found["candidates"][0]["reason"]
    with pytest.raises(
        UserError, match=r"does not fit one h100-sxm .* degree 2; without --kv-pool the pool is what weights leave"
    ):
        here("--model", "llama-3-70b", *FACTS[2:], "--requests", "30")


def test_a_load_beyond_a_cap_is_infeasible_by_model(here: Here):
    """With answers of 512 tokens 64 rows can't keep up with 20/s, see `tests/costmodel/test_sizing.py`; so 128 alone is to be measured."""
    found = json.loads(here(*FACTS, "--answer", "512", "--requests", "12", "--json"))
    small = found["candidates"][0]
    assert small["verdict"] == "infeasible by model" and "want 10,240" in small["reason"]
    assert small["simulated"]["hasty"], "12 requests in 0.6 s, which stay 3 s"
    assert [each["file"] for each in found["plan"]] == ["closed-128.json", "open-128.json", "saturation-128.json"]


def test_a_simulated_miss_is_infeasible_by_model(here: Here):
    """Whole prompts of 1,008 tokens take 14.5 ms each in a step, so whoever decodes waits longer than 10; in chunks of 256 not."""
    options = (*SHORT, "--itl-p95", "10ms", "--batch", "64", "--json")
    (whole,) = json.loads(here(*options, "--policy", "continuous"))["candidates"]
    assert whole["verdict"] == "infeasible by model" and whole["reason"].startswith("simulated with analytical steps: ITL P95 ")
    (chunks,) = json.loads(here(*options, "--budget", "256"))["candidates"]
    assert chunks["verdict"] == "undecided until measured"


def test_headroom_can_be_what_does_not_fit(here: Here):
    """240 full sequences fit before metadata and headroom, and 237 after."""
    options = (*FACTS, "--answer", "16", "--itl-p95", "20ms", "--requests", "10", "--batch", "237,240", "--json")
    found = json.loads(here(*options))["candidates"]
    assert [each["verdict"] for each in found] == ["undecided until measured", "infeasible by capacity"]
    assert found[1]["reason"] == "237 full sequences are left after block metadata and headroom"


def test_what_never_breaks_has_no_limit(here: Here, monkeypatch: pytest.MonkeyPatch):
    """With an SLO of minutes nothing breaks. The search ends at the rate at which 4 x 6 requests come within the stay of one."""
    monkeypatch.setattr(study, "PROBES", 12)
    lengths = ("--context", "32", "--answer", "16", "--batch", "64")
    options = ("--kv-pool", "30GiB", *lengths, "--ttft-p95", "10min", "--rate", "2/s", "--requests", "30")
    found = json.loads(here(*options, "--json"))
    stay = found["candidates"][0]["simulated"]["clients_mean"] / 2
    assert found["admission"]["above"] is None and found["admission"]["rate"] == pytest.approx(24 / stay)
    assert "none was found: the SLO holds at every rate that was tried, up to" in here(*options)


def run_of(path: Path, *, gap: float, rows: int | None = 128, rate: float = 20.0, **fields: Any) -> Path:
    """A measured run of 80 requests of 1,008 and 16 tokens: 100 ms to the first token, then one each `gap` s."""
    records = [
        Record(i, i / 20, i / 20, i / 20, i / 20, i / 20, i / 20 + 0.1, tokens, tokens[-1], 1008, 16)
        for i in range(80)
        for tokens in [tuple(i / 20 + 0.1 + gap * n for n in range(16))]
    ]
    settings = {"load": f"poisson {rate:g}/s", "arrivals": {"kind": "poisson", "rate": rate}} | ({"rows": rows} if rows else {})
    run = Run.of(records, **{"witness": "measured", "settings": settings, **fields})
    path.write_text(json.dumps(run.to_json()))
    return path


@pytest.mark.parametrize(("gap", "word"), [(0.010, "met"), (0.013, "missed")])
def test_a_measured_run_has_the_last_word(here: Here, tmp_path: Path, gap: float, word: str):
    path = run_of(tmp_path / "run.json", gap=gap)
    found = json.loads(here(*SHORT, "--measured", str(path), "--json"))["candidates"]
    assert [each["verdict"] for each in found] == ["undecided until measured", "measured", "infeasible by capacity"]
    assert found[1]["reason"].startswith("poisson 20/s, 80 requests (run.json): TTFT P95 100.0 ms of 250 ms: met")
    assert f"ITL P95 {gap * 1e3:.1f} ms of 12 ms: {word}" in found[1]["reason"]


def test_a_run_under_another_load_decides_nothing(here: Here, tmp_path: Path):
    path = run_of(tmp_path / "run.json", gap=0.01, rate=5.0)
    shown = here(*SHORT, "--measured", str(path))
    assert "decides nothing here: another rate than 20/s" in shown and ": measured: " not in shown.partition("verdicts")[2]


def test_why_a_run_decides_nothing(tmp_path: Path):
    """A closed loop has no rate; another rate, other prompts, other answers; each by more than 5 %. The same load decides."""
    (run,) = Measured.read(str(run_of(tmp_path / "run.json", gap=0.01)))

    def foreign(rate: float, prompt: int, answer: int, kind: str = "poisson") -> str:
        settings = {**run.run.settings, "arrivals": {"kind": kind, "rate": 20.0}}
        return run._replace(run=dataclasses.replace(run.run, settings=settings)).foreign(
            rate, Demand.of(rate, [(prompt, answer)])
        )

    assert foreign(20, 1008, 16) == foreign(20.9, 1050, 16) == ""
    assert foreign(20, 1008, 16, kind="closed") == "a closed loop, which has no rate of its own"
    assert foreign(22, 1008, 16) == "another rate than 22/s"
    assert foreign(20, 900, 16) == "prompts of 1,008 tokens on average and not 900"
    assert foreign(20, 1008, 32) == "outputs of 16 tokens on average and not 32"
    assert foreign(99, 1008, 16, kind="replay") == "", "a trace's own times"


def test_a_cap_that_the_server_does_not_tell(here: Here, tmp_path: Path):
    path = run_of(tmp_path / "run.json", gap=0.01, rows=None)
    found = json.loads(here(*SHORT, "--measured", f"64={path}", "--json"))["candidates"]
    assert found[0]["verdict"] == "measured"
    with pytest.raises(UserError, match=r"does not say how many sequences its server ran at once; say it, as 128="):
        here(*FACTS, "--measured", str(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "20"), r"--rate is '20', which has no unit; give one of /s"),
        (("--itl-p95", "12/s"), r"--itl-p95 is '12/s', which has the unit '/s'; give one of us, ms"),
        (("--kv-pool", "30"), r"--kv-pool is '30', which has no unit"),
        (("--itl-p95", "3ms"), r"ITL target of 3 ms is below one step: llama-3-8b on 1 x h100-sxm takes 4\.48 ms"),
        (("--ttft-p95", "5ms"), r"TTFT target of 5 ms is below one prompt of 1,008 tokens"),
        (("--clients", "32,300"), r"--clients 300: the pool holds at most 237 full sequences of 1024 tokens"),
        (("--context", "9000"), r"--context is 9000; llama-3-8b takes 1 to 8192 tokens"),
        (("--prompt", "1024"), r"no sequence of --context 1024"),
        (("--trace", "none.csv"), r"give either --rate 20/s, for Poisson arrivals, or --trace FILE"),
        (("--model", "llama-9"), r"unknown model 'llama-9'"),
        (("--chip", "h900"), r"unknown chip 'h900'"),
        (("--chip", "h100", "--chip", "a100"), r"--chip names 2 and a study is of one deployment; give one, or add --search"),
        (("--tensor-parallel", "3"), r"attention heads 32 does not divide by tensor_parallel 3"),
        (("--headroom", "1"), r"headroom is 1; it must be a share"),
        (("--price", "h100=2"), r"--price belongs to a search; add --search"),
        (("--price", "h100"), r"--price is 'h100'; give a chip and what an hour of it costs"),
        (("--measured", "none.json"), r"--measured none\.json cannot be read: No such file or directory; give what"),
    ],
)
def test_bad_input(here: Here, options: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message) as caught:
        here(*SHORT, *options)
    assert "\n" not in str(caught.value)


def test_more_bad_input(here: Here, tmp_path: Path):
    with pytest.raises(UserError, match="no SLO was given to size for; add --ttft-p95 250ms"):
        here("--rate", "20/s", "--context", "1024")
    with pytest.raises(UserError, match="--rate needs the length of its requests; add --context 1024"):
        here("--rate", "20/s", "--itl-p95", "12ms")
    (tmp_path / "no.json").write_text("{")
    with pytest.raises(UserError, match=r"no\.json is no JSON"):
        here(*FACTS, "--measured", str(tmp_path / "no.json"))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match=r"other\.json: this is no run"):
        here(*FACTS, "--measured", str(tmp_path / "other.json"))
    with pytest.raises(UserError, match="is of a run that was simulated"):
        here(*FACTS, "--measured", str(run_of(tmp_path / "run.json", gap=0.01, witness="simulated")))


@pytest.mark.slow
def test_a_load_beyond_a_cap_shows_in_a_long_simulation(here: Here):
    """The same by simulation, in a run that is long enough: the queue before 64 rows grows, that before 128 does not."""
    small, large, _ = json.loads(here(*FACTS, "--answer", "512", "--requests", "1000", "--json"))["candidates"]
    assert not small["simulated"]["hasty"] and not small["simulated"]["met"] and "TTFT" in small["simulated"]["missed"]
    assert large["simulated"]["met"] and large["verdict"] == "undecided until measured"


@pytest.mark.slow
def test_as_a_process(tmp_path: Path):
    done = commands.run("jaxserve.size", *FACTS, "--itl-p95", "3 ms", cache=tmp_path)
    assert done.returncode == 2 and "below one step" in commands.error_line(done.stderr)
