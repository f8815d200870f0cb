"""What a step costs: analytical model, compiled program, clock, and why they differ.

The names below are imported when they are first used, so that `import costmodel` stays cheap and `--help` is quick.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.analytical.step import step_cost as step_cost
    from costmodel.analytical.terms import StepCost as StepCost
    from costmodel.analytical.terms import Term as Term
    from costmodel.compile.program import StepProgram as StepProgram
    from costmodel.compile.targets import TargetProgram as TargetProgram
    from costmodel.compile.targets import compile_for as compile_for
    from costmodel.hardware.chip import Chip as Chip
    from costmodel.hardware.chips import CHIPS as CHIPS
    from costmodel.hardware.chips import find_chip as find_chip
    from costmodel.hlo.cost import Cost as Cost
    from costmodel.ledger.compiled import CompiledCost as CompiledCost
    from costmodel.ledger.compiled import extrapolate as extrapolate
    from costmodel.ledger.ledger import Ledger as Ledger
    from costmodel.ledger.ledger import ledger as ledger
    from costmodel.reconcile import Reconciliation as Reconciliation
    from costmodel.reconcile import reconcile as reconcile

_HOMES = {
    "CHIPS": "hardware.chips",
    "Chip": "hardware.chip",
    "CompiledCost": "ledger.compiled",
    "Cost": "hlo.cost",
    "Ledger": "ledger.ledger",
    "Reconciliation": "reconcile",
    "StepCost": "analytical.terms",
    "StepProgram": "compile.program",
    "TargetProgram": "compile.targets",
    "Term": "analytical.terms",
    "compile_for": "compile.targets",
    "extrapolate": "ledger.compiled",
    "find_chip": "hardware.chips",
    "ledger": "ledger.ledger",
    "reconcile": "reconcile",
    "step_cost": "analytical.step",
}

__all__ = list(_HOMES)


class _Package(types.ModuleType):
    """`ledger` and `reconcile` are functions here, and modules too: loading one of those must not put it in its function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'costmodel' has no attribute {name!r}; it has {', '.join(__all__)}")
        return getattr(importlib.import_module(f"costmodel.{_HOMES[name]}"), name)


sys.modules[__name__].__class__ = _Package
