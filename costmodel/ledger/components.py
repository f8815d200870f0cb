"""Which component of the model an instruction works for, from the `jax.named_scope` that survives in its `op_name`.

FLOPs belong to the scope of the instruction that does them, inside fusions and loop bodies too. Bytes that are read belong to the first
named reader of that operand within the fusion, for a fusion may span two components; bytes that are written belong to what wrote them.
Copies and conversions that the compiler puts in carry no name: they work for their first named reader, or, where there is none, for what
they were made from. Arithmetic that lost its name in a rewrite is known by the views of its result, or by what it is fused with.

`op_name` reads "jit(step)/while/body/closed_call/layer/attn/norm/mul": transformations, scopes, and the primitive. The innermost scope
that is known decides; one that isn't in the table keeps its own name, and without any scope there is no component.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costmodel.hlo.module import Instruction, Module
from costmodel.ledger.dataflow import Dataflow, Place
from costmodel.ledger.provenance import VIEWS

UNATTRIBUTED = "unattributed"
# Hold the same data in another place or form: what for, only the reader knows.
_CARRIERS = frozenset(
    "copy convert transpose reshape slice dynamic-slice concatenate pad broadcast bitcast-convert iota reverse "
    "copy-start slice-start dynamic-slice-start async-start".split()
)

# Scope -> component; None for a scope that only says where, not what. Trailing digits are dropped first: layer12 is layer.
SCOPES: Mapping[str, str | None] = {
    # of this project; the components of the analytical model (`costmodel.analytical.step`)
    **{name: name for name in ("embed", "norm", "qkv", "rope", "kv_write", "kv_read", "scores", "softmax", "values", "out")},
    **{name: name for name in ("gate_up", "down", "router", "experts", "head", "sample", "collectives")},
    "attention": "attention",  # a loop or kernel that reads, scores and sums in one; its parts have names of their own where they can
    # of other programs for the same model
    "pv": "values",
    "logits": "head",
    **dict.fromkeys(("layer", "layers", "segment", "attn", "mlp", "final"), None),
}
# What JAX puts into a name beside scopes: control flow, and wrappers of functions.
_CONTROL = frozenset(
    "while body cond scan closed_call core_call named_call checkpoint remat rematted_computation custom_jvp_call custom_vjp_call "
    "custom_lin xla_call shard_map pallas_call custom_partitioning fori_loop".split()
)
_BRANCH = re.compile(r"branch_\d+_fun")
_WRAPPED = re.compile(r"(\w+)\((.*)\)")
_FUNCTIONS = frozenset({"jit", "pjit"})  # jit(silu) names a function; vmap(scores) wraps a scope
_SCOPE = re.compile(r"[A-Za-z_][\w.\-]*")


def component(op_name: str, scopes: Mapping[str, str | None] = SCOPES) -> str | None:
    """The component that an op_name speaks of; None where it has no scope.

    >>> component("jit(step)/layer3/attn/pv/bkgs,bskd->bkgd/dot_general")
    'values'
    """
    unknown = None
    for part in reversed(_parts(op_name)[:-1]):
        while (wrapped := _WRAPPED.fullmatch(part)) and wrapped[1] not in _FUNCTIONS:
            part = wrapped[2]
        if not _SCOPE.fullmatch(part) or part in _CONTROL or _BRANCH.fullmatch(part):
            continue
        name = part if part in scopes else part.rstrip("0123456789").rstrip("_")
        if name not in scopes:
            unknown = unknown or part
        elif scopes[name] is not None:
            return scopes[name]
    return unknown


def primitive(op_name: str) -> str:
    """The last part of an op_name, the JAX primitive: "dot_general"."""
    return _parts(op_name)[-1]


def _parts(op_name: str) -> list[str]:
    """Cut at the slashes that stand in no bracket."""
    parts, depth = [""], 0
    for sign in op_name:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


class Attribution:
    """The components of a module's reads, writes and arithmetic. `scopes` extends or replaces `SCOPES`."""

    def __init__(self, module: Module, flow: Dataflow, scopes: Mapping[str, str | None] = SCOPES) -> None:
        self.module, self.flow, self.scopes = module, flow, scopes
        self.known: dict[str, str | None] = {}
        everything = (each for computation in module.computations.values() for each in computation.instructions.values())
        # Without any scope there is nothing to look for, and looking for it would go through the whole program for each instruction.
        self.scoped = any(self.named(each) for each in everything)

    def named(self, instruction: Instruction) -> str | None:
        """The component in an instruction's own name."""
        name = instruction.op_name
        if name not in self.known:
            self.known[name] = component(name, self.scopes) if name else None
        return self.known[name]

    def read(self, computation: str, instruction: Instruction, position: int) -> str:
        """For what the instruction reads its operand number `position`."""
        if not self.scoped:
            return UNATTRIBUTED
        if instruction.opcode == "fusion":
            fused = self.module.computations[instruction.callees("calls")[0]]
            start: Place = (fused.name, fused.parameters[position].name, ())
            return (
                self._reader(start, views=False)
                or self._maker((computation, instruction.operands[position], ()))
                or UNATTRIBUTED
            )
        return self.work(computation, instruction)

    def written(self, computation: str, instruction: Instruction, path: tuple[int, ...]) -> str:
        """For what the instruction writes the result at `path` of its tuple."""
        if not self.scoped:
            return UNATTRIBUTED
        if instruction.opcode == "fusion":
            fused = self.module.computations[instruction.callees("calls")[0]]
            inside = self._within(fused.name, fused.root, path)
            return inside or self.named(instruction) or self._around(computation, instruction, path)
        return self.work(computation, instruction)

    def work(self, computation: str, instruction: Instruction) -> str:
        """For what the instruction works: its own name, or its neighbours'."""
        if not self.scoped:
            return UNATTRIBUTED
        name = self.named(instruction)
        if not name and instruction.opcode not in (*_CARRIERS, *VIEWS):
            name = self._fused_name(computation, instruction)
        return name or self._around(computation, instruction, ())

    def _fused_name(self, computation: str, instruction: Instruction) -> str | None:
        """The name of what an arithmetic instruction is fused with, where it lost its own."""
        fusions = [caller for _, caller in self.flow.callers[computation] if caller.opcode == "fusion"]
        return (self._within(computation, instruction, ()) or self.named(fusions[0])) if fusions else None

    def _around(self, computation: str, instruction: Instruction, path: tuple[int, ...]) -> str:
        place: Place = (computation, instruction.name, path)
        return self._reader(place, views=True) or self._maker(place) or UNATTRIBUTED

    def _reader(self, place: Place, *, views: bool) -> str | None:
        """The first name behind a value. A view of it keeps the name of what made it, where that lost its own."""
        return next((name for _, user in self.flow.successors(place, views=views) if (name := self.named(user))), None)

    def _maker(self, place: Place) -> str | None:
        return next((name for _, maker in self.flow.makers(place) if (name := self.named(maker))), None)

    def _within(self, fused: str, root: Instruction, path: tuple[int, ...]) -> str | None:
        """The nearest name behind a result of a fusion, no further back than the fusion's parameters."""
        computation = self.module.computations[fused]
        if root.opcode == "tuple" and path:
            root, path = computation.instructions[root.operands[path[0]]], path[1:]
        queue, seen = [root], {root.name}
        for instruction in queue:
            if instruction.opcode not in VIEWS and (name := self.named(instruction)):
                return name
            before = [computation.instructions[name] for name in instruction.operands if name not in seen]
            queue += before
            seen.update(earlier.name for earlier in before)
        return None
