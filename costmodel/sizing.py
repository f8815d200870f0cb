"""Which batch may hold an SLO, as far as capacity and the model can say: the first witness of a sizing study.

A verdict is one of four words. Capacity can rule a batch out for good; the model can rule it out as far as one believes data sheets; what
neither rules out is undecided until it has been measured, for a model step is an estimate and no bound. No simulation stands here, see
`jaxserve.sizing`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from costmodel.analytical.rows import check_quantity
from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.arch.architecture import Architecture
from costmodel.arch.deployment import Storage
from costmodel.arch.formats import Format
from costmodel.capacity import Pool, kv_pool
from costmodel.hardware.chip import Chip
from models.errors import UserError

Word = Literal["infeasible by capacity", "infeasible by model", "undecided until measured", "measured"]
CAPACITY: Word = "infeasible by capacity"
MODEL: Word = "infeasible by model"
UNDECIDED: Word = "undecided until measured"
MEASURED: Word = "measured"

# Round parameter counts of the nominal model; other models have their own count.
ROUND: Mapping[str, float] = {"llama-3-8b": 8.0e9, "llama-3-70b": 70.0e9}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One of four words, and why."""

    word: Word
    reason: str


@dataclasses.dataclass(frozen=True)
class Goal:
    """What some percentile of TTFT and of ITL may be at most, in s; None where nothing is asked of it."""

    ttft: float | None = None
    itl: float | None = None


@dataclasses.dataclass(frozen=True)
class Demand:
    """What clients send: `rate` requests a second, on average `prompt` tokens each (median `usual`), answered by `answer` tokens.

    `attended` is what a token of an answer attends to on average, over all tokens of all answers; with lengths that are all alike
    prompt + answer / 2.
    """

    rate: float
    prompt: float
    answer: float
    attended: float
    usual: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_quantity(f"demand: {field.name}", getattr(self, field.name), most=1e15)

    @classmethod
    def of(cls, rate: float, lengths: Sequence[tuple[int, int]]) -> Demand:
        """From (prompt, answer) tokens of requests, each as likely as the others. Raises UserError where there are none."""
        if not lengths:
            raise UserError("demand: there are 0 requests; give at least 1")
        prompts, answers = sum(p for p, _ in lengths), sum(a for _, a in lengths)
        attended = sum(a * p + a * (a + 1) / 2 for p, a in lengths) / answers
        usual = statistics.median(p for p, _ in lengths)
        return cls(rate, prompts / len(lengths), answers / len(lengths), attended, usual)


@dataclasses.dataclass(frozen=True)
class Placement:
    """A model in its formats on `degree` chips that share every layer."""

    model: Architecture
    chip: Chip
    degree: int = 1
    dtype: str = "bfloat16"
    kv_dtype: str | None = None

    @property
    def parameters(self) -> float:
        """Of the nominal model."""
        return ROUND.get(self.model.name, float(self.model.parameter_count))

    @property
    def kv(self) -> Format:
        """What the cache is stored in."""
        return Storage.of(self.dtype, self.kv_dtype).kv

    def pool(self, size: float, page: int, *, entry: float = 0.0, headroom: float = 0.0) -> Pool:
        """A KV pool of `size` B, all chips together and no head counted twice."""
        return kv_pool(self.model, size, kv_dtype=self.kv, page=page, entry=entry, headroom=headroom)

    def step(self, detail: str, batch: float, context: float, kind: str = "decode") -> StepCost:
        """A step of so many rows that all hold `context` tokens when it ends."""
        return step_cost(
            self.model,
            kind=kind,
            batch=batch,
            context=context,
            chip=self.chip,
            detail=detail,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            tensor_parallel=self.degree,
            parameters=self.parameters if detail == "nominal" else None,
        )

    def quickest(self, batch: float, context: float) -> float:
        """s of such a step by whichever of the two models says less: what both rule out is ruled out.

        Neither is always less. The nominal one leaves out activations and attention but reads the whole embedding table, of which a step
        needs a few rows.
        """
        return min(float(self.step(detail, batch, context).seconds()) for detail in ("nominal", "full"))

    def prefill(self, prompt: float) -> float:
        """s that one prompt alone takes by the quicker model: a batch of as many rows as it has tokens."""
        return min(float(self.step(detail, 1, prompt, "prefill").seconds()) for detail in ("nominal", "full"))

    def busy(self, demand: Demand) -> float:
        """The share of the chips' arithmetic that the demand takes, by the model that says less: from 1 on no batch keeps up."""

        def work(detail: str) -> float:
            prompt, token = self.step(detail, 1, demand.prompt, "prefill"), self.step(detail, 1, demand.attended)
            return float(prompt.compute_seconds()) + demand.answer * float(token.compute_seconds())

        return demand.rate * min(work("nominal"), work("full"))


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A batch of `batch` full sequences on a placement, as the model sees it. All estimates; steps are s.

    Attributes:
      kv: B of the sequences.
      over: B by which they exceed the pool; 0 where they fit.
      nominal, full: a decode step in which each of them holds the whole context.
      ceiling: tokens of answers a second that decoding this batch could give at most, rows holding what they do on average, by the quicker
        model.
    """

    batch: int
    kv: float
    over: float
    nominal: float
    full: float
    ceiling: float

    def verdict(self, pool: Pool, goal: Goal, demand: Demand, busy: float) -> Verdict:
        """What capacity and the model say; never more than "undecided until measured" in favour of it.

        Args:
          busy: see `Placement.busy`.
        """
        if self.over:
            needs = f"{self.batch} full sequences need {gib(self.kv)}, {gib(self.over)} more than the pool of {gib(pool.size)}"
            return Verdict(CAPACITY, needs)
        if goal.itl is not None and min(self.nominal, self.full) > goal.itl:
            step = f"a step of {self.batch} full sequences takes {self.nominal * 1e3:.2f} ms (nominal) or {self.full * 1e3:.2f} (full)"
            return Verdict(MODEL, f"{step}, both more than the ITL of {goal.itl * 1e3:g} ms")
        if overload := self.overload(demand, busy):
            return Verdict(MODEL, overload)
        return Verdict(UNDECIDED, "it fits, and model steps are estimates, not bounds")

    def overload(self, demand: Demand, busy: float) -> str:
        """Why the demand would pile up before this batch, in words; "" where the model sees no reason."""
        wanted = demand.rate * demand.answer
        if wanted > self.ceiling:
            most = f"a batch of {self.batch} draws at most {self.ceiling:,.0f} tokens/s (analytical)"
            return f"{most}, and {demand.rate:.4g} requests/s want {wanted:,.0f}"
        if busy >= 1:
            return f"{demand.rate:.4g} requests/s want {busy:.2f} times the chips' arithmetic (analytical)"
        return ""


def batches(sequences: int) -> tuple[int, ...]:
    """Batches to look at where `sequences` fit: the two largest powers of two that do, and the next one, which does not.

    240 -> 64, 128, 256. Where nothing fits, 1.
    """
    largest = 1 << max(sequences, 1).bit_length() - 1
    found = (largest // 2, largest, 2 * largest) if sequences else (1,)
    return tuple(batch for batch in found if batch)


def candidate(placement: Placement, pool: Pool, batch: int, context: int, demand: Demand) -> Candidate:
    """What the model says of a batch.

    Raises:
      UserError: a context that is longer than the model takes, a batch below 1, a chip without the peaks or links that are needed.
    """
    nominal, full = (float(placement.step(detail, batch, context).seconds()) for detail in ("nominal", "full"))
    mean = placement.quickest(batch, demand.attended)
    kv = batch * pool.sequence(context)
    return Candidate(batch, kv, pool.over(batch, context), nominal, full, batch / mean)


def check_goal(placement: Placement, goal: Goal, demand: Demand) -> None:
    """Refuse what no batch could ever hold: an ITL below one step of a lone sequence, a TTFT below one prompt of median length.

    Raises:
      UserError: says what the step takes.
    """
    where = f"{placement.model.name} on {placement.degree} x {placement.chip.name}"
    mends = "raise the target, or take a faster chip, more of them or a smaller model"
    step = placement.quickest(1, 1)
    if goal.itl is not None and goal.itl < step:
        raise UserError(
            f"the ITL target of {goal.itl * 1e3:g} ms is below one step: {where} takes {step * 1e3:.2f} ms for a single sequence "
            f"(analytical); {mends}"
        )
    prompt = placement.prefill(demand.usual)
    if goal.ttft is not None and goal.ttft < prompt:
        raise UserError(
            f"the TTFT target of {goal.ttft * 1e3:g} ms is below one prompt of {demand.usual:,.0f} tokens: {where} takes "
            f"{prompt * 1e3:.2f} ms for it alone (analytical); {mends}"
        )


def gib(size: float) -> str:
    """B for people: 2 GiB, 0.125 GiB, 29.55 GiB, 1.5 MiB."""
    if size < 2**27:
        return f"{size / 2**20:.4g} MiB"
    return f"{size / 2**30:g} GiB" if size % 2**27 == 0 else f"{size / 2**30:.2f} GiB"
