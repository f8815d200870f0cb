"""What `python -m jaxserve.size` refuses, in a line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxserve.sizing import study
from models.errors import UserError
from tests.jaxserve import commands
from tests.jaxserve.sizing.studies import FACTS, SHORT, Here


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
        (
            ("--requests", "2147483647"),
            r"--requests 2147483647 with \d+ tokens to follow needs about .* GB .*; ask for fewer requests",
        ),
        (("--headroom", "1"), r"headroom is 1; it must be a share"),
        (("--price", "h100=2"), r"--price belongs to a search; add --search"),
        (("--price", "h100"), r"--price is 'h100'; give a chip and what an hour of it costs"),
        (("--silicon", "x"), r"--silicon names the kernels of calibrated step times; add --step-times calibrated"),
        (("--measured", "none.json"), r"--measured none\.json: no such file; give what"),
    ],
)
def test_bad_input(here: Here, options: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message) as caught:
        here(*SHORT, *options)
    assert "\n" not in str(caught.value)


def test_clients_are_refused_before_anything_is_simulated(here: Here, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(study, "trial", lambda *_: pytest.fail("it was simulated"))
    with pytest.raises(UserError, match="--clients 300: the pool holds at most 237"):
        here(*FACTS, "--clients", "300")


def test_more_bad_input(here: Here):
    with pytest.raises(UserError, match="no SLO was given to size for; add --ttft-p95 250ms"):
        here("--rate", "20/s", "--context", "1024")
    with pytest.raises(UserError, match="--rate needs the length of its requests; add --context 1024"):
        here("--rate", "20/s", "--itl-p95", "12ms")


@pytest.mark.slow
def test_as_a_process(tmp_path: Path):
    done = commands.run("jaxserve.size", *FACTS, "--itl-p95", "3 ms", cache=tmp_path)
    assert done.returncode == 2 and "below one step" in commands.error_line(done.stderr)
