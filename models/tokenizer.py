"""Text to token ids and back, over a `tokenizers.Tokenizer` whatever file it was built from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models

from models.chat import Message, render
from models.errors import UserError
from models.provenance import Provenance


class Tokenizer:
    """A vocabulary with its rules, its special tokens and its chat template.

    Attributes:
      backend: the `tokenizers` pipeline.
      bos_token: id that begins a text, or None. `encode` adds it only where the model was trained so.
      eos_tokens: every id that ends an answer.
      chat_template: Jinja source, or None.
      origin: named in errors.
      provenance: which files gave the vocabulary, the chat template and each end token.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token: int | None,
        eos_tokens: Sequence[int],
        origin: str,
        chat_template: str | None = None,
        template_strings: Mapping[str, str] | None = None,
        provenance: Provenance | None = None,
    ):
        """`template_strings` are the variables bos_token, eos_token, ... of the chat template; those of the ids by default.

        By default `origin` gave all of it.
        """
        self.backend, self.origin = backend, origin
        self.bos_token, self.eos_tokens = bos_token, tuple(eos_tokens)
        self.chat_template = chat_template
        self.provenance = provenance or Provenance(
            tokenizer=(origin,),
            chat_template=(origin,) if chat_template else (),
            end_tokens=tuple((token, (origin,)) for token in self.eos_tokens),
        )
        ids = {"bos_token": bos_token, "eos_token": self.eos_tokens[0] if self.eos_tokens else None}
        strings = {name: backend.id_to_token(token) or "" for name, token in ids.items() if token is not None}
        self._template_strings = {**strings, **(template_strings or {})}

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with the beginning-of-text token where the model wants one.

        Raises:
          UserError: the text holds half of a character.
        """
        return self.backend.encode(whole(text)).ids

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a text to be answered: a turn of a chat where the model has a template, else a text to go on with."""
        return self.encode_chat([{"role": "user", "content": text}]) if self.chat_template else self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, without special ones. Bytes that are not (yet) whole characters become U+FFFD."""
        return self.backend.decode(list(ids))

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as the one text that the model was trained on.

        Args:
          messages: role and content of each turn.
          add_generation_prompt: end with the header of the assistant's turn, so that the model answers.

        Raises:
          UserError: no chat template, or one that rejects these messages.
        """
        if self.chat_template is None:
            raise UserError(f"{self.origin}: the model has no chat template; send a plain prompt instead of messages")
        return render(self.chat_template, messages, add_generation_prompt, self._template_strings)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation that the model is to answer.

        The template alone decides about the beginning-of-text token: adding it here too would double it.
        """
        return self.backend.encode(whole(self.render_chat(messages)), add_special_tokens=False).ids


def whole(text: str) -> str:
    """The text itself, if it can be written as bytes.

    Raises:
      UserError: it holds half of a surrogate pair, as a JSON string does that was cut within an emoji.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"half of a character, U+{ord(text[error.start]):04X}, at place {error.start + 1}"
        raise UserError(f"the text holds {half}; write the character whole or drop it") from None
    return text


def from_folder(folder: Path, bos_token: int | None, eos_tokens: Sequence[int]) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json, and where present tokenizer_config.json and chat_template.jinja.

    Args:
      folder: holds the files.
      bos_token, eos_tokens: ids from the model's config; where it gives none, the tokenizer's own names are looked up.

    Raises:
      UserError: tokenizer.json is missing or damaged, or the other files are damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UserError(f"{path}: no such file; save the tokenizer there with transformers' AutoTokenizer.save_pretrained")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for anything it cannot read
        raise UserError(f"{path}: not a tokenizer that can be read ({_first_line(error)}); download it again") from None
    settings = _settings(folder / "tokenizer_config.json")
    strings = {key: _text(value) for key, value in settings.items() if key.endswith("_token") and _text(value)}
    if bos_token is None and "bos_token" in strings:
        bos_token = backend.token_to_id(strings["bos_token"])
    if not eos_tokens and "eos_token" in strings:
        eos = backend.token_to_id(strings["eos_token"])
        eos_tokens = () if eos is None else (eos,)
    return Tokenizer(
        backend,
        bos_token=bos_token,
        eos_tokens=eos_tokens,
        origin=str(folder),
        chat_template=_template(folder / "chat_template.jinja", settings.get("chat_template")),
        template_strings=strings,
    )


def byte_tokenizer(vocab_size: int) -> Tokenizer:
    """One token a byte, ids 0 to 255, and 256 to end: for models with random weights, which have no vocabulary of their own.

    Raises:
      UserError: the vocabulary is too small for it.
    """
    if vocab_size < 257:
        raise UserError(f"vocab_size {vocab_size} is too small for the byte tokenizer; it needs at least 257")
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend, bos_token=None, eos_tokens=(256,), origin="byte tokenizer")


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(_content(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({_first_line(error)}); download it again") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path}: not a JSON object; download it again")
    return settings


def _template(path: Path, setting: Any) -> str | None:
    """chat_template.jinja where it exists, else the setting: a source, or a list of named ones of which "default" counts."""
    if path.is_file():
        return _content(path)
    if isinstance(setting, list):
        return next((entry.get("template") for entry in setting if entry.get("name") == "default"), None)
    return setting


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; download it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def _text(value: Any) -> str:
    """A special token's text: written as a string, or as an object with its content."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
