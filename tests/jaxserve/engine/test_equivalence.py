"""Law 1: how requests are scheduled, where their KV lies and in which programs they run changes when tokens come, never which.

Law 2 is checked after everything that happens to the scheduler (`engines.Books`).

Oracles: those of `proofs.proved`, dense float64 and the slow definition of sampling, for every token of every answer; and each request
draws what the same request drew in every other run of the same test, exactly.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from jaxserve.engine.request_handle import RequestHandle
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import ALL_KIT, LINK, PLAIN_KIT, QUICK, ROWS, SLOTS_KIT, Books, nothing_left, numbered, seated_right
from tests.jaxserve.proofs import proved
from tests.jaxserve.ways_to_serve import BROAD, Ask, Serving, runs

KNOWN: dict[Any, Any] = {}  # what each request drew, in whatever run came first


class Session:
    """Requests that come and go while an engine serves, and may be moved to another in the middle."""

    def __init__(self, first: Serving, load: list[Ask]):
        self.books = Books()
        self.engine = first.engine(self.books)
        self.left = list(load)
        self.handles: list[tuple[Ask, RequestHandle]] = []
        self.shown: dict[tuple[int, int], list[Any]] = {}  # by the identity of the handle
        self.kept: list[RequestHandle] = []  # of engines before, so that their identities stay theirs

    def turn(self, turn: int) -> None:
        for ask in [ask for ask in self.left if ask.turn <= turn]:
            self.left.remove(ask)
            self.handles.append((ask, self.engine.submit(ask.prompt, ask.params, priority=ask.priority)))
        for ask, handle in self.handles:
            if ask.abort is not None and ask.abort <= turn and not handle.finished:
                self.engine.abort(handle)
        for piece in self.engine.step():
            sums = self.shown.setdefault((id(piece.handle), piece.sample), [[], ""])
            sums[0] += piece.tokens
            sums[1] += piece.text
        seated_right(self.engine)
        self.engine.wait()

    def move(self, then: Serving) -> None:
        """The engine ends; another goes on with its requests from plain JSON."""
        snapshot = json.loads(json.dumps(self.engine.snapshot()))
        self.books = Books()
        self.engine = then.engine(self.books)
        restored = self.engine.restore(snapshot)
        going = [(ask, handle) for ask, handle in self.handles if not handle.finished]
        self.kept += [handle for _, handle in going]
        assert sorted(restored) == sorted(handle.id for _, handle in going)
        for ask, old in going:
            new = restored[old.id]
            assert new.prompt == old.prompt and new.params == old.params
            for i, (before, after) in enumerate(zip(old.answers, new.answers, strict=True)):
                assert (before.tokens, before.text) == (after.tokens, after.text)
                self.shown[id(new), i] = self.shown.get((id(old), i), [[], ""])
            self.handles.append((ask, new))
        self.handles = [(ask, handle) for ask, handle in self.handles if (ask, handle) not in going]

    def end(self) -> None:
        nothing_left(self.engine)
        for ask, handle in self.handles:
            assert handle.finished
            proved(handle, known=KNOWN)
            for i, answer in enumerate(handle.answers):
                tokens, text = self.shown.get((id(handle), i), [[], ""])
                if answer.finish and answer.finish.reason != "abort":
                    assert (tokens, text) == (answer.tokens, answer.text), "pieces don't add up to the answer"
                assert answer.finish is None or answer.finish.reason != "abort" or ask.abort is not None


def equivalent(first: Serving, load: list[Ask], moved: int | None = None, then: Serving | None = None) -> Session:
    session = Session(first, load)
    for turn in range(3000):
        if moved == turn and then is not None:
            session.move(then)
        session.turn(turn)
        if session.engine.idle and not session.left:
            break
    session.end()
    return session


LOAD = [
    Ask(tuple(numbered(i % 3, 20)[: 3 + 4 * i % 17]), SamplingParams(max_tokens=2 + 3 * i % 14, ignore_eos=True), turn=i // 3)
    for i in range(10)
]
AHEAD = Limits(rows=4, ahead=1)


@pytest.mark.parametrize("prefix", [False, True], ids=["paged", "prefix"])
@pytest.mark.parametrize(
    "policy",
    [
        Static(ROWS),
        Dynamic(ROWS, (2, 3), 0.02),
        Continuous(ROWS),
        Continuous(AHEAD),
        Chunked(ROWS, 9),
        Chunked(AHEAD, 6),
        Disaggregated(LINK, ROWS),
    ],
    ids=lambda policy: f"{type(policy).__name__.lower()}{policy.limits.ahead}",
)
def test_every_policy_answers_alike(policy: Any, prefix: bool):
    workers = 2 if isinstance(policy, Disaggregated) else 1
    session = equivalent(Serving(policy, PLAIN_KIT, prefix, workers=workers), LOAD)
    assert (session.engine.status().cached > 0) == prefix
    if workers > 1:
        assert session.books.hand_offs == len(LOAD)


@pytest.mark.parametrize("policy", [Static(ROWS), Continuous(AHEAD), Chunked(ROWS, 8), Disaggregated(LINK, ROWS)], ids=str)
def test_slots_answer_like_pages(policy: Any):
    load = [dataclasses.replace(ask, params=dataclasses.replace(ask.params, n=1 + i % 2)) for i, ask in enumerate(LOAD)]
    equivalent(Serving(policy, SLOTS_KIT, workers=2 if isinstance(policy, Disaggregated) else 1), load)


@pytest.mark.parametrize("policy", [Continuous(ROWS), Chunked(AHEAD, 7)], ids=str)
@pytest.mark.parametrize("prefix", [False, True], ids=["paged", "prefix"])
def test_preempted_rows_answer_alike(policy: Any, prefix: bool):
    """11 pages for rows of up to 10."""
    load = [dataclasses.replace(ask, params=SamplingParams(max_tokens=15, ignore_eos=True)) for ask in LOAD]
    session = equivalent(Serving(policy, PLAIN_KIT, prefix, lent=11), load)
    assert session.books.preempted > 3
    assert session.engine.status().preempted == session.books.preempted


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drafts_change_nothing(temperature: float):
    """Mixed programs, too, and a whole prompt beside rows that verify."""
    load = [
        Ask(
            tuple(numbered(i, 15)),
            SamplingParams(temperature, seed=i, max_tokens=14, repetition_penalty=0.8, ignore_eos=True, n=1 + i % 2),
            turn=2 * i,
        )
        for i in range(6)
    ]
    session = equivalent(Serving(Chunked(ROWS, 20), ALL_KIT, True, drafter=NGram(2)), load)
    taken = session.engine.status().acceptance
    assert taken.offered > 20 and taken.accepted > 0 and taken.tokens > taken.steps
    assert any("verify" in name and "prefill" in name for record in session.engine.records for name in record.programs)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_several_steps_in_one_program_change_nothing(ahead: int):
    """With penalties, whose tokens of the step before are not known when the next one is packed."""
    load = [
        Ask(
            tuple(numbered(i, 6)),
            SamplingParams(
                0.5 * i, seed=i, max_tokens=12, repetition_penalty=1.3, presence_penalty=0.5, logprobs=1, min_tokens=2
            ),
        )
        for i in range(4)
    ]
    session = equivalent(Serving(Continuous(Limits(rows=4, ahead=ahead), 3), ALL_KIT), load)
    assert any("up to 3 times" in name for record in session.engine.records for name in record.programs)


@given(runs(QUICK))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_way_to_serve_answers_alike(run: Any):
    equivalent(*run)


@pytest.mark.slow
@given(runs(BROAD))
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_way_to_serve_answers_alike_at_length(run: Any):
    equivalent(*run)
