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
from hypothesis import strategies as st

from jaxserve.engine import Engine
from jaxserve.features import PLAIN
from jaxserve.handle import Handle
from jaxserve.ladder import Ladder
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import (
    ALL_FEATURES,
    ALL_KIT,
    CONTEXT,
    LINK,
    PAGE,
    PLAIN_KIT,
    QUICK,
    SLOTS_KIT,
    VOCAB,
    WIDTH,
    Books,
    Kit,
    engine,
    nothing_left,
    numbered,
    seated_right,
)
from tests.jaxserve.proofs import proved

POLICIES = ("static", "dynamic", "continuous", "chunked", "disaggregated")
KNOWN: dict[Any, Any] = {}  # what each request drew, in whatever run came first

# Small chunks, prefill programs of several sizes, mixed ones for some batches; tables of several widths; whole prompts in one piece.
MANY_KIT = Kit(Ladder((3, 8), (WIDTH,), (3, 4), PAGE, prefills=(1,), mixed=(3,), drafts=3, steps=4), ALL_FEATURES)
ODD_KIT = Kit(Ladder((5,), (5, 14), (1, 5), 3, mixed=(5,)))
LONG_KIT = Kit(Ladder((6,), (WIDTH,), (2, CONTEXT), PAGE, drafts=4))
SLOTS_ALL_KIT = Kit(Ladder((2, 6), (1,), (2, 6), CONTEXT, mixed=(6,), drafts=2, steps=2), ALL_FEATURES, "contiguous", 6)
BROAD = (*QUICK, MANY_KIT, ODD_KIT, LONG_KIT, SLOTS_ALL_KIT)


@dataclasses.dataclass(frozen=True)
class Ask:
    """A request, and when it comes: before which turn."""

    prompt: tuple[int, ...]
    params: SamplingParams
    turn: int = 0
    priority: int = 1
    abort: int | None = None  # before which turn


@dataclasses.dataclass(frozen=True)
class Serving:
    """A way to serve."""

    policy: Any
    kit: Kit
    prefix: bool = False
    lent: int | None = None
    drafter: NGram | None = None
    workers: int = 1

    def engine(self, books: Books) -> Engine:
        return engine(
            self.policy,
            self.kit,
            prefix=self.prefix,
            lent=self.lent,
            drafter=self.drafter,
            workers=self.workers,
            books=books,
        )


def params(draw: st.DrawFn, features: bool) -> SamplingParams:
    greedy = draw(st.booleans())
    most = draw(st.sampled_from([None, 1, 2, 5, 9, 14]))
    given: dict[str, Any] = {
        "max_tokens": most,
        "seed": draw(st.integers(0, 2)),
        "ignore_eos": draw(st.booleans()),
        "include_stop": draw(st.booleans()),
        "n": draw(st.sampled_from([1, 1, 1, 2, 3])),
        "stop": tuple(draw(st.lists(st.text(st.characters(max_codepoint=VOCAB - 1), min_size=1, max_size=2), max_size=6))),
        "stop_ids": tuple(draw(st.lists(st.integers(0, VOCAB - 1), max_size=6))),
    }
    if not greedy:
        given |= {
            "temperature": draw(st.sampled_from([0.3, 1.0, 1.5])),
            "top_k": draw(st.sampled_from([0, 0, 1, 5])),
            "top_p": draw(st.sampled_from([1.0, 1.0, 0.8])),
            "min_p": draw(st.sampled_from([0.0, 0.0, 0.1])),
        }
    if features:
        biases = st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, -3.0, 2.0, 5.0]), max_size=4)
        given |= {
            "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 1.4, 0.8])),
            "presence_penalty": draw(st.sampled_from([0.0, 0.0, 0.7])),
            "frequency_penalty": draw(st.sampled_from([0.0, 0.0, 0.5, -0.3])),
            "logit_bias": draw(biases),
            "min_tokens": draw(st.integers(0, min(4, most or 4))),
            "logprobs": draw(st.sampled_from([None, None, 0, 2])),
            "prompt_logprobs": draw(st.sampled_from([None, None, 0, 2])),
        }
    return SamplingParams(**given)


@st.composite
def asks(draw: st.DrawFn, features: bool, rows: int) -> list[Ask]:
    """Prompts begin alike, are often the same, and end at pages and chunks, or one before or after."""
    sizes = st.sampled_from([1, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20])
    found = []
    for _ in range(draw(st.integers(1, 9))):
        begin, size = draw(st.integers(0, 1)), draw(sizes)
        prompt = numbered(begin, 20)[:size] + draw(st.lists(st.integers(0, VOCAB - 1), max_size=3))
        one = params(draw, features)
        if one.n > rows:
            one = dataclasses.replace(one, n=rows)
        abort = draw(st.sampled_from([None, None, None, None, 0, 2, 5, 11]))
        turn = draw(st.sampled_from([0, 0, 0, 1, 4, 10]))
        found.append(Ask(tuple(prompt), one, turn, draw(st.sampled_from([1, 1, 2])), None if abort is None else turn + abort))
    return found


@st.composite
def servings(draw: st.DrawFn, kits: tuple[Kit, ...], like: Kit | None = None) -> Serving:
    """Any policy, over any memory. Memory is often so short that rows must be preempted."""
    able = [kit for kit in kits if like is None or kit.features == like.features or like.features == PLAIN]
    kit = draw(st.sampled_from(able))
    rows = draw(st.integers(3, kit.ladder.batches[-1]))
    drafts = draw(st.integers(0, kit.ladder.drafts))
    name = draw(st.sampled_from(POLICIES))
    limits = Limits(
        rows=rows,
        prefill_tokens=draw(st.sampled_from([None, None, 8, 30])),
        preemptions=draw(st.integers(1, 3)),
        ahead=0 if drafts or name == "disaggregated" else draw(st.integers(0, 2)),
    )
    multi = draw(st.integers(1, kit.ladder.steps))
    workers = 1
    policy: Any
    if name == "static":
        policy = Static(limits, multi)
    elif name == "dynamic":
        policy = Dynamic(limits, draw(st.sampled_from([None, (2,), (1, 3)])), draw(st.sampled_from([0.0, 0.05])), multi)
    elif name == "continuous":
        policy = Continuous(limits, multi)
    elif name == "chunked":
        policy = Chunked(limits, draw(st.integers(rows, 30)), multi)
    else:
        workers = draw(st.integers(2, 3))
        prefill = draw(st.integers(1, workers - 1))
        policy = Disaggregated(LINK, limits, prefill, draw(st.integers(4, 30)), draw(st.sampled_from([0.0, 1.0])), multi)
    paged = kit.kind == "paged"
    # The longest sequence must fit: 40 tokens of `CONTEXT`, in pages or in one slot.
    least = -(-CONTEXT // kit.ladder.page) if paged else 1
    lent = draw(st.sampled_from([None, least, least + 3])) if paged else draw(st.sampled_from([None, 3]))
    return Serving(policy, kit, paged and draw(st.booleans()), lent, NGram(drafts, 2) if drafts else None, workers)


@st.composite
def runs(draw: st.DrawFn, kits: tuple[Kit, ...]) -> tuple[Serving, list[Ask], int | None, Serving]:
    """(how to serve, what, before which turn all is moved to another engine, and which)."""
    first = draw(servings(kits))
    then = draw(servings(kits, first.kit))
    rows = min(first.policy.limits.rows, then.policy.limits.rows)
    load = draw(asks(first.kit.features != PLAIN, rows))
    return first, load, draw(st.sampled_from([None, None, 1, 3, 8])), then


class Session:
    """Requests that come and go while an engine serves, and may be moved to another in the middle."""

    def __init__(self, first: Serving, load: list[Ask]):
        self.books = Books()
        self.engine = first.engine(self.books)
        self.left = list(load)
        self.handles: list[tuple[Ask, Handle]] = []
        self.shown: dict[tuple[int, int], list[Any]] = {}  # by the identity of the handle
        self.kept: list[Handle] = []  # of engines before, so that their identities stay theirs

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
ROWS = Limits(rows=4)
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
