"""Memory traffic of an instruction: what it moves in main memory, which is not what XLA charges for it.

XLA charges operands and results. What really moves is less, or is moved by another: gathers and slices read their rows, updates in place
write the update, what is kept on chip moves nothing, an asynchronous pair is one thing, a collective crosses links. For each instruction

    bytes that XLA reports + sum of the named corrections = sum of the traffic items

exactly. An item says what kind of data moved, in which form (`role`), which way and for which component, so that the items of a whole
program can be summed into named residuals; see `costmodel.ledger.kinds` and `costmodel.ledger.components`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from costmodel.hlo.cost import Cost
from costmodel.hlo.module import Instruction, Module, Shape
from costmodel.hlo.pairs import phase, synchronous
from costmodel.ledger.collectives import Collective, collective, fused_collectives
from costmodel.ledger.components import SCOPES, Attribution
from costmodel.ledger.custom_calls import CUSTOM_CALLS, Pricer, price, read_call
from costmodel.ledger.dataflow import Dataflow
from costmodel.ledger.kinds import Kinds
from costmodel.ledger.operands import (
    BRANCHES,
    COLLECTIVE,
    CUSTOM_CALL,
    INDICES,
    NEXT_STEP,
    ON_CHIP,
    ON_HOST,
    OVERWRITE,
    PAIR,
    PREFETCH,
    TWICE,
    VIEW,
    Operand,
    custom_call_operands,
    leaves,
    operands,
)
from costmodel.ledger.provenance import COLLECTIVES, VIEWS

CONFIDENCE = ("exact", "corrected", "bound", "unknown")
_CONTROL = frozenset({"while", "conditional", "call"})  # what they run has lines of its own
_FREE = frozenset({"parameter", "constant", "partition-id", "replica-id", "get-dimension-size", *VIEWS})
_HOST = 5  # number of a memory space


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Bytes that move. `kind` and `role` are of `costmodel.ledger.kinds.KINDS` and `ROLES`; `direction` is "read" or "write"."""

    kind: str
    role: str
    component: str
    direction: str
    bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """What one run of an instruction moves and computes.

    Attributes:
      items: memory traffic, one item for each kind, role, component and direction.
      corrections: (reason, bytes), reasons of `costmodel.ledger.operands`: what leads from the bytes that XLA reports to
      those of the items. work: (component, cost) with FLOPs and transcendentals, no bytes.
      collectives: what crosses links.
      unpriced: names of custom calls without a price: with one, the rest is "at least".
      confidence: "exact", as XLA counts it; "corrected"; "bound", a limit; "unknown".
    """

    items: tuple[Item, ...] = ()
    corrections: tuple[tuple[str, float], ...] = ()
    work: tuple[tuple[str, Cost], ...] = ()
    collectives: tuple[Collective, ...] = ()
    unpriced: tuple[str, ...] = ()
    confidence: str = "exact"

    @property
    def cost(self) -> Cost:
        """FLOPs and transcendentals of the work, bytes of the items."""
        work = [cost for _, cost in self.work]
        moved = sum(item.bytes for item in self.items)
        return Cost(sum(cost.flops for cost in work), moved, sum(cost.transcendentals for cost in work))


class TrafficModel:
    """Prices the instructions of a module.

    Args:
      costs: XLA's cost of every instruction (`costmodel.hlo.count.count`).
      scopes: see `costmodel.ledger.components`.
      custom_calls: see `costmodel.ledger.custom_calls`.
      mesh: see `costmodel.ledger.collectives`.
    """

    def __init__(
        self,
        module: Module,
        costs: Mapping[tuple[str, str], Cost],
        *,
        scopes: Mapping[str, str | None] = SCOPES,
        custom_calls: Mapping[str, Pricer] = CUSTOM_CALLS,
        mesh: Mapping[str, int] | None = None,
    ) -> None:
        self.module, self.custom_calls, self.mesh = module, custom_calls, mesh
        self.flow = Dataflow(module)
        self.attribution = Attribution(module, self.flow, scopes)
        self.kinds = Kinds(module, self.flow, self.attribution)
        self.work = Work(module, costs, self.attribution, custom_calls)
        # Only a TPU's layouts have tiles, and only a TPU has on-chip memory that the program manages.
        self.tiled = any("T(" in shape.layout for p in module.entry.parameters for _, shape in leaves(p.shape))

    def __call__(self, computation: str, instruction: Instruction, reported: float) -> Traffic:
        """The traffic of one run of an instruction of `computation` that runs by itself, not fused.

        Args:
          reported: the bytes that XLA counts for it, without what it calls (`costmodel.ledger.execution.Run.reported`).

        Raises:
          UserError: replica groups of an unknown form, a price that is no price.
        """
        holder = self.module.computations[computation]
        operation, when = phase(instruction)
        called = synchronous(self.module, instruction)
        if instruction.opcode in _CONTROL:
            traffic = self._traffic((), reported, BRANCHES)
            return dataclasses.replace(traffic, confidence="bound") if instruction.opcode == "conditional" else traffic
        crossing = self._crossing(computation, called) if when in ("", "start") else []
        if operation in COLLECTIVES or called.opcode in COLLECTIVES or self._only_waits(called):
            traffic = self._traffic((), reported, COLLECTIVE, *self.work(computation, instruction))
            return dataclasses.replace(traffic, collectives=tuple(crossing))
        copies = operation in ("copy", "slice", "dynamic-slice", "async")
        if instruction.opcode in _FREE or (called.opcode == "transpose" and not reported):
            return self._traffic((), reported, VIEW)  # a transpose of dimensions and layout alike moves nothing
        if when in ("update", "done"):
            return self._traffic((), reported, PREFETCH if copies else PAIR)
        if when == "start" and self._unread(computation, instruction):
            return self._traffic((), reported, NEXT_STEP)
        if called.opcode == "custom-call":
            return self._custom_call(computation, called, reported)
        found = operands(self.module, holder, called)
        if when == "start":  # XLA charges the tuple of the start, so nothing of it belongs to one part
            found = [dataclasses.replace(part, charged=self._in_memory(part), reason="") for part in found]
            found = [part for part in found if self._in_memory(part)]
        rest = (PREFETCH if copies else PAIR) if when == "start" else self._rest(called)
        traffic = self._traffic(self._moves(computation, called, found), reported, rest, *self.work(computation, instruction))
        return dataclasses.replace(traffic, collectives=tuple(crossing))

    def _crossing(self, computation: str, called: Instruction) -> list[Collective]:
        """The collectives that an instruction is, or that begin in a fusion."""
        begun = [(called, self._operands(computation, called))]
        if called.opcode == "fusion":
            begun = fused_collectives(self.module, called)
        found = (collective(self.module, each, operands, self.mesh) for each, operands in begun)
        return [each for each in found if each]

    def _only_waits(self, called: Instruction) -> bool:
        """Whether this is a fusion that only begins or ends a collective that runs beside others."""
        root = self.module.computations[called.callees("calls")[0]].root if called.opcode == "fusion" else called
        return root.attributes.get("custom_call_target", "").strip('"') in ("AsyncCollectiveStart", "AsyncCollectiveDone")

    def _rest(self, instruction: Instruction) -> str:
        """Why XLA's count of an instruction may differ from that of its parts."""
        if instruction.opcode != "fusion" or instruction.attributes.get("kind") != "kCustom":
            return TWICE
        # A custom fusion counts as the gather or scatter in it.
        fused = self.module.computations[instruction.callees("calls")[0]]
        inner = {each.opcode for each in fused.instructions.values()}
        return INDICES if "gather" in inner else OVERWRITE if "scatter" in inner else TWICE

    def _custom_call(self, computation: str, called: Instruction, reported: float) -> Traffic:
        operands = self._operands(computation, called)
        priced = price(read_call(called, operands), self.custom_calls)
        found = custom_call_operands(called, operands, priced) if priced else []
        traffic = self._traffic(self._moves(computation, called, found), reported, CUSTOM_CALL, *self.work(computation, called))
        confidence = "unknown" if priced is None else "bound" if priced.bound else traffic.confidence
        return dataclasses.replace(traffic, confidence=confidence)

    def _moves(
        self, computation: str, instruction: Instruction, found: Iterable[Operand]
    ) -> Iterator[tuple[Item | None, float, str]]:
        """(item or None, correction of its bytes, reason) of each part."""
        found = list(found)
        written = [part for part in found if part.direction == "write"]
        whole = len(written) == 1 and not written[0].update and self._in_memory(written[0])
        copied = bool(whole) and self.kinds.copies(computation, instruction)
        for part in found:
            if part.reason:
                yield None, part.moved - part.charged, part.reason
            if part.moved and self._in_memory(part):
                kind, role = self.kinds(computation, instruction, part, copied)
                yield Item(kind, role, self._component(computation, instruction, part), part.direction, part.moved), 0, ""
            elif part.moved:
                yield None, -part.moved, ON_HOST if part.shape.memory_space == _HOST else ON_CHIP

    def _component(self, computation: str, instruction: Instruction, part: Operand) -> str:
        if not isinstance(part.place, int):
            return self.attribution.written(computation, instruction, part.place)
        if part.place < 0:
            return self.attribution.work(computation, instruction)
        return self.attribution.read(computation, instruction, part.place)

    def _traffic(
        self,
        found: Iterable[tuple[Item | None, float, str]],
        reported: float,
        rest: str,
        work: tuple[tuple[str, Cost], ...] = (),
        unpriced: tuple[str, ...] = (),
    ) -> Traffic:
        """Sum items and corrections; what the parts leave of the reported bytes is corrected for the reason `rest`."""
        items: dict[tuple[str, str, str, str], float] = {}
        corrections: dict[str, float] = {}
        for item, correction, reason in found:
            if item:
                key = (item.kind, item.role, item.component, item.direction)
                items[key] = items.get(key, 0) + item.bytes
            elif correction:
                corrections[reason] = corrections.get(reason, 0) + correction
        if left := sum(items.values()) - sum(corrections.values()) - reported:
            corrections[rest] = corrections.get(rest, 0) + left
        named = tuple((reason, amount) for reason, amount in corrections.items() if amount)
        confidence = "unknown" if unpriced else "corrected" if named else "exact"
        return Traffic(tuple(Item(*key, bytes=moved) for key, moved in items.items()), named, work, (), unpriced, confidence)

    def _in_memory(self, part: Operand) -> float:
        """Bytes of a part that move in main memory."""
        space = part.shape.memory_space
        return 0 if space and (self.tiled or space == _HOST) else part.moved

    def _unread(self, computation: str, start: Instruction) -> bool:
        """Whether nobody in this step reads what a start fetches."""
        read = next(self.flow.readers((computation, start.name, ())), None)
        return read is None and (computation, start.name) not in self.kinds.outputs

    def _operands(self, computation: str, instruction: Instruction) -> list[Shape]:
        holder = self.module.computations[computation]
        return [holder.instructions[name].shape for name in instruction.operands]


class Work:
    """The arithmetic of a module's instructions; `costs` and `custom_calls` as in `costmodel.ledger.traffic.TrafficModel`."""

    def __init__(
        self,
        module: Module,
        costs: Mapping[tuple[str, str], Cost],
        attribution: Attribution,
        custom_calls: Mapping[str, Pricer],
    ) -> None:
        self.module, self.costs, self.attribution, self.custom_calls = module, costs, attribution, custom_calls

    def __call__(self, computation: str, instruction: Instruction) -> tuple[tuple[tuple[str, Cost], ...], tuple[str, ...]]:
        """((component, FLOPs and transcendentals) of one run, custom calls in it without a price, as "name (target)")."""
        found: dict[str, Cost] = {}
        unpriced = []
        for holder, inner in self._inside(computation, instruction):
            cost = self.costs[holder, inner.name]
            if inner.opcode == "custom-call":
                operands = [self.module.computations[holder].instructions[name].shape for name in inner.operands]
                call = read_call(inner, operands)
                priced = price(call, self.custom_calls)
                cost = Cost(priced.flops, 0, priced.transcendentals) if priced else Cost()
                unpriced += [] if priced else [f"{inner.name} ({call.target})"]
            if cost.flops or cost.transcendentals:
                component = self.attribution.work(holder, inner)
                found[component] = found.get(component, Cost()) + Cost(cost.flops, 0, cost.transcendentals)
        return tuple(found.items()), tuple(unpriced)

    def _inside(self, computation: str, instruction: Instruction) -> Iterator[tuple[str, Instruction]]:
        called = instruction.callees("calls") if instruction.opcode in ("fusion", "async-start") else ()
        if not called:
            yield computation, instruction
        for name in called:
            inner = list(self.module.computations[name].instructions.values())
            # XLA counts a custom fusion of a gather or scatter as that one alone; what else is in it is arithmetic on indices.
            alone = [each for each in inner if each.opcode in ("gather", "scatter")]
            for each in alone[:1] if instruction.attributes.get("kind") == "kCustom" and alone else inner:
                yield from self._inside(name, each)
