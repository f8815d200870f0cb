"""What a step of a service takes, by two parameters over what the cost model counts of it.

A step reads its weights, multiplies, and reads K and V, one kernel after the other: what one waits for, another can't make use of, so the
times add up. Weights are read at a share of the memory's bandwidth and everything is multiplied at a share of the peak; both are fitted.
Attention kernels stream K and V at the bandwidth of the data sheet; launches are hidden by CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxserve.predict.analytical import Analytical
from jaxserve.programs.dispatch import dispatch
from jaxserve.scheduling.plan import Plan

MEANINGS: Mapping[str, str] = {
    "bandwidth": "share of the memory's bandwidth at which weights are read",
    "peak": "share of the dense peak that matmuls and attention reach",
}


class Work(NamedTuple):
    """What a step has to do, s at the figures of the chip's data sheet. Floats, or arrays [steps].

    Attributes:
      weights: to read them, and what tokens move beside.
      products: to multiply, attention's included.
      cache: to read and write K and V.
    """

    weights: Any
    products: Any
    cache: Any


class Parameters(NamedTuple):
    """What is fitted, see `MEANINGS`."""

    bandwidth: float
    peak: float

    def seconds(self, work: Work) -> Any:
        """Of one step, or of each of many."""
        return work.weights / self.bandwidth + work.products / self.peak + work.cache


class Counted:
    """What plans have to do, from the cost model (witness: analytical)."""

    def __init__(self, analytical: Analytical):
        self._analytical = analytical
        self._none = analytical.load((), None, ()).attention

    def __call__(self, plan: Plan) -> Work:
        """Of a plan that has rows, in one program without padding."""
        (run,) = dispatch(plan)
        load = self._analytical.run_load(run)
        whole, linear = self._analytical.roofs(load), self._analytical.roofs(load._replace(attention=self._none))
        return Work(linear.memory, whole.compute, whole.memory - linear.memory)


class StepTime:
    """A predictor of plans (witness: calibrated).

    Args:
      seen: told what each plan has to do, in order.
    """

    def __init__(self, counted: Counted, parameters: Parameters, seen: Callable[[Work], None] = lambda work: None):
        self._counted, self._parameters, self._seen = counted, parameters, seen

    def __call__(self, plan: Plan) -> float:
        work = self._counted(plan)
        self._seen(work)
        return float(self._parameters.seconds(work))
