"""From settings to an engine. What can be refused is refused before a weight is read; memory is added up before any is taken."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp

from costmodel.hardware.ceilings import Ceilings, ceilings
from jaxserve.engine.choose_buckets import fitted, make_ladder, read_ladder
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import Engine
from jaxserve.engine.input_processor import fresh_seed
from jaxserve.engine.kv_budget import KVBudget, kv_budget
from jaxserve.engine.model import Model, choose_dtype, load_model
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.memory import weight_bytes
from jaxserve.programs.progress import Bar, Compiling
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.policy import Policy
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.checkpoint.load import check
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.files.provenance import Provenance
from models.text.tokenizer import Tokenizer

CONTEXT = 2048  # tokens of the longest sequence where nothing is said and the model takes more


def silent(what: str, total: int, note: Callable[[], str] = str) -> Callable[[int], None]:
    """A `Bar` that shows nothing."""
    return lambda amount: None


@dataclasses.dataclass(frozen=True)
class EngineBuild:
    """An engine as it will be: every choice is made and nothing is loaded.

    Attributes:
      dtype, dtype_reason: of the weights, and why.
      context: tokens of the longest sequence.
      rows: sequences that run at once, on each worker.
      room: the KV memory, and why it has its size.
    """

    settings: EngineConfig
    checkpoint: Checkpoint | RandomCheckpoint
    tokenizer: Tokenizer
    dtype: str
    dtype_reason: str
    context: int
    policy: Policy
    ladder: Buckets
    room: KVBudget

    @property
    def provenance(self) -> Provenance:
        """Which files gave weights, tokenizer, chat template and end tokens, and what of them was ignored."""
        return self.checkpoint.provenance | self.tokenizer.provenance

    @property
    def rows(self) -> int:
        return self.policy.limits.rows

    def load(self, bar: Bar = silent) -> Model:
        """Read the weights.

        Raises:
          UserError: the folder for compiled programs can't be made, or a fault of the weights.
        """
        s = self.settings
        self.compile_cache()
        progress = bar(f"loading {s.model}, bytes", weight_bytes(self.checkpoint.config, self.dtype)[1])
        return load_model(
            s.model, dtype=self.dtype, context=self.context, layers=s.layers, progress=progress, checkpoint=self.checkpoint
        )

    def engine(
        self,
        model: Model,
        features: Features = PLAIN,
        *,
        log: Observer | None = None,
        bar: Bar = silent,
        seeds: Callable[[], int] = fresh_seed,
    ) -> Engine:
        """Compile the programs.

        Args:
          model: what `load` gave.
          features: what requests will ask for, see `jaxserve.programs.features.needed`.
          log: where every decision and step is written down.
          seeds: see `Engine`.
        """
        return Engine(
            model,
            self.policy,
            self.room.pool,
            self.ladder,
            features=features,
            drafter=self.settings.drafter,
            workers=self.settings.workers,
            log=log,
            predictor=self.predictor(),
            compiled=Compiling(bar, self.ladder.buckets()),
            cache=self.compile_cache(),
            seeds=seeds,
        )

    def compile_cache(self) -> CompileCache | None:
        """Where compiled programs are kept. Raises UserError for a folder that can't be made."""
        return CompileCache.of(self.settings.compile_cache, "compile_cache")

    def predictor(self) -> Analytical | None:
        """What a step should take on this machine; None where its ceilings have not been measured yet.

        `python -m jaxserve.decode` measures them, once.
        """
        if (limits := known_ceilings()) is None:
            return None
        config, pool = self.checkpoint.config, self.room.pool
        return Analytical(config, limits.chip(), dtype=self.dtype, kv_dtype=pool.dtype, ladder=self.ladder)


def choose(
    settings: EngineConfig, checkpoint: Checkpoint | RandomCheckpoint | None = None, tokenizer: Tokenizer | None = None
) -> EngineBuild:
    """Make every choice that settings leave open.

    Args:
      checkpoint, tokenizer: of `settings.model`, where they are open already.

    Raises:
      UserError: the model is not there, settings don't fit it or each other, or memory doesn't suffice.
    """
    checkpoint = checkpoint or open_checkpoint(settings.model)
    check(checkpoint)  # before its config is believed
    limit = checkpoint.config.max_positions
    if settings.context is not None and settings.context > limit:
        raise UserError(f"context is {settings.context}; {settings.model} takes 1 to {limit} tokens")
    for name in ("multi_step", "drafts"):
        if (value := getattr(settings, name)) is not None and value > limit:
            raise UserError(f"{name} is {value}; {settings.model} takes {limit} tokens, so no step can draw more; lower it")
    given = None if settings.ladder is None else read_ladder(settings.ladder)
    context = settings.context or min(limit, CONTEXT if given is None else given.context)
    rows = settings.most_rows if given is None or settings.rows else given.batches[-1]
    ladder = make_ladder(settings, rows, context) if given is None else fitted(settings, given, rows, context)
    dtype, why, room = _dtype(settings, checkpoint, ladder, rows, context)
    context = min(context, room.pool.tokens)  # a few pages may have been asked for
    size = checkpoint.config.kv_bytes_per_token(jnp.dtype(room.pool.dtype).itemsize)
    pieces, query = ladder.chunk
    policy = settings.scheduling(rows, token_bytes=size, budget=rows + pieces * query, piece=query)
    return EngineBuild(settings, checkpoint, tokenizer or checkpoint.tokenizer(), dtype, why, context, policy, ladder, room)


def _dtype(
    settings: EngineConfig, checkpoint: Checkpoint | RandomCheckpoint, ladder: Buckets, rows: int, context: int
) -> tuple[str, str, KVBudget]:
    """(dtype of the weights, why, room), with the memory checked for it: for the smallest one before the choice is measured."""

    def room(dtype: str) -> KVBudget:
        return kv_budget(settings, checkpoint, dtype, rows=rows, context=context, ladder=ladder)

    first = room("bfloat16" if settings.dtype == "auto" else settings.dtype)
    dtype, why = choose_dtype(settings.dtype, rows)
    return dtype, why, first if dtype == settings.dtype else room(dtype)


def known_ceilings() -> Ceilings | None:
    """This machine's ceilings, if they were measured before: nothing is measured."""

    def unknown() -> Ceilings:
        raise LookupError

    with contextlib.suppress(LookupError):
        return ceilings(measure=unknown)
    return None


def next_log(file: str | Path, number: int) -> Path:
    """Where the log of the engine with this number goes, counted from 1: each has one of its own."""
    path = Path(file)
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")
