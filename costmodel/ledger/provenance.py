"""Whose data each value of a program is, found by an abstract run.

The run follows every entry parameter through whatever only moves it, cuts a piece from it, converts it, or updates it in place; what is
computed is nobody's. Loop carries are settled by running the body until nothing changes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TypeAlias

from costmodel.hlo.module import Computation, Instruction, Module, Shape
from costmodel.hlo.pairs import phase, result_path

Parameter: TypeAlias = tuple[int, tuple[int, ...]]  # number of an entry parameter, index in it

# Move nothing: another name for the same bytes.
VIEWS = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier", "add-dependency", "domain", "after-all"})
# Hold the same data once more and in the same form: as good an original as the first.
COPIES = frozenset(
    {"copy", "transpose", "reshape", "bitcast-convert", "concatenate", "reverse", "all-gather", "collective-permute"}
)
CALLS = frozenset({"fusion", "call", "async-start"})
COLLECTIVES = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute collective-broadcast".split()
)
UPDATES = frozenset({"dynamic-update-slice", "scatter"})
FORMS = (
    "in place",
    "sliced",
    "converted",
    "gathered",
)  # of a parameter's data; of several in a row the last of this list counts
EMPTY = "empty"
_FORM_OF = {
    **{"slice": "sliced", "dynamic-slice": "sliced", "gather": "gathered"},
    **{"convert": "converted", "broadcast": "converted"},
}
# Leave a piece of data as it is or blank it out.
_MASKS = frozenset({"and", "select"})
_ALIAS = re.compile(r"\{([\d,\s]*)\}:\s*\((\d+),\s*\{([\d,\s]*)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """What an array holds: data of a parameter in some form, or (`parameter` None) something that `producer` computed.

    Attributes:
      updated: a part of the parameter has been written anew.
      form: of `FORMS`; or "empty", of a buffer that holds no data yet.
      producer: computation and instruction; None where several may have, or for a parameter's data.
    """

    parameter: Parameter | None = None
    form: str = "in place"
    updated: bool = False
    producer: tuple[str, str] | None = None


Tree: TypeAlias = Source | tuple["Tree", ...]  # an origin for each array of a tuple


class Provenance:
    """The origins of all values of a module. `returned`: parameters that leave the program after an update."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.values: dict[str, dict[str, Tree]] = {}
        result = self._run(module.entry, [_parameters(p.shape, p.index, ()) for p in module.entry.parameters])
        self.returned = frozenset(leaf.parameter for leaf in _leaves(result) if leaf.parameter and leaf.updated)

    def __call__(self, computation: str, name: str, path: tuple[int, ...] = ()) -> Source:
        """The origin of one array; of a tuple as a whole, and of code that never runs, nothing is known."""
        tree = self.values.get(computation, {}).get(name, Source())
        for index in path:
            tree = tree if isinstance(tree, Source) else tree[index]
        return tree if isinstance(tree, Source) else Source()

    def _run(self, computation: Computation, arguments: list[Tree]) -> Tree:
        values = self.values[computation.name] = {}
        for instruction in computation.instructions.values():
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[instruction.index]
            else:
                operands = [values[name] for name in instruction.operands]
                values[instruction.name] = self._value(
                    instruction, operands, Source(producer=(computation.name, instruction.name))
                )
        return values[computation.root.name]

    def _value(self, i: Instruction, operands: list[Tree], made: Source) -> Tree:
        operation, when = phase(i)
        if i.opcode == "tuple":
            return tuple(operands)
        if i.opcode == "get-tuple-element":
            return operands[0] if isinstance(operands[0], Source) else operands[0][i.index]
        if when == "start" and i.opcode != "async-start":
            result, path = self._array(operation, i, operands, made), result_path(operation)
            return tuple(result if (k,) == path else Source() for k in range(len(i.shape.parts))) if path else result
        if when in ("update", "done"):
            path = result_path(operation) if when == "done" else ()
            return operands[0][path[0]] if path and not isinstance(operands[0], Source) else operands[0]
        if i.opcode == "while":
            return self._settle(i, operands[0])
        if i.opcode == "conditional":
            runs = [self._run(self.module.computations[callee], [operands[k + 1]]) for k, callee in enumerate(branches(i))]
            return _join(*runs)
        if i.opcode in CALLS:
            result = self._run(self.module.computations[i.callees("calls", "to_apply")[0]], operands)
            return (tuple(operands), result, Source()) if i.opcode == "async-start" else result
        if i.opcode == "custom-call" and "output_to_operand_aliasing" in i.attributes:
            return _aliased(i, operands, made)
        return self._array(i.opcode, i, operands, made) if i.shape.dtype != "tuple" else _like(i.shape, made)

    def _array(self, opcode: str, i: Instruction, operands: list[Tree], made: Source) -> Tree:
        """The origin of one array made from arrays."""
        if opcode == "constant" or i.attributes.get("custom_call_target") == '"AllocateBuffer"':
            return dataclasses.replace(made, form=EMPTY)
        if not operands or opcode in VIEWS:
            return operands[0] if operands else made
        origins = [origin if isinstance(origin, Source) else Source() for origin in operands]
        first = origins[0]
        if opcode in COPIES or i.attributes.get("custom_call_target") == '"ConcatBitcast"':
            return first if all((origin.parameter is None) == (first.parameter is None) for origin in origins) else made
        if opcode in UPDATES:
            base = first if first.parameter else origins[1 if opcode == "dynamic-update-slice" else -1]
            return dataclasses.replace(base, updated=True) if base.parameter else made
        if opcode == "broadcast" and first.form == EMPTY:
            return dataclasses.replace(made, form=EMPTY)
        pieces = [origin for origin in origins if origin.parameter and origin.form in ("sliced", "gathered")]
        if opcode in _MASKS and len(pieces) == 1:
            return pieces[0]
        if opcode == "multiply" and all(origin.parameter for origin in origins):  # quantised numbers and their scales
            return dataclasses.replace(
                first, form=max(*(origin.form for origin in origins), "converted", key=FORMS.index), updated=False
            )
        if opcode in _FORM_OF and first.parameter:
            return dataclasses.replace(first, form=max(first.form, _FORM_OF[opcode], key=FORMS.index), updated=False)
        return made

    def _settle(self, loop: Instruction, carried: Tree) -> Tree:
        """Run the body until its carry no longer changes; a carry only ever loses, so this ends."""
        body, condition = (self.module.computations[loop.callees(key)[0]] for key in ("body", "condition"))
        while (joined := _join(carried, self._run(body, [carried]))) != carried:
            carried = joined
        self._run(condition, [carried])
        return carried


def branches(conditional: Instruction) -> tuple[str, ...]:
    """Names of the computations that a conditional chooses from, in the order of its operands."""
    return conditional.callees("branch_computations") or conditional.callees("true_computation", "false_computation")


def aliases(custom_call: Instruction) -> dict[tuple[int, ...], int]:
    """Output index -> number of the operand that a custom call updates in place and gives back there."""
    pairs = _ALIAS.findall(custom_call.attributes.get("output_to_operand_aliasing", ""))
    return {tuple(int(digits) for digits in re.findall(r"\d+", output)): int(number) for output, number, _ in pairs}


def _aliased(i: Instruction, operands: list[Tree], made: Source) -> Tree:
    result = _like(i.shape, made)
    for path, number in aliases(i).items():
        operand = operands[number]
        if isinstance(operand, Source) and operand.parameter:
            operand = dataclasses.replace(operand, updated=True)
        if not path:
            result = operand
        elif not isinstance(result, Source):
            result = (*result[: path[0]], operand, *result[path[0] + 1 :])
    return result


def _parameters(shape: Shape, number: int, path: tuple[int, ...]) -> Tree:
    if shape.dtype != "tuple":
        return Source((number, path))
    return tuple(_parameters(part, number, (*path, k)) for k, part in enumerate(shape.parts))


def _like(shape: Shape, origin: Source) -> Tree:
    return tuple(_like(part, origin) for part in shape.parts) if shape.dtype == "tuple" else origin


def _leaves(tree: Tree) -> Iterator[Source]:
    if isinstance(tree, Source):
        yield tree
    else:
        for part in tree:
            yield from _leaves(part)


def _join(one: Tree, *others: Tree) -> Tree:
    """What holds whichever of them it is: the same parameter, in the later form; else nothing is known.

    A buffer that is empty before a loop is what the loop fills it with.
    """
    for other in others:
        if isinstance(one, Source) and isinstance(other, Source) and EMPTY in (one.form, other.form):
            one, other = (one, other) if other.form == EMPTY else (other, one)
            if one.parameter:
                continue
        if not isinstance(one, Source) and not isinstance(other, Source):
            one = tuple(_join(a, b) for a, b in zip(one, other, strict=True))
        elif not isinstance(one, Source) or not isinstance(other, Source) or one.parameter != other.parameter:
            one = Source()
        elif one.parameter is None:
            one = one if one == other else Source()
        else:
            one = Source(one.parameter, max(one.form, other.form, key=FORMS.index), one.updated or other.updated)
    return one
