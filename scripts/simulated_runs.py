"""The runs behind `scripts/simulated_measured.py`: an engine under several loads, and each load again on the virtual clock."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from jaxserve.calibration.machine import Machine
from jaxserve.engine.config import EngineConfig
from jaxserve.kv.layout import KVLayout
from jaxserve.load.engine_session import engine_session
from jaxserve.load.measure import measure
from jaxserve.load.percentile import RULE
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.session import run_loads
from jaxserve.load.spec import LoadSpec
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.progress import Bar
from jaxserve.scheduling.names import policy_of
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.state import State
from jaxserve.simulator.pace import Noisy, Pace
from jaxserve.simulator.records import simulated
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.files.json_text import read_json
from models.files.reading import LARGEST
from scripts.experiment import table

TARGETS = {"p50": 0.10, "p95": 0.20}  # of the issue
METRICS = ("ttft", "itl")


class Figure(NamedTuple):
    """One percentile of one metric, s: of each measured run, and simulated."""

    metric: str
    percentile: str
    runs: tuple[float, ...]
    simulated: float

    @property
    def measured(self) -> float:
        """The median of the measured runs."""
        return statistics.median(self.runs)

    @property
    def error(self) -> float:
        """simulated / measured - 1."""
        return self.simulated / self.measured - 1

    @property
    def met(self) -> bool:
        """Whether it is as near as is wanted."""
        return abs(self.error) <= TARGETS[self.percentile]


class Compared(NamedTuple):
    """One load, measured so many times. figures: of `METRICS`, at `TARGETS`."""

    load: str
    measured: tuple[Run, ...]
    simulated: Run
    figures: tuple[Figure, ...]

    @classmethod
    def of(cls, runs: Sequence[Run], again: Run, done: Callable[[int], None] = lambda count: None) -> Self:
        """Measured runs of the same requests, and a simulated one.

        Raises:
          UserError: the requests are not the same.
        """
        lengths = [[(record.prompt, record.output) for record in in_order(run.records)] for run in runs]
        load = str(runs[0].settings.get("load", ""))
        if any(each != lengths[0] for each in lengths):
            raise UserError(f"runs of the load {load} served different requests; give runs of one seed and one number of them")
        figures = [
            Figure(metric, each, tuple([percentile(run, metric, each) for run in runs]), percentile(again, metric, each))
            for metric in METRICS
            for each in TARGETS
        ]
        done(1)
        return cls(load, tuple(runs), again, tuple(figures))

    def to_json(self) -> dict[str, Any]:
        """Plain data, s."""
        return {
            "load": self.load,
            "figures": [
                {**each._asdict(), "measured": each.measured, "error": each.error, "met": each.met} for each in self.figures
            ],
            "measured": [run.summary.to_json() for run in self.measured],
            "simulated": self.simulated.summary.to_json(),
        }


def in_order(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """As they were due."""
    return sorted(records, key=lambda record: record.intended)


def percentile(run: Run, metric: str, name: str) -> float:
    """Such as p50 of ttft, s."""
    return float(getattr(getattr(run.summary, metric), name))


def by_load(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of the same load together, in the order in which loads first occur."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(str(run.settings.get("load", "")), []).append(run)
    return list(found.values())


def measured(
    machine: Machine,
    bar: Bar,
    *,
    rates: tuple[float, ...],
    requests: int,
    warmup: int,
    prompt: str,
    output: str,
    policy: str,
    rows: int | None,
    seed: int,
    repeat: int,
) -> tuple[Run, ...]:
    """An engine of the model, dtype and programs that were calibrated, under each load, all of them `repeat` times in turn.

    Raises:
      UserError: as `jaxserve.load`; a load that was cut short.
    """
    ladder = machine.ladder
    settings = EngineConfig(
        model=machine.model,
        dtype=machine.dtype,
        kv_dtype=machine.kv_dtype,
        rows=rows or ladder.batches[-1],
        context=ladder.widths[-1] * ladder.page,
        prefix_cache=False,  # prompts have nothing in common, and the simulator is not told what they say
        policy=policy,
    )
    asked = LoadSpec(rates=rates, requests=requests, warmup=warmup, prompt=prompt, output=output, seed=seed)
    with engine_session(settings, asked, bar, priced=False) as server:
        runs: list[Run] = []
        for _ in range(repeat):
            found = run_loads(asked, functools.partial(measure, server, asked))
            if found.why:
                raise UserError(f"a load was cut short ({found.why}), so there is nothing to compare")
            runs += found.runs
    return tuple(runs)


def kept(path: Path) -> tuple[Run, ...]:
    """Runs of an engine that were written down.

    Raises:
      UserError: the file can't be read, or holds no such runs.
    """
    given = read_json(path, name=f"--runs {path}", fix="give what --keep wrote", most=LARGEST)
    listed = given.get("runs", [given]) if isinstance(given, dict) else []
    runs = tuple(Run.from_json(run) for run in listed)
    if not runs or any("scheduling" not in run.settings for run in runs):
        raise UserError(f"--runs {path} holds no runs of an engine of ours; give what --keep wrote")
    return runs


def simulate_again(run: Run, machine: Machine, *, steady: bool = False) -> Run:
    """The requests of a measured run, at the times at which they were due, under its policy and in its pool.

    Args:
      steady: every step takes what is predicted for it in the median; else it strays as single steps did.

    Raises:
      UserError: the engine had programs for which the calibration says nothing.
    """
    settings = run.settings
    predictor = machine.predictor(open_checkpoint(machine.model).config, Buckets.from_json(settings["ladder"]))
    pool = KVLayout(**{**settings["pool"], "prefix": False})
    every = in_order((*run.warmup, *run.records))
    seconds = predictor.device if steady else Noisy(predictor.device, machine.calibration.errors)
    pace = Pace(seconds, predictor.gap)
    records = simulated(policy_of(settings["scheduling"]), State.of(pool.memory()), _asked(every), pace)
    own = [record._replace(id=every[record.id].id) for record in records]
    return Run.of(
        own,
        warmup=len(run.warmup),
        witness="simulated",
        settings={**settings, "predictor": "calibrated", "steady": steady},
        warm=0,
    )


def _asked(records: Sequence[RequestRecord]) -> list[Request]:
    return [Request(i, range(record.prompt), max(record.output, 1), record.intended) for i, record in enumerate(records)]


def page(machine: Machine, compared: Sequence[Compared]) -> list[str]:
    """For people, in Markdown."""
    some = compared[0].measured
    first = some[0].settings
    steady = compared[0].simulated.settings["steady"]
    strays = "every step as long as predicted" if steady else "each step straying from it as single steps did then"
    rows = []
    for each in compared:
        for figure in each.figures:
            each_run = " ".join(f"{seconds * 1e3:.1f}" for seconds in figure.runs)
            cells = [each_run, f"{figure.simulated * 1e3:.1f}", f"{figure.error:+.1%}"]
            wanted = f"{TARGETS[figure.percentile]:.0%}"
            rows.append(
                [
                    each.load,
                    f"{figure.metric.upper()} {figure.percentile.upper()}",
                    *cells,
                    wanted,
                    "yes" if figure.met else "no",
                ]
            )
    rates = [
        [
            each.load,
            " ".join(f"{run.summary.tokens_per_s:.1f}" for run in each.measured),
            f"{each.simulated.summary.tokens_per_s:.1f}",
            " ".join(f"{sum(record.preemptions for record in run.records)}" for run in each.measured),
            f"{sum(record.preemptions for record in each.simulated.records)}",
        ]
        for each in compared
    ]
    return [
        f"{first.get('model')} in {first.get('dtype')} under {first.get('policy')} with {first.get('rows')} rows; "
        f"{len(some[0].records)} requests of each load after a warm-up of {len(some[0].warmup)}. "
        f"Measured: this machine's engine, {len(some)} times; errors are those of the simulation against the median of these runs. "
        f"Simulated: the same arrivals, prompts, answers, policy, pool and programs; steps as calibrated before "
        f"({machine.calibration.source}), {strays}, and a host's gap of {machine.gap.value * 1e3:.2f} ms between them.",
        table(("load", "percentile", "measured ms", "simulated ms", "error", "wanted", "met"), rows),
        table(("load", "measured tokens/s", "simulated tokens/s", "preemptions measured", "simulated"), rates),
        f"Percentiles: {RULE}.",
    ]
