"""Arithmetic by component: the FLOPs of each instruction, inside fusions too, for what its own scope names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from costmodel.hlo.cost import Cost
from costmodel.hlo.module import Instruction, Module
from costmodel.ledger.components import Attribution
from costmodel.ledger.custom_calls import Pricer, price, read_call


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
