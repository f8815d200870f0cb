"""The main job when all goes well. Oracles: runs of the same prompts alone, `tests.oracle` on the same file, and the options given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from costmodel.hardware.ceilings import Ceilings
from jaxserve.engine.build import silent
from jaxserve.main_job import job
from jaxserve.main_job.job import make_ladder
from jaxserve.main_job.outcome import DecodeResult
from jaxserve.main_job.settings import DecodeConfig
from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from models.files.provenance import Provenance
from models.text.tokenizer import byte_tokenizer
from tests import oracle
from tests.jaxserve import commands
from tests.jaxserve.in_process import strict

MODULE = "jaxserve.decode"
LIMITS = Ceilings("here", "2026-01-31", 0.0, 20e9, "made up", 100e9, "made up", 200e9, "made up")
PROMPTS = ("Why?", "Tell me about the sea.", "c")


@pytest.fixture
def decode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the job in this process, on these prompts -> its outcome."""
    monkeypatch.setattr(job, "ceilings", lambda: LIMITS)
    monkeypatch.setattr(job, "choose_dtype", lambda asked, rows: (asked, "as asked"))
    file = tmp_path / "prompts.txt"

    def run(prompts: Sequence[str], **settings: Any) -> DecodeResult:
        file.write_text("\n".join(prompts))
        options = {"model": "random:tiny", "dtype": "float32", "page_size": 4, "max_new_tokens": 6, "prompt_file": file}
        return job.run(DecodeConfig(**{**options, **settings}), silent)

    return run


def outputs(outcome: DecodeResult, run: int = 0) -> list[list[int]]:
    return [list(row.answers[0].tokens) for row in outcome.runs[run].rows]


@pytest.mark.slow
def test_a_sweep_as_json(tmp_path: Path):
    """JSON and nothing else on standard output; four rows from three prompts, and all that was asked for is in it."""
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS))
    options = ("--model", "random:tiny", "--batch", "1,2,4", "--prompt-file", "p.jsonl", "--max-new-tokens", "5")
    found = commands.run(MODULE, *options, "--temperature", "0.8", "--page-size", "8", "--json", cache=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    result = strict(found.stdout)
    assert (
        result["model"] == "random:tiny"
        and result["page_size"] == 8
        and result["distinct_prompts"] == 3
        and result["rows"] == 4
    )
    assert result["dtype"] == result["kv_dtype"] == "float32" and "made up" in result["measured_ceilings"].values()
    assert result["dtype_reason"].startswith("float32: 2.00 times the speed of bfloat16")
    assert result["context"] == len(PROMPTS[1]) + 4
    assert [p["program"] for p in result["programs"]] == ["decode 1", "decode 2", "decode 4", "prefill 4x32"]
    assert all(
        p["compile_seconds"] > 0 and p["xla"]["temp_bytes"] >= 0 and p["xla"]["alias_bytes"] > 0 for p in result["programs"]
    )
    assert [run["batch"] for run in result["runs"]] == [1, 2, 4]
    for run in result["runs"]:
        assert len(run["completions"]) == run["batch"]
        assert [c["prompt_tokens"] for c in run["completions"]] == [len(PROMPTS[i % 3]) for i in range(run["batch"])]
        assert all(1 <= len(c["tokens"]) <= 5 and c["finish_reason"] in ("stop", "length") for c in run["completions"])
        assert {p["program"] for p in run["programs"]} <= {p["program"] for p in result["programs"]}
        assert run["measured_decode_tokens_per_second"] > 0 and run["measured_prefill_tokens_per_second"] > 0
    one, two, four = (run["completions"] for run in result["runs"])
    assert one == two[:1] and two == four[:2]  # the company changes no token, and no run leaves anything in the pool
    assert four[0]["tokens"] != four[3]["tokens"]  # the same prompt again, but with a seed of its own


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_text_output_and_tokens_of_a_checkpoint(kind: str, tmp_path: Path):
    model = commands.folder(tmp_path / "m") if kind == "folder" else commands.gguf(tmp_path / "m.gguf")
    (tmp_path / "p.txt").write_text("hello\n\nhello world\n")
    options = ("--model", str(model), "--batch", "3", "--prompt-file", "p.txt", "--max-new-tokens", "4", "--dtype", "float32",
               "--compile-cache", "programs")  # fmt: skip
    shown = commands.run(MODULE, *options, "--show", "1", cache=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("prompt ") == shown.stdout.count("answer ") == 1 and "'hello'" in shown.stdout
    for part in (
        "Compiled programs",
        "decode 3",
        "prefill",
        "measured ceilings",
        "from 2 prompts, used in turn",
        "batch 3: decode ",
    ):
        assert part in shown.stdout
    kept = sorted(path.name for path in (tmp_path / "programs").glob("*.program"))
    assert len(kept) >= 4  # decode 1, 2 and 3, and prefill
    again = commands.run(MODULE, *options, "--json", cache=tmp_path)
    assert (again.returncode, again.stderr) == (0, "") and sorted(
        p.name for p in (tmp_path / "programs").glob("*.program")
    ) == kept
    result = strict(again.stdout)
    checkpoint = open_checkpoint(str(model))
    weights, tokenizer = load(checkpoint, jnp.float32), checkpoint.tokenizer()
    for text, completion in zip(("hello", "hello world", "hello"), result["runs"][0]["completions"], strict=True):
        expected = oracle.greedy(checkpoint.config, weights, tokenizer.encode(text), 4)
        ends = [i + 1 for i, token in enumerate(expected) if token in tokenizer.eos_tokens]
        assert completion["tokens"] == expected[: min(ends, default=4)]
        assert completion["text"] == tokenizer.decode(completion["tokens"])


@pytest.mark.slow
def test_a_seed_decides_the_text(decode: Any):
    """Twice the same in one sweep and in another job; another seed gives another text."""
    first = decode(PROMPTS, batches=(2, 2), temperature=1.0, seed=3)
    assert outputs(first, 0) == outputs(first, 1)
    again, other = (outputs(decode(PROMPTS, batches=(2,), temperature=1.0, seed=seed)) for seed in (3, 4))
    assert again == outputs(first) and other != again
    assert [row.seed for row in first.runs[0].rows] == [3, 4]


@pytest.mark.slow
def test_the_pool_of_a_former_batch_does_not_show(decode: Any):
    """A long row is followed by short ones in its pages, and by itself again; all of them by the dense oracle."""
    prompts = ("a longer prompt that takes many pages", "b", "short")
    sweep = decode(prompts, batches=(1, 3, 1))
    checkpoint = open_checkpoint("random:tiny")
    weights = load(checkpoint, jnp.float32)
    expected = [oracle.greedy(checkpoint.config, weights, list(text.encode()), 6) for text in prompts]
    assert [outputs(sweep, i) for i in range(3)] == [expected[:1], expected, expected[:1]]


def test_prompts_of_one_token(decode: Any):
    """They run in the decode program; its prefill and its decodes are told apart all the same."""
    outcome = decode(("a",), batches=(1,), max_new_tokens=3)
    assert [p.bucket.name for p in outcome.programs] == ["decode 1", "prefill 1x2"]
    (run,) = outcome.runs
    assert {r.program: r.steps for r in run.reports} == {"decode 1": 3}
    assert [(each.prefill, each.decode) for each in run.steps] == [(1, 0), (0, 1), (0, 1)]
    prefill, *decodes = (each.measured + each.host for each in run.steps)
    assert run.prefill_tokens_per_second == pytest.approx(1 / prefill)
    assert run.decode_tokens_per_second == pytest.approx(2 / sum(decodes))


@pytest.mark.slow
def test_one_token_needs_no_decode_step(decode: Any):
    outcome = decode(PROMPTS, batches=(1,), max_new_tokens=1)
    assert len(outputs(outcome)[0]) == 1 and outcome.runs[0].decode_tokens_per_second == 0
    strict(json.dumps(outcome.to_json()))


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_pages_of_the_pool_are_those_of_its_rows(rows: int, tmp_path: Path):
    """Counted by hand, 3 prompts in turn: one token a byte and 5 new ones of which 4 are run, so 2, 2 and 3 pages of 4 tokens."""
    (tmp_path / "p.txt").write_text("abc\nd\nefghi\n")
    settings = DecodeConfig("random:tiny", (rows,), tmp_path / "p.txt", max_new_tokens=5, page_size=4)
    accepted = job.accept(settings)
    assert accepted.pages == {2: 4, 3: 7, 7: 16}[rows]
    assert accepted.pages == sum(accepted.pages_of(list(prompt.tokens)) for prompt, _ in accepted.asks(rows))


@pytest.mark.parametrize(("distinct", "said"), [(2, "from 2 prompts, used in turn"), (3, "from the first 3 prompts")])
def test_reused_prompts_are_said(distinct: int, said: str):
    names = ("model", "machine", "date", "dtype", "dtype_reason", "kv_dtype")
    facts = {**dict.fromkeys(names, "x"), "rows": 3, "distinct_prompts": distinct}
    assert f"rows: up to 3, {said}\n" in DecodeResult(facts, Provenance(), LIMITS, 0, [], [], byte_tokenizer(512)).summary()


@pytest.mark.parametrize(
    ("sizes", "batches", "decode_sizes", "chunk"),
    [
        ((60, 75), (64,), (1, 2, 4, 8, 16, 32, 64), (2, 128)),
        ((60, 75), (1, 6), (1, 2, 4, 6), (2, 128)),
        ((300,), (8,), (1, 2, 4, 8), (1, 256)),
        ((5,), (2,), (1, 2), (2, 8)),
        ((1,), (1,), (1,), (1, 2)),
    ],
)
def test_the_ladder_holds_what_the_run_can_reach(
    sizes: tuple[int, ...], batches: tuple[int, ...], decode_sizes: tuple[int, ...], chunk: tuple[int, int]
):
    ladder = make_ladder([[0] * size for size in sizes], batches, context=130, page=16)
    assert ladder.batches == decode_sizes and ladder.chunk == chunk and ladder.widths == (9,)
