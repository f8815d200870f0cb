"""Steps that an engine has run, each plan with its record: of a run that is watched, or of a step log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxserve.engine.engine import Engine
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.dispatch import dispatch
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.state import State
from jaxserve.scheduling.step_record import StepRecord
from jaxserve.steplog.replay import trusted
from models.errors import UserError


class EngineSteps(Observer):
    """Keeps every plan that has rows until its record comes.

    Attributes:
      steps: (plan, record), in the order in which steps ended.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Plan, StepRecord]] = []
        self._plans: dict[int, Plan] = {}

    def planned(self, before: State, plan: Plan, after: State, now: float) -> None:
        if plan.ids:
            self._plans[plan.step] = plan

    def stepped(self, record: StepRecord) -> None:
        self.steps.append((self._plans.pop(record.step), record))


def logged_steps(log: Path, ladder: Buckets) -> list[tuple[Plan, StepRecord]]:
    """Those of a step log.

    Args:
      ladder: whose programs ran.

    Raises:
      UserError: it can't be read, doesn't repeat itself or was changed, is of a run that took no time (a simulation), or of other programs.
    """
    watch = EngineSteps()
    trusted(log, watch)
    if not watch.steps:
        raise UserError(f"{log}: no step in it was timed; give the log of an engine (python -m jaxserve.generate --log)")
    for plan, record in watch.steps:
        names = tuple([run.bucket.name for run in dispatch(plan, ladder) if run.bucket])
        if names != record.programs:
            raise UserError(
                f"{log}: step {record.step} ran {list(record.programs)}, where these settings run {list(names)}; give those of that engine"
            )
    return watch.steps


def serve(engine: Engine, requests: int, done: Callable[[int], None], seed: int = 0) -> None:
    """Have an engine answer prompts of random tokens, of up to half of its context, with up to a quarter of it.

    Args:
      done: called with 1 after each request.
    """
    draw, vocabulary, context = np.random.default_rng(seed), engine.model.config.vocab_size, engine.context
    for _ in range(requests):
        prompt = draw.integers(0, vocabulary, int(draw.integers(1, max(context // 2, 2)))).tolist()
        engine.submit(prompt, SamplingParams(max_tokens=int(draw.integers(2, max(context // 4, 3))), ignore_eos=True))
    ended: set[int] = set()
    for piece in engine.run():
        if piece.handle.finished and piece.handle.id not in ended:
            ended.add(piece.handle.id)
            done(1)
