"""From plans to programs. Oracle: the plan itself, token by token: each runs once, at its position, over its row's own table, in order.

What features need of a row is put together again by their own tested functions (`Biases.put`, `PromptLogprobs.following`), row by row.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.biases import Biases
from jaxserve.bucket import Bucket
from jaxserve.features import PLAIN, Features
from jaxserve.ladder import Ladder
from jaxserve.logprobs import PromptLogprobs
from jaxserve.packing import Call, Packer, Special
from jaxserve.programs import blank
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.plan import Plan
from jaxserve.seats import Seats

CONTEXT, PAGE, WIDTH, UNITS = 40, 4, 10, 100
STOPS = frozenset({1, 6})
ALL = Features(history=CONTEXT + 3, biases=12, logprobs=1, prompt_logprobs=1)


@dataclasses.dataclass
class Row:
    """A row of a plan: what it knows, and what it is to do. `last` is known only after packing."""

    prompt: list[int]
    answer: list[int]
    start: int
    count: int
    draws: int
    table: list[int]
    params: SamplingParams
    drafts: tuple[int, ...] = ()
    scores: PromptLogprobs | None = None

    @property
    def known(self) -> list[int]:
        return self.prompt + self.answer

    def token(self, at: int) -> int:
        return self.known[at] if at < len(self.known) else self.drafts[at - len(self.known)]


@dataclasses.dataclass
class Case:
    ladder: Ladder
    rows: list[Row]
    steps: int
    features: Features

    @property
    def plan(self) -> Plan:
        columns = zip(*[(r.start, r.count, r.draws, tuple(r.table)) for r in self.rows], strict=True)
        starts, counts, draws, tables = columns
        ids = tuple(100 + 7 * i for i in range(len(self.rows)))
        return Plan(0, 0, ids, starts, counts, draws, tables, steps=self.steps)


LADDERS = (
    Ladder((1, 4, 9), (WIDTH,), (2, 8), PAGE),
    Ladder((9,), (3, 6, WIDTH), (3, 4), PAGE, prefills=(1,), mixed=(2, 9), drafts=3, steps=4),
    Ladder((2, 9), (WIDTH,), (1, 5), PAGE, mixed=(3,), drafts=3, steps=2),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ladder = draw(st.sampled_from(LADDERS))
    features = draw(st.sampled_from([PLAIN, ALL]))
    count = draw(st.integers(1, 9))
    steps = draw(st.sampled_from([1, 1, ladder.steps]))
    tokens = st.integers(0, 95)
    rows, pages = [], np.random.default_rng(draw(st.integers(0, 9))).permutation(UNITS).tolist()
    for _ in range(count):
        prompt = draw(st.lists(tokens, min_size=1, max_size=20))
        answer = draw(st.lists(tokens, max_size=8))
        kind = "decode" if steps > 1 else draw(st.sampled_from(["decode", "prefill", "prefill", "verify"]))
        kind = "decode" if kind == "verify" and not ladder.drafts else kind
        known = len(prompt) + len(answer)
        drafts: tuple[int, ...] = ()
        if kind == "prefill":
            start = draw(st.integers(0, known - 1))
            number = draw(st.integers(1, known - start))
            draws = int(start + number == known)
        else:
            drafts = tuple(draw(st.lists(tokens, min_size=1, max_size=ladder.drafts))) if kind == "verify" else ()
            start, number = known - 1, 1 + len(drafts)
            draws = steps if steps > 1 else number
        table = [pages.pop() for _ in range(-(-(start + number + steps - 1) // PAGE))]
        params = SamplingParams(
            temperature=draw(st.sampled_from([0.0, 0.5])),
            top_k=draw(st.sampled_from([0, 3])),
            top_p=draw(st.sampled_from([1.0, 0.5])),
            min_p=draw(st.sampled_from([0.0, 0.2])),
            seed=draw(st.sampled_from([0, 2**32 - 1])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.5])) if features.history else 1.0,
            logit_bias={5: 1.0} if features.biases and draw(st.booleans()) else {},
            min_tokens=draw(st.sampled_from([0, 3])) if features.biases else 0,
            prompt_logprobs=1 if features.history and draw(st.booleans()) else None,
        )
        scores = PromptLogprobs(prompt, 1) if params.prompt_logprobs is not None else None
        rows.append(Row(prompt, answer, start, number, draws, table, params, drafts, scores))
    return Case(ladder, rows, steps, features)


def packed(case: Case) -> tuple[list[Call], Seats]:
    """The last token of a row that decodes is known only after packing, as where a step is planned ahead of it."""
    seats, plan = Seats(CONTEXT, case.ladder.widths[-1], UNITS), case.plan
    for id, row in zip(plan.ids, case.rows, strict=True):
        known = row.known
        late = len(row.answer) > 0 and row.start == len(known) - 1
        seats.take(id, known[:-1] if late else known, row.params, STOPS)
        seats.show(id, row.table, 0)
    special = {
        id: Special(row.params, len(row.prompt), STOPS, row.scores) if i % 3 or row.scores or row.params.penalised else None
        for i, (id, row) in enumerate(zip(plan.ids, case.rows, strict=True))
    }
    for id, row in zip(plan.ids, case.rows, strict=True):
        if row.params.biases or row.params.min_tokens:
            special[id] = Special(row.params, len(row.prompt), STOPS, row.scores)
    drafts = {id: (*row.drafts, 77) for id, row in zip(plan.ids, case.rows, strict=True) if row.drafts}  # one more than is run
    calls = Packer(case.ladder, seats, case.features, UNITS).pack(plan, drafts, special.get)
    for id, row in zip(plan.ids, case.rows, strict=True):
        seats.tell(id, len(row.known) - 1, row.known[-1:])
    for call in calls:
        call.fill(seats.tokens)
    return calls, seats


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_token_runs_once_at_its_place(case: Case):
    calls, _ = packed(case)
    ran: dict[tuple[int, int], int] = {}
    drew: dict[int, int] = {}
    for number, call in enumerate(calls):
        assert call.bucket in case.ladder.buckets()
        assert len(call.work) == len(call.bucket.shape)
        assert call.padded == sum(rows for rows, _ in call.bucket.shape) - call.live
        for (rows, query), work, part in zip(call.bucket.shape, call.work, call.parts, strict=True):
            s = work.segment
            assert s.tokens.shape == (rows, query) and s.table.shape == (rows, call.bucket.width)
            assert all(a.dtype == np.int32 for a in (s.tokens, s.start, s.count, s.table))
            for line in range(rows):
                if line >= len(part.rows):
                    assert s.count[line] == 0 and (s.table[line] == UNITS).all()
                    assert work.sampling.temperature[line] == 0
                    continue
                index = int(part.rows[line])
                row = case.rows[index]
                assert s.table[line].tolist() == (row.table + [UNITS] * WIDTH)[: call.bucket.width]
                assert 1 <= s.count[line] <= query
                for i in range(s.count[line]):
                    at = int(s.start[line]) + i
                    assert (index, at) not in ran
                    ran[index, at] = number
                    assert s.tokens[line, i] == row.token(at)
                if line in part.lines:
                    assert index not in drew and s.start[line] + s.count[line] == row.start + row.count
                    drew[index] = number
    wanted = {(i, at) for i, row in enumerate(case.rows) for at in range(row.start, row.start + row.count)}
    assert set(ran) == wanted
    assert set(drew) == {i for i, row in enumerate(case.rows) if row.draws}
    for i, row in enumerate(case.rows):
        order = [ran[i, at] for at in range(row.start, row.start + row.count)]
        assert order == sorted(order)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_arguments_are_those_that_were_compiled_and_each_rows_own(case: Case):
    """The same tree, shapes and types as `blank` compiled; and in each line what a row by itself asks for."""
    calls, _ = packed(case)
    for call in calls:
        form = blank(call.bucket, UNITS, case.features)
        for work, empty, part in zip(call.work, form, call.parts, strict=True):
            shapes(work, empty)
            for line, index in enumerate(part.rows.tolist()):
                row = case.rows[index]
                for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
                    assert getattr(work.sampling, name)[line] == np.asarray(
                        getattr(row.params, name), np.float32 if "_p" in name else None
                    )
                features(work, empty, line, part, row)
        if call.bucket.steps > 1:
            assert call.bucket.steps == case.ladder.steps and call.work[0].repeat is not None
            assert call.work[0].repeat.most == case.steps
            for line in range(call.bucket.shape[0][0]):
                stops = call.work[0].repeat.stops[line]
                assert set(stops[stops >= 0].tolist()) == (STOPS if line < len(call.parts[0].rows) else set())


def shapes(work: Any, empty: Any) -> None:
    assert jax.tree.structure(work) == jax.tree.structure(empty)  # type: ignore[operator]
    for found, wanted in zip(jax.tree.leaves(work), jax.tree.leaves(empty), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)


def features(work: Any, empty: Any, line: int, part: Any, row: Row) -> None:
    start, count = int(part.starts[line]), int(part.counts[line])
    if work.penalties is not None:
        p = work.penalties
        assert p.repetition[line] == np.float32(row.params.repetition_penalty)
        if row.params.penalised:
            assert p.prompt[line] == len(row.prompt)
            assert p.history[line, :start].tolist() == row.known[:start]
    if work.biases is not None:
        naive = Biases.blank(1, work.biases.token.shape[1])
        naive.put(0, row.params, len(row.prompt), STOPS)
        for name in ("token", "value", "until"):
            assert getattr(work.biases, name)[line].tolist() == getattr(naive, name)[0].tolist()
    if work.following is not None and row.scores is not None:
        after = row.prompt[start + 1 : start + 1 + count]
        assert work.following[line, : len(after)].tolist() == after


def plan(*rows: tuple[int, int, int], steps: int = 1) -> Case:
    """Rows of (start, count, draws)."""
    made = [
        Row(
            list(range(s + c)),
            [],
            s,
            c,
            d,
            list(range(10 * i, 10 * i + 10)),
            SamplingParams(),
            tuple(range(c - 1)) if d > 1 else (),
        )
        for i, (s, c, d) in enumerate(rows)
    ]
    for row in made:
        if row.draws > 1 and steps == 1:
            row.prompt = row.prompt[: row.start + 1]
    return Case(LADDERS[1], made, steps, PLAIN)


def names(case: Case) -> list[str]:
    return [call.bucket.name for call in packed(case)[0]]


@pytest.mark.parametrize(
    ("case", "programs"),
    [
        (plan((5, 1, 1)), ["decode 9"]),
        (plan((5, 1, 1), (0, 4, 0)), ["decode 2 + prefill 1x4"]),
        (plan((5, 1, 1), (0, 9, 1)), ["decode 2 + prefill 3x4"]),  # pieces of 4, 4 and 1
        (plan((5, 1, 1), (0, 17, 1)), ["decode 2 + prefill 3x4", "prefill 3x4"]),
        (plan((5, 1, 1), (5, 1, 1), (5, 1, 1), (0, 2, 0)), ["decode 9 + prefill 1x4"]),
        (plan((5, 3, 3), (5, 1, 1)), ["verify 9x4"]),
        (plan((5, 3, 3), (0, 5, 0)), ["verify 2x4 + prefill 3x4"]),
        (plan((0, 16, 1)), ["prefill 3x4", "prefill 1x4"]),
        (plan((3, 1, 0)), ["decode 9"]),  # one token of a prompt
        (plan((5, 1, 3), (8, 1, 3), steps=3), ["decode 9, up to 4 times"]),
    ],
    ids=lambda value: "" if isinstance(value, Case) else " then ".join(value),
)
def test_the_programs_that_a_plan_takes(case: Case, programs: list[str]):
    """By hand: what decodes and the first pieces go together where such a program was compiled; the rest in as few as hold it."""
    assert names(case) == programs


def test_without_mixed_programs_decodes_go_first():
    case = dataclasses.replace(plan((5, 1, 1), (0, 9, 1)), ladder=LADDERS[0])
    assert names(case) == ["decode 1", "prefill 2x8"]


def test_tables_are_as_wide_as_the_longest_row_needs():
    case = plan((10, 1, 1), (13, 1, 1))
    assert packed(case)[0][0].bucket == Bucket(((9, 1),), 6)
    assert packed(plan((10, 1, 1)))[0][0].bucket == Bucket(((9, 1),), 3)
    assert packed(plan((11, 1, 3), steps=3))[0][0].bucket.width == 6  # it will stand at 14
