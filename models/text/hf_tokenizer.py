"""The tokenizer of a Hugging Face folder, from all files that have a say in it. Which keys of them: `models.text.text_keys`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from models.errors import UserError
from models.files.json_text import kind_of, read_object
from models.files.provenance import NEVER_DRAWN, Ignored, Provenance, joined_ends
from models.files.reading import read_bytes, read_text
from models.text import text_keys
from models.text.text_keys import (
    ADDED_TOKENS,
    OLD_TEMPLATE,
    SPECIAL_TOKENS_MAP,
    TEMPLATE,
    TEMPLATES,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from models.text.tokenizer import Tokenizer

Ends = Iterable[tuple[int, str]]  # a token that ends an answer, and the file and key that say so

_AGAIN = "download it again"
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_LISTS = ("extra_special_tokens", "additional_special_tokens")
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_DEFAULTS = {  # of transformers' classes, where the config has no such key
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>"},
    "GemmaTokenizer": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "Qwen2Tokenizer": {"eos_token": "<|endoftext|>"},
}
_USED = ("default", "tool_use")


def from_folder(folder: Path, ends: Ends = (), rows: int | None = None) -> Tokenizer:
    """Read the tokenizer.

    Args:
      folder: holds tokenizer.json, and what else there is of `models.text.text_keys.FILES`.
      ends: what other files of the model say about the end of an answer; the tokenizer's own eos_token comes after them.
      rows: of the model's embedding. An id beyond ends no answer, and a text that has one is refused.

    Raises:
      UserError: tokenizer.json is missing, or a file is damaged or contradicts another.
    """
    config = _object(folder / TOKENIZER_CONFIG)
    if config.get("fast_tokenizer_files") not in (None, [], [TOKENIZER]):
        raise UserError(f"{folder / TOKENIZER_CONFIG}: fast_tokenizer_files names other files than {TOKENIZER}; drop the key")
    backend, ignored = _backend(folder / TOKENIZER)
    ignored += text_keys.ignored(TOKENIZER_CONFIG, config)
    settings, source = dict(config), dict.fromkeys(config, TOKENIZER_CONFIG)
    legacy = "added_tokens_decoder" not in config
    for name in (SPECIAL_TOKENS_MAP, ADDED_TOKENS):
        if (folder / name).is_file() and not legacy:
            ignored.append(Ignored(name, "the file", f"{TOKENIZER_CONFIG} has added_tokens_decoder"))
    if legacy:
        special = _object(folder / SPECIAL_TOKENS_MAP)
        ignored += text_keys.ignored(SPECIAL_TOKENS_MAP, special)
        settings |= special
        source |= dict.fromkeys(special, SPECIAL_TOKENS_MAP)
    named, more = _specials(settings, source, folder)
    added = _old_added(folder / ADDED_TOKENS, [*named.values(), *more]) if legacy else _added(config, folder / TOKENIZER_CONFIG)
    _add(backend, added, list(named.values()), more, folder)
    backend.encode_special_tokens = settings.get("split_special_tokens") is True
    strings = {name: token.content for name, token in named.items()}
    for name, text in _DEFAULTS.get(str(settings.get("tokenizer_class")).removesuffix("Fast"), {}).items():
        if name not in settings:
            strings[name], source[name] = text, f"{TOKENIZER_CONFIG} tokenizer_class"
    templates, found, passed_over = _templates(folder, settings)
    ends = list(ends)
    if "eos_token" in strings and (own := backend.token_to_id(strings["eos_token"])) is not None:
        ends.append((own, " ".join(dict.fromkeys([*source["eos_token"].split(), "eos_token"]))))
    kept, beyond = _within(ends, rows)
    texts = [name for name in (TOKENIZER, TOKENIZER_CONFIG) if (folder / name).is_file()]
    texts += [name for name in (SPECIAL_TOKENS_MAP, ADDED_TOKENS) if legacy and (folder / name).is_file()]
    return Tokenizer(
        backend,
        bos_token=backend.token_to_id(strings["bos_token"]) if "bos_token" in strings else None,
        eos_tokens=tuple(kept),
        origin=str(folder),
        rows=rows,
        chat_template=templates,
        template_strings=strings,
        provenance=Provenance(
            tokenizer=tuple(texts),
            chat_template=found,
            end_tokens=tuple(kept.items()),
            ignored=(*ignored, *passed_over, *beyond),
        ),
    )


def ends_of(keys: Mapping[str, Any], path: Path) -> list[tuple[int, str]]:
    """What a config says in eos_token_id: a token id, a list of them, or nothing.

    Raises:
      UserError: it is something else.
    """
    given = keys.get("eos_token_id")
    tokens = given if isinstance(given, list) else [] if given is None else [given]
    for token in tokens:
        if isinstance(token, bool) or not (isinstance(token, int) or (isinstance(token, float) and token.is_integer())):
            raise UserError(f"{path}: eos_token_id has {kind_of(token)}; it must be a token id or a list of them")
    return [(int(token), f"{path.name} eos_token_id") for token in tokens]


def _within(ends: Ends, rows: int | None) -> tuple[dict[int, tuple[str, ...]], list[Ignored]]:
    """(id -> its sources, of ids that can be drawn; the others)."""
    kept, beyond = [], []
    for token, source in ends:
        if token >= 0 and (rows is None or token < rows):
            kept.append((token, [source]))
        else:
            file, _, key = source.partition(" ")
            beyond.append(Ignored(file, f"{key} {token}", NEVER_DRAWN))
    return joined_ends(kept), beyond


def _backend(path: Path) -> tuple[tokenizers.Tokenizer, list[Ignored]]:
    """The pipeline of tokenizer.json, without what a training run left in it."""
    fix = "save the tokenizer there with transformers' AutoTokenizer.save_pretrained"
    content = read_bytes(path, fix=fix)
    try:
        backend = tokenizers.Tokenizer.from_buffer(content)
    except BaseException as error:  # the library raises bare Exception for anything it cannot read, and panics are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{path}: not a tokenizer that can be read ({_first_line(error)}); {_AGAIN}") from None
    there = []
    if backend.truncation is not None:
        there.append("truncation")
        backend.no_truncation()
    if backend.padding is not None:
        there.append("padding")
        backend.no_padding()
    if getattr(backend.model, "dropout", None):
        there.append("model.dropout")
        backend.model.dropout = None
    return backend, list(text_keys.ignored(TOKENIZER, there))


def _specials(
    settings: Mapping[str, Any], source: Mapping[str, str], folder: Path
) -> tuple[dict[str, AddedToken], list[AddedToken]]:
    """(special tokens by name, others)."""
    named = {
        name: _token(value, name, folder / source[name])
        for name, value in settings.items()
        if value is not None and (name in _NAMED or (text_keys.is_token(name) and isinstance(value, str | dict)))
    }
    key = next((key for key in _LISTS if settings.get(key)), None)
    if key is None:
        return named, []
    more, path = settings[key], folder / source[key]
    if isinstance(more, dict):
        return named | {name: _token(value, f"{key} {name}", path) for name, value in more.items()}, []
    if isinstance(more, list):
        return named, [_token(value, f"{key}, entry {i}", path) for i, value in enumerate(more, 1)]
    raise UserError(f"{path}: {key} is {kind_of(more)}; it must be a list of tokens, or tokens by name")


def _token(value: Any, name: str, path: Path, special: bool | None = True) -> AddedToken:
    """A token: written as a text, or as an object with its content and how it is cut out. `special` None: as the object says."""
    given = {"content": value} if isinstance(value, str) else value if isinstance(value, dict) else {}
    flags = {flag: given[flag] for flag in _FLAGS if flag in given}
    if special is not None:
        flags["special"] = special
    if not isinstance(given.get("content"), str) or not all(isinstance(flag, bool) for flag in flags.values()):
        raise UserError(f"{path}: {name} is {kind_of(value)} and no token; write its text, or an object with its content")
    return AddedToken(given["content"], **flags)


def _added(config: Mapping[str, Any], path: Path) -> list[tuple[int, AddedToken]]:
    """(id, token) of added_tokens_decoder."""
    given, found = config["added_tokens_decoder"], []
    if not isinstance(given, dict):
        raise UserError(f"{path}: added_tokens_decoder is {kind_of(given)}, not an object; {_AGAIN}")
    for number, value in given.items():
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and isinstance(value, dict)):
            raise UserError(
                f"{path}: added_tokens_decoder has {number[:40]!r} with {kind_of(value)}; it must be ids with tokens"
            )
        found.append((int(number), _token(value, f"added_tokens_decoder {number}", path, special=None)))
    return sorted(found, key=lambda entry: entry[0])


def _old_added(path: Path, specials: Iterable[AddedToken]) -> list[tuple[int, AddedToken]]:
    """(id, token) of added_tokens.json, which has ids by their texts."""
    special, found = {token.content for token in specials}, []
    for text, number in _object(path).items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise UserError(f"{path}: {text[:40]!r} has {kind_of(number)}; it must be a token's id")
        found.append((number, AddedToken(text, normalized=text not in special, special=text in special)))
    return sorted(found, key=lambda entry: entry[0])


def _add(
    backend: tokenizers.Tokenizer,
    added: list[tuple[int, AddedToken]],
    named: list[AddedToken],
    more: list[AddedToken],
    folder: Path,
) -> None:
    """Add what tokenizer.json lacks, as transformers does: first by id, then the special tokens."""
    present = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    special = {token.content for token in named}
    for number, token in added:
        if repr(token) in present or backend.token_to_id(token.content) not in (None, number):
            continue  # tokenizer.json is right about its own tokens
        backend.add_tokens([_special(token) if token.content in special else token])
        if (got := backend.token_to_id(token.content)) not in (None, number):
            gap = f"{folder}: {token.content[:60]!r} is to have id {number}, and the next free one of {TOKENIZER} is {got}"
            raise UserError(f"{gap}; save the tokenizer again with transformers")
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in (*named, *more) if token.content not in known])


def _special(token: AddedToken) -> AddedToken:
    token.special = True
    return token


def _templates(folder: Path, settings: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...], list[Ignored]]:
    """(templates by name, where those that are used come from, what is passed over)."""
    places = [dict(_own_files(folder)), dict(_named(settings.get("chat_template"), folder / TOKENIZER_CONFIG))]
    places.append(dict(_named(_object(folder / OLD_TEMPLATE).get("chat_template"), folder / OLD_TEMPLATE)))
    taken, ignored = next((place for place in places if place), {}), list[Ignored]()
    for place in places:
        for name, (source, _) in place.items():
            file, _, key = source.partition(" ")
            if place is not taken:
                ignored.append(Ignored(file, key or "the file", f"{next(iter(taken.values()))[0]} goes before it"))
            elif name not in _USED:
                ignored.append(Ignored(file, key or "the file", "only templates called default and tool_use are used"))
    sources = tuple(source for name, (source, _) in taken.items() if name in _USED)
    return {name: text for name, (_, text) in taken.items()}, sources, ignored


def _own_files(folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    if (folder / TEMPLATE).is_file():
        yield "default", (TEMPLATE, read_text(folder / TEMPLATE, fix=_AGAIN))
    for path in sorted((folder / TEMPLATES).glob("*.jinja")):
        yield path.stem, (f"{TEMPLATES}/{path.name}", read_text(path, fix=_AGAIN))


def _named(value: Any, path: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """(name, (source, template)) of a setting: one template, or several in either of transformers' spellings."""
    where = f"{path.name} chat_template"
    if value is None:
        return
    if isinstance(value, str):
        yield "default", (where, value)
        return
    if isinstance(value, list):
        entries = [(entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None) for entry in value]
    else:
        entries = list(value.items()) if isinstance(value, dict) else [(None, None)]
    for name, text in entries:
        if not isinstance(name, str) or not isinstance(text, str):
            raise UserError(
                f"{path}: chat_template is {kind_of(value)} and no template; write one, or a list with name and template"
            )
        yield name, (f"{where} {name}", text)


def _object(path: Path) -> dict[str, Any]:
    """Of a file that may be missing."""
    return read_object(path, fix=_AGAIN, strict=False) if path.is_file() else {}


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
