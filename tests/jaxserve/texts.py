"""Tokenizers of every family, small enough to draw tokens at random from, and ways to cut a text into their tokens at random."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from jaxserve.text.token_bytes import TokenBytes
from models.text import gguf_tokenizer
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.models import checkpoints

WORDS = ["he", "hello", " wor", "ld", "DEF", "G", "HI", "J", "\n\n", "€", "日本", "🎉", "  a"]
FAMILIES = ("byte-level", "sentencepiece", "sentencepiece without prefix", "metaspace", "bytes")
# Much of it in the vocabularies; U+2581 is a space to SentencePiece, so no text can hold it
TEXT = st.text(
    st.sampled_from("abcdehlor wDEFGHIJ\n€日本🎉é\ufffd") | st.characters(exclude_categories=["Cs"]), max_size=30
).map(lambda text: text.replace("▁", "_"))


@dataclasses.dataclass(frozen=True)
class Family:
    """A tokenizer, and its tokens by how they are spelled."""

    name: str
    tokenizer: Tokenizer

    @functools.cached_property
    def pieces(self) -> TokenBytes:
        return TokenBytes(self.tokenizer)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return self.tokenizer.backend.get_vocab()

    @functools.cached_property
    def plain(self) -> list[int]:
        """All tokens but special ones."""
        special = {t.content for t in self.tokenizer.backend.get_added_tokens_decoder().values() if t.special}
        return sorted(token for text, token in self.ids.items() if text not in special)

    def cut(self, text: str, seed: int) -> list[int]:
        """A text as tokens, one of the many ways, by the vocabulary's spelling; no code of ours but the byte names of SentencePiece."""
        draw, tokens, at = random.Random(seed), [], 0
        spelled = self.spell(text)
        while at < len(spelled):
            known = [n for n in range(1, 12) if spelled[at : at + n] in self.ids and at + n <= len(spelled)]
            size = draw.choice(known) if known and draw.random() < 0.9 else 0
            if size:
                tokens.append(self.ids[spelled[at : at + size]])
            elif "<0x00>" in self.ids:
                tokens += [self.ids[f"<0x{byte:02X}>"] for byte in spelled[at].replace("▁", " ").encode()]
            else:
                tokens.append(self.ids[spelled[at]])
            at += max(size, 1)
        return tokens

    def spell(self, text: str) -> str:
        if self.name == "byte-level":
            return letters(text)
        if self.name == "bytes":
            return text
        prefix = "" if self.name.endswith("without prefix") or not text else "▁"
        return prefix + text.replace(" ", "▁")


@functools.cache
def family(name: str) -> Family:
    if name == "bytes":
        return Family(name, byte_tokenizer(300))
    if name == "byte-level":
        return Family(name, byte_level())
    if name == "metaspace":
        return Family(name, metaspace("always"))
    metadata = checkpoints.vocabulary(320) | {"tokenizer.ggml.add_space_prefix": name == "sentencepiece"}
    return Family(name, gguf_tokenizer.from_metadata(metadata, name))


def letters(text: str) -> str:
    """How a byte-level vocabulary spells a text, by the library."""
    return "".join(word for word, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text))


def byte_level() -> Tokenizer:
    """All single bytes, some words, tokens that begin or end within a character, special ones, and plain ones that were added."""
    party, euro = letters("🎉"), letters("€")
    words = [*map(letters, WORDS), party[:2], party[:3], party[1:], euro[1:], "a" + euro[:1], euro[2:] + "b"]
    texts = list(dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *words]))
    backend = Backend(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>", "<|x y|>"])
    backend.add_tokens([AddedToken("added token"), AddedToken("é!"), AddedToken("wörk"), AddedToken("日本 x")])
    return made(backend, backend.token_to_id("<|end|>"))


def metaspace(scheme: Any) -> Tokenizer:
    """Words and all characters of the texts that tests cut for it."""
    texts = [
        "<s>",
        *dict.fromkeys([*(word.replace(" ", "▁") for word in WORDS), *"▁abcdehlorwDEFGHIJ\n€日本🎉é", "▁▁", "▁he▁"]),
    ]
    backend = Backend(models.WordLevel(vocab={text: i for i, text in enumerate(texts)}, unk_token="<s>"))
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.add_special_tokens(["<s>"])
    return made(backend, 0)


def made(backend: Backend, eos: int | None) -> Tokenizer:
    return Tokenizer(backend, bos_token=None, eos_tokens=(eos or 0,), origin="test")
