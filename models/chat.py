"""Chat templates: the Jinja programs that come with a model and turn a conversation into its text."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.errors import UserError

Message = Mapping[str, Any]  # role and content, and whatever else a template looks at


def render(source: str, messages: Sequence[Message], add_generation_prompt: bool, strings: Mapping[str, str]) -> str:
    """Run a chat template.

    A template is a program from a stranger's file: it runs in Jinja's sandbox and cannot change the messages.

    Args:
      source: the template, with the names that transformers gives it.
      messages: the conversation.
      add_generation_prompt: whether the text ends with the header of the assistant's turn.
      strings: the variables bos_token, eos_token and so on.

    Raises:
      UserError: the template is not valid, or it rejects these messages.
    """
    try:
        return _compiled(source).render(messages=messages, add_generation_prompt=add_generation_prompt, **strings)
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"chat template, line {error.lineno}: {error.message}; the model's template is not valid") from None
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template rejects these messages: {error.message}") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # it computed with a wrong value
        reason = f"{error}; each message needs a role and a text as content"
        raise UserError(f"the chat template cannot use these messages: {reason}") from None


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(layout)
    return environment.from_string(source)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    """Jinja's own filter escapes <, > and & for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
