"""The search for the cheapest deployment. Oracles: exhaustive comparison of what it simulated, and figures of the model by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxserve.size import main
from models.errors import UserError

SLO = ("--ttft-p95", "250ms", "--itl-p95", "12ms")
LOAD = ("--context", "256", "--answer", "16", "--rate", "20/s", "--requests", "40")
Here = Callable[..., Any]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs a search in this process: its plain data, or its text with `text=True`."""

    def run(*arguments: str, text: bool = False) -> Any:
        main.main(["--search", *SLO, *arguments, *([] if text else ["--json"])], prog_name="size", standalone_mode=False)
        out = capsys.readouterr().out
        return out if text else json.loads(out)

    return run


def test_the_cheapest_that_meets(here: Here):
    """Fewest chips, and of those that cost the same the least of a limit used: no other that was run is better."""
    found = here(*LOAD, "--chip", "h100", "--chip", "l4", "--tensor-parallel", "1,2", "--batch", "8,32")
    meets = [each for each in found["options"] if each["meets"]]
    assert meets and found["best"] in meets and found["best"]["cost"] == min(each["cost"] for each in meets) == 1

    def used(each: dict[str, Any]) -> float:
        return max(each["ttft_p95"] / 0.25, each["itl_p95"] / 0.012)

    alike = [each for each in meets if (each["cost"], each["chip"]) == (found["best"]["cost"], found["best"]["chip"])]
    assert used(found["best"]) == min(map(used, alike))
    assert found["order"].startswith("the number of chips, for no prices were given")


def test_the_slower_of_two_chips_is_taken_where_both_do(here: Here):
    """Without prices, of as many chips: an A100 meets it as well as an H100, which uses less of the limits."""
    found = here(*LOAD, "--chip", "h100", "--chip", "a100", "--tensor-parallel", "1", "--batch", "32", "--policy", "continuous")
    assert {each["chip"] for each in found["options"] if each["meets"]} == {"h100-sxm", "a100-sxm-80gb"}
    assert found["best"]["chip"] == "a100-sxm-80gb"


def test_a_cap_that_keeps_nobody_out_is_run_once(here: Here, monkeypatch: pytest.MonkeyPatch):
    """The load never has 32 active: caps of 64 and 128 change nothing at the load, and one run serves the three; others run apart."""
    from jaxserve.sizing import search, trial

    ran: list[tuple[str, int]] = []

    def counted(configuration: Any, *more: Any) -> Any:
        ran.append((configuration.policy, configuration.cap))
        return trial.trial(configuration, *more)

    monkeypatch.setattr(search, "trial", counted)
    found = here(*LOAD, "--tensor-parallel", "1", "--batch", "1,2,32,64,128")
    # A cap of 1 can't keep up, says the model; one of 2 keeps others out, so it says nothing of 32.
    assert ran == [("chunked", 2), ("continuous", 2), ("chunked", 32), ("continuous", 32)]
    for policy in ("chunked 512", "continuous"):
        larger = {
            (each["ttft_p95"], each["itl_p95"]) for each in found["options"] if each["policy"] == policy and each["cap"] > 2
        }
        assert len(larger) == 1


def test_prices_decide(here: Here):
    """Where eight cost less than one of the other, they are taken; an H100 at 1 and an A100 at 100 USD/h is no question."""
    options = (*LOAD, "--chip", "h100", "--chip", "a100", "--tensor-parallel", "1", "--batch", "32")
    cheap = here(*options, "--price", "h100=100", "--price", "a100=1")
    other = here(*options, "--price", "h100=1", "--price", "a100=100")
    assert (cheap["best"]["chip"], other["best"]["chip"]) == ("a100-sxm-80gb", "h100-sxm")
    assert (cheap["best"]["cost"], cheap["order"]) == (1, "USD/h as given")


def test_what_is_ruled_out_is_not_run(here: Here):
    """An L4 reads 16 GB in 53 ms, above the ITL; 70B fits no chip of it at all; a batch of 8 draws 8 tokens in 4.9 ms at most."""
    slow = here(*LOAD, "--chip", "l4", "--tensor-parallel", "1")
    assert [each["verdict"] for each in slow["options"]] == ["infeasible by model"] and "below one step" in slow["options"][0][
        "reason"
    ]
    assert slow["best"] is None and slow["answer"].startswith("nothing that was looked at meets the SLO")
    large = here("--model", "llama-3-70b", *LOAD, "--tensor-parallel", "1")
    assert [each["verdict"] for each in large["options"]] == ["infeasible by capacity"]
    busy = here(
        "--context",
        "256",
        "--rate",
        "40/s",
        "--requests",
        "20",
        "--tensor-parallel",
        "1",
        "--batch",
        "8",
        "--policy",
        "chunked",
    )
    (only,) = busy["options"]
    assert (
        only["verdict"] == "infeasible by model" and "40 requests/s want 2,560" in only["reason"] and only["ttft_p95"] is None
    )


def test_the_work_is_bounded(here: Here):
    """Of four that the model allows two are run, the cheapest, and the other two are counted."""
    found = here(*LOAD, "--tensor-parallel", "1,2", "--batch", "32,64", "--policy", "chunked", "--most", "2")
    ran = [each for each in found["options"] if each["ttft_p95"] is not None]
    assert len(ran) == 2 and found["left"] == 2 and {each["tensor_parallel"] for each in ran} == {1}


def test_the_frontier(here: Here):
    """No configuration that was flooded has more tokens a second and chip at an ITL that is no longer than one of the frontier's."""
    found = here(*LOAD, "--tensor-parallel", "1", "--batch", "8,32,64")

    def at(each: dict[str, Any]) -> tuple[float, float]:
        return each["flooded"]["itl"], each["flooded"]["tokens_per_s"] / each["tensor_parallel"]

    ran = {f"1 x h100-sxm, cap {each['cap']}, {each['policy']}": at(each) for each in found["options"] if each["flooded"]}
    assert found["frontier"]
    for name, (itl, rate) in ran.items():
        beaten = any(
            other <= itl and more >= rate and (other, more) != (itl, rate) for key, (other, more) in ran.items() if key != name
        )
        alike = any(point == (itl, rate) for key, point in ran.items() if key != name)
        assert (name in found["frontier"]) != beaten or alike


def test_a_trace(here: Here, tmp_path: Path):
    """Twelve requests, two a second; the page says so, and the picture is one."""
    trace = tmp_path / "t.csv"
    lines = [f"2023-11-16 18:15:{10 + i // 2:02d}.{5 * (i % 2)},{200 + i},{20 + i}\n" for i in range(12)]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    plot, options = tmp_path / "frontier.svg", ("--trace", str(trace), "--tensor-parallel", "1", "--batch", "8")
    pytest.importorskip("matplotlib", reason="pip install 'jaxserve[plots]'")
    shown = here(*options, "--plot", str(plot), text=True)
    assert (
        "the first 12 requests of t.csv, times x 1, lengths x 1: 2 requests/s" in shown and "take 1 x h100-sxm, cap 8" in shown
    )
    drawn = plot.read_text()
    assert drawn.startswith("<?xml") and "</svg>" in drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--chip", "h100", "--chip", "a100", "--price", "h100=2"),
            r"--price says nothing of a100-sxm-80gb; give a price for each chip",
        ),
        (("--price", "h100=2", "--price", "l4=1"), r"--price names l4, which --chip does not; add --chip l4"),
        (("--price", "h900=1"), "unknown chip 'h900'"),
        (("--price", "h100=-2"), "--price is 'h100=-2'; give a chip and what an hour of it costs, above 0"),
        (("--clients", "8"), "--clients, --measured and --machine belong to the study of one deployment; leave out --search"),
        (("--plot", "x.gif"), "--plot is 'x.gif'; give a name that ends in"),
    ],
)
def test_bad_input(here: Here, options: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message) as caught:
        here(*LOAD, *options)
    assert "\n" not in str(caught.value)
