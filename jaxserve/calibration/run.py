"""The work behind `python -m jaxserve.calibrate`: measure, fit, hold out, and check on an engine's run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from costmodel.arch.catalog import as_architecture
from costmodel.calibration.calibration import Calibration, quantiles
from costmodel.calibration.device import Device
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.fit import fit
from costmodel.calibration.form import Features, Parameter
from costmodel.calibration.held_out import Errors, HeldOut, hold_out, predict
from costmodel.calibration.noise import another_minute
from costmodel.hardware.ceilings import Ceilings, ceilings
from costmodel.hardware.host import cores, host_key, last_level_cache_bytes, today
from jaxserve.calibration.engine_runs import EngineRuns, Steps, sizes, stretches
from jaxserve.calibration.engine_steps import EngineSteps, logged_steps
from jaxserve.calibration.machine import Machine
from jaxserve.calibration.measured_points import Measured, Point, measure_points
from jaxserve.engine.build import EngineBuild, choose
from jaxserve.engine.config import EngineConfig
from jaxserve.predict.executed import Executed, Figures
from jaxserve.programs.progress import Bar
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.step_record import StepRecord

LEVEL = 0.9  # of the intervals that are judged
FORM = EngineStep()


class Judged(NamedTuple):
    """What an engine's runs said that neither the fit nor its interval had seen.

    Attributes:
      errors: (what, errors) of their steps.
      covered: share of their steps within the interval of `LEVEL`; of each run, and of all.
      steps: how many.
    """

    errors: list[tuple[str, Errors]]
    runs: tuple[float, ...]
    covered: float
    steps: int


class Found(NamedTuple):
    """What came of it.

    Attributes:
      measured: programs that were run by hand; all of them were fitted.
      calibrating: steps of the engine's runs that were fitted too, and made the interval.
      held_out: (what, errors) on points whose group the fit had not seen.
      judged: by the engine's other runs.
      engine: what the calibrating steps take over what a fit of the programs alone says, in the median over steps, as a share.
    """

    setup: EngineBuild
    machine: Machine
    measured: Measured
    calibrating: int
    held_out: list[tuple[str, Errors]]
    judged: Judged
    engine: float


def calibrate(
    settings: EngineConfig, contexts: Sequence[int], *, rounds: int, requests: int, log: Path | None, bar: Bar
) -> Found:
    """All of it.

    Args:
      contexts: tokens that rows hold when they are measured.
      requests: of the largest of the engine's runs.
      log: of an earlier run of the same engine, which takes the place of these runs.

    Raises:
      UserError: settings that don't fit the model or the memory; steps that can't tell a parameter.
    """
    setup = choose(settings)
    device, model = host_device(ceilings(), setup.dtype), setup.load(bar)
    given = None if log is None else stretches(logged_steps(log, setup.ladder))
    watch = EngineSteps()
    engine = setup.engine(model, log=watch, bar=bar)
    if given is None:
        runs = EngineRuns(engine, watch, rounds, requests, bar("an engine's runs, requests", sum(sizes(requests))))
        measured, served = measure_points(setup, engine, contexts, rounds, bar, runs), runs.runs
    else:
        measured, served = measure_points(setup, engine, contexts, rounds, bar), given
    seen, judges = Steps.of(served), Steps.of(served, 1)
    executed = Executed(as_architecture(model.config), setup.ladder, dtype=setup.dtype, kv_dtype=setup.room.pool.dtype)
    source = (
        f"{len(measured.points)} programs and {len(seen.steps)} steps of an engine of {settings.model} in {setup.dtype}, "
        f"{rounds} rounds, {today()}, {host_key()}"
    )
    calibration = fitted(measured, step_features(executed, seen), seen, device, source)
    machine = Machine(
        calibration, gap_of([*seen.steps, *judges.steps]), settings.model, setup.dtype, setup.room.pool.dtype, setup.ladder
    )
    held = [held_out(measured.points, device, by) for by in ("batch", "context")]
    decode = np.array([p.decodes for p in measured.points])
    rows = [
        (f"{what}, by {each.by}", each.errors(where))
        for each in held
        for what, where in (("decode steps", decode), ("all", None))
    ]
    over = over_programs(measured, step_features(executed, seen), seen, device)
    found = judged(calibration, step_features(executed, judges), judges, device)
    return Found(setup, machine, measured, len(seen.steps), rows, found, over)


def fitted(measured: Measured, features: Features, seen: Steps, device: Device, source: str) -> Calibration:
    """Of the programs and of the calibrating steps together; the interval is that of single steps in another minute.

    Args:
      features: of the steps.
    """
    programs, seconds = columns(measured.points)
    both = {name: np.concatenate([column, features[name]]) for name, column in programs.items()}
    labels = [f"{p.cell.bucket.name} {p.cell.context} {p.whole}" for p in measured.points]
    labels += [f"{run}: {' '.join(record.programs)}" for (_, record), run in zip(seen.steps, seen.runs, strict=True)]
    times = np.concatenate([seconds, seen.measured])
    found = fit(FORM, both, times, device, groups=labels, start=FORM.start(both, times, device))
    errors = np.log(seen.measured / predict(FORM, found, features, device))
    kept, widened = another_minute(errors, seen.runs, measured.noise.drift)
    return Calibration(FORM.name, device, found.parameters(FORM), quantiles(kept), len(times), source, widened)


def over_programs(measured: Measured, features: Features, steps: Steps, device: Device) -> float:
    """What an engine's steps take over what the programs alone say, in the median over steps, as a share."""
    programs, seconds = columns(measured.points)
    found = fit(FORM, programs, seconds, device, lenient=True, start=FORM.start(programs, seconds, device))
    return float(np.median(steps.measured / predict(FORM, found, features, device))) - 1


def step_features(executed: Executed, steps: Steps) -> dict[str, np.ndarray]:
    """Of each step, all of its programs together."""
    figures = [Figures(*map(sum, zip(*executed.plan(plan), strict=True))) for plan, _ in steps.steps]
    return {name: np.array([getattr(each, name) for each in figures]) for name in Figures._fields}


def host_device(limits: Ceilings, dtype: str) -> Device:
    """This machine by its measured ceilings."""
    chip = limits.chip()
    return Device(chip.name, float(chip.bandwidth), float(chip.peak(dtype)), cores(), float(last_level_cache_bytes()))


def held_out(points: Sequence[Point], device: Device, by: str) -> HeldOut:
    """Every point predicted from all points but those of its batch, or of its context."""
    features, seconds = columns(points)
    labels = [str(p.cell.context) if by == "context" else str(p.cell.rows or p.cell.bucket.name) for p in points]
    return hold_out(FORM, features, seconds, device, by, labels, folds=len(points), start=FORM.start(features, seconds, device))


def columns(points: Sequence[Point]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(features, seconds) of points."""
    features = {name: np.array([getattr(p.figures, name) for p in points]) for name in Figures._fields}
    return features, np.array([p.seconds for p in points])


def gap_of(steps: Sequence[tuple[Plan, StepRecord]]) -> Parameter:
    """The host's gap: the median over steps, with the standard error of a median of a normal sample, over the value."""
    gaps = np.array([record.host for _, record in steps])
    value = float(np.median(gaps))
    spread = 0.7413 * float(np.quantile(gaps, 0.75) - np.quantile(gaps, 0.25))  # sd of a normal with these quartiles
    error = math.sqrt(math.pi / 2 / len(gaps)) * spread / value if value > 0 else 0.0
    return Parameter("host gap", value, error, "s", "that the host keeps the device waiting between two steps")


def judged(calibration: Calibration, features: Features, steps: Steps, device: Device) -> Judged:
    """How well steps that nothing had seen were predicted, and how many of them lie within their interval."""
    predicted, measured, runs = calibration.seconds(features), steps.measured, np.array(steps.runs)
    held = HeldOut("engine's run", predicted, FORM.roofline(features, device), measured, runs)
    low, high = calibration.interval(predicted, LEVEL)
    within = (measured >= low) & (measured <= high)
    kinds = (("engine's run, decode steps", steps.decodes), ("engine's run, steps with prompts", ~steps.decodes))
    errors = [(name, held.errors(where)) for name, where in kinds if where.any()]
    each = tuple([float(within[runs == run].mean()) for run in dict.fromkeys(steps.runs)])
    return Judged(errors, each, float(within.mean()), len(measured))
