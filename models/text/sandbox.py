"""Jinja for programs of strangers: transformers' environment of chat templates, in a sandbox with an end.

Jinja's own sandbox keeps a template from reaching Python's insides. It does not keep it from running for ever or from filling the memory:
two loops over `range(100000)` within each other, or `'x' * 10**10`, are one line. Here each rendering has a budget of loop turns, of
processor time and of bytes, and whatever grows faster than what it is made of is added up before it is made.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import ext, nodes, parser, pass_context, utils
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

TURNS = 1_000_000  # of all loops and calls of macros together
SECONDS = 5.0  # of processor time
LARGEST = 32 << 20  # B of one value that a template makes
TOTAL = 512 << 20  # B of all of them: some are kept, and nobody knows which
_DIGITS = 1 << 16  # B of a whole number
_ENTRY = 16  # characters for which a number, or a list for itself, counts: so that counting ends soon

_NUMBERS = re.compile(r"\d{1,18}")
_NESTED = re.compile(r"\{[^{}]*\{")  # '{:{width}}': a width that is an argument
_NAMED = re.compile(r"\{\w|%\(")  # '{0}{0}': a value that may stand there again
_AS_TEXT = frozenset(  # filters that turn their value into a text first
    "capitalize center e escape forceescape format indent lower replace safe string striptags title tojson trim truncate upper urlencode "
    "wordcount".split()
)
_ITEM = 64  # B of a number or a short text
_TURN, _JOINED = " turn", " joined"  # no template can write a name with a space
_LEFT_OUT = ("lipsum", "urlize", "wordwrap")  # for pages, and without bound


class BudgetError(Exception):
    """A template ran too long or made too much."""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self.turns, self.bytes = TURNS, TOTAL
        self._end = time.thread_time() + SECONDS

    def turn(self, size: int) -> bool:
        """One more turn of a loop, or call of a macro, whose body holds `size` characters of plain text. Always true."""
        self.turns -= 1
        self.made(size)
        if self.turns < 0:
            raise BudgetError(f"it takes more than {TURNS:,} turns of its loops")
        return True

    def made(self, size: int) -> None:
        """Count what was made, in bytes; the clock is looked at too."""
        self.bytes -= size
        if self.bytes < 0:
            raise BudgetError(f"it makes more than {TOTAL >> 20} MiB")
        if time.thread_time() > self._end:
            raise BudgetError(f"it runs for more than {SECONDS:g} s")


class Generation(ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant said, for training. Its body is rendered in a scope of its own, as
    in a block with a caller."""

    tags = {"generation"}  # noqa: RUF012  as jinja2 declares it

    def parse(self, parser: parser.Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(utils.Namespace):
    """Takes no name with an underscore before it, as in transformers."""

    def __init__(*args: Any, **names: Any):  # self stands in args: a template may have a name called self
        self, given = args[0], dict(*args[1:], **names)
        for name in given:
            _check_name(name)
        utils.Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.TemplateError(f"a namespace takes no name such as {name[:40]!r}, with an underscore before it")


class _Dict:
    """`dict`, without what its class would give away."""

    def __call__(self, *args: Any, **names: Any) -> dict[Any, Any]:
        return dict(*args, **names)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of transformers' `apply_chat_template`, within a `Budget`."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        self._local = threading.local()
        self._program = lru_cache(maxsize=8)(self._compiled)
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols], finalize=self._put)
        self.filters["tojson"] = self._to_json
        self.globals |= {"raise_exception": _raise, "strftime_now": _now, "dict": _Dict(), "namespace": _Namespace}
        for name in _LEFT_OUT:
            self.filters.pop(name, None)
            self.globals.pop(name, None)
        self.filters = {name: self._within(name, function) for name, function in self.filters.items()}
        self.filters[_JOINED] = self._joined
        self.tests[_TURN] = pass_context(
            lambda context, size: self.budget.turn(size)
        )  # with a context, or it would run only once

    def text(self, source: str, variables: Mapping[str, Any]) -> str:
        """Compile and run a template.

        Raises:
          BudgetError: it ran out of its budget.
          Exception: whatever goes wrong in a template.
        """
        self._local.budget = Budget()
        try:
            chunks, size = [], 0
            for chunk in self._program(source).generate(**variables):
                chunks.append(chunk)
                size += len(chunk)
                self._check(size)
            return "".join(chunks)
        finally:
            del self._local.budget

    @property
    def budget(self) -> Budget:
        """Of the rendering in this thread."""
        budget: Budget = self._local.budget
        return budget

    def _compiled(self, source: str) -> jinja2.Template:
        tree = self.parse(source)
        _bound(tree, self)
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._check(_grown(operator, left, right))
        return self._made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps format
        of = getattr(method, "__self__", None)
        if isinstance(of, str | bytes | int) and isinstance(name := getattr(method, "__name__", None), str):
            if name == "join" and args:
                args = (list(args[0]), *args[1:])
            __self._check(_called(name, of, args, kwargs))
        return __self._made(super().call(__context, __obj, *args, **kwargs))

    def _within(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that keeps to the budget."""
        first = 1 if hasattr(function, "jinja_pass_arg") else 0  # it is given a context before its value

        @wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            value, rest = args[first], args[first + 1 :]
            if name == "join":
                value = list(value)
                args = (*args[:first], value, *rest)
            if name in _AS_TEXT:
                self._check(_size(value))
            self._check(_filtered(name, value, rest, kwargs))
            return self._made(function(*args, **kwargs))

        return bounded

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Jinja's own filter escapes <, > and & for HTML, which no model was trained on."""
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if indent is None:
            return encoder.encode(value)
        chunks, size = [], 0  # each line is indented as deep as it stands
        for chunk in encoder.iterencode(value):
            chunks.append(chunk)
            size += len(chunk)
            self._check(size)
        return "".join(chunks)

    def _joined(self, values: list[Any]) -> str:
        """`a ~ b`, in place of Jinja's own."""
        self._check(_size(values))
        return self._made("".join(map(str, values)))

    def _put(self, value: Any) -> Any:
        """Called with each value that `{{ }}` writes."""
        size = _size(value)
        self._check(size)
        self.budget.made(size)
        return value

    def _made(self, value: Any) -> Any:
        if isinstance(value, str | bytes):
            self.budget.made(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict):  # what stands in it may be new too
            self.budget.made(sys.getsizeof(value) + _ITEM * len(value))
        return value

    def _check(self, size: int) -> None:
        if size > LARGEST:
            raise BudgetError(f"it makes a value of more than {LARGEST >> 20} MiB")


def _bound(tree: nodes.Template, environment: jinja2.Environment) -> None:
    """Count the turns of each loop and the calls of each macro, and let a filter do what `~` does."""

    def count(of: nodes.Node, body: Iterable[nodes.Node] = ()) -> nodes.Test:
        size = sum(len(data.data) for node in body for data in node.find_all(nodes.TemplateData))
        return nodes.Test(nodes.Const(size), _TURN, [], [], None, None, lineno=of.lineno)

    blocks: list[nodes.For | nodes.Macro | nodes.CallBlock]
    blocks = [*tree.find_all(nodes.For), *tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock)]
    for block in blocks:
        block.body.insert(0, nodes.ExprStmt(count(block, block.body), lineno=block.lineno))
        if isinstance(block, nodes.For) and block.test is not None:  # turns that are passed over count too
            block.test = nodes.And(count(block), block.test, lineno=block.lineno)
    for node in list(tree.find_all(nodes.Node)):
        for field, value in node.iter_fields():
            if isinstance(value, nodes.Concat):
                setattr(node, field, _joining(value))
            elif isinstance(value, list):
                value[:] = [_joining(each) if isinstance(each, nodes.Concat) else each for each in value]
    tree.set_environment(environment)


def _joining(node: nodes.Concat) -> nodes.Filter:
    return nodes.Filter(nodes.List(node.nodes), _JOINED, [], [], None, None, lineno=node.lineno)


def _size(value: Any) -> int:
    """Characters of a value as a text, about. What stands in a list twice counts twice."""
    total, left = 0, [value]
    while left and total <= LARGEST:
        each = left.pop()
        if isinstance(each, str | bytes):
            total += len(each)
        elif isinstance(each, Mapping):
            total += _ENTRY
            left += each.keys()
            left += each.values()
        elif isinstance(each, list | tuple):
            total += _ENTRY
            left += each
        else:
            total += _ENTRY
    return total


def _grown(operator: str, left: Any, right: Any) -> int:
    """Bytes that an operator makes at most."""
    if isinstance(left, int | float) and isinstance(right, int | float):
        if not (isinstance(left, int) and isinstance(right, int)):
            return 0
        digits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * max(right, 0)}.get(operator, 0) // 8
        return digits if digits <= _DIGITS else LARGEST + 1
    if operator == "%":
        return _formatted(left, right if isinstance(right, tuple) else (right,)) if isinstance(left, str) else 0
    if operator == "*":
        sizes = [sys.getsizeof(each) if hasattr(each, "__len__") else each for each in (left, right)]
        return sizes[0] * max(sizes[1], 0) if all(isinstance(size, int) for size in sizes) else 0
    return sum(sys.getsizeof(each) for each in (left, right) if hasattr(each, "__len__"))


def _formatted(layout: str, values: Sequence[Any]) -> int:
    """Characters that a layout with `%` or `{}` makes at most: its widths, and its values as texts, wherever they are named."""
    sizes, places = [_size(value) for value in values], layout.count("%") + layout.count("{")
    total = len(layout) + sum(map(int, _NUMBERS.findall(layout)))
    if "*" in layout or _NESTED.search(layout):
        total += places * _whole(values)
    return total + (places * max(sizes, default=0) if _NAMED.search(layout) else sum(sizes))


def _whole(values: Sequence[Any]) -> int:
    """The largest whole number among arguments: a width, a count."""
    return max((abs(value) for value in values if isinstance(value, int)), default=0)


def _called(name: str, of: str | bytes | int, args: tuple[Any, ...], names: Mapping[str, Any]) -> int:
    """Characters that a method of a text (or of a number, as to_bytes) makes at most."""
    if isinstance(of, int):
        return _whole(args)
    if name in ("format", "format_map"):
        values = (
            [*args[0].values()] if name == "format_map" and args and isinstance(args[0], Mapping) else [*args, *names.values()]
        )
        return _formatted(str(of), values)
    if name == "replace":
        old, new, *_ = [*args, "", ""]
        return _replaced(of, old, new)
    if name == "join":
        return _together(args[0], of) if args else 0
    if name == "expandtabs":
        return max(len(of), 1) * max(_whole((*args, *names.values())), 8)
    if name == "translate":
        table = args[0].values() if args and isinstance(args[0], Mapping) else ()
        return len(of) * max(map(_size, table), default=1)
    return _whole((*args, *names.values()))


def _filtered(name: str, value: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> int:
    """Characters that a filter makes at most."""
    given = [*args, *names.values()]
    if name == "format":
        return _formatted(str(value), given)
    if name == "replace":
        old, new, *_ = [*given, "", ""]
        return _replaced(str(value), str(old), str(new))
    if name == "join":
        return _together(value, next((each for each in given if isinstance(each, str)), ""))
    if name == "indent":
        width = names.get("width", args[0] if args else 4)
        return (str(value).count("\n") + 1) * (len(width) if isinstance(width, str) else _whole([width]))
    return _whole(given)


def _replaced(text: Any, old: Any, new: Any) -> int:
    if not (isinstance(text, str) and isinstance(old, str) and isinstance(new, str)):
        return len(text) if isinstance(text, str) else LARGEST + 1  # bytes, of which no template has need
    return len(text) + text.count(old) * len(new)


def _together(values: list[Any], between: Any) -> int:
    return sum(map(_size, values)) + len(values) * len(between)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(layout: str) -> str:
    return datetime.datetime.now().strftime(layout)
