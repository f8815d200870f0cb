"""Rows from prompt to end: pages, limits, ends, and the same tokens in any company.

Oracle: `tests.oracle.greedy`, one request at a time, dense, in float64; page counts by hand. Pools start as NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from tests import oracle
from tests.jaxserve import tiny
from tests.jaxserve.rows import Generation, Row, make_rows, pages_needed
from tests.jaxserve.served import CONTEXT, GREEDY, LADDER, PAGE, UNITS, row, served
from tests.jaxserve.tiny import prompt


def expected(tokens: Sequence[int], limit: int) -> list[int]:
    return oracle.greedy(*tiny.model("llama"), tokens, limit)


def made(prompts: Sequence[Sequence[int]], limit: int, *, eos: Iterable[int] = (), context: int = CONTEXT) -> list[Row]:
    return make_rows([list(p) for p in prompts], limit, [GREEDY] * len(prompts), eos, context=context, page=PAGE)


def test_rows_in_company_equal_rows_alone_across_changes_of_bucket():
    """Rows end one by one, so the rest move from the bucket of 4 to 2 to 1, to other rows of the program."""
    limits, sizes = (3, 12, 5, 8), (9, 1, 17, 4)
    rows = [row(prompt(i, n), limit, first=10 * i) for i, (n, limit) in enumerate(zip(sizes, limits, strict=True))]
    generation = served().run(rows)
    assert [r.output for r in rows] == [
        expected(prompt(i, n), limit) for i, (n, limit) in enumerate(zip(sizes, limits, strict=True))
    ]
    assert all(r.reason == "length" for r in rows)
    decode = [record for record in generation.records if record.program.bucket.tokens <= 4]
    # 12 tokens of the longest: the first comes with the prefill, then 11 steps, with 4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1 rows.
    assert [record.live for record in decode] == [4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1]
    assert [record.program.bucket.name for record in decode] == ["decode 4"] * 4 + ["decode 2"] * 3 + ["decode 1"] * 4
    assert decode[0].contexts == tuple(n + 1 for n in sizes)


def test_what_is_recorded_adds_up():
    rows = made([prompt(0, 9), prompt(1, 20), prompt(2, 1)], 6)
    seen: dict[str, int] = {"prefill": 0, "decode": 0}
    generation = Generation(rows, LADDER, served().programs, served().pool())
    generation.prefill(lambda tokens: seen.update(prefill=seen["prefill"] + tokens))
    first = len(generation.records)
    generation.decode(lambda tokens: seen.update(decode=seen["decode"] + tokens))
    assert seen == {"prefill": 30, "decode": 3 * 5}
    # Two rows a wave, the longest first, in chunks of 8: 20 and 9 take three steps, the second row but two of them; then 1.
    assert [(r.live, r.tokens) for r in generation.records[:first]] == [(2, 16), (2, 9), (1, 4), (1, 1)]
    assert all(r.seconds > 0 and r.host_seconds >= 0 for r in generation.records)


def test_a_row_ends_at_its_end_token_or_at_its_limit():
    free = expected(prompt(3, 5), 10)
    stop = free[4]
    rows = [row(prompt(3, 5), 10, eos=[stop]), row(prompt(3, 5), 10, eos=[95 if 95 not in free else 94], first=10)]
    served().run(rows)
    assert rows[0].output == free[: free.index(stop) + 1] and rows[0].reason == "stop"
    assert rows[1].output == free and rows[1].reason == "length"


def test_any_end_token_of_a_list_ends():
    """As with [1, 106] of Gemma: whichever comes first counts."""
    free = expected(prompt(3, 5), 10)
    late, early = free[7], free[3]
    for eos in ([late, early], [early, late], (late, early)):
        (r,) = made([prompt(3, 5)], 10, eos=eos)
        served().run([r])
        assert r.output == free[: min(free.index(early), free.index(late)) + 1] and r.reason == "stop"


def test_the_first_token_may_be_the_last():
    first = expected(prompt(4, 6), 1)
    (r,) = made([prompt(4, 6)], 10, eos=first)
    (one,) = made([prompt(4, 6)], 1)
    for done, reason in ((r, "stop"), (one, "length")):
        generation = served().run([done])
        assert done.output == first and done.reason == reason
        assert len(generation.records) == 1  # the prefill alone


@pytest.mark.parametrize(("size", "limit", "pages"), [(1, 1, 1), (4, 1, 1), (4, 2, 2), (5, 1, 2), (3, 6, 2), (3, 7, 3)])
def test_pages_of_a_row(size: int, limit: int, pages: int):
    """The last token drawn is never run, so 4 + 1 tokens need one page of 4 and 4 + 2 need two."""
    assert pages_needed(size, limit, PAGE) == pages
    (r,) = made([prompt(5, size)], limit)
    assert r.pages.tolist() == list(range(pages))


def test_pages_are_owned_by_one_row_and_none_is_missing():
    rows = made([prompt(i, 1 + 3 * i) for i in range(4)], 5)
    owned = [page for r in rows for page in r.pages.tolist()]
    assert owned == list(range(sum(pages_needed(1 + 3 * i, 5, PAGE) for i in range(4))))


def test_a_row_runs_in_exactly_its_pages():
    """It ends at a page edge, next to pages of NaN that belong to nobody: reading or needing one more would show."""
    (r,) = made([prompt(6, 9)], 4)
    assert len(r.pages) == 3
    generation = served().run([r])
    assert r.output == expected(prompt(6, 9), 4) and r.cached == 12
    written = np.isfinite(np.asarray(generation.pool.keys[0])).all(axis=(1, 2, 3))
    assert written.nonzero()[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [CONTEXT - 5, CONTEXT - 4])
def test_prompts_up_to_the_limit_run(size: int):
    (r,) = made([prompt(7, size)], 5)
    served().run([r])
    assert r.output == expected(prompt(7, size), 5)


def test_a_prompt_past_the_limit_is_refused_and_the_rest_lives_on():
    message = f"prompt 2 has {CONTEXT - 3} tokens and 5 are to follow, which needs a context of {CONTEXT + 1}, but the limit is {CONTEXT}"
    with pytest.raises(UserError, match=message) as caught:
        made([prompt(7, 3), prompt(7, CONTEXT - 3)], 5)
    assert "\n" not in str(caught.value)
    (r,) = made([prompt(7, 3)], 5)
    served().run([r])
    assert r.output == expected(prompt(7, 3), 5)


def test_an_empty_prompt_is_refused():
    with pytest.raises(UserError, match="prompt 2 is empty; give it at least one token"):
        made([prompt(0, 3), ()], 5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(prompt(i, 2), 3, first=i) for i in range(5)], "5 rows fit no program; the largest has 4"),
        ([row(prompt(0, 30), 12)], f"a sequence of 41 tokens fits no program; the longest holds {CONTEXT}"),
        ([row(prompt(0, 30), 5, first=UNITS - 8)], f"the rows need {UNITS + 1} KV pages and the pool has {UNITS}"),
    ],
)
def test_what_fits_no_program_is_refused_before_any_work(rows: list[Row], message: str):
    pool = served().pool()
    with pytest.raises(UserError, match=message):
        Generation(rows, LADDER, served().programs, pool)
    assert not pool.keys[0].is_deleted() and all(r.cached == 0 and not r.output for r in rows)


def test_each_row_follows_its_own_settings():
    """One prompt in four rows: greedy, wild, wild but with top_k 1, wild with another seed; and the wild one alone."""
    tokens, wild = prompt(8, 5), SamplingParams(1.5, seed=3)
    settings = [GREEDY, wild, SamplingParams(1.5, top_k=1, seed=3), SamplingParams(1.5, seed=4)]
    rows = [row(tokens, 12, each, first=5 * i) for i, each in enumerate(settings)]
    served().run(rows)
    greedy, drawn, one, other = (r.output for r in rows)
    assert greedy == one == expected(tokens, 12)
    assert drawn != greedy and other != greedy and drawn != other
    alone = row(tokens, 12, wild)
    served().run([alone])
    assert alone.output == drawn


def test_a_former_run_leaves_nothing_behind():
    """A sweep hands the pool on: whatever the run before wrote there, the next one gives the same tokens."""
    first = made([prompt(i, 5 + i) for i in range(4)], 6)
    pool = served().run(first).pool
    again = made([prompt(9, 18), prompt(10, 1)], 9)
    pool = served().run(again, pool).pool
    third = made([prompt(i, 5 + i) for i in range(4)], 6)
    served().run(third, pool)
    assert [r.output for r in third] == [r.output for r in first] == [expected(prompt(i, 5 + i), 6) for i in range(4)]
    assert [r.output for r in again] == [expected(prompt(9, 18), 9), expected(prompt(10, 1), 9)]
