"""Chat templates: the language that they may use, and how they fail."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import UserError
from models.tokenizer import Tokenizer, byte_tokenizer


def chat(template: str, *messages: dict[str, Any]) -> str:
    backend = byte_tokenizer(512).backend
    return Tokenizer(backend, bos_token=None, eos_tokens=(256,), origin="test", chat_template=template).render_chat(messages)


def test_template_language():
    user = {"role": "user", "content": 'ä <b> "q"'}
    assert chat("{{ messages[0]['content'] | tojson }}", user) == '"ä <b> \\"q\\""'  # not escaped for HTML or ASCII
    assert chat("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}\n", user) == "x\n"
    assert chat("{% for m in messages %}{% break %}{% endfor %}{{ eos_token }}", user) == "<eos>"
    assert chat("{{ strftime_now('%Y') | length }}") == "4"


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("{{ raise_exception('roles must alternate') }}", "the chat template rejects these messages: roles must alternate"),
        ("{% if %}", "chat template, line 1: "),
        ("{{ messages[0]['content'] + 1 }}", "each message needs a role and a text as content"),
        ("{{ messages[3]['content'] }}", "the chat template rejects these messages"),
        ("{{ messages.append(1) }}", "the chat template rejects these messages"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "the chat template rejects these messages"),
        ("{% for i in range(999999999) %}{% endfor %}", "the chat template cannot use these messages"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "the chat template cannot use these messages"),
    ],
)
def test_templates_fail_in_one_line(template: str, pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        chat(template, {"role": "user", "content": "hi"})
    assert "\n" not in str(raised.value)
