"""Ways to serve, and requests that come and go: any policy over any memory and any programs, drawn at random."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from jaxserve.engine.engine import Engine
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from jaxserve.speculative.ngram import NGram
from tests.jaxserve.engines import ALL_FEATURES, CONTEXT, LINK, PAGE, QUICK, VOCAB, WIDTH, Books, Kit, engine, numbered

POLICIES = ("static", "dynamic", "continuous", "chunked", "disaggregated")

# Small chunks, prefill programs of several sizes, mixed ones for some batches; tables of several widths; whole prompts in one piece.
MANY_KIT = Kit(Buckets((3, 8), (WIDTH,), (3, 4), PAGE, prefills=(1,), mixed=(3,), drafts=3, steps=4), ALL_FEATURES)
ODD_KIT = Kit(Buckets((5,), (5, 14), (1, 5), 3, mixed=(5,)))
LONG_KIT = Kit(Buckets((6,), (WIDTH,), (2, CONTEXT), PAGE, drafts=4))
SLOTS_ALL_KIT = Kit(Buckets((2, 6), (1,), (2, 6), CONTEXT, mixed=(6,), drafts=2, steps=2), ALL_FEATURES, "contiguous", 6)
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
