"""`python -m jaxserve.buckets` as a user runs it. Oracles: pieces and padding by hand, the reader of ladders, sums that must agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxserve.bucketing import study as bucket_study
from jaxserve.bucketing import tables as bucket_tables
from jaxserve.buckets import main
from jaxserve.programs.buckets import Buckets
from models.errors import UserError
from tests.jaxserve import commands

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def prompt(i: int) -> int:
    return 100 + 10 * i if i else 2048


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """60 requests, 4 a second in bursts; prompts of 2048 and 110 to 690 tokens, answers of 5 to 64; one is too long for the model."""
    lines = [
        f"2023-11-16 18:15:{10 + i // 4:02d}.{2500 * (i % 4 > 2):04d},{prompt(i)},{5 + i if i != 30 else 9000}\n"
        for i in range(60)
    ]
    path = tmp_path / "trace.csv"
    path.write_text(AZURE + "".join(lines))
    return path


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], trace: Path) -> Any:
    """Runs the command in this process: its standard output."""

    def run(*arguments: str) -> str:
        main.main(["--trace", str(trace), *arguments], prog_name="buckets", standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_the_ladder_is_what_the_engine_reads(here: Any, tmp_path: Path):
    out = tmp_path / "ladder.json"
    found = json.loads(here("--programs", "9", "--rows", "16", "--page-size", "16", "--out", str(out), "--json"))
    ladder = Buckets.from_json(json.loads(out.read_text()))
    assert ladder.to_json() == found["ladder"]
    assert ladder.batches[-1] == 16 and ladder.chunk == (8, 256) and ladder.page == 16 and ladder.widths == (512,)
    assert len(ladder.buckets()) == len(found["programs"]) <= 9 and found["exact"]


def test_the_figures_agree(here: Any):
    """Tokens run and drawn follow from the trace: prompts and answers but for the last token of each; programs add up to the ladder."""
    found = json.loads(here("--programs", "9", "--json"))
    prompts, answers = [prompt(i) for i in range(60) if i != 30], [5 + i for i in range(60) if i != 30]
    assert found["simulated"]["ends"] == {"length": 59, "refused": 1}
    assert found["simulated"]["ran"] == sum(prompts) + sum(answers) - 59 and found["simulated"]["drawn"] == sum(answers)
    best = found["ladders"]["best"]
    assert sum(each["seconds"] for each in found["programs"]) == pytest.approx(best["seconds"])
    assert sum(each["wasted"] for each in found["programs"]) == pytest.approx(best["wasted"])
    assert sum(each["tokens"] - each["padded"] for each in found["programs"]) == pytest.approx(found["simulated"]["ran"])
    assert found["ladders"]["every shape"]["seconds"] == pytest.approx(sum(found["simulated"]["busy"]), rel=1e-6)
    assert found["live_seconds"] < found["ladders"]["every shape"]["seconds"] <= best["seconds"]
    assert best["seconds"] <= found["ladders"]["powers of two"]["seconds"]


def test_the_cliff_of_the_next_bucket(here: Any):
    """4096 tokens are 16 pieces of 256: twice 8x256. 4109 are 17, so the last 13 run on 256, or on 2,048 where no program is smaller."""
    found = json.loads(here("--programs", "2", "--json"))["prompts"]
    assert [(each["prompt"], each["padded"], each["runs"]) for each in found] == [
        (4096, 0, ["prefill 8x256"] * 2),
        (4109, 2048 - 13, ["prefill 8x256"] * 3),
    ]
    assert found[0]["wasted"] == 0 and found[1]["wasted"] > 0.1 * found[1]["seconds"]
    more = json.loads(here("--programs", "12", "--prompts", "4109", "--json"))
    pieces = Buckets.from_json(more["ladder"]).prefills[0]
    assert more["prompts"][0]["padded"] == pieces * 256 - 13


def test_what_is_shown(here: Any):
    shown = here("--programs", "6", "--policy", "chunked", "--rows", "8", "--chunk", "2x64", "--pages", "5000")
    for words in (
        "llama-3-8b on h100-sxm, chunked of 512 tokens a step: 8 rows, prefills of up to 2x64, 5000 pages of 16 tokens",
        "60 requests",
        "requests left out: 1, which need more than the context of 8,192 tokens",
        "plans simulated; seconds and bytes analytical",
        "decode 8 + prefill 2x64",
        "no ladder of as many programs pads less",
        "more padded work than every shape",
        "powers of two: ",
        "one width, 512 pages",
        "4,109",
    ):
        assert words in shown, shown


@pytest.mark.parametrize("policy", ["static", "dynamic", "disaggregated"])
def test_other_policies(here: Any, policy: str):
    found = json.loads(here("--policy", policy, "--programs", "4", "--requests", "9", "--rows", "4", "--json"))
    assert found["simulated"]["ends"] == {"length": 9}
    assert len(found["simulated"]["busy"]) == (2 if policy == "disaggregated" else 1)


def test_gather_pays_for_width(here: Any):
    """Sequences hold at most 2,052 of 8,192 tokens: with two widths almost nothing is read for nothing."""
    options = ("--attention", "gather", "--requests", "20", "--rows", "4", "--chunk", "2x256", "--json")
    one, two = (json.loads(here("--programs", programs, *options)) for programs in ("2", "8"))
    assert one["ladder"]["widths"] == [512] and len(two["ladder"]["widths"]) > 1 and two["ladder"]["widths"][-1] == 512
    assert two["ladders"]["best"]["wasted"] < one["ladders"]["best"]["wasted"] / 5


def test_a_trace_with_prefixes(here: Any, tmp_path: Path):
    """A block of 512 tokens that both have, and one of their own: with --prefix-cache the second request runs 512 tokens less."""
    path = tmp_path / "moon.jsonl"
    line = {"input_length": 1024, "output_length": 2}
    path.write_text("".join(json.dumps({"timestamp": 9e3 * i, **line, "hash_ids": [0, 1 + i]}) + "\n" for i in range(2)))
    ran = [
        json.loads(here("--trace", str(path), "--programs", "3", "--json", *more))["simulated"]["ran"]
        for more in ((), ("--prefix-cache",))
    ]
    assert ran == [2 * 1025, 2 * 1025 - 512]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--trace", "none.csv"), "trace none.csv: no such file"),
        (("--programs", "1"), "programs: 1 are too few; a ladder needs at least 2"),
        (("--chunk", "8"), "--chunk is '8'; give rows from 1 to 12 and tokens from 2, such as 8x256"),
        (("--chunk", "13x256"), "--chunk is '13x256'"),
        (
            ("--chunk", "8x99999999999"),
            "--chunk has 99999999999 tokens of a prompt; llama-3-8b takes at most 8192, so lower it$",
        ),
        (("--pages", "2000000000"), "--pages is 2000000000: 4.194e\\+06 GB of KV, and h100-sxm has 80 GB; give at most 38146$"),
        (("--model", "llama-9"), "unknown model 'llama-9'"),
        (("--chip", "h900"), "unknown chip 'h900'"),
        (("--model", "llama-3-70b"), "does not fit one h100-sxm"),
        (
            ("--budget", "8"),
            "--budget is given, but a continuous policy has none; leave it out, or take chunked or disaggregated",
        ),
        (("--policy", "chunked", "--budget", "8"), "a budget of 8 tokens a step is too small for 64 rows"),
        (("--time-scale", "0"), "the time scale is 0.0; it must be above 0"),
        (("--prompts", "9000"), "--prompts has 9000 tokens; the longest sequence here holds 8192; give shorter ones$"),
        (
            ("--pages", "1"),
            "--prompts has 4109 tokens; the longest sequence here holds 16; give shorter ones, or more --pages$",
        ),
        (("--pages", "1", "--prompts", "9"), "no request was served"),
        (("--out", "/none/ladder.json"), "there is no folder /none"),
        (("--kv-dtype", "float8-page16"), "which is not predicted; take float8 or int8"),
    ],
)
def test_bad_input(here: Any, options: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message) as caught:
        here(*options)
    assert "\n" not in str(caught.value)


def test_shares_have_no_zero_below_zero():
    """Sums in another order differ in their last digits."""
    assert [bucket_tables._percent(share) for share in (-1e-9, 0.0, -0.01)] == ["0.00 %", "0.00 %", "-1.00 %"]


def test_a_ladder_that_cannot_be_written(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"--out .* cannot be written: File name too long; write elsewhere"):
        here("--requests", "5", "--out", str(tmp_path / ("x" * 300)))
    monkeypatch.setattr(bucket_study, "study", None)  # a folder is found out before the work
    with pytest.raises(UserError, match=r"--out .* is a folder; give a file in it, such as .*ladder\.json"):
        here("--out", str(tmp_path))


def test_as_a_process(trace: Path, tmp_path: Path):
    done = commands.run("jaxserve.buckets", "--trace", "trace.csv", "--chunk", "0x5", cache=tmp_path)
    assert done.returncode == 2 and "--chunk is '0x5'" in commands.error_line(done.stderr)
