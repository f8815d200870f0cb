"""How often each loop of a program runs.

The count is derived where it can be: the condition compares a counter with a bound, the loop's operand starts the counter, and the
body moves it by a step. Whole numbers are followed through copies, fusions, calls, tuples, and outer loops that carry them unchanged.
Else the program's own `known_trip_count` is taken, which CPU and GPU programs have and TPU programs lack. It comes second because it
can be wrong: jaxlib 0.10.2 says 2 of `range(-2, 3, 2)`, whose loop runs 3 times. A bound that comes from the program's arguments (the
longest live row, say) is data; nothing in the text has such a count, and it is None.
"""

from __future__ import annotations

import dataclasses
import re

from costmodel.hlo.module import Computation, Instruction, Module, malformed

_KNOWN = re.compile(r'known_trip_count\\?"\s*:\s*\{\s*\\?"n\\?"\s*:\s*\\?"?(\d{1,18})')
_INTEGER = re.compile(r"[\s{]*(-?\d{1,18})[\s}]*")
# They hand on what their first operand holds, as long as it is one element.
_SAME = frozenset("bitcast broadcast convert copy opt-barrier reshape".split())
_NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
_MOST_TERMS = 8  # a sum of more parameters than this is no counter


@dataclasses.dataclass(frozen=True, slots=True)
class _Sum:
    """A whole number: `offset` plus elements of the computation's parameters, each (parameter number, path within its tuple).

    One term and no offset also stands for whatever that parameter holds, a tuple too.
    """

    offset: int = 0
    terms: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Test:
    """A comparison of two whole numbers."""

    direction: str
    left: _Sum
    right: _Sum


# What is known of an instruction's result; a tuple holds what is known of each element, and None is unknown.
_Known = _Sum | _Test | tuple["_Known", ...] | None


def trip_counts(module: Module) -> dict[str, int | None]:
    """Trips of each `while` by its name, for one run of the loop; None where data decide.

    Raises:
      UserError: an instruction without the operands or attributes of its opcode.
    """
    tracer = _Tracer(module)
    counts: dict[str, int | None] = {}
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if instruction.opcode == "while":
                if not (instruction.operands and instruction.callees("condition") and instruction.callees("body")):
                    raise malformed(instruction)
                counts[instruction.name] = tracer.derived(computation, instruction)
                known = _KNOWN.search(instruction.attributes.get("backend_config", ""))
                if counts[instruction.name] is None and known:
                    counts[instruction.name] = int(known[1])
    return counts


class _Tracer:
    """Knows each instruction's number as a function of its computation's parameters; one pass, callees first."""

    def __init__(self, module: Module) -> None:
        self.known: dict[tuple[str, str], _Known] = {}
        self.roots: dict[str, _Known] = {}
        self.sites: dict[str, list[tuple[Computation, Instruction]]] = {}
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                operands = [self.known[computation.name, name] for name in instruction.operands]
                try:
                    self.known[computation.name, instruction.name] = self.result(instruction, operands)
                except (LookupError, ValueError) as error:
                    raise malformed(instruction) from error
                for callee in instruction.callees():
                    self.sites.setdefault(callee, []).append((computation, instruction))
            self.roots[computation.name] = self.known[computation.name, computation.root.name]

    def derived(self, computation: Computation, loop: Instruction) -> int | None:
        """The count from the loop's condition, start and step; None unless all are numbers."""
        body, condition = loop.callees("body")[0], loop.callees("condition")[0]
        test = self.roots[condition]
        if not isinstance(test, _Test):
            return None
        first, step = test.left.offset - test.right.offset, 0  # of left - right, which is compared with zero
        for sign, side in ((1, test.left), (-1, test.right)):
            for _, path in side.terms:
                start = self.number(computation, _follow(self.known[computation.name, loop.operands[0]], path))
                move = self.step(body, path)
                if start is None or move is None:
                    return None
                first, step = first + sign * start, step + sign * move
        return _trips(test.direction, first, step)

    def result(self, instruction: Instruction, operands: list[_Known]) -> _Known:
        """What is known of a result, given what is known of the operands."""
        opcode = instruction.opcode
        if opcode == "parameter":
            return _Sum(terms=((instruction.index, ()),))
        if opcode == "constant":
            digits = _INTEGER.fullmatch(instruction.literal)
            return _Sum(int(digits[1])) if digits else None
        if opcode == "get-tuple-element":
            return _follow(operands[0], (instruction.index,))
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "copy-start":  # (destination, source, context)
            return operands[0], operands[0], None
        if opcode == "copy-done":
            return _follow(operands[0], (0,))
        if opcode in _SAME:
            return operands[0] if opcode in ("copy", "opt-barrier") or instruction.shape.elements == 1 else None
        if opcode in ("add", "subtract") and instruction.shape.elements == 1:
            return _added(operands[0], operands[1], 1 if opcode == "add" else -1)
        if opcode == "compare":
            left, right = operands
            numbers = isinstance(left, _Sum) and isinstance(right, _Sum)
            return _Test(instruction.attributes["direction"], left, right) if numbers else None  # type: ignore[arg-type]
        if opcode == "not":
            test = operands[0]
            return dataclasses.replace(test, direction=_NEGATED[test.direction]) if isinstance(test, _Test) else None
        if opcode in ("call", "fusion"):
            return _substituted(self.roots[instruction.callees("calls", "to_apply")[0]], operands)
        if opcode == "while":
            body = instruction.callees("body")[0]
            places = range(len(instruction.shape.parts))
            return tuple(_follow(operands[0], (place,)) if self.fixed(body, (place,)) else None for place in places)
        return None

    def fixed(self, body: str, path: tuple[int, ...]) -> bool:
        """Whether a loop carries the element `path` unchanged."""
        return _follow(self.roots[body], path) == _Sum(terms=((0, path),))

    def step(self, body: str, path: tuple[int, ...]) -> int | None:
        """By how much one trip moves the carried element `path`; 0 for one that stays as it is."""
        after = _follow(self.roots[body], path)
        if not isinstance(after, _Sum) or after.terms.count((0, path)) != 1:
            return None
        rest = _Sum(after.offset, tuple(term for term in after.terms if term != (0, path)))
        sites = self.sites[body]
        return self.number(sites[0][0], rest, body)

    def number(self, computation: Computation, value: _Known, callee: str = "") -> int | None:
        """The value as a number, if every parameter in it is the same number wherever its computation is run from.

        The value is one of `computation`, or of `callee` when that is given.
        """
        if not isinstance(value, _Sum):
            return None
        found = value.offset
        for number, path in value.terms:
            starts = {self.argument(site, number, path) for site in self.sites.get(callee or computation.name, [])}
            start = starts.pop() if len(starts) == 1 else None
            if start is None:
                return None
            found += start
        return found

    def argument(self, site: tuple[Computation, Instruction], number: int, path: tuple[int, ...]) -> int | None:
        """The number that a call hands to its callee's parameter; of a loop, if no trip changes it."""
        caller, instruction = site
        if instruction.opcode == "while":
            if not self.fixed(instruction.callees("body")[0], path):
                return None
        elif instruction.opcode not in ("call", "fusion"):
            return None
        return self.number(caller, _follow(self.known[caller.name, instruction.operands[number]], path))


def _follow(value: _Known, path: tuple[int, ...]) -> _Known:
    """The element `path` of a value."""
    for place, index in enumerate(path):
        if isinstance(value, tuple):
            value = value[index] if index < len(value) else None
        elif isinstance(value, _Sum) and not value.offset and len(value.terms) == 1:
            number, above = value.terms[0]
            return _Sum(terms=((number, above + path[place:]),))
        else:
            return None
    return value


def _added(left: _Known, right: _Known, sign: int) -> _Known:
    if not isinstance(left, _Sum) or not isinstance(right, _Sum) or (sign < 0 and right.terms):
        return None
    terms = left.terms + right.terms
    return _Sum(left.offset + sign * right.offset, terms) if len(terms) <= _MOST_TERMS else None


def _substituted(value: _Known, arguments: list[_Known]) -> _Known:
    """A value of a callee, in terms of the caller's parameters."""
    if isinstance(value, tuple):
        return tuple(_substituted(part, arguments) for part in value)
    if isinstance(value, _Test):
        left, right = _substituted(value.left, arguments), _substituted(value.right, arguments)
        return _Test(value.direction, left, right) if isinstance(left, _Sum) and isinstance(right, _Sum) else None
    if value is None:
        return None
    if not value.offset and len(value.terms) == 1:
        number, path = value.terms[0]
        return _follow(arguments[number], path)
    found: _Known = _Sum(value.offset)
    for number, path in value.terms:
        found = _added(found, _follow(arguments[number], path), 1)
    return found


def _trips(direction: str, first: int, step: int) -> int | None:
    """How often `first + n step`, n = 0, 1, ..., compares so with zero before it doesn't; None if forever."""
    if direction in ("GT", "GE"):
        direction, first, step = {"GT": "LT", "GE": "LE"}[direction], -first, -step
    if direction == "LE":
        direction, first = "LT", first - 1
    if direction == "LT":
        return 0 if first >= 0 else -(first // step) if step > 0 else None
    if direction == "EQ":
        return 0 if first else 1 if step else None
    ends = first == 0 or (step != 0 and first % step == 0 and first // step < 0)
    return (-first // step if first else 0) if ends else None
