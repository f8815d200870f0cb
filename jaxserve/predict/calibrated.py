"""Predictors from a calibration: what was measured of a machine says what a plan takes, and how sure that is."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture
from costmodel.calibration.calibration import Calibration
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.kernel_step import KernelStep, Share
from costmodel.calibration.kernels import KernelCalibration
from jaxserve.predict.executed import Executed, Figures
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan
from models.config.model_config import ModelConfig
from models.errors import UserError

Model = Architecture | ModelConfig | Mapping[str, Any] | str


class Calibrated:
    """The time of a plan on a machine whose engine's steps were fitted (witness: calibrated).

    Args:
      config, dtype, kv_dtype: of the engine.
      calibration: of engine steps, as `python -m jaxserve.calibrate` writes it.
      ladder: the engine's programs; what they pad is run like the rest.
      gap: s that the host keeps the device waiting between steps, added to each plan.

    Raises:
      UserError: a calibration of something else.
    """

    def __init__(
        self,
        config: Model,
        calibration: Calibration,
        ladder: Buckets,
        *,
        dtype: str = "float32",
        kv_dtype: str | None = None,
        gap: float = 0.0,
    ):
        self.calibration, self.gap = calibration, gap
        self.executed = Executed(as_architecture(config), ladder, dtype=dtype, kv_dtype=kv_dtype)
        self._costs = costs(calibration)

    def __call__(self, plan: Plan) -> float:
        """s of all programs of a plan, and of the host's gap before it."""
        return self.device(plan) + self.gap

    def device(self, plan: Plan) -> float:
        """s of the programs alone: what `StepRecord.measured` is compared with."""
        prices = self._costs
        return sum([sum(map(operator.mul, prices, figures)) for figures in self.executed.plan(plan)])

    def interval(self, plan: Plan, level: float = 0.9) -> tuple[float, float]:
        """(low, high): where the measured time, gap included, lies in `level` of cases.

        Raises:
          UserError: a level that is none.
        """
        low, high = self.calibration.interval(self.device(plan), level)
        return low + self.gap, high + self.gap


class KernelCalibrated:
    """The time of a plan on a GPU as the sum of its kernels (witness: calibrated). A plan is one step without padding.

    Args:
      config: a dense model without windows, in 16 bit.
      silicon: kernels of a chip, fitted (`costmodel.calibration.kernels.h100`) or carried over (`transfer`).
      gap: s that the host keeps the device waiting between steps, added to each plan.

    Raises:
      UserError: a model whose kernels are not calibrated.
    """

    def __init__(self, config: Model, silicon: KernelCalibration, *, gap: float = 0.0):
        self.step, self.gap = KernelStep(as_architecture(config), silicon), gap

    def __call__(self, plan: Plan) -> float:
        """s of a plan; each of several steps in a row counts."""
        return sum([share.seconds for share in self.shares(plan)]) + self.gap

    def shares(self, plan: Plan) -> list[Share]:
        """What each step of a plan goes to."""
        found = []
        for run in dispatch(plan):
            counts = run.counts or (1,) * len(run.starts)
            tokens = sum(counts) + sum([piece.tokens for piece in run.pieces])
            samples = sum(counts) + len(run.pieces)
            prompts = [(piece.start, piece.tokens) for piece in run.pieces]
            for step in range(run.steps):
                seen = [start + count + step for start, count in zip(run.starts, counts, strict=True)]
                found.append(self.step.share(tokens, samples, seen, prompts))
        return found

    def interval(self, plan: Plan, level: float = 0.9) -> tuple[float, float]:
        """(low, high): where the measured time lies in `level` of cases; the gap is taken as known.

        Raises:
          UserError: a level that is none.
        """
        shares = self.shares(plan)
        whole = Share(*map(sum, zip(*shares, strict=True)))
        low, high = self.step.band(whole, level)
        return whole.seconds * math.exp(low) + self.gap, whole.seconds * math.exp(high) + self.gap


def costs(calibration: Calibration) -> tuple[float, ...]:
    """s for each of `Figures`: the form of engine steps is linear in them, and a dozen NumPy calls a plan would be slow.

    Raises:
      UserError: a calibration of something else.
    """
    if calibration.form != EngineStep.name:
        raise UserError(f"the calibration is of {calibration.form}; give one of engine steps (python -m jaxserve.calibrate)")
    each = dict(zip(Figures._fields, np.eye(len(Figures._fields)), strict=True))
    return tuple(calibration.seconds(each).tolist())
