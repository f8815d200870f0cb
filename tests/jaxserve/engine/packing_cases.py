"""Plans that are packed, drawn at random or written in a line, and what packing makes of them.

A `Case` is a plan of which each `Row` still knows its prompt, answer and drafts, so that a test can say what its arrays must hold.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from jaxserve.engine.input_batch import InputBatch
from jaxserve.engine.prepare_inputs import Call, FeatureInputs, InputPreparer
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.logprobs import PromptLogprobs
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.plan import Plan

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
    ladder: Buckets
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
    Buckets((1, 4, 9), (WIDTH,), (2, 8), PAGE),
    Buckets((9,), (3, 6, WIDTH), (3, 4), PAGE, prefills=(1,), mixed=(2, 9), drafts=3, steps=4),
    Buckets((2, 9), (WIDTH,), (1, 5), PAGE, mixed=(3,), drafts=3, steps=2),
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


def packed(case: Case) -> tuple[list[Call], InputBatch]:
    """The last token of a row that decodes is known only after packing, as where a step is planned ahead of it."""
    seats, plan = InputBatch(CONTEXT, case.ladder.widths[-1], UNITS), case.plan
    for id, row in zip(plan.ids, case.rows, strict=True):
        known = row.known
        late = len(row.answer) > 0 and row.start == len(known) - 1
        seats.take(id, known[:-1] if late else known, row.params, STOPS)
        seats.show(id, row.table, 0)
    special = {
        id: FeatureInputs(row.params, len(row.prompt), STOPS, row.scores)
        if i % 3 or row.scores or row.params.penalised
        else None
        for i, (id, row) in enumerate(zip(plan.ids, case.rows, strict=True))
    }
    for id, row in zip(plan.ids, case.rows, strict=True):
        if row.params.biases or row.params.min_tokens:
            special[id] = FeatureInputs(row.params, len(row.prompt), STOPS, row.scores)
    drafts = {id: (*row.drafts, 77) for id, row in zip(plan.ids, case.rows, strict=True) if row.drafts}  # one more than is run
    calls = InputPreparer(case.ladder, seats, case.features, UNITS).pack(plan, drafts, special.get)
    for id, row in zip(plan.ids, case.rows, strict=True):
        seats.tell(id, len(row.known) - 1, row.known[-1:])
    for call in calls:
        call.fill(seats)
    return calls, seats


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
