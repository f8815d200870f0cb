"""A tokenizer from GGUF metadata, which holds a vocabulary and the name of the rules instead of the rules.

Two families: "gpt2", byte-level BPE with the merges listed and the splitting regex named in `tokenizer.ggml.pre`; and "llama",
SentencePiece, whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from models.errors import UserError
from models.tokenizer import Tokenizer


class Piece(IntEnum):
    """`tokenizer.ggml.token_type` of one entry of the vocabulary."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS: Mapping[str, tuple[str, ...]] = {  # applied one after the other, each to what the one before left whole or cut out
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace("{1,3}", ""),),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
}


def from_metadata(metadata: Mapping[str, Any], eos_tokens: Sequence[int], origin: str) -> Tokenizer:
    """Build the tokenizer of a GGUF file.

    Args:
      metadata: all keys and values of the file.
      eos_tokens: ids that end an answer.
      origin: named in errors.

    Raises:
      UserError: a tokenizer model or splitting rule that is not supported, or metadata that contradicts itself.
    """
    model = metadata.get("tokenizer.ggml.model", "(none)")
    build = {"gpt2": _byte_level, "llama": _sentencepiece}.get(model)
    if build is None:
        raise UserError(f"{origin}: tokenizer model {model!r} is not supported; supported are gpt2, llama")
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    types = metadata.get("tokenizer.ggml.token_type") or [Piece.NORMAL] * len(tokens)
    if not tokens or len(types) != len(tokens):
        raise UserError(f"{origin}: {len(tokens)} tokens with {len(types)} token types; convert the model again")
    named = {"bos": metadata.get("tokenizer.ggml.bos_token_id"), "eos": metadata.get("tokenizer.ggml.eos_token_id")}
    for token in (*named.values(), *eos_tokens):
        if token is not None and not 0 <= token < len(tokens):
            raise UserError(f"{origin}: special token {token} is not among the {len(tokens)} tokens; convert the model again")
    try:
        backend = build(metadata, tokens, types, origin)
    except UserError:
        raise
    except Exception as error:  # the library raises bare Exception, as when a merge is not in the vocabulary
        raise UserError(f"{origin}: the vocabulary contradicts itself ({error}); convert the model again") from None
    _add_ends(backend, metadata, model, tokens, named)
    return Tokenizer(
        backend,
        bos_token=named["bos"],
        eos_tokens=eos_tokens,
        origin=origin,
        chat_template=metadata.get("tokenizer.chat_template"),
        template_strings={f"{name}_token": tokens[token] for name, token in named.items() if token is not None},
    )


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], types: list[int], origin: str) -> tokenizers.Tokenizer:
    rule = metadata.get("tokenizer.ggml.pre", "(none)")
    if rule not in _SPLITS:
        raise UserError(f"{origin}: pre-tokenizer {rule!r} is not supported; supported are {', '.join(sorted(_SPLITS))}")
    merges = [_pair(merge) for merge in metadata.get("tokenizer.ggml.merges") or []]
    # Llama 3 takes a word that is in the vocabulary whole, even where its merges would not lead there
    model = models.BPE(vocab=_ids(tokens), merges=merges, ignore_merges=rule == "llama-bpe")
    backend = tokenizers.Tokenizer(model)
    if rule == "qwen2":
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _SPLITS[rule]]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    backend.decoder = decoders.ByteLevel()
    _add_specials(backend, tokens, types, normalized=False)
    return backend


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: list[int], origin: str) -> tokenizers.Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens):
        raise UserError(f"{origin}: {len(tokens)} tokens with {len(scores)} scores; convert the model again")
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == Piece.UNKNOWN), None)
    merges = list(_merges(tokens, types, scores))
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=_ids(tokens), merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    # a user-defined piece may hold ▁ and is then sought in normalised text; with a prefix it would itself be given one
    _add_specials(backend, tokens, types, normalized=not prefix)
    return backend


def _ids(tokens: list[str]) -> dict[str, int]:
    """Text -> id; of two equal texts the first counts."""
    return {text: token for token, text in reversed(list(enumerate(tokens)))}


def _pair(merge: str) -> tuple[str, str]:
    cut = merge.find(" ", 1)  # from 1: a piece may itself begin with a space
    return merge[:cut], merge[cut + 1 :]


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> Iterator[tuple[str, str]]:
    """SentencePiece joins the neighbours that form the best scored piece: the same as merges in the order of falling scores."""
    known = {text for text, kind in zip(tokens, types, strict=True) if kind in (Piece.NORMAL, Piece.USER_DEFINED)}
    for token in sorted(range(len(tokens)), key=lambda token: -scores[token]):  # sorted is stable: equal scores by id
        text = tokens[token]
        if types[token] in (Piece.NORMAL, Piece.USER_DEFINED):
            for cut in range(1, len(text)):
                if text[:cut] in known and text[cut:] in known:
                    yield text[:cut], text[cut:]


def _add_specials(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int], *, normalized: bool) -> None:
    """Control pieces are cut out of a text first and are not decoded; user-defined ones are cut out and are decoded."""
    pieces = list(zip(tokens, types, strict=True))
    control = [text for text, kind in pieces if kind in (Piece.CONTROL, Piece.UNKNOWN)]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    backend.add_tokens([AddedToken(text, normalized=normalized) for text, kind in pieces if kind == Piece.USER_DEFINED])


def _add_ends(
    backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], model: str, tokens: list[str], named: Mapping[str, int | None]
) -> None:
    """Begin (and, where the file says so, end) an encoded text with its special token."""
    begins = model == "llama" or metadata.get("tokenizer.ggml.pre") == "llama-bpe"  # where the file does not say
    wanted = {
        "bos": metadata.get("tokenizer.ggml.add_bos_token", begins),
        "eos": metadata.get("tokenizer.ggml.add_eos_token", False),
    }
    ends = {name: token for name, token in named.items() if token is not None and wanted[name]}
    if ends:
        before = [tokens[ends["bos"]]] if "bos" in ends else []
        after = [tokens[ends["eos"]]] if "eos" in ends else []
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(tokens[token], token) for token in ends.values()]
        )
