"""Text to token ids and back, over a `tokenizers.Tokenizer` whatever file it was built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models

from models.errors import UserError
from models.files.provenance import Provenance
from models.text.chat_template import Message, render


class Tokenizer:
    """A vocabulary with its rules, its special tokens and its chat templates.

    Attributes:
      backend: the `tokenizers` pipeline.
      bos_token: id that begins a text, or None. `encode` adds it only where the model was trained so.
      eos_tokens: every id that ends an answer.
      rows: the model has an embedding row for ids 0 to `rows` - 1; None if every id of the vocabulary has one.
      templates: Jinja sources of chat templates, by name.
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
        rows: int | None = None,
        chat_template: str | Mapping[str, str] | None = None,
        template_strings: Mapping[str, str] | None = None,
        provenance: Provenance | None = None,
    ):
        """`chat_template` is one, or several by name: default, and tool_use where a conversation has tools. `template_strings` are the
        variables bos_token, eos_token, ... of the template; those of the ids by default. By default `origin` gave all of it.
        """
        self.backend, self.origin, self.rows = backend, origin, rows
        self.bos_token, self.eos_tokens = bos_token, tuple(eos_tokens)
        self.templates = {"default": chat_template} if isinstance(chat_template, str) else dict(chat_template or {})
        self.provenance = provenance or Provenance(
            tokenizer=(origin,),
            chat_template=(origin,) if chat_template else (),
            end_tokens=tuple((token, (origin,)) for token in self.eos_tokens),
        )
        ids = {"bos_token": bos_token, "eos_token": self.eos_tokens[0] if self.eos_tokens else None}
        strings = {name: backend.id_to_token(token) or "" for name, token in ids.items() if token is not None}
        self._template_strings = dict(strings if template_strings is None else template_strings)

    @property
    def chat_template(self) -> str | None:
        """Jinja source of the template called default, or None."""
        return self.templates.get("default")

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, with the beginning-of-text token where the model wants one.

        Raises:
          UserError: the text holds half of a character, or what the model has no embedding row for.
        """
        return self._ids(text, add_special_tokens=True)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a text to be answered: a turn of a chat where the model has a template, else a text to go on with."""
        return self.encode_chat([{"role": "user", "content": text}]) if self.chat_template else self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, without special ones. Bytes that are not (yet) whole characters become U+FFFD."""
        return self.backend.decode(list(ids))

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the one text that the model was trained on, as transformers' `apply_chat_template` makes it.

        Args:
          messages: role and content of each turn.
          add_generation_prompt: end with the header of the assistant's turn, so that the model answers.
          tools: JSON schemas of functions that the model may call. A template called tool_use, where there is one, renders them.
          documents: what to answer from, each with its title and text.
          variables: what else the template looks at, such as enable_thinking. They go before bos_token and the like.

        Raises:
          UserError: no chat template, or one that rejects these messages.
        """
        name = "tool_use" if tools is not None and "tool_use" in self.templates else "default"
        if name not in self.templates:
            others = f" called default, only {', '.join(sorted(self.templates))}" if self.templates else ""
            raise UserError(f"{self.origin}: the model has no chat template{others}; send a plain prompt instead of messages")
        return render(
            self.templates[name],
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            documents=documents,
            variables={**self._template_strings, **(variables or {})},
        )

    def encode_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True, **given: Any) -> list[int]:
        """Token ids of a conversation, which the model is to answer unless told otherwise. Arguments and errors as of `render_chat`.

        The template alone decides about the beginning-of-text token: adding it here too would double it.
        """
        return self._ids(self.render_chat(messages, add_generation_prompt, **given), add_special_tokens=False)

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = self.backend.encode(whole(text), add_special_tokens=add_special_tokens).ids
        if self.rows is not None and ids and max(ids) >= self.rows:
            token = next(token for token in ids if token >= self.rows)
            raise UserError(
                f"the text has token {token} ({self.backend.id_to_token(token)!r}), and the model's embedding has rows 0 to "
                f"{self.rows - 1} only; leave it out of the text, or take a model whose vocab_size holds it"
            )
        return ids


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
