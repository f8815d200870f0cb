"""`python -m costmodel layouts`. Oracles: `LayoutSearch`, tried mesh by mesh, and formulas of Pope et al. 2022 by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from costmodel.__main__ import main
from costmodel.arch.catalog import find_architecture
from costmodel.hardware.chips import find_chip
from costmodel.parallel.layouts import Mesh
from costmodel.parallel.partitioning import LayoutSearch
from models.errors import UserError


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["layouts", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def found(*arguments: str) -> dict[str, Any]:
    return json.loads(run("--json", *arguments))


def test_the_first_line_is_the_best_of_all_meshes():
    told = found("--model", "llama-3-70b", "--chip", "h100", "--chips", "8", "--batch", "64", "--context", "2048")
    model, chip = find_architecture("llama-3-70b"), find_chip("h100")
    for kind, tokens in (("decode", 1), ("prefill", 2048)):
        best = LayoutSearch(model, chip, tuple(Mesh.all_of(8))).best_layout(batch=64, context=2048, tokens=tokens)
        first = told[kind][0]
        won = best.layout
        assert (first["layout"], first["attention"], first["mesh"]) == (won.feedforward, won.attention, str(won.mesh))
        assert first["memory_bytes"] == pytest.approx(best.memory.total) and first["link_bytes"] == pytest.approx(
            best.link_bytes
        )
        times = [row["seconds"] for row in told[kind]]
        assert times == sorted(times)
    assert told["decode"][0]["layout"] == "ws-2d" and told["prefill"][0]["layout"].startswith("wg")  # activations, weights


def test_a_layout_that_splits_alike_is_told_once():
    told = found("--chips", "8", "--top", "99")
    for kind in ("decode", "prefill"):
        assert len({(row["layout"], row["attention"]) for row in told[kind]}) == len(told[kind])


def test_what_a_row_says():
    one = found("--model", "llama-3-8b", "--chips", "4", "--mesh", "4", "--batch", "8", "--context", "64", "--top", "99")[
        "decode"
    ]
    row = (
        next(row for row in one if (row["layout"], row["attention"]) == ("ws-1d", "heads"))
        if any(row["layout"] == "ws-1d" for row in one)
        else one[0]
    )
    model, chip = find_architecture("llama-3-8b"), find_chip("h100")
    cache = 2 * model.layers * model.kv_heads * model.head_dim * 2 / 4  # B of a token on each chip
    assert row["max_context"] == int(0.3 * float(chip.memory) // (8 * cache))
    assert row["memory_bytes"] > 2 * model.parameter_count / 4
    assert row["bound"] in ("memory", "compute", "links")


def test_links_that_are_hidden_make_a_step_no_slower():
    none, full = (found("--chips", "8", "--overlap", overlap)["decode"][0]["seconds"] for overlap in ("none", "full"))
    assert full < none
    every, own = (found("--chips", "8", "--mesh", "2x4", "--links", links)["decode"][0]["seconds"] for links in ("all", "own"))
    assert own > every


def test_the_text_names_the_winners():
    text = run("--chips", "8")
    assert "decode: ws-2d; prefill: wg-x: another layout wins for each" in text and "llama-3-8b on 8 x h100-sxm" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--chips", "3"), "no layout of llama-3-8b on 3 chips divides at batch 64"),
        (("--mesh", "2x2"), "mesh 2x2: it has 4 chips, not 8"),
        (("--mesh", "2xa"), "give one to three whole numbers, such as 4x4x4"),
        (("--model", "mixtral-8x7b"), "has experts or a latent cache"),
        (("--model", "deepseek-v3"), "has experts or a latent cache"),
        (("--model", "llama-3-70b", "--chips", "1"), "fits no layout on 1 x h100-sxm"),
        (("--chip", "abacus"), "unknown chip 'abacus'"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str):
    with pytest.raises(UserError) as refused:
        run(*arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["--chips", "--batch", "--context", "--prompt", "--top"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "x", "99999999999"])
def test_numbers_that_mean_nothing(name: str, value: str):
    done = CliRunner().invoke(main, ["layouts", name, value])
    assert done.exit_code == 2 and f"Invalid value for '{name}'" in done.output
