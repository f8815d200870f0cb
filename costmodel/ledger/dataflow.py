"""Who reads a value and who made it, across fusions, loops, calls and tuples: breadth-first walks over a module."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from costmodel.hlo.module import Instruction, Module
from costmodel.hlo.pairs import phase
from costmodel.ledger.provenance import CALLS, VIEWS, branches

Place: TypeAlias = tuple[str, str, tuple[int, ...]]  # computation, instruction, index in its tuple; () for all of it

_CALLING = frozenset({"while", "conditional", *CALLS})


class Dataflow:
    """The readers and makers of values. Views (tuples, bitcasts) and calls are passed through, waiting for a start too."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.callers: dict[str, list[tuple[str, Instruction]]] = {name: [] for name in module.computations}
        for computation in module.computations.values():
            for instruction in computation.instructions.values():
                for callee in instruction.callees() if instruction.opcode in _CALLING else ():
                    self.callers[callee].append((computation.name, instruction))

    def readers(self, place: Place) -> Iterator[tuple[str, Instruction]]:
        """The instructions that read a value, behind views and in calls, as (computation, instruction)."""
        return ((holder, user) for holder, user, view, near in self._walk(place, onward=False) if near and not view)

    def successors(self, place: Place, *, views: bool) -> Iterator[tuple[str, Instruction]]:
        """The readers of a value, those of what they make of it, and so forth, nearest first.

        Args:
          views: give the views of the value itself as well; those of what is made of it are always given.
        """
        return ((holder, user) for holder, user, view, near in self._walk(place, onward=True) if views or not (view and near))

    def _walk(self, place: Place, onward: bool) -> Iterator[tuple[str, Instruction, bool, bool]]:
        """(computation, reader, is it a view, does it read the value itself), breadth first."""
        queue, seen = deque([(place, True)]), {place}
        while queue:
            here, near = queue.popleft()
            following = [(after, near) for after in self._after_root(here)]
            for user in self.module.computations[here[0]].users[here[1]]:
                inside = [
                    after for k, name in enumerate(user.operands) if name == here[1] for after in self._into(here, user, k)
                ]
                view = user.opcode in VIEWS
                if view or not inside:
                    yield here[0], user, view, near
                following += [(after, near) for after in inside]
                if not inside and not view and onward:
                    following.append(((here[0], user.name, ()), False))
            queue.extend((after, close) for after, close in dict.fromkeys(following) if after not in seen)
            seen.update(after for after, _ in following)

    def makers(self, place: Place) -> Iterator[tuple[str, Instruction]]:
        """The instructions that a value comes from, nearest first: its maker, then those of the maker's operands, and so forth."""
        queue, seen = deque([place]), {place}
        while queue:
            here = queue.popleft()
            instruction = self.module.computations[here[0]].instructions[here[1]]
            before = list(self._before(here, instruction))
            if not before and instruction.opcode not in (*VIEWS, "parameter"):
                yield here[0], instruction
                before = [(here[0], operand, ()) for operand in instruction.operands]
            queue.extend(earlier for earlier in dict.fromkeys(before) if earlier not in seen)
            seen.update(before)

    def outputs(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """The instructions whose results leave the program, (computation, instruction), and the output index at which they do."""
        computation = self.module.entry
        queue: deque[tuple[str, tuple[int, ...]]] = deque([(computation.root.name, ())])
        found: dict[tuple[str, str], tuple[int, ...]] = {}
        while queue:
            name, index = queue.popleft()
            instruction = computation.instructions[name]
            if instruction.opcode == "tuple":
                queue.extend((operand, (*index, k)) for k, operand in enumerate(instruction.operands))
            elif instruction.opcode in VIEWS or phase(instruction)[1] == "done":
                queue.extend((operand, index) for operand in instruction.operands)
            else:
                found[computation.name, name] = index
        return found

    def _into(self, here: Place, user: Instruction, position: int) -> Iterator[Place]:
        """Where the value goes on behind a view or inside a call; nothing for an instruction that really reads it."""
        computation, _, path = here
        if user.opcode == "tuple":
            yield computation, user.name, (position, *path)
        elif user.opcode == "get-tuple-element":
            if not path or path[0] == user.index:
                yield computation, user.name, path[1:]
        elif user.opcode in VIEWS:
            yield computation, user.name, path
        elif user.opcode in CALLS:
            yield self._argument(user.callees("calls", "to_apply")[0], position, path)
        elif user.opcode == "while":
            yield from (self._argument(callee, 0, path) for callee in user.callees("body", "condition"))
        elif user.opcode == "conditional" and position:
            yield self._argument(branches(user)[position - 1], 0, path)
        elif phase(user)[1] in ("update", "done"):
            yield computation, user.name, ()

    def _argument(self, callee: str, position: int, path: tuple[int, ...]) -> Place:
        return callee, self.module.computations[callee].parameters[position].name, path

    def _after_root(self, here: Place) -> Iterator[Place]:
        """Where the result of a computation goes on: behind its callers, and in the next turn of a loop."""
        computation, name, path = here
        if self.module.computations[computation].root.name != name:
            return
        for caller, call in self.callers[computation]:
            if call.opcode != "while":
                yield caller, call.name, () if call.opcode == "async-start" else path
            elif computation in call.callees("body"):
                yield self._argument(computation, 0, path)
                yield caller, call.name, path

    def _before(self, here: Place, instruction: Instruction) -> Iterator[Place]:
        """What a view, a call or a parameter of a computation stands for; nothing for an instruction that makes a value."""
        computation, _, path = here
        if instruction.opcode == "parameter":
            for caller, call in self.callers[computation]:
                number = {
                    "while": 0,
                    "conditional": 1 + branches(call).index(computation) if call.opcode == "conditional" else 0,
                }
                yield caller, call.operands[number.get(call.opcode, instruction.index)], path
                if call.opcode == "while" and computation in call.callees("body"):
                    yield computation, self.module.computations[computation].root.name, path
        elif instruction.opcode == "tuple":
            yield from (
                (computation, name, path[1:]) for k, name in enumerate(instruction.operands) if not path or path[0] == k
            )
        elif instruction.opcode == "get-tuple-element":
            yield computation, instruction.operands[0], (instruction.index, *path)
        elif instruction.opcode in VIEWS or phase(instruction)[1] in ("update", "done"):
            yield from ((computation, name, path) for name in instruction.operands[:1])
        elif instruction.opcode in _CALLING:
            callees = branches(instruction) or instruction.callees("body", "calls", "to_apply")
            yield from ((callee, self.module.computations[callee].root.name, path) for callee in callees)
