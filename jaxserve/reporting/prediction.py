"""What steps were predicted to take against what they took."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from jaxserve.load.percentile import percentile
from jaxserve.load.result import Run
from jaxserve.reporting.figure import Figure, blank, graduate, points, reference
from jaxserve.reporting.thin import spread
from jaxserve.scheduling.step_record import StepRecord

FIRST_OF = 400  # points of a run that are drawn
SAME = 1e-6  # an error that is rounding


def predicted(runs: Mapping[str, Run]) -> Figure:
    """A point for each step that had a prediction."""
    look = (
        "On the line the model is right; above it the step took longer than the model says. A cloud parallel to the line is a factor, the "
        "same for all steps; one that lies flat is a cost a step that the model doesn't know."
    )
    title, id = "Steps: predicted against taken", "predicted"
    chart, notes = blank("predicted step time, ms", "step time, ms", log_x=True, log_y=True), []
    ends: list[float] = []
    for number, (name, run) in enumerate(runs.items()):
        both = [(step.predicted, step.measured, step) for step in run.steps if step.predicted]
        if not both:
            notes.append(f"{name}: no step has a prediction; an engine has one where this machine's ceilings are known.")
            continue
        ratios = [taken / said for said, taken, _ in both]
        errors = [abs(math.log(ratio)) for ratio in ratios]
        median, ninth = (percentile(errors, q) for q in (50, 90))
        notes.append(
            f"{name}: taken / predicted is {percentile(ratios, 50):.3g} in the median (P10 {percentile(ratios, 10):.3g}, P90 "
            f"{percentile(ratios, 90):.3g}) over {len(both):,} steps; error, |ln| as a factor: median {math.exp(median):.3g}, "
            f"P90 {math.exp(ninth):.3g}."
        )
        if run.witness == "simulated" and max(errors) < SAME:
            notes.append(f"{name}: no finding, for the simulation goes by this prediction.")
        drawn = spread(len(both), FIRST_OF)
        if len(drawn) < len(both):
            notes.append(f"{name}: {len(drawn):,} steps of {len(both):,} are drawn, evenly spaced in time.")
        x, y = (np.array([both[i][column] for i in drawn]) * 1e3 for column in (0, 1))
        points(
            chart,
            x,
            y,
            name,
            number,
            text=[_label(both[i][2]) for i in drawn],
            hovertemplate="%{text}<br>%{x:.4g} → %{y:.4g} ms",
        )
        ends += [float(x.min()), float(x.max()), float(y.min()), float(y.max())]
    if not ends:
        return Figure(id, title, look, "analytical and clock", None, tuple(notes))
    limits = [min(ends) / 1.2, max(ends) * 1.2]
    reference(chart, limits, limits, "predicted = taken")
    for axis in (chart.layout.xaxis, chart.layout.yaxis):
        graduate(axis, limits)
    witness = " and ".join(dict.fromkeys(run.witness for run in runs.values() if run.steps))
    return Figure(id, title, look, f"{witness} over predicted", chart, tuple(notes))


def _label(step: StepRecord) -> str:
    return f"step {step.step}: {' + '.join(step.programs) or 'no program'}, {step.rows} rows, {step.prefill} prefill tokens"
