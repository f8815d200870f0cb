"""Chat templates: the Jinja programs that come with a model and turn a conversation into its text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from models.errors import UserError
from models.text.sandbox import BudgetError, TemplateEnvironment

Message = Mapping[str, Any]  # role and content, and whatever else a template looks at

LONGEST = 1 << 20  # characters of a template; the longest published ones have a thirtieth
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names for the same, the first is what templates read


def render(
    source: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any],
) -> str:
    """Run a chat template, as transformers' `apply_chat_template` does.

    A template is a program from a stranger's file: it runs in a sandbox with an end (`models.text.sandbox`) and sees copies of
    plain values. A key of a message whose value is None is left out, and what a message calls reasoning is passed under each of
    its names.

    Args:
      source: the template, with the names that transformers gives it.
      messages: the conversation.
      add_generation_prompt: whether the text ends with the header of the assistant's turn.
      tools: JSON schemas of functions.
      documents: what to answer from, each with its title and text.
      variables: bos_token, eos_token and so on, and whatever else the template looks at.

    Raises:
      UserError: the template is not valid, runs without end, or rejects these messages; or they are no messages.
    """
    if len(source) > LONGEST:
        raise UserError(f"the chat template has {len(source):,} characters, and {LONGEST:,} are the most; use another one")
    if not messages:
        raise UserError("the conversation has no message; give at least one")
    given = {
        "messages": [_message(_plain(message, f"message {i}"), i) for i, message in enumerate(messages, 1)],
        "tools": _objects("tools", tools),
        "documents": _objects("documents", documents),
        "add_generation_prompt": add_generation_prompt,
    }
    if taken := given.keys() & variables.keys():
        raise UserError(f"{min(taken)} is no variable of the template's own; give it by its own argument")
    try:
        return _environment().text(source, {**given, **_plain(variables, "a variable")})
    except BudgetError as error:
        raise UserError(f"the chat template does not come to an end: {error}; use another one") from None
    except jinja2.TemplateSyntaxError as error:
        raise UserError(
            f"chat template, line {error.lineno}: {_line(error.message)}; the model's template is not valid"
        ) from None
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template rejects these messages: {_line(error.message)}") from None
    except (SyntaxError, RecursionError, MemoryError) as error:  # of Python, into which it is translated
        raise UserError(
            f"chat template: {_line(str(error)) or 'too large'}; it is too deep for Python, use another one"
        ) from None
    except Exception as error:  # it computed with a wrong value; any program can fail in any way
        reason = _line(str(error)) or type(error).__name__
        raise UserError(
            f"the chat template cannot use these messages: {reason}; each message needs a role and a text as content"
        ) from None


@functools.cache
def _environment() -> TemplateEnvironment:
    return TemplateEnvironment()


def _message(message: Any, number: int) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise UserError(f"message {number} is {_line(repr(message))[:60]}; give an object with a role and a content")
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[name] for name in _REASONING if name in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}


def _objects(name: str, given: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    if given is None:
        return None
    found = _plain(given, name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UserError(f"{name} is {_line(repr(found))[:60]}; give a list of objects")
    return found


def _plain(value: Any, name: str) -> Any:
    """A copy of JSON's kinds: a template must get nothing with methods of its own."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):  # a subclass, such as an enum's
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    if isinstance(value, np.generic):
        return value.item()
    try:
        if isinstance(value, Mapping):
            return {_plain(key, name): _plain(item, name) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(item, name) for item in value]
    except RecursionError:
        raise UserError(f"{name} is nested too deep; give plain texts, numbers, lists and objects") from None
    raise UserError(f"{name} holds a {type(value).__name__}; give plain texts, numbers, lists and objects")


def _line(message: Any) -> str:
    """What a template said, of any make, as a part of one line."""
    line = " ".join(str(message).split())
    return line if len(line) <= 300 else f"{line[:300]}..."
