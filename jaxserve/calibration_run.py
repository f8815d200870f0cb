"""The work behind `python -m jaxserve.calibrate`: measure, fit, hold out, and check on an engine's run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from costmodel.calibrate import fit
from costmodel.calibration.calibration import Calibration, quantiles
from costmodel.calibration.device import Device
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.held_out import Errors, HeldOut, hold_out
from costmodel.calibration.parameter import Parameter
from costmodel.host import cores, host_key, last_level_cache_bytes, today
from costmodel.measure import Ceilings, ceilings
from jaxserve.calibrated import Calibrated
from jaxserve.engine_steps import EngineSteps, logged_steps, serve
from jaxserve.executed import Figures
from jaxserve.machine import Machine
from jaxserve.measured_points import Measured, Point, measure_points
from jaxserve.scheduling.plan import Plan
from jaxserve.serve_settings import ServeSettings
from jaxserve.setup import Bar, Setup, choose
from jaxserve.steprecord import StepRecord

WARM = 3  # steps of an engine that do not count, for they touch its buffers first
FORM = EngineStep()


class Found(NamedTuple):
    """What came of it.

    Attributes:
      measured: what was fitted.
      held_out: (what, errors) on points whose group the fit had not seen.
      engine: errors on an engine's own steps, none of which was fitted.
      covered: share of the engine's steps within their 90 % interval, and of how many.
    """

    setup: Setup
    machine: Machine
    measured: Measured
    held_out: list[tuple[str, Errors]]
    engine: list[tuple[str, Errors]]
    covered: tuple[float, int]


def calibrate(
    settings: ServeSettings, contexts: Sequence[int], *, rounds: int, requests: int, log: Path | None, bar: Bar
) -> Found:
    """All of it.

    Args:
      contexts: tokens that rows hold when they are measured.
      requests: of the engine's run that the fit is checked on.
      log: of an earlier run of the same engine, which takes its place.

    Raises:
      UserError: settings that don't fit the model or the memory; steps that can't tell a parameter.
    """
    setup = choose(settings)
    device, model = host_device(ceilings(), setup.dtype), setup.load(bar)
    watch = EngineSteps()
    engine = setup.engine(model, log=watch, bar=bar)
    measured = measure_points(setup, engine, contexts, rounds, bar)
    held = [held_out(measured.points, device, by) for by in ("batch", "context")]
    source = f"{len(measured.points)} steps of {settings.model} in {setup.dtype}, medians of {rounds} rounds, {today()}, {host_key()}"
    features, seconds = columns(measured.points)
    found = fit(FORM, features, seconds, device)
    errors = quantiles(np.concatenate([each.logs for each in held]))
    calibration = Calibration(FORM.name, device, found.parameters(FORM), errors, len(seconds), source)
    if log is None:
        serve(engine, requests, bar("checking on an engine's run, requests", requests))
    steps = logged_steps(log, setup.ladder) if log else watch.steps[WARM:] or watch.steps
    machine = Machine(calibration, gap_of(steps), settings.model, setup.dtype, setup.room.pool.dtype, setup.ladder)
    run, covered = checked(steps, machine.predictor(model.config), device)
    decode = np.array([p.decodes for p in measured.points])
    rows = [
        (f"{what}, by {each.by}", each.errors(where))
        for each in held
        for what, where in (("decode steps", decode), ("all", None))
    ]
    return Found(setup, machine, measured, rows, run, covered)


def host_device(limits: Ceilings, dtype: str) -> Device:
    """This machine by its measured ceilings."""
    chip = limits.chip()
    return Device(chip.name, float(chip.bandwidth), float(chip.peak(dtype)), cores(), float(last_level_cache_bytes()))


def held_out(points: Sequence[Point], device: Device, by: str) -> HeldOut:
    """Every point predicted from all points but those of its batch, or of its context."""
    features, seconds = columns(points)
    labels = [str(p.cell.context) if by == "context" else str(p.cell.rows or p.cell.bucket.name) for p in points]
    return hold_out(FORM, features, seconds, device, by, labels, folds=len(points))


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


def checked(
    steps: Sequence[tuple[Plan, StepRecord]], predictor: Calibrated, device: Device
) -> tuple[list[tuple[str, Errors]], tuple[float, int]]:
    """(errors on an engine's steps by kind, (share within 90 % intervals, steps))."""
    figures = [Figures(*map(sum, zip(*predictor.executed.plan(plan), strict=True))) for plan, _ in steps]
    features = {name: np.array([getattr(each, name) for each in figures]) for name in Figures._fields}
    predicted = np.array([predictor.device(plan) for plan, _ in steps])
    measured = np.array([record.measured for _, record in steps])
    held = HeldOut("engine's run", predicted, FORM.roofline(features, device), measured, np.arange(len(steps)))
    decode = np.array([plan.tokens == len(plan.ids) for plan, _ in steps])
    low, high = predictor.calibration.interval(predicted)
    covered = float(((measured >= low) & (measured <= high)).mean())
    kinds = (("engine's run, decode steps", decode), ("engine's run, steps with prompts", ~decode))
    return [(name, held.errors(where)) for name, where in kinds if where.any()], (covered, len(steps))
