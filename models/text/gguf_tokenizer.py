"""A tokenizer from GGUF metadata, which holds a vocabulary and the name of the rules instead of the rules.

Two families: "gpt2", byte-level BPE with the merges listed and the splitting regex named in `tokenizer.ggml.pre`; and "llama",
SentencePiece, whose merges follow from the scores of its pieces. Which tokens end an answer a converter says for one or two of them at
best; the others are known by their text, as llama.cpp knows them (llama-vocab.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from models.errors import UserError, short
from models.files.provenance import NEVER_DRAWN, Ignored, Provenance, joined_ends
from models.text.tokenizer import Tokenizer


class Piece(IntEnum):
    """`tokenizer.ggml.token_type` of one entry of the vocabulary."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Rules(NamedTuple):
    """How a byte-level BPE cuts a text into words.

    Attributes:
      splits: regexes, applied one after the other, each to what the one before left whole or cut out.
      ignore_merges: a word that is in the vocabulary is taken whole, even where its merges would not lead there.
      begins: a text begins with bos, where the file does not say.
      composes: characters are composed first (NFC).
    """

    splits: tuple[str, ...]
    ignore_merges: bool = False
    begins: bool = False
    composes: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_SEED = _QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")

RULES: Mapping[str, Rules] = {  # docs/models.md lists them
    "gpt-2": Rules((_GPT2,)),
    "smollm": Rules((r"\p{N}", _GPT2)),
    "default": Rules((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "llama-bpe": Rules((_LLAMA3,), ignore_merges=True, begins=True),
    "smaug-bpe": Rules((_LLAMA3,)),
    "qwen2": Rules((_QWEN2,), composes=True),
    "megrez": Rules((_QWEN2,)),
    "seed-coder": Rules((_SEED,)),
    "tekken": Rules((_TEKKEN,), ignore_merges=True, begins=True),
    "deepseek-coder": Rules(_CODER),
}

ALIASES: Mapping[str, str] = {  # other names of the same rules, of models of the architectures that run
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "falcon3": "llama-bpe",
    "pixtral": "llama-bpe",
    "midm-2.0": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "f2llmv2": "qwen2",
    "kormo": "megrez",
    "starcoder": "smollm",
    "refact": "smollm",
    "minerva-7b": "smollm",
    "a.x-4.0": "gpt-2",
    "granite-docling": "gpt-2",
    "mellum": "gpt-2",
    "trillion": "gpt-2",
}

_ENDS = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> <|eom_id|> <EOT> _<EOT> [EOT] "
    "[EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[ "
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>".split()
)
_MARKS = frozenset(  # they end nothing, but are no ordinary text either
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>".split()
)
_CONTROL = _ENDS | _MARKS
_HARMONY = (
    {"<|return|>", "<|call|>"},
    {"<|call|>", "<|flush|>"},
    {"<|calls|>", "<|flush|>"},
)  # where <|end|> ends a message only

_MOST_TOKENS = 1 << 19  # twice Gemma's 262,144
_LONGEST_PIECE = 256  # characters; SentencePiece makes none of more than 16 by default


def special_ids(metadata: Mapping[str, Any], origin: str) -> dict[str, int]:
    """bos, eos, unk, pad, sep, cls and mask -> token id, of those that the file has.

    Raises:
      UserError: bos or eos is not in the vocabulary.
    """
    count, ids = len(metadata.get("tokenizer.ggml.tokens", ())), {}
    defaults = {"bos": 1, "eos": 2} if metadata.get("tokenizer.ggml.model") == "llama" else {}
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator", "cls": "cls", "mask": "mask"}
    for name, key in names.items():
        given = metadata.get(f"tokenizer.ggml.{key}_token_id")
        token = defaults.get(name) if given is None else given
        if token is not None and (token < count or (given is not None and not count)):
            ids[name] = token
        elif given is not None and name in ("bos", "eos"):
            raise UserError(_outside(origin, f"{key}_token_id", given, count))
    return ids


def end_tokens(metadata: Mapping[str, Any], origin: str) -> dict[int, tuple[str, ...]]:
    """Every token that ends an answer, with the keys or the text that say so; the one of eos_token_id comes first.

    llama.cpp's list with its exceptions, and one of ours: `</s>` ends an answer only where it is a control token, because in Gemma's
    vocabulary it is the end of struck-out HTML.

    Args:
      metadata: the keys that are read, as `models.checkpoint.gguf_keys.understood` returns them.
      origin: named in errors.

    Raises:
      UserError: an id is not in the vocabulary.
    """
    tokens, ends = metadata.get("tokenizer.ggml.tokens") or [], []
    eos = special_ids(metadata, origin).get("eos")
    if eos is not None:
        ends.append((eos, ["tokenizer.ggml.eos_token_id"]))
    for key in ("eos_token_ids", "eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"):
        given = metadata.get(f"tokenizer.ggml.{key}", [])
        for token in given if isinstance(given, list) else [given]:
            if 0 <= token < len(tokens):
                ends.append((token, [f"tokenizer.ggml.{key}"]))
            elif tokens and not key.startswith("fim"):
                raise UserError(_outside(origin, key, token, len(tokens)))
    known = {text: token for token, text in enumerate(tokens) if text in _ENDS}
    if any(pair <= known.keys() for pair in _HARMONY):
        known.pop("<|end|>", None)
    types = metadata.get("tokenizer.ggml.token_type", ())
    if "<|tool_response>" not in known and ("</s>", Piece.CONTROL) in zip(tokens, types, strict=False):
        known["</s>"] = tokens.index("</s>")
    ends += [(token, [f"tokenizer.ggml.tokens {text}"]) for text, token in known.items()]
    return joined_ends(ends)


def _outside(origin: str, key: str, token: int, count: int) -> str:
    return f"{origin}: tokenizer.ggml.{key} is {token} and the vocabulary has {count} tokens; convert the model again"


def from_metadata(metadata: Mapping[str, Any], origin: str, rows: int | None = None) -> Tokenizer:
    """Build the tokenizer of a GGUF file.

    Args:
      metadata: the keys that are read, as `models.checkpoint.gguf_keys.understood` returns them.
      origin: the file, named in errors.
      rows: of the model's embedding.

    Raises:
      UserError: a tokenizer model or splitting rule that is not supported, or metadata that contradicts itself.
    """
    model = metadata.get("tokenizer.ggml.model", "(none)")
    build = {"gpt2": _byte_level, "llama": _sentencepiece}.get(model)
    if build is None:
        raise UserError(f"{origin}: tokenizer model {short(model)} is not supported; supported are gpt2, llama")
    tokens = _vocabulary(metadata.get("tokenizer.ggml.tokens") or [], origin)
    types = metadata.get("tokenizer.ggml.token_type") or [Piece.NORMAL] * len(tokens)
    if not tokens or len(types) < len(tokens):
        raise UserError(f"{origin}: {len(tokens)} tokens with {len(types)} token types; convert the model again")
    # llama.cpp too takes these for control tokens, whatever a converter wrote
    types = [Piece.CONTROL if text in _CONTROL else kind for text, kind in zip(tokens, types, strict=False)]
    named, ends = special_ids(metadata, origin), end_tokens(metadata, origin)
    try:
        backend = build(metadata, tokens, types, origin)
    except UserError:
        raise
    except Exception as error:  # the library raises bare Exception, as when a merge is not in the vocabulary
        reason = short(str(error).partition("\n")[0])
        raise UserError(f"{origin}: the vocabulary contradicts itself ({reason}); convert the model again") from None
    _add_ends(backend, metadata, tokens, named, origin)
    templates, file = _templates(metadata), Path(origin).name
    beyond = [token for token in ends if rows is not None and token >= rows]
    return Tokenizer(
        backend,
        bos_token=named.get("bos"),
        eos_tokens=[token for token in ends if token not in beyond],
        origin=origin,
        rows=rows,
        chat_template={name: metadata[key] for name, key in templates.items()},
        template_strings={f"{name}_token": tokens[token] for name, token in named.items()},
        provenance=Provenance(
            tokenizer=(f"{file} tokenizer.ggml",),
            chat_template=tuple(f"{file} {key}" for key in templates.values()),
            end_tokens=tuple(
                (token, tuple(f"{file} {source}" for source in sources))
                for token, sources in ends.items()
                if token not in beyond
            ),
            ignored=tuple(Ignored(file, f"end token {token}", NEVER_DRAWN) for token in beyond),
        ),
    )


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Name of a chat template -> its key."""
    key = "tokenizer.chat_template"
    named = {name.removeprefix(f"{key}."): name for name in metadata if name.startswith(f"{key}.")}
    return ({"default": key} if key in metadata else {}) | named


def _vocabulary(tokens: Sequence[str], origin: str) -> list[str]:
    """The text of each token. One without a text gets the name that llama.cpp gives it."""
    if len(tokens) > _MOST_TOKENS:
        raise UserError(f"{origin}: {len(tokens)} tokens; at most {_MOST_TOKENS} are supported")
    named = [text or f"[EMPTY_{token}]" for token, text in enumerate(tokens)]
    first = _ids(named)
    if len(first) < len(named):
        token = next(token for token, text in enumerate(named) if first[text] != token)
        both = f"tokens {first[named[token]]} and {token} are both {short(named[token])}"
        raise UserError(f"{origin}: {both}; convert the model again")
    return named


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], types: list[int], origin: str) -> tokenizers.Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "(none)")
    rules = RULES.get(ALIASES.get(name, name))
    if rules is None:
        known = ", ".join(sorted([*RULES, *ALIASES]))
        raise UserError(f"{origin}: pre-tokenizer {short(name)} is not supported; supported are {known}")
    if "tokenizer.ggml.merges" not in metadata:
        raise UserError(f"{origin}: metadata key tokenizer.ggml.merges is missing; convert the model again")
    merges = [_pair(merge) for merge in metadata["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE(vocab=_ids(tokens), merges=merges, ignore_merges=rules.ignore_merges))
    if rules.composes:
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.splits]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    backend.decoder = decoders.ByteLevel()
    _add_specials(backend, tokens, types, normalized=False)
    return backend


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: list[int], origin: str) -> tokenizers.Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores") or []
    if len(scores) < len(tokens):
        raise UserError(f"{origin}: {len(tokens)} tokens with {len(scores)} scores; convert the model again")
    long = next((token for token, text in enumerate(tokens) if len(text) > _LONGEST_PIECE), None)
    if long is not None:
        limit = f"at most {_LONGEST_PIECE} are supported; convert the model again"
        raise UserError(f"{origin}: token {long} has {len(tokens[long])} characters; {limit}")
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == Piece.UNKNOWN), None)
    if (given := metadata.get("tokenizer.ggml.unknown_token_id", len(tokens))) < len(tokens):
        unknown = tokens[given]
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


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    """Text -> id; of two equal texts the first counts."""
    return {text: token for token, text in reversed(list(enumerate(tokens)))}


def _pair(merge: str) -> tuple[str, str]:
    cut = merge.find(" ", 1)  # from 1: a piece may itself begin with a space
    if cut < 0:
        raise ValueError(f"merge {short(merge)} has no two parts")
    return merge[:cut], merge[cut + 1 :]


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> Iterator[tuple[str, str]]:
    """SentencePiece joins the neighbours that form the best scored piece: the same as merges in the order of falling scores."""
    joined = [kind not in (Piece.UNKNOWN, Piece.CONTROL, Piece.UNUSED, Piece.BYTE) for kind in types]
    known = {text for text, kind in zip(tokens, joined, strict=True) if kind}
    for token in sorted(range(len(tokens)), key=lambda token: -scores[token]):  # sorted is stable: equal scores by id
        text = tokens[token]
        if joined[token]:
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
    backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: list[str], named: Mapping[str, int], origin: str
) -> None:
    """Begin (and, where the file says so, end) an encoded text with its special token."""
    pre = metadata.get("tokenizer.ggml.pre", "")
    begins = metadata["tokenizer.ggml.model"] == "llama" or RULES[ALIASES.get(pre, pre)].begins  # where the file does not say
    ends = {}
    for name, default in (("bos", begins), ("eos", False)):
        if metadata.get(f"tokenizer.ggml.add_{name}_token", default):
            if name in named:
                ends[name] = named[name]
            elif f"tokenizer.ggml.add_{name}_token" in metadata:
                wants = f"tokenizer.ggml.add_{name}_token is true and tokenizer.ggml.{name}_token_id is missing"
                raise UserError(f"{origin}: {wants}; convert the model again")
    if ends:
        before = [tokens[ends["bos"]]] if "bos" in ends else []
        after = [tokens[ends["eos"]]] if "eos" in ends else []
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(tokens[token], token) for token in ends.values()]
        )
