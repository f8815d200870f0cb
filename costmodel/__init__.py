"""What a step costs: analytical model, compiled program, clock, and why they differ.

The names below are imported when they are first used, so that `import costmodel` stays cheap and `--help` is quick.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.analytical import step_cost as step_cost
    from costmodel.chip import Chip as Chip
    from costmodel.chips import CHIPS as CHIPS
    from costmodel.chips import find_chip as find_chip
    from costmodel.compiled import CompiledCost as CompiledCost
    from costmodel.compiled import extrapolate as extrapolate
    from costmodel.cost import Cost as Cost
    from costmodel.ledger import Ledger as Ledger
    from costmodel.ledger import ledger as ledger
    from costmodel.program import StepProgram as StepProgram
    from costmodel.reconcile import Reconciliation as Reconciliation
    from costmodel.reconcile import reconcile as reconcile
    from costmodel.targets import TargetProgram as TargetProgram
    from costmodel.targets import compile_for as compile_for
    from costmodel.terms import StepCost as StepCost
    from costmodel.terms import Term as Term

_HOMES = {
    "CHIPS": "chips",
    "Chip": "chip",
    "CompiledCost": "compiled",
    "Cost": "cost",
    "Ledger": "ledger",
    "Reconciliation": "reconcile",
    "StepCost": "terms",
    "StepProgram": "program",
    "TargetProgram": "targets",
    "Term": "terms",
    "compile_for": "targets",
    "extrapolate": "compiled",
    "find_chip": "chips",
    "ledger": "ledger",
    "reconcile": "reconcile",
    "step_cost": "analytical",
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
