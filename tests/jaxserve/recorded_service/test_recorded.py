"""Folders of recorded services. Oracles: the numbers that were written; the rules of the format."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from jaxserve.recorded_service.recorded import Served, read
from models.errors import UserError
from tests.jaxserve.recorded_service.services import META, write

TWO = [Served("a", 5, 3, 0.5, 0.5, 0.75, 1.25), Served("b", 7, 1, 0.0, 0.25, 0.5, 0.5)]


def test_what_is_written_is_read(tmp_path: Path):
    """Times count from the first that was queued, which need not stand first."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "peer_simulator_summary.txt").write_text(
        "Metric      vLLM   Sim   Diff%\n----\nTTFT Mean  32.4  32.5  +0.2%\n\nLatency P90  100.0 90.0 -10.0%\nTPOT P90 1.0 1.0 -0.0%\n"
    )
    found = read(write(tmp_path / "s", TWO))
    assert found.requests == (TWO[1], TWO[0])
    assert (found.name, found.meta) == ("s", META)
    assert found.peer == {("TTFT", "Mean"): 0.002, ("Latency", "P90"): -0.1, ("TPOT", "P90"): 0.0}
    assert f"{found.peer['TPOT', 'P90']:+.1%}" == "+0.0%"
    assert read(write(tmp_path / "t", TWO)).peer == {}


def test_metrics_by_hand():
    """3 tokens, the first after a quarter of a second and the last after three."""
    assert (TWO[0].ttft, TWO[0].tpot, TWO[0].e2e) == (0.25, 0.25, 0.75)
    assert (TWO[1].ttft, TWO[1].e2e) == (0.5, 0.5) and math.isnan(TWO[1].tpot)


GOOD = {
    "request_id": "a",
    "input_toks": 5,
    "output_toks": 3,
    "queued_ts": 1.0,
    "scheduled_ts": 1.0,
    "first_token_ts": 2.0,
    "last_token_ts": 3.0,
}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: "),
        ("[1]", "line 2: it holds a JSON list, not an object"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "input_toks"}), "line 2: 'input_toks' is missing"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "request_id"}), "line 2: 'request_id' is missing"),
        (json.dumps(GOOD | {"output_toks": 0}), "line 2: output_toks is 0, not a number of at least 1"),
        (json.dumps(GOOD | {"output_toks": True}), "line 2: output_toks is True"),
        (json.dumps(GOOD | {"input_toks": 2.5}), "line 2: input_toks is 2.5"),
        (json.dumps(GOOD | {"queued_ts": None}), "line 2: queued_ts is None, not seconds"),
        (json.dumps(GOOD | {"queued_ts": math.nan}), "line 2: not valid JSON (NaN is no number)"),
        (json.dumps(GOOD | {"last_token_ts": 1.5}), "line 2: last_token_ts is 0.5 s before first_token_ts"),
        (json.dumps(GOOD | {"queued_ts": 1.25}), "line 2: scheduled_ts is 0.25 s before queued_ts"),
    ],
)
def test_bad_lines_are_named(line: str, said: str, tmp_path: Path):
    write(tmp_path, TWO)
    (tmp_path / "requests.jsonl").write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(UserError, match=r"requests\.jsonl") as error:
        read(tmp_path)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("requests.jsonl", b"\n", "holds no request; give at least one"),
        ("requests.jsonl", None, "requests.jsonl: no such file"),
        ("requests.jsonl", b"\xff\xfe\x00", "requests.jsonl: byte 0 is not UTF-8"),
        ("meta.json", None, "meta.json: no such file"),
        ("meta.json", b'{\n "a": }', "meta.json: not valid JSON (Expecting value at line 2"),
        ("meta.json", b"[]", "meta.json: it holds a list, not an object"),
        (
            "peer_simulator_summary.txt",
            b"TTFT Mean 1.0 1.0 x%\n",
            "peer_simulator_summary.txt line 1: x% is no error in percent",
        ),
        (
            "peer_simulator_summary.txt",
            b"\nTTFT Mean 0.0 1.0 -\n",
            "peer_simulator_summary.txt line 2: - is no error in percent",
        ),
    ],
)
def test_bad_files_are_named(file: str, text: bytes | None, said: str, tmp_path: Path):
    write(tmp_path, TWO)
    path = tmp_path / file
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_no_folder(tmp_path: Path):
    with pytest.raises(UserError, match=r"is no folder; give one with requests\.jsonl and meta\.json"):
        read(tmp_path / "none")
