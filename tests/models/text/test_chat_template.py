"""Chat templates: the language that they may use, what they are given, and how they fail.

Oracles: `tests.models.templates.reference`, an environment set up as transformers does and independent of ours; transformers itself,
where it is installed; and texts worked out by hand.
"""

from __future__ import annotations

import enum
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from models.errors import UserError
from models.text.chat_template import render
from models.text.tokenizer import Tokenizer, byte_tokenizer
from tests.models.templates import GIVEN, MESSAGES, reference, sources

USER = {"role": "user", "content": 'ä <b> "q"'}


def chat(template: str, *messages: Any, **given: Any) -> str:
    backend = byte_tokenizer(512).backend
    tokenizer = Tokenizer(backend, bos_token=None, eos_tokens=(256,), origin="test", chat_template=template)
    return tokenizer.render_chat(messages or [USER], **given)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[0]['content'] | tojson }}", '"ä <b> \\"q\\""'),  # not escaped for HTML or ASCII
        ("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}\n", "x\n"),
        ("{% for m in messages %}{% break %}{% endfor %}{{ eos_token }}", "<eos>"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}", "user"),
        ("a {%- generation -%} x {{ 1 }} {%- endgeneration -%} b", "ax 1b"),
        ("a {% generation %} x {% endgeneration %} b", "a  x  b"),
        ("{% for m in messages %}{%- generation %}{% set x = m.role %}{{ x }}{% endgeneration %}{{ x }}{% endfor %}", "user"),
        ("{% if tools is not none %}TOOLS{% else %}none{% endif %}", "none"),
        ("{% if documents is not none %}DOCS{% else %}none{% endif %}{{ documents is defined }}", "noneTrue"),
        ("{{ add_generation_prompt }}{{ bos_token is defined }}", "TrueFalse"),
        ("{{ {'b': [1], 'a': 'é'} | tojson(ensure_ascii=true) }}", '{"b": [1], "a": "\\u00e9"}'),
        ("{{ {'b': [1], 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":[1]}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ [1, 2] | tojson(indent='-') }}", "[\n-1,\n-2\n]"),
        ("{% set ns = namespace(a=1, self=2) %}{% set ns.a = ns.a + ns.self %}{{ ns.a }}", "3"),
        ("{{ dict(a=1) }}{{ dict.fromkeys(['k'], 0) }}", "{'a': 1}{'k': 0}"),
        ("{{ 'a' ~ ('b' ~ none) ~ [1] }}", "abNone[1]"),
        ("{% macro f(x) %}[{{ x }}{{ caller() if caller }}]{% endmacro %}{{ f(1) }}{% call f(2) %}in{% endcall %}", "[1][2in]"),
    ],
)
def test_template_language(template: str, expected: str):
    assert chat(template) == expected


def test_the_year_is_this_one():
    import datetime

    assert chat("{{ strftime_now('%Y') }}") in {str(datetime.date.today().year + i) for i in (0, -1)}


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        ("{{ raise_exception('roles must alternate') }}", "the chat template rejects these messages: roles must alternate"),
        ("{{ raise_exception('two\nlines') }}", "the chat template rejects these messages: two lines"),
        ("{{ raise_exception() }}", "the chat template cannot use these messages"),
        ("{% if %}", "chat template, line 1: "),
        ("{% generation %}", "chat template, line 1: "),
        ("{{ messages[0]['content'] + 1 }}", "each message needs a role and a text as content"),
        ("{{ messages[3]['content'] }}", "the chat template rejects these messages"),
        ("{{ messages.append(1) }}", "the chat template rejects these messages"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "the chat template rejects these messages"),
        ("{% set ns = namespace(_a=1) %}", "a namespace takes no name such as '_a'"),
        ("{% set ns = namespace() %}{% set ns._a = 1 %}", "a namespace takes no name such as '_a'"),
        ("{% include 'x' %}", "the chat template cannot use these messages: no loader"),
        ("{{ 1 / 0 }}", "the chat template cannot use these messages: division by zero"),
        ("{{ tools | tojson(indent=[]) }}{{ [1] | tojson(indent=[]) }}", "the chat template cannot use these messages"),
    ],
)
def test_templates_fail_in_one_line(template: str, pattern: str):
    with pytest.raises(UserError, match=pattern) as raised:
        chat(template)
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(sources())
@example("{% for m in messages %}{%- generation %}{{ m.content }}{% endgeneration -%}{% endfor %}")
@example("{{ '{:>4}'.format(7) }}{{ 'a\tb'.expandtabs(2) }}")
def test_a_template_renders_as_in_transformers_or_says_why_not(source: str):
    """Where the reference fails in any way, ours fails in one line; where it does not, both are equal."""
    try:
        expected: str | None = reference(source)
    except Exception:
        expected = None
    try:
        found: str | None = render(source, MESSAGES, add_generation_prompt=True, variables={"bos_token": "<s>"})
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        found = None
    assert found == expected


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(sources())
@example("{% for m in messages %}{%- generation %}{% set x = m.content %}{{ x }}{% endgeneration -%}{{ x }}{% endfor %}")
@example("{% set ns = namespace(_x=1) %}")
@example("{{ dict(a=1) }}{{ dict.fromkeys('ab') }}")
def test_a_template_renders_as_by_transformers_itself(source: str):
    utils = pytest.importorskip("transformers.utils.chat_template_utils", reason="needs the extra 'transformers'")
    try:
        expected = utils.render_jinja_template([MESSAGES], chat_template=source, **GIVEN)[0][0]
    except Exception:
        expected = None
    try:
        found = render(source, MESSAGES, add_generation_prompt=True, variables={"bos_token": "<s>"})
    except UserError:
        found = None
    assert found == expected


def test_bombs_end_in_one_line_each():
    """In a process of its own, which may take 4 GiB of addresses: none takes 1 GB, and none runs on. Their time is cut here."""
    program = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        from models.text import chat_template, sandbox
        from models.errors import UserError
        from tests.models.templates import BOMBS

        sandbox.SECONDS = 0.2
        for bomb in BOMBS:
            try:
                text = chat_template.render(bomb, [{"role": "user", "content": "hi"}], add_generation_prompt=True, variables={})
                print("RENDERED", bomb[:80], len(text))
            except UserError as error:
                if "\\n" in str(error):
                    print("LINES", bomb[:80])
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # ru_maxrss is no less than the parent's
        peak = int(status["VmHWM"].split()[0]) * 1024
        print("PEAK", peak)
        sys.exit(peak > 10**9)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line for line in run.stdout.splitlines() if not line.startswith("PEAK")] == []


def test_a_long_conversation_is_no_bomb():
    """5,000 turns of 200 characters, through a template that builds its text piece by piece."""
    template = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{{ '<|' ~ m.role ~ '|>\n' + m.content | trim + '\n' }}{% endfor %}"
    )
    turns = [{"role": "user" if i % 2 else "assistant", "content": "word " * 40} for i in range(5_000)]
    expected = "".join(f"<|{turn['role']}|>\n{turn['content'].strip()}\n" for turn in turns)
    assert chat(template, *turns) == expected


class Role(enum.StrEnum):
    USER = "user"


def test_what_a_template_is_given():
    """As in transformers: keys with None left out, reasoning under each of its names, plain kinds only."""
    template = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    assert (
        chat(template, {"role": Role.USER, "content": None, "n": np.int64(3), "t": (1, 2)})
        == '{"role": "user", "n": 3, "t": [1, 2]}'
    )
    assert chat("{{ messages[0].thinking }}{{ messages[0].reasoning_content }}", {"role": "a", "reasoning": "r"}) == "rr"
    assert (
        chat(
            "{{ messages[0].thinking }}{{ messages[0].reasoning_content }}",
            {"role": "a", "thinking": "t", "reasoning_content": "r"},
        )
        == "tr"
    )
    assert chat("{{ tools[0].name }}{{ documents[0].title }}", tools=[{"name": "f"}], documents=[{"title": "d"}]) == "fd"
    assert chat("{{ enable_thinking }}{{ eos_token }}", variables={"enable_thinking": False, "eos_token": "E"}) == "FalseE"
    assert chat("{{ tools is none }}", tools=[]) == "False"


@pytest.mark.parametrize(
    ("messages", "given", "pattern"),
    [
        (["hi"], {}, "message 1 is 'hi'; give an object with a role and a content"),
        ([USER, 5], {}, "message 2 is 5; give"),
        ([{"role": "user", "content": object()}], {}, "message 1 holds a object; give plain texts"),
        ([{"role": "user", "content": b"x"}], {}, "message 1 holds a bytes; give plain texts"),
        ([USER], {"tools": [len]}, "tools holds a builtin_function_or_method"),
        ([USER], {"tools": ["f"]}, r"tools is \['f'\]; give a list of objects"),
        ([USER], {"documents": "d"}, "documents is 'd'; give a list of objects"),
        ([USER], {"variables": {"messages": []}}, "messages is no variable of the template's own"),
    ],
)
def test_conversations_that_are_none(messages: list[Any], given: dict[str, Any], pattern: str):
    with pytest.raises(UserError, match=pattern):
        chat("{{ messages }}", *messages, **given)


def test_an_empty_conversation_is_refused():
    with pytest.raises(UserError, match="the conversation has no message; give at least one"):
        render("x", [], add_generation_prompt=True, variables={})


def test_a_message_within_itself_is_one_line():
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    with pytest.raises(UserError, match="message 1 is nested too deep"):
        chat("x", message)


def test_templates_by_name():
    """As transformers chooses: tool_use where there are tools, else default."""
    backend = byte_tokenizer(512).backend

    def tokenizer(**templates: str) -> Tokenizer:
        return Tokenizer(backend, bos_token=None, eos_tokens=(), origin="m", chat_template=templates)

    both = tokenizer(default="D", tool_use="T", rag="R")
    assert both.render_chat([USER]) == "D" and both.chat_template == "D"
    assert both.render_chat([USER], tools=[{"name": "f"}]) == both.render_chat([USER], tools=[]) == "T"
    assert tokenizer(default="D").render_chat([USER], tools=[{"name": "f"}]) == "D"
    assert tokenizer(tool_use="T").encode_prompt("a") == [97]  # no template for a plain turn
    with pytest.raises(UserError, match="m: the model has no chat template called default, only rag, tool_use; send a plain"):
        tokenizer(rag="R", tool_use="T").render_chat([USER])
