"""`python -m costmodel lesson`. Oracle: the figures of facts.md, section by section, to the digits printed there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from costmodel.__main__ import main
from models.errors import UserError

FACTS = {  # (section, key): what is shown
    (1, "ridge"): "295.2 FLOP/B",
    (1, "sparse_ridge"): "591 FLOP/B",
    (2, "weight_bytes"): "16 GB",
    (2, "flops_per_token"): "16 GFLOP",
    (2, "intensity"): "1.00 FLOP/B",
    (2, "reached"): "3.35 TFLOP/s",
    (2, "share_of_peak"): "0.34 %",
    (2, "kv_bytes_per_token"): "131,072 B",
    (2, "kv_bytes_per_sequence"): "134,217,728 B",
    (2, "projection_bytes"): "34,078,720 B",
    (2, "projection_intensity"): "31.51 FLOP/B",
    (2, "projection_intensity_of_weights"): "32.00 FLOP/B",
    (2, "compute_ms_per_row"): "0.016178 ms",
    (2, "memory_ms_of_weights"): "4.7761 ms",
    (2, "memory_ms_per_row"): "0.040065 ms",
    (2, "intensity_limit"): "119.209 FLOP/B",
    (3, "weight_bytes"): "140 GB",
    (3, "least_degree"): "2 chips",
    (3, "memory_ms"): "41.8 ms",
    (3, "tokens_per_second"): "23.9 tok/s",
    (3, "flops_per_token"): "140 GFLOP",
    (3, "flops"): "8.96 TFLOP",
    (3, "intensity"): "64.00 FLOP/B",
    (3, "weight_bytes_per_token"): "2.188 GB",
    (3, "most_tokens_per_second"): "1,531 tok/s",
    (3, "kv_bytes_per_layer"): "4,096 B",
    (3, "kv_bytes"): "2.684 GB",
    (4, "sequence"): "0.125 GiB",
    (4, "sequences"): "240",
    (4, "needs_64"): "8 GiB: fits",
    (4, "needs_128"): "16 GiB: fits",
    (4, "needs_256"): "32 GiB: over by 2 GiB",
    (4, "step_ms_64"): "7.34 ms",
    (4, "step_ms_128"): "9.90 ms",
    (5, "deterministic_mean"): "70 ms",
    (5, "deterministic_most"): "140 ms",
    (5, "poisson_mean_8"): "140 ms",
    (5, "poisson_mean_4"): "120 ms",
    (6, "slots_1"): "800 slots, 350 useful, 450 padded",
    (6, "padded_1"): "56.25 %",
    (6, "slots_2"): "480 slots, 300 useful, 180 padded",
    (6, "padded_2"): "37.50 %",
}
STEPS = [(1, 4.82, 0.02, 0.99, 207.6), (32, 6.06, 0.52, 25.23, 5282.1), (256, 15.03, 4.14, 81.33, 17029.5)]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["lesson", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def figures(*arguments: str) -> dict[tuple[int, str], dict[str, Any]]:
    found = json.loads(run("--json", *arguments))
    return {(section["section"], figure["key"]): figure for section in found["sections"] for figure in section["figures"]}


def test_every_fact_is_a_figure():
    found = figures()
    assert {key: found[key]["shown"] for key in FACTS} == FACTS
    assert all(figure["formula"] and figure["numbers"] for figure in found.values())


def test_the_values_are_what_is_shown():
    found = figures()
    assert found[2, "projection_flops"]["value"] == 1_073_741_824
    assert found[2, "kv_bytes_per_sequence"]["value"] == 134_217_728
    assert found[5, "deterministic_mean"]["value"] == pytest.approx(0.07) and found[5, "deterministic_mean"]["unit"] == "s"
    assert 0 < found[5, "timed_mean"]["value"] < found[5, "poisson_mean_8"]["value"]  # the timer bounds it


def test_the_steps_of_section_2():
    (section,) = json.loads(run("--json", "--section", "2"))["sections"]
    rows = {row["batch"]: row for row in section["batches"]}
    for batch, memory, compute, intensity, tokens in STEPS:
        row = rows[batch]
        assert (round(row["memory_ms"], 2), round(row["compute_ms"], 2)) == (memory, compute)
        assert (round(row["flop_per_byte"], 2), round(row["tokens_per_second"], 1)) == (intensity, tokens)


def test_the_text_has_formula_numbers_and_result_within_80_columns():
    text = run()
    assert max(map(len, text.splitlines())) <= 80
    assert "    S x KV of a token = 1,024 x 131,072 B = 134,217,728 B\n" in text
    says = "The limit, 119.2 FLOP/B, lies below the ridge point, 295.2: every batch is bound by memory."
    assert says in " ".join(text.split())
    assert [line.split(".")[0] for line in text.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.", "6.")] == list(
        "123456"
    )


def test_model_chip_and_context_change_it():
    other = figures(
        "--model", "mistral-7b", "--chip", "a100-sxm-80gb", "--context", "512", "--kv-pool", "15", "--long-context", "4096"
    )
    usual = figures()
    assert other[1, "ridge"]["shown"] == "153.0 FLOP/B"
    for key in ((2, "weight_bytes"), (2, "kv_bytes_per_sequence"), (4, "sequence"), (3, "kv_bytes"), (6, "read_1")):
        assert other[key]["value"] != usual[key]["value"]
    assert other[4, "sequences"]["value"] == 240  # half the tokens in half the pool
    small = run("--model", "smollm2-135m", "--context", "1", "--section", "2")
    assert "a batch that is large enough is bound by arithmetic" in " ".join(small.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--section", "7"), "--section is 7; the lesson has sections 1 to 6"),
        (("--model", "gpt-9"), "unknown model 'gpt-9'"),
        (("--chip", "abacus"), "unknown chip 'abacus'"),
        (("--kv-pool", "nan"), "--kv-pool is nan"),
        (("--model", "no/such.json"), "--model no/such.json does not exist"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str):
    with pytest.raises(UserError) as refused:
        run(*arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize("arguments", [("--context", "0"), ("--kv-pool", "0"), ("--context", "1.5")])
def test_numbers_that_mean_nothing(arguments: tuple[str, ...]):
    done = CliRunner().invoke(main, ["lesson", *arguments])
    assert done.exit_code == 2 and "Invalid value" in done.output
