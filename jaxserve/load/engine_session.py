"""From settings to an engine that is to be measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxserve.engine.build import EngineBuild, choose, known_ceilings
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import Engine
from jaxserve.load.engine_client import EngineClient
from jaxserve.load.measure import Server, check_clients
from jaxserve.load.recorder import Recorder
from jaxserve.load.result import Pool
from jaxserve.load.source import Alphabet, Traced
from jaxserve.load.spec import LoadSpec
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.progress import Bar
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.steplog.writer import StepLog
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError


@contextmanager
def engine_session(settings: EngineConfig, asked: LoadSpec, bar: Bar, *, priced: bool) -> Iterator[Server]:
    """An engine in this process.

    Args:
      priced: work out what every step should move and compute, for a report's roofline; it costs the host some time.

    Raises:
      UserError: bad input, or more memory than there is; before a weight is read.
    """
    setup = as_long_as_needed(settings, asked)
    pool = setup.room.pool
    for load in asked.loads:
        check_clients(
            load, asked, Pool(pool.units * settings.workers, pool.unit, pool.kind), prefix=pool.prefix and asked.source.shares
        )
    limits, predictor = known_ceilings(), setup.predictor()
    watches, model = Observers(), setup.load(bar)
    log = StepLog(settings.log) if settings.log else None

    def make(recorder: Recorder) -> Engine:
        watches.watches = _both(recorder, log)
        return setup.engine(model, log=watches, bar=bar)

    client = EngineClient(make)
    always = watches.watches

    def fresh() -> None:
        if priced and predictor is not None and limits is not None:
            watches.watches = (*always, StepCosts(predictor, limits.chip(), setup.dtype))

    def more() -> dict[str, Any]:
        costs = [watch for watch in watches.watches if isinstance(watch, StepCosts)]
        return {"programs": costs[0].to_json(client.engine.programs)} if costs else {}

    vocabulary, eos = setup.checkpoint.config.vocab_size, setup.tokenizer.eos_tokens
    try:
        with client:
            yield Server(client, lambda key: Alphabet(vocabulary, key, eos), bar, fresh, more)
    finally:
        if log:
            log.close()


def as_long_as_needed(settings: EngineConfig, asked: LoadSpec) -> EngineBuild:
    """An engine that holds the longest request, and no more where nothing else is said.

    Raises:
      UserError: a request is too long for the model, or for the context that was asked for; of a trace it is named by its line.
    """
    checkpoint = open_checkpoint(settings.model)
    limit = checkpoint.config.max_positions
    most = settings.context or limit
    of = "--context" if settings.context else settings.model
    if isinstance(asked.source, Traced):
        asked.source.check(most, of)
    _, requests, _ = asked.drawn(0)
    longest = max(requests, key=lambda request: request.life)
    if longest.life > most:
        raise UserError(
            f"a prompt of {len(longest.prompt)} tokens with {longest.limit} to follow needs a context of {longest.life}, but {of} takes "
            f"{most}; lower --prompt or --output, or take a larger context"
        )
    if settings.ladder is None and settings.context is None:
        settings = dataclasses.replace(settings, context=min(max(longest.life, 2), limit))
    setup = choose(settings, checkpoint)
    if isinstance(asked.source, Traced):
        asked.source.check(setup.context, "this engine")  # a ladder file or a small pool may hold less
    if longest.life > setup.context:
        raise UserError(
            f"a request needs a context of {longest.life}, and this engine holds {setup.context}; give more --pages, or another --ladder"
        )
    return setup


def _both(recorder: Recorder, log: StepLog | None) -> tuple[Observer, ...]:
    return (recorder, log) if log else (recorder,)
