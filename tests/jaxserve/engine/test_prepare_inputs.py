"""From plans to programs. Oracle: the plan itself, token by token: each runs once, at its position, over its row's own table, in order.

What features need of a row is put together again by their own tested functions (`LogitBias.put`, `PromptLogprobs.following`), row by row.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings

from jaxserve.engine.input_batch import InputBatch
from jaxserve.engine.prepare_inputs import InputPreparer
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.features import PLAIN
from jaxserve.programs.logit_bias import LogitBias
from jaxserve.programs.program_set import blank
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.plan import Plan
from tests.jaxserve.engine.packing_cases import LADDERS, STOPS, UNITS, WIDTH, Case, Row, cases, packed, plan


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
        naive = LogitBias.blank(1, work.biases.token.shape[1])
        naive.put(0, row.params, len(row.prompt), STOPS)
        for name in ("token", "value", "until"):
            assert getattr(work.biases, name)[line].tolist() == getattr(naive, name)[0].tolist()
    if work.following is not None and row.scores is not None:
        after = row.prompt[start + 1 : start + 1 + count]
        assert work.following[line, : len(after)].tolist() == after


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


def test_a_prompt_whose_row_has_left_is_run_as_it_was_packed():
    """Between packing and the call the row is cancelled and its seat goes to another: rows may have been admitted upon its pages."""
    ladder = LADDERS[0]
    seats = InputBatch(64, ladder.widths[-1], UNITS)
    plan = Plan(0, ids=(0, 1), starts=(0, 0), counts=(6, 1), draws=(1, 1))
    for id, tokens in ((0, [11, 12, 13, 14, 15, 16]), (1, [21])):
        seats.take(id, tokens, SamplingParams(), ())
        seats.show(id, [id, 5 + id], 0)
    calls = InputPreparer(ladder, seats, PLAIN, UNITS).pack(plan, {}, lambda id: None)
    for id in (0, 1):
        seats.leave(id)
    for id in (2, 3):
        seats.take(id, [99, 98], SamplingParams(), ())
    fed: dict[int, list[int]] = {0: [], 1: []}
    for call in calls:
        call.fill(seats)
        for part, work in zip(call.parts, call.work, strict=True):
            for line, row in enumerate(part.rows.tolist()):
                fed[row] += work.segment.tokens[line, : work.segment.count[line]].tolist()
    assert fed == {0: [11, 12, 13, 14, 15, 16], 1: [21]}
