"""`python -m costmodel` as a user runs it. Oracles: facts.md, hand arithmetic on small shapes, and what one witness says of another."""

from __future__ import annotations

import csv
import io
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from costmodel.__main__ import main
from costmodel.hardware import chips
from models.errors import UserError
from tests.costmodel.hlo_programs import STEPS
from tests.jaxserve import commands
from tests.jaxserve.commands import error_line


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command in this process, with ceilings that were made up: (standard output). Errors pass."""
    monkeypatch.setenv("XDG_CACHE_HOME", commands.environment(tmp_path)["XDG_CACHE_HOME"])

    def run(*arguments: str) -> str:
        main.main(list(arguments), prog_name="costmodel", standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_the_lessons_table(here: Any):
    """facts.md section 2, digit by digit."""
    shown = here("decode", "--table", "lesson")
    for line in (("1", "4.82", "0.02", "0.99", "207.6"), ("16", "5.42", "0.26", "14.11", "2,953.6"),
                 ("64", "7.34", "1.04", "41.64", "8,719.0"), ("256", "15.03", "4.14", "81.33", "17,029.5")):  # fmt: skip
        assert [row.split()[:5] for row in shown.splitlines() if row.split()[:1] == [line[0]]] == [list(line)]
    assert "8.0e9 parameters" in shown and "¹ analytical" in shown


def test_analytical_needs_no_compiler(here: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("costmodel.study.compile_for", lambda *_, **__: 1 / 0)
    found = json.loads(here("decode", "--analytical", "--batch", "1,64", "--json"))
    assert [row["batch"] for row in found["batches"]] == [1, 64]
    for row in found["batches"]:
        assert row["witness"] == "analytical" and row["bound"] == "memory"
        assert sum(term["bytes"] for term in row["terms"]) == pytest.approx(row["bytes"])
        assert all(term["formula"] and term["source"] for term in row["terms"])
        assert not any(".md" in term["source"] for term in row["terms"])  # a source that a reader of the output can have
        assert row["memory_seconds"] == pytest.approx(row["bytes"] / 3.35e12)
    assert "8.030e9 parameters (flax module)" in found["heading"][1]


def test_what_does_not_fit_is_said(here: Any):
    """facts.md section 3: 140 GB of weights, one chip of 80 GB; 141.1 and 21.5 GB of KV need 3 chips, and degrees divide 8 KV heads."""
    shown = here("decode", "--model", "llama-3-70b", "--analytical", "--batch", "64")
    assert "llama-3-70b does not fit one h100-sxm of 80 GB: 141.1 GB of weights" in shown
    assert "the smallest that does is tensor-parallel degree 4" in shown


def test_csv_has_a_line_a_batch(here: Any):
    rows = list(csv.DictReader(io.StringIO(here("decode", "--analytical", "--batch", "1,2,4", "--csv"))))
    assert [row["batch"] for row in rows] == ["1", "2", "4"] and float(rows[0]["bytes"]) > 15e9


@pytest.mark.slow
def test_all_witnesses_on_this_machine(here: Any, tmp_path: Path):
    """A small model on the host: the books balance, every figure is marked, and the clock ran."""
    arguments = ("decode", "--model", "tiny", "--chip", "host", "--batch", "2,4", "--context", "64", "--measure", "2")
    found = json.loads(here(*arguments, "--attention", "blockwise", "--json"))
    for batch, row in zip((2, 4), found["batches"], strict=True):
        assert row["batch"] == batch and row["unexplained"] < 1e-9 and row["unattributed"] < 0.01
        total = row["analytical"]["bytes"] + sum(r["amount"] for r in row["residuals"])
        assert total == pytest.approx(row["reported"]["bytes"], rel=1e-9)
        assert {row[name]["witness"] for name in ("reported", "with_trips", "traffic")} == {"compiled"}
        assert row["traffic"]["confidence"] == "corrected" and row["basis"] == "compiled whole" and row["loop_counts"]
        assert row["measured"]["witness"] == "measured" and row["measured"]["runs"] == 2 and row["measured"]["seconds"] > 0
    shown = here(*arguments)
    for text in ("three witnesses", "waterfall of bytes", "analytical ¹", "= memory traffic ²", "= XLA as reported ²", "ms ³"):
        assert text in shown
    fall = shown[shown.index("waterfall of bytes") :].splitlines()  # a thousandth of a tiny model's bytes isn't 0.0000 GB
    assert "kB" in fall[2] and not any(line.rstrip().endswith("0.0000") for line in fall if "+" in line)


def test_a_picture(here: Any, tmp_path: Path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    here("decode", "--analytical", "--batch", "1,256", "--plot", str(tmp_path / "roof.png"))
    assert (tmp_path / "roof.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    here("decode", "--analytical", "--plot", str(tmp_path / "roof.svg"))
    drawn = (tmp_path / "roof.svg").read_text()
    assert drawn.startswith("<?xml") and "FLOP/B" in drawn


def test_a_picture_without_the_extra(here: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install 'jaxserve\[plots\]'"):
        here("decode", "--analytical", "--plot", "roof.png")


def test_chips_and_models(here: Any):
    listed = {chip["name"]: chip for chip in json.loads(here("chips", "--json"))}
    assert listed.keys() == chips.CHIPS.keys() and listed["h100-sxm"]["dense_peaks"]["bfloat16"] == 989e12
    assert listed["h100-sxm"]["sparse_peaks_never_used"]["bfloat16"] == 1979e12 and listed["h100-sxm"]["compiles"]
    assert "h100-sxm" in here("chips")
    known = {model["name"]: model for model in json.loads(here("models", "--json"))}
    assert known["llama-3-8b"]["kv_bytes_per_token_16bit"] == 131_072 and known["llama-3-8b"]["engine"]
    assert known["deepseek-v3"]["source"] == "config" and not known["deepseek-v3"]["engine"]
    assert "mixtral-8x7b" in here("models")


def test_params(here: Any):
    """The tiny preset by hand: 512 x 64 twice, two layers of 64 x 128, 64 x 64 and 3 x 64 x 128, five norms of 64 in f32."""
    found = json.loads(here("params", "--model", "tiny", "--json"))
    counts = {row["component"]: row["parameters"] for row in found["components"]}
    assert counts == {"embed": 32768, "qkv": 16384, "out": 8192, "gate_up": 32768, "down": 16384, "norm": 320, "head": 32768}
    assert found["parameters"] == sum(counts.values()) and found["bytes"] == 2 * (sum(counts.values()) - 320) + 4 * 320
    assert "flax module" in here("params", "--model", "tiny")


def test_a_config_of_ones_own(here: Any, tmp_path: Path):
    """A folder in Hugging Face layout, and a config.json of a model that the engine doesn't run."""
    mine = commands.folder(tmp_path / "mine")
    assert json.loads(here("params", "--model", str(mine), "--json"))["source"] == "flax module"
    (tmp_path / "moe").mkdir()
    sizes = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    experts = {"intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}
    config = {"architectures": ["MixtralForCausalLM"], **sizes, **experts}
    path = tmp_path / "moe" / "config.json"
    path.write_text(json.dumps(config))
    found = json.loads(here("params", "--model", str(path), "--json"))
    assert found["model"] == "moe" and found["source"] == "config"
    assert {row["component"]: row["parameters"] for row in found["components"]}["experts"] == 4 * 3 * 16 * 32
    path.write_text(json.dumps({key: value for key, value in config.items() if key != "num_local_experts"}))
    with pytest.raises(UserError, match="num_local_experts"):
        here("params", "--model", str(path))
    path.write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        here("params", "--model", str(path))


def test_ledger_of_a_file(here: Any, tmp_path: Path):
    file = STEPS / "h100_scan_gather_B4.hlo.xz"
    found = json.loads(here("ledger", str(file), "--top", "5", "--json"))
    assert len(found["top"]) == 5 and found["top"][0]["traffic_bytes"] >= found["top"][-1]["traffic_bytes"]
    assert sum(part["bytes"] for part in found["components"].values()) == pytest.approx(found["totals"]["traffic"]["bytes"])
    assert "by component" in here("ledger", str(file))
    text = lzma.decompress(file.read_bytes())
    for cut in (10, len(text) // 2, len(text) - 3):
        (tmp_path / "cut.hlo").write_bytes(text[:cut])
        with pytest.raises(UserError, match="HLO text"):
            here("ledger", str(tmp_path / "cut.hlo"))
    (tmp_path / "cut.hlo.xz").write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="is no HLO text, or cut off"):
        here("ledger", str(tmp_path / "cut.hlo.xz"))


def test_ledger_of_a_loop_that_data_bound(here: Any):
    """Never silently one."""
    file = STEPS / "cpu_unroll_blockwise_B4.hlo.xz"
    with pytest.raises(UserError, match="the data decide how often while"):
        here("ledger", str(file))
    few, many = (json.loads(here("ledger", str(file), "--trips", count, "--json")) for count in ("1", "5"))
    assert set(few["loop_counts"].values()) == {1} and set(many["loop_counts"].values()) == {5}
    assert many["totals"]["traffic"]["flops"] > few["totals"]["traffic"]["flops"]


def test_ledger_of_a_step_compiled_now(here: Any, tmp_path: Path):
    """The text that it writes reads back as the same ledger."""
    arguments = ("--model", "tiny", "--chip", "host", "--batch", "2", "--context", "32")
    now = json.loads(here("ledger", *arguments, "--text", str(tmp_path / "step.hlo.xz"), "--json"))
    again = json.loads(here("ledger", str(tmp_path / "step.hlo.xz"), "--json"))
    assert now["totals"] == again["totals"] and now["top"] == again["top"] and "2 of 2 layers of tiny" in now["program"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("decode", "--batch", "0"), "--batch is 0; it must be at least 1"),
        (("decode", "--batch=-3"), "--batch is -3"),
        (("decode", "--context", "9000"), "context is 9000; it must be at most 8192"),
        (("decode", "--context", "0"), "context is 0"),
        (("decode", "--model", "lama-3-8b"), "unknown model 'lama-3-8b'; did you mean llama-3-8b"),
        (("decode", "--model", "no/such/config.json"), "does not exist"),
        (("decode", "--chip", "h1000"), "unknown chip 'h1000'; did you mean h100"),
        (("decode", "--chip", "mi300x"), "no compiler here for mi300x; add --analytical"),
        (("decode", "--chip", "v6e", "--dtype", "float32", "--analytical"), "no dense peak for float32"),
        (("decode", "--dtype", "int3", "--analytical"), "unknown dtype 'int3'"),
        (("decode", "--model", "mixtral-8x7b"), "the engine doesn't run it, so there is no program; add --analytical"),
        (("decode", "--layers", "rolled"), "--layers 'rolled' is unknown"),
        (("decode", "--csv", "--json"), "give one of them"),
        (("decode", "--measure", "3"), "add --chip host"),
        (("decode", "--measure", "3", "--analytical", "--chip", "host"), "give one of them"),
        (("ledger", "no.hlo"), "no.hlo: no such file"),
        (("ledger", "--batch", "99999999999"), "99999999999 is not in the range 1<=x<=2147483647"),
        (("ledger", "--trips", "3"), "--trips belongs to a FILE"),
        (("ledger", "--layers", "33"), "--layers is 33; llama-3-8b has 32"),
        (("ledger", "--chip", "l4"), "no compiler here for l4"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], message: str, here: Any):
    with pytest.raises((UserError, click.ClickException), match=message) as caught:
        here(*arguments)
    assert "\n" not in str(caught.value)


def test_as_a_process(tmp_path: Path):
    """One line and 2 for bad input; help with an example."""
    found = commands.run("costmodel", "decode", "--batch", "0", cache=tmp_path)
    assert found.returncode == 2 and "--batch is 0" in error_line(found.stderr)
    for command in ((), ("decode",), ("chips",), ("models",), ("params",), ("ledger",)):
        found = commands.run("costmodel", *command, "--help", cache=tmp_path)
        assert found.returncode == 0 and "Example: python -m costmodel" in found.stdout
