"""Answers from their first token to their end: text, tokens and reasons, worked out by hand or by a search in the whole text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.engine.sequence import Finish, SequenceState
from jaxserve.sampling_params import SamplingParams
from tests.jaxserve.text.test_stop_strings import first
from tests.jaxserve.texts import FAMILIES, TEXT, family, letters

F = family("byte-level")
EOS = F.tokenizer.eos_tokens[0]
MANY = 1000


def ids(*words: str) -> list[int]:
    return [F.ids[letters(word)] for word in words]


def answer(room: int = MANY, eos: Any = (EOS,), continued: Any = None, **params: Any) -> SequenceState:
    return SequenceState(SamplingParams(**params), F.pieces, eos, room, continued)


def push(found: SequenceState, tokens: list[int]) -> list[str]:
    """What each token shows, up to the end of the answer."""
    shown = []
    for token in tokens:
        if found.finish is None:
            shown.append(found.push(token))
    assert found.text == "".join(shown) and found.tokens == tokens[: len(shown)]
    return shown


@pytest.mark.parametrize(
    ("words", "params", "shown", "finish"),
    [
        (["he", "DEF", "G", "HI", "J", "ld"], {}, ["he", "", "", "", ""], ("stop", "DEFGHIJ")),
        (["he", "DEF", "G", "HI", "J"], {"include_stop": True}, ["he", "", "", "", "DEFGHIJ"], ("stop", "DEFGHIJ")),
        (["DEF", "G", "HI", "ld", "J"], {}, ["", "", "", "DEFGHIld", "J"], None),
        (["he", "DEF", "G"], {"max_tokens": 3}, ["he", "", "DEFG"], ("length", None)),  # the held tail comes with the end
        (["he", "DEF", "G", "HI", "J"], {"max_tokens": 5}, ["he", "", "", "", ""], ("stop", "DEFGHIJ")),
        (["he", "ld"], {"stop": "he"}, [""], ("stop", "he")),  # at the very first token
        (["hello"], {"stop": ["ll", "l"]}, ["he"], ("stop", "l")),  # the rest of the token goes too
        (["DEF", "G"], {"stop": ["EFG", "FG"]}, ["D", ""], ("stop", "EFG")),
    ],
)
def test_stop_strings(words: list[str], params: dict[str, Any], shown: list[str], finish: Any):
    found = answer(**({"stop": "DEFGHIJ"} | params))
    assert push(found, ids(*words)) == shown and found.finish == finish


@pytest.mark.parametrize(
    ("params", "shown", "finish"),
    [
        ({}, ["he", "ld", ""], ("stop", EOS)),
        ({"ignore_eos": True}, ["he", "ld", "", "G", "J"], None),  # a special token has no text
        ({"ignore_eos": True, "stop_ids": [EOS]}, ["he", "ld", ""], ("stop", EOS)),
        ({"stop_ids": ids("ld")}, ["he", ""], ("stop", ids("ld")[0])),
        ({"stop_ids": ids("ld"), "include_stop": True}, ["he", "ld"], ("stop", ids("ld")[0])),
        ({"max_tokens": 3}, ["he", "ld", ""], ("stop", EOS)),  # at the limit too it is the token that ends it
        ({"max_tokens": 2}, ["he", "ld"], ("length", None)),
        ({"min_tokens": 2}, ["he", "ld", ""], ("stop", EOS)),  # two came before it
        ({"stop": "ldG"}, ["he", "", "ld"], ("stop", EOS)),  # what was held back is shown
    ],
    ids=str,
)
def test_tokens_that_end_it(params: dict[str, Any], shown: list[str], finish: Any):
    found = answer(**params)
    assert push(found, [*ids("he", "ld"), EOS, *ids("G", "J")]) == shown and found.finish == finish


@pytest.mark.parametrize("last", [1, 106])
def test_any_end_token_of_a_list_ends(last: int):
    """[1, 106], as Gemma's: either ends; ignored, none does. Here they are letters, and their text is not shown either."""
    tokens = [50, 60, last, 70]
    found = answer(eos=[1, 106])
    push(found, tokens)
    assert found.finish == ("stop", last) and found.tokens == tokens[:3]
    ignoring = answer(eos=[1, 106], ignore_eos=True, max_tokens=4)
    push(ignoring, tokens)
    assert ignoring.finish == ("length", None) and ignoring.tokens == tokens


def test_room_is_a_limit_too():
    for room, limit in ((2, None), (2, 5), (5, 2)):
        found = answer(room, max_tokens=limit)
        push(found, ids("he", "ld", "G"))
        assert found.finish == ("length", None) and found.text == "held"


def test_min_tokens_and_stop_strings():
    """They do not count before so many tokens have come before the one that completes them; then they do, wherever they began."""
    words = ["he", "ld", "he", "ld", "he", "ld"]
    for least, shown in ((0, ["", ""]), (1, ["", ""]), (2, ["", "held", "", ""]), (4, ["", "held", "", "held", "", ""])):
        found = answer(stop="held", min_tokens=least)
        assert push(found, ids(*words)) == shown and found.finish == ("stop", "held")


def test_a_stop_id_before_min_tokens_is_a_token_like_any_other():
    """None is drawn then (`Biases`); an answer that is restored from other tokens must not end on one either."""
    found = answer(stop_ids=ids("ld"), min_tokens=2)
    assert push(found, ids("ld", "G", "ld")) == ["ld", "G", ""] and found.finish == ("stop", ids("ld")[0])


def test_an_emoji_cut_by_max_tokens():
    """Three tokens for one character; cut within it, there is no U+FFFD, nothing of it is shown and the text before it is whole."""
    tokens = [*ids("he"), *(F.ids[spelled] for spelled in (letters("🎉")[:2], letters("🎉")[2], letters("🎉")[3]))]
    for limit, text in ((1, "he"), (2, "he"), (3, "he"), (4, "he🎉")):
        found = answer(max_tokens=limit)
        push(found, tokens)
        assert found.text == text and found.finish == ("length", None)
    stopped = answer(stop="🎉")
    assert push(stopped, tokens) == ["he", "", "", ""] and stopped.finish == ("stop", "🎉")


def test_an_answer_that_is_aborted():
    found = answer(stop="DEFGHIJ")
    push(found, ids("he", "DEF"))
    assert found.abort() == "DEF" and found.finish == ("abort", None) and found.text == "heDEF"
    assert found.abort() == "" and found.finish == ("abort", None)
    with pytest.raises(RuntimeError, match=r"a token came after the answer had ended \(abort\)"):
        found.push(5)
    ended = answer(max_tokens=1)
    push(ended, ids("he"))
    assert ended.abort() == "" and ended.finish == ("length", None)
    assert json.dumps(ended.finish) == '["length", null]'


def test_text_of_its_own_and_text_that_continues():
    f = family("sentencepiece")
    prompt, token = [1, f.ids["▁hello"]], f.ids["▁world"]
    assert SequenceState(SamplingParams(), f.pieces, [2], MANY).push(token) == "world"
    assert SequenceState(SamplingParams(), f.pieces, [2], MANY, prompt).push(token) == " world"
    assert SequenceState(SamplingParams(stop=" world"), f.pieces, [2], MANY, prompt).push(token) == ""


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "metaspace"])
@settings(max_examples=150, deadline=None)
@given(data=st.data(), text=TEXT, seed=st.integers(0, 2**32), include=st.booleans(), least=st.integers(0, 6))
def test_any_text_with_stop_strings_from_it(name: str, data: st.DataObject, text: str, seed: int, include: bool, least: int):
    """Random tokens of random text, stop strings that mostly occur in it: the text is cut before the first, and the tokens after it.

    Which token completes an occurrence: the first at which the library's decoding of all so far, without a broken end, holds it.
    """
    f = family(name)
    cuts = st.tuples(st.integers(0, len(text)), st.integers(1, 4)).map(lambda cut: text[cut[0] : cut[0] + cut[1]])
    stops = tuple(stop for stop in data.draw(st.lists(cuts | st.text("abeJ€", min_size=1, max_size=3), max_size=3)) if stop)
    tokens = f.cut(text, seed)
    found = SequenceState(SamplingParams(stop=stops, include_stop=include, min_tokens=least), f.pieces, (), max(len(tokens), 1))
    shown = []
    for token in tokens:
        if found.finish is None:
            shown.append(found.push(token))
            assert text.startswith("".join(shown))
    lengths = [len(known) for known in (grown(f, tokens[:i], text) for i in range(len(tokens) + 1))]
    occurrence = first(text, stops, done=lengths[min(least, len(tokens))])
    if occurrence is None:
        assert found.text == text and (found.finish == Finish("length") or not tokens)
    else:
        start, end = occurrence
        assert found.text == text[: end if include else start] and found.finish == Finish("stop", text[start:end])
        assert len(found.tokens) == next(i for i, length in enumerate(lengths) if length >= end)


def grown(f: Any, tokens: list[int], text: str) -> str:
    """The whole characters of the first tokens of a text."""
    size = len(b"".join(f.pieces.of(token) or b"" for token in tokens))
    encoded = (" " if f.name == "sentencepiece" else "").encode() + text.encode()
    return encoded[:size].decode("utf-8", "ignore")[1 if f.name == "sentencepiece" else 0 :]
