"""A decode study: at each batch size what the model, the compiler and the clock say, and the names of the differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.arch.architecture import Architecture
from costmodel.compile.program import HostedStep, Platform, StepProgram
from costmodel.compile.targets import compile_for
from costmodel.hardware.ceilings import Measured
from costmodel.hardware.chip import Chip
from costmodel.hardware.host import cores
from costmodel.ledger.compiled import CompiledCost, extrapolate
from costmodel.ledger.ledger import ledger
from costmodel.reconcile import Reconciliation, reconcile
from models.config.model_config import ModelConfig
from models.errors import UserError

FEW = (2, 4)  # layers of the programs from which one of many is extrapolated

Advance = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a study found: a row for each batch size that could be compiled, and why others could not."""

    rows: Sequence[Reconciliation]
    refused: Mapping[int, str]


@dataclasses.dataclass(frozen=True)
class Study:
    """What is asked.

    Attributes:
      model: an architecture; a `ModelConfig` where the engine runs it, for only that can be compiled.
      chip: its data sheet, or this machine's measured figures.
      target: what to compile for; "host" is this machine.
      platform: of the target: cpu, gpu or tpu.
      batches, context: rows, and tokens that each holds when the step ends.
      dtype, kv_dtype: of weights and cache; None is what the engine would take on that platform.
      attention, scanned, page, slack: see `StepProgram`; `scanned` None is what suits the platform.
      whole: compile all layers where fewer would do.
    """

    model: ModelConfig | Architecture
    chip: Chip
    target: str
    platform: Platform
    batches: tuple[int, ...]
    context: int
    dtype: str | None = None
    kv_dtype: str | None = None
    attention: str = "blockwise"
    scanned: bool | None = None
    page: int = 16
    slack: float = 1.0
    whole: bool = False

    @property
    def weights(self) -> str:
        """The weights' dtype."""
        return self.dtype or ("float32" if self.platform == "cpu" else "bfloat16")

    def analytical(self, batch: int, detail: str = "full") -> StepCost:
        return step_cost(
            self.model,
            batch=batch,
            context=self.context,
            chip=self.chip,
            detail=detail,
            dtype=self.weights,
            kv_dtype=self.kv_dtype or self.weights,
        )

    def program(self, batch: int, layers: int | None = None) -> StepProgram:
        """The step of all layers, or of the first few.

        Raises:
          UserError: an architecture that the engine doesn't run.
        """
        if not isinstance(self.model, ModelConfig):
            raise UserError(
                f"{self.model.name} is priced from its config alone: the engine doesn't run it, so there is no program; add --analytical"
            )
        chosen = {"dtype": self.dtype, "kv_dtype": self.kv_dtype, "scanned": self.scanned}
        options = {name: value for name, value in chosen.items() if value is not None}
        config = self.model if layers is None else self.model.first_layers(layers)
        return StepProgram.on(
            self.platform,
            config,
            ((batch, 1),),
            self.context,
            attention=self.attention,
            page=self.page,
            slack=self.slack,
            **options,
        )

    def layer_counts(self) -> tuple[int, ...]:
        """The layers to compile: all, or `FEW` where each further layer would add the same and time: unrolled, of one window, no TPU.

        What a TPU keeps on chip, and so what is reported, is no line in the number of layers.
        """
        step = self.program(1)
        model = step.config
        alike = len(set(model.windows)) == 1 and model.layers > FEW[1] and not step.scanned and self.platform != "tpu"
        return FEW if alike and not self.whole else (model.layers,)

    def compile(self, batch: int, layers: int) -> CompiledCost:
        """Compile the step with so many layers and sum up its ledger."""
        program = self.program(batch, layers)
        compiled = compile_for(self.target, program, *program.abstract_args(), donate=program.donate)
        return CompiledCost.of(ledger(compiled.text, program.trips(self.context) or None))

    def compiled(self, advance: Advance = lambda n: None) -> tuple[dict[int, CompiledCost], dict[int, str]]:
        """(compiled costs, why there is none) by batch size, several compilers at work at once. `advance` is called with 1 after each.

        Raises:
          UserError: there is none at any batch size; the first one's reason.
        """
        counts = self.layer_counts()
        pool = ThreadPoolExecutor(cores())
        jobs = {pool.submit(self.compile, batch, layers): (batch, layers) for batch in self.batches for layers in counts}
        found: dict[tuple[int, int], CompiledCost] = {}
        refused: dict[int, UserError] = {}
        try:
            for job in as_completed(jobs):
                try:
                    found[jobs[job]] = job.result()
                except UserError as error:  # a batch that fits no chip says nothing of smaller ones
                    refused[jobs[job][0]] = error
                    if len(refused) == len(self.batches):
                        raise
                advance(1)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        few, more = counts[0], counts[-1]
        layers = (few, more, self.program(1).config.layers)
        costs = {
            batch: found[batch, few] if few == more else extrapolate(found[batch, few], found[batch, more], layers)
            for batch in self.batches
            if batch not in refused
        }
        return costs, {batch: str(refused[batch]) for batch in self.batches if batch in refused}

    def measured(self, batch: int, repeats: int) -> Measured:
        """The step's time on this machine."""
        return HostedStep.compile(self.program(batch)).measure(repeats=repeats)

    def run(self, *, repeats: int = 0, compiling: Advance = lambda n: None, measuring: Advance = lambda n: None) -> Findings:
        """All witnesses at each batch size; the clock where `repeats` is above 0.

        Raises:
          UserError: as `compiled`.
        """
        costs, refused = self.compiled(compiling)
        rows = []
        for batch, cost in costs.items():
            clock = None
            if repeats:
                clock = self.measured(batch, repeats)
                measuring(1)
            rows.append(reconcile(self.analytical(batch), cost, clock))
        return Findings(rows, refused)
