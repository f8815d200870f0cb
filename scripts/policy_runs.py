"""The runs behind `scripts/policies_on_a_trace.py`: the same requests under four policies, on a virtual clock and on a real one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.arch.catalog import as_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.hardware.chips import find_chip
from costmodel.hardware.clock import RunQueue
from jaxserve.engine.build import known_ceilings
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.engine import Engine
from jaxserve.engine.model import load_model
from jaxserve.kv.layout import KVLayout as Memory
from jaxserve.kv.paged import Paged
from jaxserve.load.client import Item
from jaxserve.load.engine_client import EngineClient
from jaxserve.load.measure import play
from jaxserve.load.result import Pool, Run
from jaxserve.load.schedule import Open
from jaxserve.load.source import Alphabet, Traced
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.buckets import Buckets
from jaxserve.reporting.virtual_steps import VirtualSteps
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.occupancy import Occupancy
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.state import State
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.step_result import End, StepResult
from jaxserve.simulator.records import simulated
from models.errors import UserError

PAGE = 16
PIECES = (4, 16)  # rows of the prefill programs that are measured, of 16 tokens each
SEED = 0

Bar = Callable[[str, int], Callable[[int], None]]


class Asked(NamedTuple):
    """What is simulated; see the options of the command."""

    trace: Path
    requests: int
    time_scales: tuple[float, ...]
    model: str
    chip: str
    rows: int
    budget: int
    delay: float
    kv_pool: int


class Measurement(NamedTuple):
    """What is measured."""

    measured_model: str
    measured_requests: int
    measured_rows: int
    measured_budget: int
    length_scale: float
    time_scale: float


class Served(NamedTuple):
    """The policies' runs at one time scale.

    Attributes:
      scale: of the trace's times.
      runs, slots: by policy.
      contention: of the machine while each was measured, see `costmodel.hardware.clock.RunQueue`; None where nothing was.
    """

    scale: float
    runs: Mapping[str, Run]
    slots: Mapping[str, Occupancy]
    contention: Mapping[str, float | None]


class Slots(Observer):
    """How full batches were."""

    def __init__(self) -> None:
        self.occupancy = Occupancy()

    def updated(self, before: State, plan: Plan, outcome: StepResult, after: State, ends: tuple[End, ...], now: float) -> None:
        self.occupancy = self.occupancy.after(plan, outcome)


def policies(rows: int, budget: int, delay: float, ahead: int = 0, piece: int = 1) -> dict[str, Policy]:
    """All four, over as many rows; chunked fills up pieces of so many tokens. Raises UserError for a budget below the rows."""
    limits = Limits(rows=rows, ahead=ahead)
    return {
        "static": Static(limits),
        "dynamic": Dynamic(limits, delay=delay),
        "continuous": Continuous(limits),
        "chunked": Chunked(limits, budget, piece=piece),
    }


def simulate_policies(asked: Asked, bar: Bar, *, pictured: bool = False) -> list[Served]:
    """At each time scale.

    Args:
      pictured: keep what a report draws of every step at the last time scale, which takes longer than the simulation itself.

    Raises:
      UserError: a trace, model or chip that is none; a pool without a page.
    """
    chip, held = find_chip(asked.chip), Deployment(as_architecture(asked.model), Storage.of("bfloat16"))
    predictor = Analytical(asked.model, chip)
    pages = int(asked.kv_pool // (held.kv_bytes_per_token * PAGE))
    if pages < 1:
        raise UserError(f"--kv-pool is {asked.kv_pool} B, less than one page of {PAGE} tokens; give more, such as 30GiB")
    chosen = policies(asked.rows, asked.budget, asked.delay)
    advance = bar("simulating", len(chosen) * len(asked.time_scales))
    found = []
    for scale in asked.time_scales:
        source = Traced.read(asked.trace, asked.requests, time=scale)
        runs, slots = {}, {}
        for name, policy in chosen.items():
            costs, steps, full = StepCosts(predictor, chip, "bfloat16"), VirtualSteps(predictor=predictor), Slots()
            whole = pictured and scale == asked.time_scales[-1]
            watch = Observers(full, *((costs, steps) if whole else ()))
            records = simulated(policy, State.of(Paged.of(pages, PAGE)), source.requests(), predictor, watch=watch)
            settings = {
                "policy": name, "model": asked.model, "chip": chip.name, "rows": asked.rows, "budget": asked.budget, "delay": asked.delay,
                "source": source.to_json(), "predictor": "analytical: roofline of costmodel.step_cost", "programs": costs.to_json(),
            }  # fmt: skip
            runs[name] = Run.of(
                records, witness="simulated", settings=settings, warm=0, steps=tuple(steps.steps), pool=Pool(pages, PAGE)
            )
            slots[name] = full.occupancy
            advance(1)
        found.append(Served(scale, runs, slots, {}))
    return found


def measure_policies(asked: Asked, wanted: Measurement, bar: Bar) -> Served:
    """This machine's engine, one policy after the other; all share their programs.

    Raises:
      UserError: no such model, or requests that don't fit it.
    """
    source = Traced.read(asked.trace, wanted.measured_requests, time=wanted.time_scale, length=wanted.length_scale)
    requests = list(source.requests())
    context = max(request.life for request in requests) + 1
    rows, width = wanted.measured_rows, -(-context // PAGE)
    model = load_model(wanted.measured_model, dtype="float32", context=width * PAGE)
    source.check(model.context, wanted.measured_model)
    ladder = Buckets((rows,), (width,), (PIECES[-1], PAGE), PAGE, PIECES[:-1], (rows,))
    memory = Memory(rows * width, PAGE, "float32")
    spell = Alphabet(model.config.vocab_size, SEED, model.tokenizer.eos_tokens).spell
    items = [Item(request.id, spell(request.prompt), request.limit) for request in requests]
    compiled = bar("compiling programs", len(ladder.buckets()))
    prepared: CompiledPrograms | None = None
    limits = known_ceilings()
    predictor = Analytical(model.config, limits.chip(), dtype="float32", kv_dtype="float32", ladder=ladder) if limits else None
    runs, slots, contention = {}, {}, {}
    for name, policy in policies(rows, wanted.measured_budget, asked.delay, ahead=1, piece=PAGE).items():
        full, costs = Slots(), StepCosts(predictor, limits.chip(), "float32") if predictor and limits else None
        watches = [full, *([costs] if costs else [])]

        options: dict[str, Any] = {"predictor": predictor, "prepared": prepared, "compiled": lambda program: compiled(1)}

        def make(recorder: Observer, policy: Policy = policy, watches: Any = watches, options: Any = options) -> Engine:
            return Engine(model, policy, memory, ladder, log=Observers(recorder, *watches), **options)

        client = EngineClient(make)
        prepared = client.engine.prepared
        served = bar(f"measuring {name}, requests", len(items))
        with client, RunQueue() as queue:
            warm = play(client, Open(itertools.repeat(0.0, rows)), iter(items[:rows]))
            full.occupancy = Occupancy()
            played = play(client, Open(iter([request.arrival for request in requests])), iter(items), ended=served)
        known = client.known()
        settings = {
            **known.settings,
            "policy": name,
            "rows": rows,
            "budget": wanted.measured_budget,
            "source": source.to_json(),
            "warmed_by": len(warm.records),
        }
        if costs:
            settings["programs"] = costs.to_json(client.engine.programs)
        runs[name] = Run.of(
            played.records, witness="measured", settings=settings, warm=0, complete=not played.why, why=played.why, steps=known.steps,
            pool=known.pool,
        )  # fmt: skip
        slots[name], contention[name] = full.occupancy, queue.contention
    return Served(wanted.time_scale, runs, slots, contention)
