"""Offline work in two lines: a model, prompts, answers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Self

from costmodel.terminal import cli
from jaxserve.engine.batch_runner import BatchRunner
from jaxserve.engine.build import choose, next_log, silent
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import GREEDY, Engine
from jaxserve.engine.input_processor import Given, InputProcessor, Prompt, fresh_seed, numbered
from jaxserve.engine.model import Model
from jaxserve.engine.request_handle import Piece
from jaxserve.engine.request_output import RequestOutput
from jaxserve.generation.progress import Progress
from jaxserve.programs.features import PLAIN, Features, required_features, union
from jaxserve.programs.progress import Bar
from jaxserve.sampling_params import SamplingParams, check_params
from jaxserve.scheduling.admission import check
from jaxserve.scheduling.state import State
from jaxserve.steplog.writer import StepLog
from jaxserve.values import boolean, integer, plain, shown
from jaxserve.vllm_names import CHAT, ENGINE, GENERATE, Names, translated
from models.errors import UserError
from models.text.chat_template import Message

Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A model with an engine of its own.

        llm = LLM("smollm2", rows=16, context=512)
        for completion in llm.generate(["Why is the sky blue?", "Name a colour."], SamplingParams(max_tokens=32)):
            print(completion.text)

    Weights are read and programs compiled when the first prompts come, for what these ask for; both stay for later calls. Penalties,
    biases (`logit_bias`, `min_tokens`) and log-probabilities are compiled into programs, so that those who don't want them don't pay:
    the first call that asks for one of them compiles the programs again, with it. They are kept (`compile_cache`), so the next process
    that wants them has them at once.

    Arguments may have the names that vLLM gives them: docs/from-vllm.md says which work, and what stands in the others' place.

    Args:
      model, settings: see `EngineConfig`.
      seed: of the seeds that requests without one are given, so that the same calls in the same order give the same answers.
        None: seeds that nobody can foretell.

    Attributes:
      setup: every choice that was made, with reasons.

    Raises:
      UserError: settings that can't be served, or don't fit the model or the memory. Nothing is read before that is known.
    """

    def __init__(self, model: str | os.PathLike[str] = "smollm2", *, seed: int | None = None, **settings: Any):
        seed = None if seed is None else integer("seed", seed, 0)
        if "tokenizer" in settings and str(settings["tokenizer"]) == str(model):
            del settings["tokenizer"]  # which is where it comes from
        fields = [field.name for field in dataclasses.fields(EngineConfig)]
        self.setup = choose(EngineConfig(**translated("LLM", {"model": model, **settings}, fields, ENGINE)))
        self._seeds: Callable[[], int] = fresh_seed
        if seed is not None:
            self._seeds = functools.partial(random.Random(seed).getrandbits, 32)
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
        return self._serving(self._features) or self._build(self._features, silent)

    @property
    def context(self) -> int:
        """Tokens of the longest sequence, prompt and answer."""
        return self.setup.context

    def generate(
        self, prompts: Given | Iterable[Given], params: Params = None, *, progress: bool = True, raw: bool = False, **vllm: Any
    ) -> list[RequestOutput]:
        """Answer prompts, as many at once as there are rows.

        Args:
          prompts: texts or token ids, or, as vLLM writes them, {"prompt": text} and {"prompt_token_ids": ids}; several, or one.
          params: for all of them, or one for each. None: greedy, as long as there is room.
          progress: show bars on standard error, where that is a terminal.
          raw: texts are taken as they are, for the model to go on with. By default, where the model has a chat template, a text is the
            user's turn of a chat of its own.
          vllm: vLLM's names for the others, such as sampling_params.

        Returns:
          One completion for each, in order.

        Raises:
          UserError: a prompt that can't be served, named by its number, before any is run and any program is compiled for them.
          KeyboardInterrupt: after Ctrl-C; all requests of this call are taken back, and the engine can go on with others.
        """
        return self._answered("generate", GENERATE, _prompts(prompts), params, progress, raw, vllm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: Params = None,
        *,
        progress: bool = True,
        **vllm: Any,
    ) -> list[RequestOutput]:
        """Answer conversations, written as the model's chat template says.

        Args:
          messages: of one conversation, each with its role ("system", "user", "assistant") and content, a text; or several conversations.
          params, progress, vllm: as in `generate`.

        Returns:
          One completion for each conversation, in order.

        Raises:
          UserError, KeyboardInterrupt: as in `generate`; and the model has no chat template, or that refuses the messages.
        """
        return self._answered("chat", CHAT, _conversations(messages), params, progress, False, vllm)

    def stream(self, prompt: Given, params: SamplingParams = GREEDY, *, raw: bool = False) -> Iterator[Piece]:
        """One prompt's answers as they grow: `piece.text` is what may be shown now and might not before.

        Args:
          prompt: a text, token ids or messages.
          raw: as in `generate`.
        """
        check_params(params)
        features = self._wanted([params])
        asked = self._intake(features).read(prompt, raw)
        engine = self._ready(features, silent)
        handle = engine.submit(asked, params)
        try:
            yield from engine.stream(handle)
        finally:
            engine.abort(handle)

    def _answered(
        self, call: str, names: Names, given: list[Any], params: Params, progress: bool, raw: bool, vllm: dict[str, Any]
    ) -> list[RequestOutput]:
        """What `generate` and `chat` do."""
        mine = {"params": params} if params is not None else {}
        more = translated(f"llm.{call}", {**mine, **vllm}, ("params",), names)
        params, progress = more.get("params"), boolean("progress", more.get("progress", progress))
        each = _each(params, len(given))
        features = self._wanted(each)
        asks = list(zip(self._read(given, each, features, raw), each, strict=True))
        if not asks:
            return []
        with cli.Bars() if progress else contextlib.nullcontext() as bars:
            engine = self._ready(features, bars.bar if bars else silent)
        offline = BatchRunner(engine, asks)
        with contextlib.closing(offline.steps()) as steps, Progress(sum(one.n for one in each), shown=progress) as line:
            for pieces in steps:
                line.add(pieces)
        return [RequestOutput.of(prompt, handle) for prompt, handle in zip(given, offline.handles, strict=True)]

    def _read(self, given: list[Any], each: Sequence[SamplingParams], features: Features, raw: bool) -> list[Prompt]:
        """The prompts that are meant. All that no engine of this setup could serve is refused, before one is made."""
        intake, setup = self._intake(features), self.setup
        state = State.of(*(setup.room.pool.memory() for _ in range(setup.settings.workers)))
        found = []
        for number, (one, params) in enumerate(zip(given, each, strict=True), start=1):
            with numbered(number):
                found.append(intake.read(one, raw))
                check(state, intake.request(0, found[-1], params, arrival=0.0), setup.policy.limits)
        return found

    def _intake(self, features: Features) -> InputProcessor:
        return InputProcessor(self.setup.tokenizer, self.setup.checkpoint.config.vocab_size, features, self.context)

    def _wanted(self, params: Sequence[SamplingParams]) -> Features:
        """What an engine that serves these, and can do what this one can, has to be able to do."""
        return union(self._features, required_features(params, self.setup.tokenizer.eos_tokens, self.context))

    def _ready(self, features: Features, bar: Bar) -> Engine:
        """An engine with these features."""
        return self._serving(features) or self._build(features, bar)

    def _serving(self, features: Features) -> Engine | None:
        """The engine, if it has these features and has not failed."""
        return self._engine if self._engine and not self._engine.failure and features == self._features else None

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
        self._engine = self.setup.engine(self._model, features, log=self._log, bar=bar, seeds=self._seeds)
        self._features = features
        return self._engine


def _prompts(given: Any) -> list[Any]:
    """A list of prompts, of one if there is but one."""
    if isinstance(given, str | Mapping | Prompt):
        return [given]
    found = _listed("prompts", given)
    return (
        [given] if found and all(isinstance(plain(one), int) and not isinstance(plain(one), bool) for one in found) else found
    )


def _conversations(given: Any) -> list[Any]:
    """A list of conversations, of one if there is but one."""
    found = _listed("messages", given)
    if found and all(isinstance(one, Mapping) for one in found):
        return [found]
    for number, one in enumerate(found, start=1):
        if not isinstance(one, list | tuple) or not one or not all(isinstance(message, Mapping) for message in one):
            raise UserError(
                f'conversation {number} is {shown(one)}; give messages such as {{"role": "user", "content": text}}, in a list'
            )
    return found


def _each(params: Any, count: int) -> list[SamplingParams]:
    """The params of each prompt."""
    if params is None or isinstance(params, SamplingParams):
        return [params or GREEDY] * count
    each = _listed("params", params)
    for one in each:
        check_params(one)
    if len(each) != count:
        raise UserError(f"{count} prompts came with {len(each)} params; give one for all, or one for each prompt")
    return each


def _listed(name: str, given: Any) -> list[Any]:
    """The entries of anything that has them in an order; bytes are no list of prompts, nor is a mapping."""
    ordered = isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | memoryview | Mapping | Set)
    if not ordered or getattr(given, "shape", None) == ():
        raise UserError(f"{name} is {shown(given)}; give a list of {name}")
    return list(given)
