"""The quick predictor. Oracles: `step_cost` itself, its terms over rows put together here, and hand arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.analytical.attention_terms import attention_terms
from costmodel.analytical.linear_terms import linear_terms
from costmodel.analytical.rows import Rows
from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.arch.catalog import as_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.hardware.chips import CHIPS
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

# Plain; windows on some layers; on all; experts; experts and a latent cache; a KV head for each of several chips.
MODELS: dict[str, dict[str, Any]] = {
    "llama-3-8b": {},
    "gemma-3-1b": {},
    "mistral-7b": {"dtype": "int8", "kv_dtype": "int8"},
    "mixtral-8x7b": {"kv_dtype": "float8"},
    "deepseek-v2-lite": {"dtype": "q4_k"},
    "llama-3-70b": {"tensor_parallel": 8, "dtype": "float8"},
}
H100 = CHIPS["h100-sxm"]
PREDICTORS = {name: Analytical(name, H100, **options) for name, options in MODELS.items()}
models = st.sampled_from(list(MODELS))


def plan(*rows: tuple[int, int, int], steps: int = 1) -> Plan:
    """Of rows of (start, count, draws)."""
    starts, counts, draws = zip(*rows, strict=True)
    return Plan(0, ids=tuple(range(len(rows))), starts=starts, counts=counts, draws=draws, steps=steps)


def decodes(contexts: list[int]) -> list[tuple[int, int, int]]:
    return [(context - 1, 1, 1) for context in contexts]


@settings(deadline=None)
@given(name=models, contexts=st.lists(st.integers(1, 8000), min_size=1, max_size=70))
def test_decode(name: str, contexts: list[int]):
    cost = step_cost(name, contexts=np.array(contexts), chip=H100, **MODELS[name])
    assert PREDICTORS[name](plan(*decodes(contexts))) == pytest.approx(float(cost.seconds()), rel=1e-9)


@settings(deadline=None)
@given(name=models, prompts=st.integers(1, 6), chunk=st.integers(2, 3000), before=st.integers(0, 5000))
def test_prefill(name: str, prompts: int, chunk: int, before: int):
    cost = step_cost(name, kind="prefill", batch=prompts, context=before + chunk, chunk=chunk, chip=H100, **MODELS[name])
    for draws in (0, 1):
        found = PREDICTORS[name](plan(*[(before, chunk, draws)] * prompts))
        assert found == pytest.approx(float(cost.seconds()), rel=1e-9)


@settings(deadline=None)
@given(name=models, rows=st.integers(1, 70), context=st.integers(9, 8000), drafts=st.integers(1, 8))
def test_verify(name: str, rows: int, context: int, drafts: int):
    cost = step_cost(name, kind="verify", batch=rows, context=context, drafts=drafts, chip=H100, **MODELS[name])
    found = PREDICTORS[name](plan(*[(context - drafts - 1, drafts + 1, drafts + 1)] * rows))
    assert found == pytest.approx(float(cost.seconds()), rel=1e-9)


@settings(deadline=None)
@given(name=models, data=st.data())
def test_any_plan(name: str, data: st.DataObject):
    """Rows that decode, rows that verify different numbers of drafts, pieces of prompts: the sum of the model's terms over all of them."""
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, 3000), st.integers(1, 8) | st.integers(1, 600), st.booleans()).map(
                lambda r: r if r[1] < 9 else (*r[:2], False)
            ),
            min_size=1,
            max_size=20,
        )
    )
    architecture, options = as_architecture(name), dict(MODELS[name])
    degree = options.pop("tensor_parallel", 1)
    held = Deployment(architecture, Storage.of(options.get("dtype", "bfloat16"), options.get("kv_dtype")), degree)
    ordered = sorted(rows, key=lambda row: row[1] > 1 and not row[2])
    lines = [
        Rows(1, float(start + count), float(count), every=verifies and count > 1, decoding=verifies or count == 1)
        for start, count, verifies in ordered
    ]
    cost = StepCost((*linear_terms(held, lines), *attention_terms(held, lines)), 0, 0, H100)
    asked = plan(*[(start, count, count if verifies else 1) for start, count, verifies in ordered])
    assert PREDICTORS[name](asked) == pytest.approx(float(cost.seconds()), rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_repeated_steps_grow(name: str):
    contexts = [100, 700, 5000]
    cost = sum(float(step_cost(name, contexts=np.array(contexts) + i, chip=H100, **MODELS[name]).seconds()) for i in range(4))
    asked = plan(*[(context - 1, 1, 4) for context in contexts], steps=4)
    assert PREDICTORS[name](asked) == pytest.approx(cost, rel=1e-9)


LADDER = Buckets((2, 8, 64), (512,), (4, 256), 16, prefills=(1,), drafts=3, steps=4)
TOGETHER = Buckets((64,), (512,), (4, 256), 16, prefills=(1,), mixed=(8, 64), drafts=3)


@settings(deadline=None)
@given(name=models, contexts=st.lists(st.integers(1, 8000), min_size=1, max_size=64))
def test_a_padded_batch(name: str, contexts: list[int]):
    bucket = next(size for size in LADDER.batches if size >= len(contexts))
    cost = step_cost(name, contexts=np.array(contexts), padded_batch=bucket, chip=H100, **MODELS[name])
    padded = Analytical(name, H100, ladder=LADDER, **MODELS[name])
    assert padded(plan(*decodes(contexts))) == pytest.approx(float(cost.seconds()), rel=1e-9)


def test_a_padded_prompt_is_filled_up_in_pieces():
    """300 tokens on 1x256 and 4x256: two pieces, so 4x256: 256 tokens, 44 filled up to 256, and two rows of padding.

    Of rows with the same chunk only the sum of contexts matters: 256 + 512 are two of 384.
    """
    cost = step_cost("llama-3-8b", kind="prefill", batch=2, context=384, chunk=256, padded_batch=4, chip=H100)
    assert Analytical("llama-3-8b", H100, ladder=LADDER)(plan((0, 300, 1))) == pytest.approx(float(cost.seconds()), rel=1e-9)


def test_a_padded_chunk_is_that_of_the_model():
    """44 tokens after 100 on 1x256."""
    cost = step_cost("llama-3-8b", kind="prefill", batch=1, context=144, chunk=44, padded_chunk=256, chip=H100)
    assert Analytical("llama-3-8b", H100, ladder=LADDER)(plan((100, 44, 0))) == pytest.approx(float(cost.seconds()), rel=1e-9)


def test_verifying_is_padded_to_all_drafts():
    """3 rows with 1 to 3 drafts on a program of 8 rows and 3 drafts: 5 rows of padding."""
    ladder = Analytical("llama-3-8b", H100, ladder=LADDER)
    cost = step_cost("llama-3-8b", kind="verify", batch=3, context=104, drafts=3, padded_batch=8, chip=H100)
    assert ladder(plan((100, 4, 4), (100, 4, 4), (100, 4, 4))) == pytest.approx(float(cost.seconds()), rel=1e-9)
    less = ladder(plan((100, 2, 2), (100, 4, 4), (100, 3, 3)))
    kv = 131072 * 2 * 3 / H100.bandwidth  # three tokens fewer are written and read
    assert less == pytest.approx(float(cost.seconds()) - kv, rel=1e-6)


def test_a_repeated_decode_is_padded():
    cost = sum(
        float(step_cost("llama-3-8b", contexts=np.array([100, 50, 7]) + i, padded_batch=8, chip=H100).seconds())
        for i in range(4)
    )
    found = Analytical("llama-3-8b", H100, ladder=LADDER)(plan((99, 1, 4), (49, 1, 4), (6, 1, 4), steps=4))
    assert found == pytest.approx(cost, rel=1e-9)


def test_together_reads_weights_once():
    """5 decodes and a piece of 200 tokens: one program of 8 and 1x256 where there is one, two otherwise."""
    contexts, asked = [500] * 5, [*decodes([500] * 5), (100, 200, 1)]
    one = step_cost(
        "llama-3-8b",
        kind="mixed",
        batch=5,
        context=500,
        prompts=1,
        chunk=200,
        prompt_context=300,
        padded_batch=8,
        padded_chunk=256,
    )
    assert Analytical("llama-3-8b", H100, ladder=TOGETHER)(plan(*asked)) == pytest.approx(float(one.seconds(H100)), rel=1e-9)
    apart = [
        step_cost("llama-3-8b", contexts=np.array(contexts), padded_batch=8),
        step_cost("llama-3-8b", kind="prefill", batch=1, context=300, chunk=200, padded_chunk=256),
    ]
    found = Analytical("llama-3-8b", H100, ladder=LADDER)(plan(*asked))
    assert found == pytest.approx(sum(float(cost.seconds(H100)) for cost in apart), rel=1e-9)


def test_gather_reads_the_whole_table_of_every_row():
    """3 rows of 100 tokens in a program of 8 with tables of 4 or 512 pages of 16: 131,072 B a token of KV, whatever the rows hold."""
    ladder = Buckets((8,), (8, 512), (1, 256), 16)
    gather, blockwise = (Analytical("llama-3-8b", H100, ladder=ladder, attention=kind) for kind in ("gather", "blockwise"))
    short, long = plan(*decodes([100] * 3)), plan(*decodes([100, 100, 8000]))
    for asked, width, live in ((short, 8, 300), (long, 512, 8200)):
        more = 131072 * (8 * width * 16 - live) / H100.bandwidth
        assert gather(asked) - blockwise(asked) == pytest.approx(more, rel=1e-9)


def test_gather_scores_all_of_it():
    """A chunk that arithmetic bounds: 256 queries meet 8,192 keys in each of 32 layers, 4 x 32 x 128 + 5 x 32 FLOP a pair."""
    ladder = Buckets((8,), (512,), (1, 256), 16)
    gather, blockwise = (Analytical("llama-3-8b", H100, ladder=ladder, attention=kind) for kind in ("gather", "blockwise"))
    asked, pairs = plan((0, 256, 1)), 256 * 8192 - 256 * 257 / 2
    live, given = (each.roofs(each.run_load(dispatch(asked, ladder)[0])) for each in (blockwise, gather))
    assert given.compute - live.compute == pytest.approx(32 * pairs * (4 * 32 * 128 + 5 * 32) / 989e12, rel=1e-9)


def test_gather_scores_drafts_too():
    """3 rows verify 3 drafts in a program of 8: 8 x 4 queries meet 128 keys each; live, 4 queries meet 101 to 104."""
    ladder = Buckets((8,), (8,), (1, 256), 16, drafts=3)
    gather, blockwise = (Analytical("llama-3-8b", H100, ladder=ladder, attention=kind) for kind in ("gather", "blockwise"))
    asked = plan(*[(100, 4, 4)] * 3)
    live, given = (each.roofs(each.run_load(dispatch(asked, ladder)[0])) for each in (blockwise, gather))
    pairs = 8 * 4 * 128 - 3 * (101 + 102 + 103 + 104)
    assert given.compute - live.compute == pytest.approx(32 * pairs * (4 * 32 * 128 + 5 * 32) / 989e12, rel=1e-9)


def test_the_figures_of_the_lesson():
    """The full model of 8.03e9 parameters, batch 64 at 1,024 tokens: at least the nominal 7.34 ms less the embedding's bytes."""
    found = PREDICTORS["llama-3-8b"](plan(*decodes([1024] * 64)))
    assert found == pytest.approx(7.34e-3, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_dtype": "float8-page16"}, "float8-page16 has a scale for 16 tokens, which is not predicted; take float8 or int8"),
        ({"attention": "gather"}, "give a ladder"),
        ({"dtype": "int3"}, "unknown dtype 'int3'"),
        ({"tensor_parallel": 5}, "does not divide by tensor_parallel 5"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Analytical("llama-3-8b", "h100", **options)


def test_what_no_program_holds_is_refused():
    with pytest.raises(UserError, match="65 rows fit no program"):
        Analytical("llama-3-8b", H100, ladder=LADDER)(plan(*decodes([9] * 65)))
