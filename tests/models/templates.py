"""Templates for tests: an independent environment set up as transformers does, small programs made by hypothesis, and bombs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": 'Be brief <é> & "kind".'},
    {"role": "user", "content": "Hi there,\n  you!"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": [1.5, True, None]}}]},
]
GIVEN: Mapping[str, Any] = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>"}

_GENERATION = re.compile(r"\{%(-?) *(end)?generation *(-?)%\}")


def reference(source: str) -> str:
    """What transformers renders. A generation block is replaced by one that is always entered: as if the tags were not there."""

    def to_json(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def fail(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = fail
    plain = _GENERATION.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", source)
    return environment.from_string(plain).render(messages=[dict(message) for message in MESSAGES], **GIVEN)


NAMES = (
    "messages m m.content m.role m['content'] m.tool_calls m.nothing messages[0].content messages[-1]['role'] messages[9] tools documents "
    "add_generation_prompt bos_token eos_token undefined_name loop.index loop.last ns.x x 'ab' '<x>' '' '%s-' '{:>4}' 1 0 2.5 none true [] "
    "[1,'b'] {'k':'v'}"
).split()
FILTERS = (
    "trim upper length string list first last join join(',') tojson tojson(indent=2) tojson(ensure_ascii=true) default('d') "
    "tojson(separators=(',',':'),sort_keys=true) default('d',true) replace('e','XX') indent(2) indent(width='>>',first=true) title "
    "sort int safe escape abs capitalize truncate(5) center(9) wordcount sum format(1) dictsort pprint "
    # What gives an iterator is made a list: an iterator is printed with its address, which differs between two runs.
    "reverse|list unique|list items|list batch(2)|list slice(2)|list map(attribute='role')|list map('upper')|list "
    "selectattr('role','equalto','user')|list rejectattr('tool_calls')|list select('string')|list"
).split()
CALLS = (
    ".strip() .split() .split('e') .upper() .startswith('a') .replace('a','bb') .format(7) .join(['p','q']) .center(6) .get('role') "
    ".items() .keys() .rstrip('.') .find('a') .append(1) .zfill(4) .__class__ .count('a') .title() .expandtabs(2) .format_map({}) [0] [-1] "
    "[1:] [::-1] ['role'] [:2]"
).split()
TESTS = ("none", "defined", "string", "mapping", "iterable", "odd", "in ['a']", "eq 'user'", "sameas none", "undefined")
OPERATORS = ("+", "~", "*", "/", "//", "%", "-", "==", "!=", "<", "in", "not in", "and", "or")
TEXTS = ("a", " ", "\n", "  b \n", "<|im_end|>", "{# c #}", "{% raw %}{{ m }}{% endraw %}", "é")
ODD = ("{% break %}", "{% continue %}", "{{ f(1) }}", "{{ loop.cycle('p', 'q') }}", "{{ caller() }}", "{{ namespace(a=1).a }}")
BLOCKS = (
    "{%D for m in messages D%}B{%D endfor D%}",
    "{% for x in E if E %}B{% else %}B{% endfor %}",
    "{%D if E D%}B{% elif E %}B{% else %}B{%D endif D%}",
    "{%D generation D%}G{%D endgeneration D%}",
    "{% set x %}B{% endset %}",
    "{% macro f(x, y=2) %}B{% endmacro %}",
    "{% call f(E) %}B{% endcall %}",
    "{% filter upper %}B{% endfilter %}",
    "{% with x = E %}B{% endwith %}",
    "{% set x = E %}",
    "{% set ns.x = E %}",
    "{{D E D}}",
    "{{ E }}",
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A small template."""

    def one(of: Sequence[str]) -> str:
        return draw(st.sampled_from(of))

    def expression(depth: int) -> str:
        kind = draw(st.integers(0, 7)) if depth else 0
        if kind <= 1:
            return one(NAMES)
        inner = expression(depth - 1)
        if kind == 2:
            return f"{inner}|{one(FILTERS)}"
        if kind == 3:
            return f"({inner}){one(CALLS)}"
        if kind == 4:
            return f"({inner} is {one(TESTS)})"
        if kind == 5:
            return one(["[{}]", "raise_exception({})", "range({})|list", "(not {})", "dict(a={}).a"]).format(inner)
        other = expression(depth - 1)
        return f"({inner} {one(OPERATORS)} {other})" if kind == 6 else f"({inner} if {other} else 'no')"

    def body(depth: int) -> str:
        return "".join(block(depth - 1) for _ in range(draw(st.integers(0, 3))))

    def block(depth: int) -> str:
        kind = draw(st.integers(0, 9))
        if kind < 2 or depth < 0:
            return one(TEXTS) if kind else one(ODD)
        layout = one(BLOCKS)
        parts = {
            "D": lambda: one(["", "-"]),
            "E": lambda: expression(3),
            "B": lambda: body(depth),
            "G": lambda: _alone(body(depth)),
        }
        return re.sub(r"(?<![A-Za-z])[BEG](?![A-Za-z])|D", lambda place: parts[place[0]](), layout)

    return one(["", "{% set ns = namespace(x=1) %}"]) + body(3)


def _alone(text: str) -> str:
    """A generation block is a scope of its own, which the reference is not: nothing that would show it."""
    return "" if re.search(r"set|break|continue|loop|caller|macro", text) else text


GROWING = "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}%s{%% endfor %%}%s"
BOMBS = [
    "{{ 'x' * 10**10 }}",
    "{{ [1] * 10**10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 'x'.center(10**10) }}",
    "{{ 'x'|center(10**10) }}",
    "{{ 'x'.encode().center(10**10) }}",
    "{{ (1).to_bytes(10**10, 'big') }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '%9999999999d'|format(1) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=9999999999) }}",
    "{{ ('{0}' * 9999).format('x' * 99999) }}",
    "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "{{ ('\t' * 99999).expandtabs(99999) }}",
    "{{ ('a' * 9999).translate({97: 'b' * 99999}) }}",
    "{{ ('x' * 99999).join(range(99999)|map('string')) }}",
    "{{ range(99999)|join('x' * 99999) }}",
    "{{ ('\n' * 99999)|indent('x' * 99999) }}",
    "{{ [[[1]]]|tojson(indent=10**10) }}",
    "{{ [1]|batch(10**9, 'x')|list }}",
    "{{ [1]|slice(10**9)|list }}",
    "{{ range(99999)|map('center', 99999)|list|length }}",
    "{{ range(10**9) }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(9) %}{% set x = range(99999)|sum %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "y" * 50_000 + "{% endfor %}{% endset %}",
    "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else '' }}{% endmacro %}{{ f(60) }}",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    GROWING % ("'ab'", "{% set ns.x = ns.x ~ ns.x %}", "{{ ns.x }}"),
    GROWING % ("'ab'", "{% set ns.x = ns.x + ns.x %}", "{{ ns.x }}"),
    GROWING % ("'ab'", "{% set a %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = a %}", "{{ ns.x }}"),
    GROWING % ("3", "{% set ns.x = ns.x * ns.x %}", "{{ ns.x }}"),
    GROWING % ("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x }}"),
    GROWING % ("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x|tojson }}"),
    GROWING % ("[1]", "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x ~ 1 }}"),
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x, range(99999)|list] %}{% endfor %}",
    "{% for a in range(2) %}" * 25 + "{% endfor %}" * 25,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ x" + ".a" * 5000 + " }}",
    "{{ " + "1 + " * 5000 + "1 }}",
    "{% if x %}" * 2000,
    "x" * (1 << 21),
]
