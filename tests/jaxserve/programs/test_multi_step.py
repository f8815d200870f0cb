"""Multi-step decode: many decode steps in one program. What it costs is in `test_multi_step_cost.py`.

Oracles: the same rows stepped one at a time by the program that decodes once, whose pool is compared too; and a loop in plain Python
over a toy model.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.programs.bucket import Bucket
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.multi_step import MultiStep
from jaxserve.programs.penalties import Penalties
from jaxserve.programs.program_set import blank
from jaxserve.programs.step import STOPS, Output, Repeat, Work
from jaxserve.sampling_params import SamplingParams
from models.kv_cache import ContiguousKV
from tests.jaxserve import tiny
from tests.jaxserve.driver import Driver, Rows, Sequence
from tests.jaxserve.featured import Featured

STEPS = 6
DRAWN = SamplingParams(1.0, top_k=20, seed=7)
MIX = [
    SamplingParams(repetition_penalty=1.8),
    SamplingParams(1.0, seed=1, presence_penalty=1.5, frequency_penalty=1.0),
    SamplingParams(1.5, seed=3, logit_bias={20: 100, 30: 100, 40: 100}, frequency_penalty=0.5),
    SamplingParams(0.8, top_k=12, seed=4, min_tokens=5, stop_ids=[3], logit_bias={1: 9, 3: 9, 6: 9}),
]


def begin(driver: Driver, sampling: list[SamplingParams], padding: int) -> list[Sequence | None]:
    """Rows of different lengths with the first token of their answer, and padding rows among them."""
    rows: list[Sequence | None] = []
    for i, params in enumerate(sampling):
        prompt = tiny.prompt(60 + i, 6 + 3 * i)
        s = driver.request(prompt, params) if isinstance(driver, Featured) else driver.sequence(prompt, params)
        s.tokens.append(int(driver.prefill(s, 8)[-1][1][0]))
        rows.append(s)
    return [rows[0], None, *rows[1:], *[None] * (padding - 1)]


def one_at_a_time(driver: Driver, rows: list[Sequence | None], ends: list[int]) -> tuple[list[list[int]], list[Any]]:
    """Row i decodes `ends[i]` times and then is padding; longer, if what it draws then it drew before -> (drawn, what steps said)."""
    drawn: list[list[int]] = [[] for _ in rows]
    said = []
    for step in range(max(ends)):
        live = [i for i, end in enumerate(ends) if step < end or (end and drawn[i].count(drawn[i][-1]) > 1)]
        live = [i for i in live if len(drawn[i]) == step]
        driver.decode([s if i in live else None for i, s in enumerate(rows)], 1)
        for i in live:
            drawn[i].append(rows[i].tokens[-1])  # type: ignore[union-attr]
        said.append(driver.outputs[0].logprobs if isinstance(driver, Featured) else None)
    return drawn, said


def same(found: Any, expected: Any) -> None:
    """Equal up to rounding, and NaN in the same places."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def check_against_single_steps(make: Any, sampling: list[SamplingParams], ends: list[int]) -> None:
    """Row i ends at step `ends[i]` by a stop of its own, if it drew that for the first time; others run to the last. Twice in a row."""
    single, driver = make(), make()
    rows, ours = (begin(each, sampling, ends.count(0)) for each in (single, driver))
    repeated = jax.jit(MultiStep(driver.pure, STEPS), donate_argnums=1)
    for _ in range(2):
        work, repeat = driver.work(Rows(ours)), Repeat.blank(len(rows), STEPS)
        drawn, said = one_at_a_time(single, rows, ends)
        repeat.most[...] = most = max(ends)
        for i, tokens in enumerate(drawn):
            if tokens and len(tokens) < most:
                repeat.put(i, [tokens[-1], 200 + i])
        assert len({*map(len, drawn)}) >= len({*ends}) - 1, "rows end at different steps"
        driver.kv, (out,) = repeated(driver.serving, driver.kv, (dataclasses.replace(work, repeat=repeat),))
        assert out.tokens.shape == (len(rows), STEPS) and out.logits is None and out.prompt is None
        for i, (mine, tokens) in enumerate(zip(ours, drawn, strict=True)):
            if mine is not None:
                assert np.asarray(out.tokens)[i, : len(tokens)].tolist() == tokens
                mine.tokens += tokens
                mine.cached += len(tokens)
            if out.logprobs is not None and tokens:
                same(*joined(out.logprobs, said, i, len(tokens)))
        same(driver.kv, single.kv)  # what no live row wrote is NaN in both


def joined(found: Any, said: list[Any], row: int, steps: int) -> tuple[Any, Any]:
    """A row's log-probabilities in a repeated decode and in so many single steps."""
    single = jax.tree.map(lambda *each: np.stack([np.asarray(a)[row, 0] for a in each]), *said[:steps])
    return jax.tree.map(lambda a: np.asarray(a)[row, :steps], found), single


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gemma3", {"kind": ContiguousKV}),
        ("llama", {}),
        ("gemma3", {"scanned": True}),
    ],
    ids=["gemma3 contiguous", "llama paged", "gemma3 paged scanned"],
)
def test_it_equals_that_many_decode_steps(kind: str, options: dict[str, Any]):
    check_against_single_steps(
        lambda: Driver(*tiny.model(kind), sequences=4, **options),
        [SamplingParams(), DRAWN, SamplingParams(0.7, seed=9), dataclasses.replace(DRAWN, seed=8)],
        [1, 0, 5, 2, 4],
    )


def test_penalties_biases_and_logprobs_go_on_in_it():
    """What is drawn in the program counts at once; `min_tokens` ends while it runs."""
    check_against_single_steps(
        Featured, MIX, [5, 0, 5, 5, 5, 0, 0]
    )  # of seven rows, as in `test_featured_step.py`: the same program


@dataclasses.dataclass(frozen=True)
class Toy:
    """A model of 11 words whose next word hangs on the word, its place and the words that penalties would count before it."""

    every_token: bool = False
    with_logits: bool = False
    features: Features = PLAIN

    def __call__(self, serving: Any, kv: Any, work: tuple[Work, ...]) -> Any:
        (now,) = work
        s, history = now.segment, now.penalties.history  # type: ignore[union-attr]
        before = jnp.where(jnp.arange(history.shape[1]) < s.start[:, None], history, 0).sum(axis=1)
        at = jnp.where(s.count > 0, s.start, 99)
        pool = kv["pool"].at[jnp.arange(s.rows), at].set(s.tokens[:, 0], mode="drop")
        drawn = (3 * s.tokens[:, 0] + 5 * s.start + before) % 11
        return {"pool": pool, "calls": kv["calls"] + 1}, (Output(drawn[:, None], None),)


def by_hand(tokens: list[int], stops: set[int], steps: int) -> list[int]:
    drawn: list[int] = []
    for _ in range(steps):
        text = tokens + drawn
        drawn.append((3 * text[-1] + 5 * (len(text) - 1) + sum(text[:-1])) % 11)
        if drawn[-1] in stops:
            break
    return drawn


ROWS, WIDTH, LONGEST = 3, 12, 5
TOY = jax.jit(MultiStep(Toy(), LONGEST))  # type: ignore[arg-type]


@given(
    st.lists(st.one_of(st.none(), st.lists(st.integers(0, 10), min_size=1, max_size=WIDTH)), min_size=ROWS, max_size=ROWS),
    st.lists(st.sets(st.integers(0, 10), max_size=3), min_size=ROWS, max_size=ROWS),
    st.integers(0, LONGEST + 2),
)
@settings(max_examples=200, deadline=None)
def test_the_loop_equals_a_loop_in_python(texts: list[list[int] | None], stops: list[set[int]], most: int):
    """Tokens, what is written, and how often the model runs: not once more than the longest row needs."""
    (work,) = blank(Bucket(((ROWS, 1),), 1, steps=LONGEST), 1, Features(history=WIDTH + LONGEST))
    repeat, penalties, segment = work.repeat, work.penalties, work.segment
    assert repeat is not None and penalties is not None and repeat.most == LONGEST
    repeat.most[...] = most
    pool = np.full((ROWS, WIDTH + LONGEST), -1, np.int32)
    written, longest = pool.copy(), 0
    expected: list[list[int]] = []
    for i, (text, ends) in enumerate(zip(texts, stops, strict=True)):
        expected.append([] if text is None else by_hand(text, ends, min(most, LONGEST)))
        if text is None:
            continue
        penalties.history[i, : len(text) - 1] = text[:-1]
        segment.tokens[i], segment.start[i], segment.count[i] = text[-1], len(text) - 1, 1
        repeat.put(i, ends)
        ran = len(expected[i])
        written[i, len(text) - 1 : len(text) - 1 + ran] = [text[-1], *expected[i]][:ran]
        longest = max(longest, ran)
    kv, (out,) = TOY([], {"pool": pool, "calls": np.int32(0)}, (work,))
    assert [np.asarray(out.tokens)[i, : len(row)].tolist() for i, row in enumerate(expected)] == expected
    np.testing.assert_array_equal(kv["pool"], written)
    assert kv["calls"] == longest


def test_more_stops_than_there_is_room_for_are_left_to_the_host():
    repeat = Repeat.blank(2, 4)
    repeat.put(1, {*range(20, 0, -2)})
    assert repeat.stops[1].tolist() == [2, 4, 6, 8, 10, 12, 14, 16] and len(repeat.stops[1]) == STOPS
    assert (repeat.stops[0] == -1).all() and repeat.most == 4


def test_penalised_rows_in_its_blank_work_are_those_of_a_decode():
    """No prompt is scored in it, for its rows are past theirs."""
    features = Features(history=9, biases=2, prompt_logprobs=1)
    (work,) = blank(Bucket(((2, 1),), 3, steps=4), 7, features)
    (decode,) = blank(Bucket(((2, 1),), 3), 7, features)
    assert work.following is None and decode.following is not None and decode.repeat is None
    assert isinstance(work.penalties, Penalties) and work.penalties.history.shape == (2, 9)
