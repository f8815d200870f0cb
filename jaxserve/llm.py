"""Offline work in two lines: a model, prompts, answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from costmodel import cli
from jaxserve.compiling import Bar
from jaxserve.completion import Completion
from jaxserve.engine import GREEDY, Engine
from jaxserve.features import PLAIN, Features
from jaxserve.handle import Piece
from jaxserve.model import Model
from jaxserve.needs import needed, union
from jaxserve.offline import Offline
from jaxserve.progress import Progress
from jaxserve.sampling_params import SamplingParams, check_params
from jaxserve.serve_settings import ServeSettings
from jaxserve.setup import choose, next_log, silent
from jaxserve.steplog import StepLog
from models.errors import UserError

Prompt = str | Sequence[int]


class LLM:
    """A model with an engine of its own.

        llm = LLM("smollm2", rows=16, context=512)
        for completion in llm.generate(["Why is the sky blue?", "Name a colour."], SamplingParams(max_tokens=32)):
            print(completion.text)

    Weights are read and programs compiled when the first prompts come, for what these ask for; both stay for later calls. Penalties,
    biases (`logit_bias`, `min_tokens`) and log-probabilities are compiled into programs, so that those who don't want them don't pay:
    the first call that asks for one of them compiles the programs again, with it. They are kept (`compile_cache`), so the next process
    that wants them has them at once.

    Args:
      model, settings: see `ServeSettings`.

    Attributes:
      setup: every choice that was made, with reasons.

    Raises:
      UserError: settings that can't be served, or don't fit the model or the memory. Nothing is read before that is known.
    """

    def __init__(self, model: str = "smollm2", **settings: Any):
        self.setup = choose(ServeSettings(model=model, **settings))
        self._model: Model | None = None
        self._engine: Engine | None = None
        self._features = PLAIN
        self._log: StepLog | None = None
        self._logs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the KV memory and the weights, and close the step log. A later call loads them again."""
        self._engine = self._model = None
        if self._log:
            self._log.close()
            self._log = None

    @property
    def engine(self) -> Engine:
        """The engine as it is, for whoever wants to submit, stream or watch; a call that needs more features replaces it."""
        return self._engine or self._build(self._features, silent)

    @property
    def context(self) -> int:
        """Tokens of the longest sequence, prompt and answer."""
        return self.setup.context

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] = GREEDY, *, progress: bool = True
    ) -> list[Completion]:
        """Answer prompts, as many at once as there are rows.

        Args:
          prompts: texts, each a turn of a chat where the model has a template; or token ids.
          params: for all of them, or one for each.
          progress: show bars on standard error, where that is a terminal.

        Returns:
          One completion for each, in order.

        Raises:
          UserError: a prompt that can't be served, named by its number, before any is run.
          KeyboardInterrupt: after Ctrl-C; all requests of this call are taken back, and the engine can go on with others.
        """
        if isinstance(prompts, str):
            raise UserError(f"prompts is the string {prompts[:40]!r}; give a list, of one prompt if there is only one")
        prompts = _listed("prompts", prompts)
        if prompts and all(isinstance(token, int) for token in prompts):
            raise UserError("prompts are whole numbers, as if they were one prompt's tokens; give a list of prompts")
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else _listed("params", params)
        if len(each) != len(prompts):
            raise UserError(f"{len(prompts)} prompts came with {len(each)} params; give one for all, or one for each prompt")
        if not prompts:
            return []
        with cli.Bars() if progress else contextlib.nullcontext() as bars:
            engine = self._ready(each, bars.bar if bars else silent)
        offline = Offline(engine, list(zip(prompts, each, strict=True)))
        with contextlib.closing(offline.steps()) as steps, Progress(sum(one.n for one in each), shown=progress) as shown:
            for pieces in steps:
                shown.add(pieces)
        return [Completion.of(prompt, handle) for prompt, handle in zip(prompts, offline.handles, strict=True)]

    def stream(self, prompt: Prompt, params: SamplingParams = GREEDY) -> Iterator[Piece]:
        """One prompt's answers as they grow: `piece.text` is what may be shown now and might not before."""
        engine = self._ready([params], silent)
        handle = engine.submit(prompt, params)
        try:
            yield from engine.stream(handle)
        finally:
            engine.abort(handle)

    def _ready(self, params: Sequence[SamplingParams], bar: Bar) -> Engine:
        """An engine that can do what these ask for."""
        for one in params:
            check_params(one)
        wanted = union(self._features, needed(params, self.setup.tokenizer.eos_tokens, self.context))
        if self._engine is not None and wanted == self._features:
            return self._engine
        return self._build(wanted, bar)

    def _build(self, features: Features, bar: Bar) -> Engine:
        if self._engine is not None and self._engine.live:
            raise UserError(
                f"these requests need programs with {features}, and the engine still serves others; wait until they have ended"
            )
        self._engine = None  # frees its pool before the next one is made
        if self._log:
            self._log.close()
        if self._model is None:
            self._model = self.setup.load(bar)
        if file := self.setup.settings.log:
            self._logs += 1
            self._log = StepLog(next_log(file, self._logs))
        self._engine = self.setup.engine(self._model, features, log=self._log, bar=bar)
        self._features = features
        return self._engine


def _listed(name: str, given: Any) -> list[Any]:
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise UserError(f"{name} is {str(given)[:40]!r}; give a list of {name}")
    return list(given)
