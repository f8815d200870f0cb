"""A file of prompts, from settings to results: what `python -m jaxserve.generate` does once its options are known to be sound."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from typing import Self

from costmodel import endings
from jaxserve.engine.batch_runner import Ask, BatchRunner
from jaxserve.engine.build import EngineBuild, choose
from jaxserve.engine.config import EngineConfig
from jaxserve.engine.engine import Engine
from jaxserve.engine.input_processor import Prompt, read_all
from jaxserve.engine.request_output import RequestOutput
from jaxserve.generation.display import Display
from jaxserve.generation.results import Results
from jaxserve.programs.features import Features, required_features
from jaxserve.programs.progress import Bar
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.observer import Observers
from jaxserve.steplog.summary import Summary
from jaxserve.steplog.writer import StepLog
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Session:
    """An engine that is ready, and what it is to answer.

    Attributes:
      texts: the prompts as they were given; `asks` has their tokens.
      steps: sums over what the engine does.
      log: of its steps.
    """

    setup: EngineBuild
    engine: Engine
    texts: Sequence[str]
    asks: list[Ask]
    steps: Summary
    log: StepLog | None

    @classmethod
    def begin(
        cls, settings: EngineConfig, params: SamplingParams, texts: Sequence[str], bar: Bar, *, raw: bool = False
    ) -> Self:
        """Load the model and compile the programs.

        Args:
          params: of the first prompt; each next one's seed is 1 more, where there is one.
          bar: shows progress.
          raw: prompts are taken as they are, not as turns of a chat.

        Raises:
          UserError: bad input, or more memory than there is; before a weight is read.
        """
        setup, prompts = accept(settings, params, texts, raw=raw)
        first = params.seed
        each = [params if first is None else dataclasses.replace(params, seed=(first + i) % 2**32) for i in range(len(prompts))]
        steps, log = Summary(), StepLog(settings.log) if settings.log else None
        features = wanted(setup, params)
        engine = setup.engine(setup.load(bar), features, log=Observers(steps, log) if log else steps, bar=bar)
        return cls(setup, engine, texts, list(zip(prompts, each, strict=True)), steps, log)

    def run(self, display: Display) -> Results:
        """Answer all prompts. Ctrl-C, or a signal like it, ends it early: what has not ended is told as it stands, marked as aborted.

        Args:
          display: is told of answers.
        """
        programs = list(self.engine.programs)
        display.begin(programs)
        start = time.monotonic()
        answered, expired, cut = self._serve(display)
        seconds = time.monotonic() - start
        if self.log:
            self.log.close()
        status = self.engine.status()
        results = Results(self.setup, len(self.texts), answered, expired, cut, seconds, status, self.steps, programs)
        display.end(results)
        return results

    def _serve(self, display: Display) -> tuple[int, int, str]:
        """Run all requests: how many have their answers, how many waited too long for them, and what came between; "" for nothing.

        Each is told when it ends, and at last, after Ctrl-C or a signal like it, those that have not.
        """
        offline = BatchRunner(self.engine, self.asks)
        told = set[int]()

        def tell(i: int) -> None:
            told.add(i)
            display.ended(i, RequestOutput.of(self.texts[i], offline.handles[i]))

        cut = ""
        try:
            with contextlib.closing(offline.steps()) as steps, display:
                for pieces in steps:
                    display.step(self.engine.status, offline.live, sum(len(piece.tokens) for piece in pieces))
                    for number in offline.ended(pieces):
                        tell(number)
        except KeyboardInterrupt as error:
            cut = endings.why(error)
        ends = [answer.finish for i in told for answer in offline.handles[i].answers[:1]]  # who waits too long has none at all
        expired = sum(end is not None and end.reason == "timeout" for end in ends)
        answered = len(told) - expired
        for i, handle in enumerate(offline.handles):
            if i not in told and any(answer.tokens for answer in handle.answers):
                tell(i)
        return answered, expired, cut


def wanted(setup: EngineBuild, params: SamplingParams) -> Features:
    """What programs must be able to do for these."""
    return required_features([params], setup.tokenizer.eos_tokens, setup.context)


def accept(
    settings: EngineConfig, params: SamplingParams, texts: Sequence[str], *, raw: bool = False
) -> tuple[EngineBuild, list[Prompt]]:
    """(the engine as it will be, what the model reads of each prompt): as long as the prompts need, and no more rows than answers.

    Raises:
      UserError: the model or the memory is not there, a prompt doesn't fit, or a token that is named is not the model's.
    """
    checkpoint = open_checkpoint(settings.model)
    tokenizer, limit = checkpoint.tokenizer(), checkpoint.config.max_positions
    vocab = checkpoint.config.vocab_size
    prompts = read_all(texts, tokenizer, vocab, raw=raw)
    lengths, following = [len(prompt.tokens) for prompt in prompts], params.max_tokens or 1
    longest = max(lengths) + following - 1
    if settings.ladder is None:
        context = settings.context or min(max(longest, 2), limit)
        rows = max(min(settings.most_rows, len(texts) * params.n), *(settings.preferred or (1,)))
        settings = dataclasses.replace(settings, rows=rows, context=context)
    setup = choose(settings, checkpoint, tokenizer)
    if params.n > setup.rows:
        raise UserError(f"n is {params.n} and at most {setup.rows} rows run at once; ask for fewer or raise rows")
    wanted(setup, params).check(params, params.stop_set(tokenizer.eos_tokens), vocab)
    if longest > setup.context:
        few = settings.pages is not None and setup.room.pool.tokens == setup.context
        number = max(range(len(prompts)), key=lengths.__getitem__)
        raise UserError(
            f"prompt {number + 1} has {lengths[number]} tokens, and with up to {following} to follow it needs a context of "
            f"{longest}, but the limit is {setup.context}; shorten it or ask for fewer tokens"
            + (f", or {'raise pages' if few else 'serve with a larger context'}" if setup.context < limit else "")
        )
    return setup, prompts
