"""The optimised program as data: instructions and computations, read from the text that ``Compiled.as_text()`` gives.

The text is a header (`HloModule name, key=value, ...`), tables of source positions, and computations, callees first and the entry
last::

    %fused (param_0: f32[8]) -> f32[8] {
      %param_0 = f32[8]{0} parameter(0)
      ROOT %add = f32[8]{0} add(%param_0, %param_0), metadata={op_name="jit(f)/add"}
    }

Attributes are kept as text by their key, so a new one does no harm. Whatever could drop an instruction unseen (a bracket that
is never closed, an operand or a computation that is not there, a missing entry, two instructions of one name) is an error.
Source of the format: HLO text of OpenXLA as jax 0.9 and 0.10 print it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from costmodel.hlo.scan import NAME, STRING, WHOLE, Scanner
from costmodel.hlo.shape import Shape, ShapeReader
from models.errors import UserError

__all__ = ["Computation", "Instruction", "Module", "Shape", "malformed", "parse"]

# Attributes whose value names computations.
CALLERS = (
    *("calls", "to_apply", "body", "condition", "branch_computations", "true_computation", "false_computation"),
    *("called_computations", "called_computation", "select", "scatter"),
)
_OPERAND = re.compile(rf"(?:.*\s)?{NAME}", re.DOTALL)  # an older print puts the operand's shape before its name
_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\((\d{1,18}),\s*\{([\d,\s]*)\}")
_TABLE = re.compile(r"(?:FileNames|FunctionNames|FileLocations|StackFrames)[ \t\r]*\n(?:\d.*\n)*")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `index` is the number of a parameter or of a get-tuple-element, -1 for others; `literal` of a constant."""

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    op_name: str = ""
    literal: str = ""
    index: int = -1
    root: bool = False

    def callees(self, *keys: str) -> tuple[str, ...]:
        """Names of the computations in the attributes `keys` ("body", "to_apply", ...); of all computations without a key."""
        values = (self.attributes[key] for key in keys or CALLERS if key in self.attributes)
        return tuple(name for value in values for name in re.findall(NAME, value))


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions in the order of the text (that of execution in a scheduled program), each after its operands."""

    name: str
    instructions: dict[str, Instruction]
    parameters: tuple[Instruction, ...]
    root: Instruction

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """The instructions that read each one, each reader once, in order."""
        found: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self.instructions.values():
            for name in dict.fromkeys(instruction.operands):
                found[name].append(instruction)
        return {name: tuple(readers) for name, readers in found.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A program. `aliases`: output index -> (parameter number, index in it) that it may reuse, which is what donation leaves."""

    name: str
    computations: dict[str, Computation]
    entry: Computation
    aliases: Mapping[tuple[int, ...], tuple[int, tuple[int, ...]]]
    partitions: int = 1


def malformed(instruction: Instruction) -> UserError:
    """The error for an instruction without the operands or attributes that its opcode has: parsed, and yet no HLO."""
    have = ", ".join(instruction.attributes) or "none"
    return UserError(
        f"HLO instruction {instruction.name!r}: {len(instruction.operands)} operands and the attributes {have} are not those of a "
        f"{instruction.opcode}; {WHOLE}"
    )


def parse(text: str) -> Module:
    """Read the text of an optimised program.

    Raises:
      UserError: empty, cut off, not HLO (StableHLO for instance), or of a form that isn't known; with the line number.
    """
    if not text.strip():
        raise UserError(f"HLO text, line 1: the text is empty; {WHOLE}")
    if not text.lstrip().startswith("HloModule "):
        mlir = any(mark in text for mark in ("stablehlo.", "func.func", "mhlo.", "module @"))
        kind = "StableHLO, the program before it is compiled" if mlir else "no HLO: it does not begin with 'HloModule'"
        raise UserError(f"HLO text, line 1: the text is {kind}; {WHOLE}")
    return _Parser(text + "\n").module()


class _Parser(Scanner):
    """From text to module; every callee and every operand must be defined before its use, so nothing can be circular."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.shapes = ShapeReader(self)
        self.computations: dict[str, Computation] = {}

    def module(self) -> Module:
        header = self.expect(rf"\s*HloModule\s+{NAME}", 0, "'HloModule' and a name")
        attributes, at = self.attributes(header.end())
        at = self.expect(r"[ \t\r]*\n", at, "', attribute=value' or a new line").end()
        entry = None
        while (at := self.gap(at)) < len(self.text):
            if table := _TABLE.match(self.text, at):
                at = table.end()
                continue
            if self.text.startswith("HloModule ", at):
                raise self.fail(at, "a second module", "pass the text of one module at a time")
            start = self.expect(rf"(ENTRY\s+)?{NAME}\s*(?=[({{])", at, "a computation")
            computation, at = self.computation(start)
            if computation.name in self.computations or (start[1] and entry):
                raise self.fail(start.start(), f"a second computation {computation.name!r}", "pass the text of one module")
            self.computations[computation.name] = computation
            entry = computation if start[1] else entry
        if entry is None:
            raise self.fail(len(self.text.rstrip()), "the text ends without an ENTRY computation: it is cut off")
        pairs = _ALIAS.findall(attributes.get("input_output_alias", ""))
        aliases = {_numbers(output): (int(number), _numbers(index)) for output, number, index in pairs}
        partitions = self.count(attributes.get("num_partitions", "1"), 0, "num_partitions of the module")
        return Module(header[1], self.computations, entry, aliases, partitions)

    def computation(self, start: re.Match[str]) -> tuple[Computation, int]:
        name, at = start[2], start.end()
        declared, result = None, None
        if self.text.startswith("(", at):
            end = self.close(at)
            declared = len(self.split(at + 1, end - 1))
            result, at = self.shapes.read(self.expect(r"\s*->\s*", end, "'->' and the shape of the result").end())
        at = self.expect(r"\s*\{", at, "'{'").end()
        found: dict[str, Instruction] = {}
        while not self.text.startswith("}", at := self.gap(at)):
            instruction, end = self.instruction(at)
            if instruction.name in found:
                raise self.fail(at, f"a second instruction {instruction.name!r} in computation {name!r}")
            for operand in instruction.operands:
                if operand not in found:
                    raise self.fail(at, f"operand {operand!r} of {instruction.name!r} is not defined before it")
            for callee in instruction.callees():
                if callee not in self.computations:
                    raise self.fail(at, f"computation {callee!r}, which {instruction.name!r} calls, is not defined before it")
            if not self.fits(instruction, [found[operand].shape for operand in instruction.operands]):
                raise self.fail(
                    at, f"{instruction.opcode} {instruction.name!r} does not fit the shapes of what it reads or calls"
                )
            found[instruction.name] = instruction
            at = end
        parameters = sorted((i for i in found.values() if i.opcode == "parameter"), key=lambda parameter: parameter.index)
        numbers = [parameter.index for parameter in parameters]
        if numbers != list(range(len(numbers) if declared is None else declared)):
            raise self.fail(at, f"computation {name!r} declares {declared} parameters, but its body has the numbers {numbers}")
        roots = [instruction for instruction in found.values() if instruction.root]
        if len(roots) != 1 or not (result is None or result.same_data(roots[0].shape)):
            raise self.fail(at, f"computation {name!r} has not one ROOT of its shape but {len(roots)}")
        _, at = self.attributes(at + 1)
        return Computation(name, found, tuple(parameters), roots[0]), self.expect(r"[ \t\r]*\n", at, "a new line").end()

    def instruction(self, at: int) -> tuple[Instruction, int]:
        start = self.expect(rf"(ROOT\s+)?{NAME}\s*=\s*", at, "an instruction or '}'")
        shape, end = self.shapes.read(start.end())
        opcode = self.expect(r"\s*([a-z][\w\-]*)(?=\()", end, "an opcode and '('")
        first, last = opcode.end() + 1, self.close(opcode.end()) - 1
        attributes, end = self.attributes(last + 1)
        end = self.expect(r"[ \t\r]*(?:\n|(?=\}))", end, "', attribute=value' or a new line").end()
        inner, index = self.text[first:last].strip(), -1
        operands: tuple[str, ...] = ()
        if opcode[1] == "parameter":
            index = self.count(inner, at, "the number of a parameter")
        elif opcode[1] != "constant":
            operands = tuple(self.operand(piece, at) for piece in self.split(first, last))
        if opcode[1] == "get-tuple-element":
            index = self.count(attributes.get("index", ""), at, "the index of a get-tuple-element")
        label = re.search(rf"op_name=({STRING})", attributes.get("metadata", ""))
        op_name = _unescaped(label[1][1:-1]) if label else ""
        literal = inner if opcode[1] == "constant" else ""
        return Instruction(start[2], opcode[1], shape, operands, attributes, op_name, literal, index, bool(start[1])), end

    def fits(self, instruction: Instruction, operands: list[Shape]) -> bool:
        """Whether data are handed on as they are where they must be: into and out of tuples and what is called."""
        into, result = operands, instruction.shape
        if instruction.opcode == "tuple":
            into, takes = operands, list(result.parts)
        elif instruction.opcode == "get-tuple-element":
            whole = operands[0].parts if operands else ()
            into, takes = list(whole[instruction.index : instruction.index + 1]), [result]
        elif instruction.opcode in ("call", "fusion", "while"):
            callees = [self.computations[name] for name in instruction.callees()]
            takes = [parameter.shape for callee in callees for parameter in callee.parameters]
            into = operands * len(callees)
            bodies = [callee for callee in callees if callee.name not in instruction.callees("condition")]
            if len(bodies) != 1 or not bodies[0].root.shape.same_data(result):
                return False
        else:
            return True
        return len(into) == len(takes) and all(given.same_data(taken) for given, taken in zip(into, takes, strict=True))

    def operand(self, piece: str, at: int) -> str:
        if name := _OPERAND.fullmatch(piece):
            return name[1]
        raise self.fail(at, f"{piece[:60]!r} is no operand")

    def count(self, digits: str, at: int, what: str) -> int:
        if re.fullmatch(r"\d{1,18}", digits):
            return int(digits)
        raise self.fail(at, f"{what} is {digits[:60]!r} and should be a number")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", text))


def _unescaped(text: str) -> str:
    """Undo C escapes: params[\\'w\\'], and letters beyond ASCII as octal UTF-8 bytes."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 8)) if found[1].isdigit() and len(found[1]) == 3 else found[1], text)
    try:
        return plain.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return plain
