"""`python -m jaxserve.replay_service`. Oracles: made-up services whose step times are known; the real recordings of ../shared/service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration.shipped import kernels
from jaxserve.predict.analytical import Analytical
from jaxserve.recorded_service import study
from jaxserve.recorded_service.deployed import deployed
from jaxserve.recorded_service.play import play
from jaxserve.recorded_service.recorded import Recorded
from jaxserve.recorded_service.step_time import Counted, Parameters, StepTime
from jaxserve.replay_service import main
from models.errors import UserError
from tests.jaxserve.recorded_service.services import META, asked, write

SHARED = Path(__file__).parents[3] / "shared"
SERVICES = SHARED / "service"
FIRST, SECOND = SERVICES / "rtx4090_llama-3.1-8b", SERVICES / "rtxpro6000_llama-3.1-8b"
TRUTH = Parameters(bandwidth=0.7, peak=0.55)


def made(folder: Path, device: str, **changed: Any) -> Path:
    """A service on a chip, whose steps take what two parameters say."""
    meta = META | {"hardware": {"device_name": device}}
    service = deployed(Recorded("x", (), meta, {}))
    truth = TRUTH._replace(**changed)
    counted = Counted(Analytical(service.architecture, service.chip))
    return write(folder, play(service, asked(60), StepTime(counted, truth)), meta)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command in this process: its standard output."""

    def run(*arguments: str | Path) -> str:
        main.main(list(map(str, arguments)), prog_name="replay_service", standalone_mode=False)
        return capsys.readouterr().out

    return run


def errors(simulation: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(each["metric"], each["statistic"]): each["error"] for each in simulation["figures"]}


def test_a_made_up_service(here: Any, tmp_path: Path):
    """Fitted to 30 of its requests, the other 30 come out right; the roofline alone is too fast by what it leaves out, and claims no
    interval. Intervals hold what they are to hold."""
    folder = made(tmp_path / "a", "NVIDIA GeForce RTX 4090")
    found = json.loads(here(folder, "--silicon", "none", "--first", "30", "--json"))
    bare, fitted = found["simulations"]
    assert errors(bare)["TPOT", "mean"] < -0.2
    assert all(abs(error) < 0.01 for error in errors(fitted).values())
    assert fitted["parameters"] == pytest.approx(TRUTH._asdict(), rel=0.03)
    assert fitted["of"] == "requests 31 to 60, which were not fitted" and len(errors(fitted)) == 12
    assert bare["level"] is None and all(each["low"] is None for each in bare["figures"])
    assert fitted["level"] == 0.9 and sum(each["within"] for each in fitted["figures"]) >= 0.9 * 12
    assert "peer's error: of another simulator" not in here(folder, "--silicon", "none", "--first", "30"), "there is none"
    (folder / "peer_simulator_summary.txt").write_text("TTFT Mean 1.0 1.1 +7.3%\n")
    shown = here(folder, "--first", "30")
    for part in (
        "+7.3%",
        "peer's error: of another simulator on all requests of the recording",
        "60 requests",
        "llama-3-8b on rtx-4090",
        "512 tokens a step, 16 sequences, 700 pages",
        "no prefix hits",
        "nearest rank",
        "h100_sxm.json of this package",
        "20% more spread",
        "12 recorded figures",
    ):
        assert part in shown


def test_kernels_that_do_not_suit(here: Any, tmp_path: Path):
    """Weights in 8 bit: where kernels were asked for it is refused, and where nothing was said the roofline stands in and says why."""
    folder = made(tmp_path / "a", "NVIDIA L40S")
    meta = json.loads((folder / "meta.json").read_text())
    meta["engine_kwargs"]["dtype"] = "float8"
    (folder / "meta.json").write_text(json.dumps(meta))
    bare = json.loads(here(folder, "--first", "30", "--json"))["simulations"][0]
    assert "roofline" in bare["name"] and "weights are float8" in bare["name"] and bare["level"] is None
    own = tmp_path / "own.json"
    own.write_text(json.dumps(kernels(None).to_json()))
    with pytest.raises(UserError, match=r"--silicon .*own.json: .* float8, and the kernels multiply 16 bit .*; or give none"):
        here(folder, "--silicon", own)


@pytest.mark.slow
def test_another_chip(here: Any, tmp_path: Path):
    """One chip's parameters with another's data sheet are right where the shares are alike; where they are not, the chip's own are."""
    first = made(tmp_path / "a", "NVIDIA GeForce RTX 4090")
    same = made(tmp_path / "b", "NVIDIA L40S")
    found = json.loads(here(same, "--fitted-on", first, "--first", "30", "--json"))["simulations"]
    assert all(abs(error) < 0.02 for error in errors(found[1]).values())
    other = made(tmp_path / "c", "NVIDIA L40S", bandwidth=0.5, peak=0.8)
    found = json.loads(here(other, "--fitted-on", first, "--first", "30", "--json"))["simulations"]
    assert abs(errors(found[1])["TPOT", "mean"]) > 0.1
    assert all(abs(errors(found[2])[metric, "mean"]) < 0.01 for metric in ("TTFT", "TPOT", "E2E"))


def test_bad_input(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="is no folder"):
        here(tmp_path / "none")
    folder = made(tmp_path / "a", "NVIDIA GeForce RTX 4090")
    monkeypatch.setattr(study, "play", lambda *_, **__: pytest.fail("it was simulated"))
    for first in ("19", "60", "61"):
        with pytest.raises(UserError, match=rf"--first is {first}; fitting takes 20 requests to 59, for the others must judge"):
            here(folder, "--first", first)
    with pytest.raises(UserError, match=r"--silicon .* no such file"):
        here(folder, "--silicon", tmp_path / "none.json")
    (folder / "requests.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"requests.jsonl line 1: 'input_toks' is missing"):
        here(folder)


@pytest.mark.slow
@pytest.mark.skipif(
    not SERVICES.is_dir(), reason="needs ../shared/service, the recordings that are handed over beside this repository"
)
@pytest.mark.parametrize("folder", [FIRST, SECOND])
def test_the_real_services(here: Any, folder: Path):
    """Two shares of a chip, fitted to 100 requests, against the other 200: 5 % on the means of TPOT and E2E, 10 % on that of TTFT and
    on the P90s. The other chip's shares with this one's data sheet are much further off, each in the other direction."""
    other = SECOND if folder == FIRST else FIRST
    bare, exchanged, fitted = json.loads(here(folder, "--fitted-on", other, "--json"))["simulations"]
    found = errors(fitted)
    print({key: f"{error:+.1%}" for key, error in found.items()})
    assert abs(found["TPOT", "mean"]) < 0.05 and abs(found["E2E", "mean"]) < 0.05 and abs(found["TTFT", "mean"]) < 0.10
    assert all(abs(found[metric, "P90"]) < 0.10 for metric in ("TTFT", "TPOT", "E2E"))
    assert (errors(bare)["TPOT", "mean"] > 0) == (folder == FIRST)
    for simulation in (bare, fitted):  # what nobody had looked at: 12 figures of 200 or 300 requests
        assert sum(each["within"] for each in simulation["figures"]) >= 0.9 * 12, simulation["name"]
    assert (errors(exchanged)["TPOT", "mean"] > 0.1) == (folder == FIRST)
