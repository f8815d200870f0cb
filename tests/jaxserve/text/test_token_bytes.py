"""Decoders taken apart, against the whole decoders of the library, token by token."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, pre_tokenizers

from jaxserve.text.token_bytes import ALPHABET, TokenBytes
from models.errors import UserError
from models.text.tokenizer import Tokenizer
from tests.jaxserve.texts import FAMILIES, family, letters, made, metaspace


def test_the_alphabet_is_the_librarys():
    """Every byte of UTF-8 in some character: what the library spells, read letter by letter, is the character's bytes."""
    assert set(ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet()) and sorted(ALPHABET.values()) == list(range(256))
    for character in map(chr, [*range(0x800), 0x20AC, *range(0x1000, 0x11000, 0x1000), 0x1F389, 0x10FFFF]):
        if not 0xD800 <= ord(character) < 0xE000:
            assert bytes(ALPHABET[letter] for letter in letters(character)) == character.encode()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_token_alone_and_after_another(name: str):
    """As the library decodes it, where that is text: alone and, by difference, after a letter."""
    f, whole = family(name), 0
    decode, before = f.tokenizer.decode, f.ids[letters("a")] if name != "bytes" else 97
    for token in range(len(f.ids) + 5):
        alone, after = (TokenBytes.of(f.pieces, token, first=first) for first in (True, False))
        assert (alone is None) == (after is None) == (token not in f.plain)
        if after is None:
            assert decode([token]) == "" and decode([before, token]) == decode([before])
        elif "\ufffd" not in decode([token]):
            whole += 1
            text = (alone or b"").decode()
            character, most = f.pieces.strip
            assert (text[1:] if most and text.startswith(character) else text) == decode([token])
            assert decode([before]) + after.decode() == decode([before, token])
    assert whole > 30


@pytest.mark.parametrize(
    ("scheme", "expected"), [("always", ["a ", " a ", " b"]), ("first", ["a ", " a ", " b"]), ("never", ["  a ", " a ", " b"])]
)
def test_metaspace_schemes(scheme: str, expected: list[str]):
    """Worked out by hand from the rule: in the first token all marks are the prefix, unless there is none; else they are spaces."""
    pieces = TokenBytes(metaspace(scheme))
    ids = metaspace(scheme).backend.get_vocab()
    assert pieces.of(ids["▁he▁"], first=True) == (b" he " if scheme == "never" else b"he")
    assert pieces.of(ids["▁he▁"]) == b" he " and pieces.of(ids["▁▁"]) == b"  "
    assert pieces.of(ids["<s>"]) is None


def with_decoder(decoder: Any) -> Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    return made(backend, 0)


class Custom:
    def decode_chain(self, tokens: list[str]) -> list[str]:
        return tokens


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (None, "the tokenizer has no decoder that can be read"),
        (decoders.Decoder.custom(Custom()), "the tokenizer has no decoder that can be read"),
        (decoders.WordPiece(), "a decoder with the step WordPiece cannot be streamed; supported are ByteLevel"),
        (decoders.Replace(tokenizers.Regex("a+"), "b"), "the step Replace"),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Replace("a", "b")]), "the step Replace"),
        (decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]), "the step Metaspace"),
        (decoders.Sequence([decoders.ByteFallback(), decoders.ByteLevel()]), "the step ByteLevel"),
        (decoders.Strip(" ", 1, 0), "the step Strip"),
        (decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 1)]), "the step Strip"),
    ],
)
def test_other_decoders_are_refused(decoder: Any, message: str):
    with pytest.raises(UserError, match=message) as caught:
        TokenBytes(with_decoder(decoder))
    assert str(caught.value).startswith("test: ") and "\n" not in str(caught.value)
