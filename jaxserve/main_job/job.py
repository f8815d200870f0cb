"""One run of the main job, from settings to outcome: everything that can be refused is refused before anything is measured or read."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from costmodel.hardware.ceilings import Ceilings, ceilings
from costmodel.hardware.host import host_key, today
from costmodel.ledger.ledger import Ledger
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.engine import Engine
from jaxserve.engine.input_processor import Prompt, read_all
from jaxserve.engine.model import Model, choose_dtype, load_model
from jaxserve.engine.request_output import RequestOutput
from jaxserve.generation.prompts import builtin_prompts, read_prompts
from jaxserve.kv.layout import KVLayout
from jaxserve.load.recorder import Recorder
from jaxserve.main_job.outcome import DecodeResult, Run
from jaxserve.main_job.program_report import ProgramRun, ProgramRuns, report
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.buckets import Buckets, powers
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.features import PLAIN
from jaxserve.programs.memory import MemoryNeed, pool_bytes, weight_bytes
from jaxserve.programs.program_set import Program
from jaxserve.programs.progress import Bar, Compiling
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.step_record import StepRecord
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.checkpoint.load import check
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.text.tokenizer import Tokenizer

CHUNK = 256  # tokens of a prefill step


@dataclasses.dataclass(frozen=True)
class Job:
    """Accepted input: a model that is there, and prompts that fit it.

    Attributes:
      prompts: token ids of those that the largest batch takes; where they are fewer than its rows, they are used in turn.
      context: tokens of the longest sequence.
      sampling: of the first row; each next one's seed is 1 more.
    """

    settings: DecodeConfig
    checkpoint: Checkpoint | RandomCheckpoint
    tokenizer: Tokenizer
    prompts: list[list[int]]
    context: int
    sampling: SamplingParams

    def asks(self, batch: int) -> list[tuple[Prompt, SamplingParams]]:
        """The first `batch` prompts, each with a seed of its own."""
        first = self.sampling
        return [
            (
                Prompt(tuple(self.prompts[i % len(self.prompts)]), False),
                dataclasses.replace(first, seed=((first.seed or 0) + i) % 2**32),
            )
            for i in range(batch)
        ]

    @property
    def pages(self) -> int:
        """Of the pool that holds the largest batch; from the prompts alone, for there may be more rows than memory can list."""
        turns, more = divmod(self.settings.rows, len(self.prompts))
        return sum(self.pages_of(prompt) * (turns + (i < more)) for i, prompt in enumerate(self.prompts))

    def pages_of(self, prompt: list[int]) -> int:
        """Pages of a row at its longest. The last token that is drawn is never run, so its KV is never written."""
        return -(-(len(prompt) + self.settings.max_new_tokens - 1) // self.settings.page_size)

    @property
    def ladder(self) -> Buckets:
        """The programs."""
        return make_ladder(self.prompts, self.settings.batches, self.context, self.settings.page_size)


def accept(settings: DecodeConfig) -> Job:
    """Open the model and encode the prompts. No weight is read.

    Raises:
      UserError: the model or the prompts are not there, or do not fit each other.
    """
    sampling = SamplingParams(temperature=settings.temperature, seed=settings.seed, max_tokens=settings.max_new_tokens)
    texts = read_prompts(settings.prompt_file) if settings.prompt_file else builtin_prompts()
    checkpoint = open_checkpoint(settings.model)
    limit = checkpoint.config.max_positions
    if settings.context is not None and settings.context > limit:
        raise UserError(f"--context is {settings.context}; {settings.model} takes 1 to {limit} tokens")
    tokenizer = checkpoint.tokenizer()
    vocab, raw = checkpoint.config.vocab_size, settings.raw
    given = [list(prompt.tokens) for prompt in read_all(texts[: settings.rows], tokenizer, vocab, raw=raw)]
    longest = max(map(len, given)) + settings.max_new_tokens - 1
    if settings.context is None and longest > limit:
        raise UserError(
            f"the longest prompt and --max-tokens {settings.max_new_tokens} need a context of {longest} tokens, but "
            f"{settings.model} takes at most {limit}; shorten the prompt or lower --max-tokens"
        )
    context, more = settings.context or longest, settings.max_new_tokens
    for i, prompt in enumerate(given, start=1):
        if len(prompt) + more - 1 > context:
            raise UserError(
                f"prompt {i} has {len(prompt)} tokens and {more} are to follow, which needs a context of {len(prompt) + more - 1}, but "
                f"the limit is {context}; shorten it, raise --context or lower --max-tokens"
            )
    check(checkpoint)
    return Job(settings, checkpoint, tokenizer, given, context, sampling)


def make_ladder(prompts: Sequence[list[int]], batches: Sequence[int], context: int, page: int) -> Buckets:
    """The buckets that this run can reach: every power of two below the largest batch, each batch itself, and one prefill chunk."""
    # At least 2 tokens wide, so that no prefill program is a decode program.
    query = min(CHUNK, powers(max(map(len, prompts)), smallest=2)[-1])
    rows = max(1, min(CHUNK // query, max(batches)))
    sizes = {*batches, *(size for size in powers(max(batches)) if size < max(batches))}
    return Buckets(tuple(sorted(sizes)), (-(-context // page),), (rows, query), page)


def run(settings: DecodeConfig, bar: Bar) -> DecodeResult:
    """Do the job. `bar` shows progress.

    Raises:
      UserError: bad input, or more memory than there is; before anything is measured, read or allocated.
    """
    job = accept(settings)
    dtype, why = _dtype(job)
    stored = settings.kv_dtype or dtype
    cache = CompileCache.of(settings.compile_cache, "--compile-cache")
    measured = bar("measuring this machine, once", 1)
    limits = ceilings()
    measured(1)
    model = _load(job, dtype, bar)
    ladder, pool = job.ladder, KVLayout(job.pages, settings.page_size, stored)
    kv = model.empty_pool(pool.units, pool.unit, stored)
    prepared = CompiledPrograms.of(model, pool, ladder, PLAIN, kv, compiled=Compiling(bar, ladder.buckets()), cache=cache)
    del kv  # each batch has a pool of its own, and only while it runs
    predictor = Analytical(job.checkpoint.config, limits.chip(), dtype=dtype, kv_dtype=stored, ladder=ladder)
    runs = [_batch(batch, job, prepared, predictor, limits, bar) for batch in settings.batches]
    provenance = job.checkpoint.provenance | job.tokenizer.provenance
    facts = _facts(job, dtype, why, stored)
    return DecodeResult(facts, provenance, limits, job.pages, list(prepared.programs), runs, job.tokenizer)


def _batch(batch: int, job: Job, prepared: CompiledPrograms, predictor: Analytical, limits: Ceilings, bar: Bar) -> Run:
    """One batch: an engine under the static policy, all of whose prompts are there before its first step."""
    asks, clock = job.asks(batch), _Clock()
    model, ladder = prepared.model, prepared.ladder
    ran, recorder = ProgramRuns(prepared.programs, ladder), Recorder()
    costs = StepCosts(predictor, limits.chip(), model.dtype)
    prefilled = bar(f"batch {batch}: prefill, tokens", sum(len(prompt.tokens) for prompt, _ in asks))
    decoded = bar(f"batch {batch}: decode, tokens at most", batch * (job.settings.max_new_tokens - 1))
    policy = Static(Limits(rows=batch, ahead=1))
    watch = Observers(recorder, ran, costs, _Progress(prefilled, decoded))
    engine = Engine(
        model, policy, prepared.pool, ladder, prepared=prepared, log=watch, predictor=predictor, clock=clock, sleep=time.sleep
    )
    clock.restart()
    handles = [engine.submit(prompt, params) for prompt, params in asks]
    for _ in engine.run():
        pass
    priced = bar(f"batch {batch}: reading programs", len({id(each.program) for each in ran.found}))

    def price(program: Program, trips: Mapping[str, float]) -> Ledger:
        book = program.ledger(trips)
        priced(1)
        return book

    itemsize = jnp.dtype(prepared.pool.dtype).itemsize
    reports = report(ran.found, model, itemsize, limits, price)
    answers = [RequestOutput.of(list(prompt.tokens), handle) for (prompt, _), handle in zip(asks, handles, strict=True)]
    decode, prefill = (_rate(each for each in ran.found if each.decodes is kind) for kind in (True, False))
    return Run(batch, answers, reports, decode, prefill, recorder.records(), recorder.steps, costs)


class _Clock:
    """s since it was restarted."""

    def __init__(self) -> None:
        self.restart()

    def __call__(self) -> float:
        return time.perf_counter() - self._zero

    def restart(self) -> None:
        self._zero = time.perf_counter()


class _Progress(Observer):
    """Two bars: prompt tokens that were run, and tokens that were drawn by decode steps."""

    def __init__(self, prefilled: Callable[[int], None], decoded: Callable[[int], None]):
        self._prefilled, self._decoded = prefilled, decoded

    def stepped(self, record: StepRecord) -> None:
        self._prefilled(record.prefill)
        self._decoded(record.decode)


def _dtype(job: Job) -> tuple[str, str]:
    """(dtype of the weights, why), with the memory checked for it: for the smallest one before the choice is measured."""
    s, config = job.settings, job.checkpoint.config

    def check_for(dtype: str) -> None:
        pool = pool_bytes(config, job.pages, s.page_size, s.kv_dtype or dtype)
        programs = len(job.ladder.buckets())
        need = MemoryNeed.of(job.checkpoint, dtype, pool=pool, rows=s.rows, chunk=CHUNK, programs=programs, layers=s.layers)
        need.check("this run", dtype, "--batch or --max-tokens", "--")

    check_for("bfloat16" if s.dtype == "auto" else s.dtype)
    dtype, why = choose_dtype(s.dtype, s.rows)
    check_for(dtype)
    return dtype, why


def _load(job: Job, dtype: str, bar: Bar) -> Model:
    name, size = job.settings.model, weight_bytes(job.checkpoint.config, dtype)[1]
    progress = bar(f"loading {name}, bytes", size)
    return load_model(
        name, dtype=dtype, context=job.context, layers=job.settings.layers, progress=progress, checkpoint=job.checkpoint
    )


def _rate(records: Iterable[ProgramRun]) -> float:
    """Live tokens a second, the host's part included; 0 where no step ran."""
    steps = [(r.tokens, r.seconds + r.host_seconds) for r in records]
    return sum(tokens for tokens, _ in steps) / sum(seconds for _, seconds in steps) if steps else 0.0


def _facts(job: Job, dtype: str, why: str, kv_dtype: str) -> dict[str, Any]:
    """What was run, where and when."""
    return {
        "model": job.settings.model,
        "date": today(),
        "machine": host_key(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "dtype": dtype,
        "dtype_reason": why,
        "kv_dtype": kv_dtype,
        "page_size": job.settings.page_size,
        "context": job.context,
        "rows": job.settings.rows,
        "distinct_prompts": len(job.prompts),
    }
