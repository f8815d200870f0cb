"""Three witnesses side by side: what a step must cost, what its compiled program will, what the clock says, and why they differ.

The waterfall leads from the analytical bytes to those that XLA reports: first what the program really moves beyond the model, by what it
is; then what XLA charges and nobody moves, by why. Each step has a name and all of them sum to the difference, for every byte of traffic
has a kind, a role and a component (`costmodel.ledger.traffic`), and every correction a reason.
"""

from __future__ import annotations

import dataclasses

from costmodel.analytical.terms import StepCost
from costmodel.hardware.ceilings import Measured
from costmodel.ledger.compiled import CompiledCost, Key
from costmodel.ledger.ledger import Ledger
from models.errors import UserError

LOOPS = "loop bodies counted once"

# What moves beyond the analytical model, by (kind, role) of the traffic; the first entry of a line that fits. None fits any role.
_NAMES: tuple[tuple[str, str | None, str], ...] = (
    ("weights", "in place", "weights read"),
    ("weights", "copied", "weights copied or prefetched to memory"),
    ("weights", "sliced", "weights copied out of the stack"),
    ("weights", "converted", "weights converted to another dtype"),
    ("weights", "gathered", "rows of a table copied"),
    ("weights", None, "weights rewritten"),
    ("kv", "in place", "KV read"),
    ("kv", "updated", "KV written"),
    ("kv", "gathered", "KV gathered into a copy"),
    ("kv", "converted", "KV converted to another dtype"),
    ("kv", "sliced", "KV sliced into a copy"),
    ("kv", "copied", "KV copied once more, whole or as gathered"),
    ("kv", None, "KV rewritten"),
    ("intermediate", "partials", "partial sums of split matmuls"),
    ("intermediate", "logits", "logits written and read again"),
    ("intermediate", "scores", "attention scores written and read again"),
    ("intermediate", "indices", "indices and masks"),
    ("intermediate", None, "activations between kernels"),
    ("argument", None, "tokens, tables and constants"),
    ("output", None, "results"),
)


@dataclasses.dataclass(frozen=True)
class Residual:
    """One step of the waterfall: a named difference of `amount` (B or FLOP), and between which two figures it stands."""

    name: str
    amount: float
    between: str  # "analytical and traffic", "traffic and with trips", "with trips and reported"


@dataclasses.dataclass(frozen=True)
class Reconciliation:
    """A step as its witnesses see it; `measured` where it ran on this machine."""

    analytical: StepCost
    compiled: CompiledCost
    residuals: tuple[Residual, ...]  # of bytes: analytical.bytes + their sum = compiled.reported.bytes
    flop_residuals: tuple[Residual, ...]  # of FLOPs, likewise
    measured: Measured | None = None

    def ratio(self, of: str, unit: str = "bytes") -> float:
        """A compiled figure (reported, with_trips, traffic) over the analytical one, in "bytes" or "flops"."""
        return float(getattr(getattr(self.compiled, of), unit)) / float(getattr(self.analytical, unit))

    @property
    def compiled_seconds(self) -> float:
        """Roofline time of the program's traffic and FLOPs on the chip that the step was priced on, its FLOPs at the weights' peak.

        Raises:
          UserError: the step was priced on no chip.
        """
        chip, traffic = self.analytical.chip, self.compiled.traffic
        if chip is None:
            raise UserError(
                "reconcile: the step was priced on no chip, so there are bytes but no seconds; pass chip= to step_cost"
            )
        peak = chip.peak(max(self.analytical.terms, key=lambda term: float(term.flops)).compute)
        return max(traffic.bytes / float(chip.bandwidth), traffic.flops / float(peak))

    @property
    def unexplained(self) -> float:
        """|what the residuals leave of the difference| over the reported bytes; rounding, or the books do not balance."""
        left = float(self.analytical.bytes) + sum(r.amount for r in self.residuals) - self.compiled.reported.bytes
        return abs(left) / max(self.compiled.reported.bytes, 1.0)


def reconcile(analytical: StepCost, compiled: CompiledCost | Ledger, measured: Measured | None = None) -> Reconciliation:
    """Name every difference between a step's analytical and compiled cost.

    Args:
      analytical: of the same step, on one chip and in full detail (`costmodel.step_cost`).
      compiled: its program's ledger, or the sums of one (`CompiledCost`), which may be extrapolated.
      measured: of the same step.

    Raises:
      UserError: a ledger with loops that data bound, read without their counts.
    """
    if isinstance(compiled, Ledger):
        compiled = CompiledCost.of(compiled)
    return Reconciliation(analytical, compiled, _bytes(analytical, compiled), _flops(analytical, compiled), measured)


def name_of(key: Key) -> str:
    """The residual that an item of traffic belongs to."""
    kind, role, component, _ = key
    if component == "unattributed":
        return "bytes that no scope accounts for"
    return next(name for of, form, name in _NAMES if of == kind and form in (role, None))


def _expected(analytical: StepCost) -> dict[str, float]:
    """The analytical bytes under the names of the residuals that they stand against."""
    found: dict[str, float] = {}
    for term in analytical.terms:
        amount = float(term.bytes)
        if not amount:
            continue
        if term.kind == "weights":
            name = "weights read"
        elif term.kind == "kv":
            name = "KV written" if term.component == "kv_write" else "KV read"
        elif term.component in ("scores", "softmax", "values"):
            name = "attention scores written and read again"
        elif term.component in ("head", "sample"):
            name = "logits written and read again"
        else:
            name = "activations between kernels"
        found[name] = found.get(name, 0.0) + amount
    return found


def _bytes(analytical: StepCost, compiled: CompiledCost) -> tuple[Residual, ...]:
    moved: dict[str, float] = {}
    for key, amount in compiled.items.items():
        name = name_of(key)
        moved[name] = moved.get(name, 0.0) + amount
    expected, residuals = _expected(analytical), []
    for name in (*moved, *(name for name in expected if name not in moved)):
        residuals.append(Residual(name, moved.get(name, 0.0) - expected.get(name, 0.0), "analytical and traffic"))
    for reason, amount in compiled.corrections.items():
        residuals.append(Residual(reason, -amount, "traffic and with trips"))
    loops = compiled.reported.bytes - compiled.with_trips.bytes
    residuals.append(Residual(LOOPS, loops, "with trips and reported"))
    return tuple(r for r in residuals if r.amount)


def _flops(analytical: StepCost, compiled: CompiledCost) -> tuple[Residual, ...]:
    """By component: what a program computes beyond the model is arithmetic on elements (converts, compares, masks, index arithmetic)."""
    expected: dict[str, float] = {}
    for term in analytical.terms:
        if flops := float(term.flops):
            expected[term.component] = expected.get(term.component, 0.0) + flops
    residuals = [
        Residual(name, compiled.flops.get(name, 0.0) - expected.get(name, 0.0), "analytical and traffic")
        for name in (*compiled.flops, *(name for name in expected if name not in compiled.flops))
    ]
    calls = compiled.with_trips.flops - compiled.traffic.flops
    residuals.append(Residual("custom calls left out by XLA", calls, "traffic and with trips"))
    residuals.append(Residual(LOOPS, compiled.reported.flops - compiled.with_trips.flops, "with trips and reported"))
    return tuple(r for r in residuals if r.amount)
