"""One run of the main job, from settings to outcome: everything that can be refused is refused before anything is measured or read."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from costmodel.hardware.ceilings import Ceilings, ceilings
from costmodel.hardware.host import host_key, today
from costmodel.ledger.ledger import Ledger
from jaxserve.engine.input_processor import read_all
from jaxserve.engine.model import Model, choose_dtype, load_model
from jaxserve.generation.prompts import builtin_prompts, read_prompts
from jaxserve.main_job.outcome import DecodeResult, Run
from jaxserve.main_job.program_report import Price, report
from jaxserve.main_job.rows import Generation, Row, StepRecord, make_rows, pages_needed
from jaxserve.main_job.settings import DecodeConfig
from jaxserve.predict.analytical import Analytical
from jaxserve.programs.buckets import Buckets, powers
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.memory import MemoryNeed, pool_bytes, weight_bytes
from jaxserve.programs.program_set import Program, compile_programs
from jaxserve.programs.progress import Bar, Compiling
from jaxserve.sampling_params import SamplingParams
from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.checkpoint.load import check
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.layers import KV
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

    def rows(self, batch: int) -> list[Row]:
        """Fresh rows of the first `batch` prompts, each with a seed of its own. Raises UserError where a prompt does not fit."""
        first, limit, page = self.sampling, self.settings.max_new_tokens, self.settings.page_size
        sampling = [dataclasses.replace(first, seed=((first.seed or 0) + i) % 2**32) for i in range(batch)]
        prompts = [self.prompts[i % len(self.prompts)] for i in range(batch)]
        return make_rows(prompts, limit, sampling, self.tokenizer.eos_tokens, context=self.context, page=page)

    @property
    def pages(self) -> int:
        """Of the pool that holds the largest batch; from the prompts alone, for there may be more rows than memory can list."""
        page, (turns, more) = self.settings.page_size, divmod(self.settings.rows, len(self.prompts))
        each = (pages_needed(len(prompt), self.settings.max_new_tokens, page) for prompt in self.prompts)
        return sum(pages * (turns + (i < more)) for i, pages in enumerate(each))

    @property
    def ladder(self) -> Buckets:
        """The programs."""
        return make_ladder(self.prompts, self.settings.batches, self.context, self.settings.page_size)


def accept(settings: DecodeConfig) -> Job:
    """Open the model and encode the prompts. No weight is read.

    Raises:
      UserError: the model or the prompts are not there, or do not fit each other.
    """
    sampling = SamplingParams(temperature=settings.temperature, seed=settings.seed)
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
            f"the longest prompt and --max-new-tokens {settings.max_new_tokens} need a context of {longest} tokens, but "
            f"{settings.model} takes at most {limit}; shorten the prompt or lower --max-new-tokens"
        )
    job = Job(settings, checkpoint, tokenizer, given, settings.context or longest, sampling)
    job.rows(len(given))  # refuses a prompt that does not fit
    check(checkpoint)
    return job


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
    ladder = job.ladder
    pool: KV = model.empty_pool(job.pages, settings.page_size, stored)
    buckets = ladder.buckets()
    programs = compile_programs(model.step, model.serving, pool, buckets, done=Compiling(bar, buckets), cache=cache)
    if cache:
        cache.tell()
    runs = []
    for batch in settings.batches:
        rows = job.rows(batch)
        generation = Generation(rows, ladder, programs, pool)
        generation.prefill(bar(f"batch {batch}: prefill, tokens", sum(len(r.prompt) for r in rows)))
        first = len(generation.records)
        generation.decode(bar(f"batch {batch}: decode, tokens at most", batch * (settings.max_new_tokens - 1)))
        pool = generation.pool
        priced = bar(f"batch {batch}: reading programs", len({id(r.program) for r in generation.records}))

        def price(program: Program, trips: Mapping[str, float], priced: Callable[[int], None] = priced) -> Ledger:
            book = program.ledger(trips)
            priced(1)
            return book

        runs.append(_summary(batch, generation, first, model, stored, limits, price))
    predictor = Analytical(job.checkpoint.config, limits.chip(), dtype=dtype, kv_dtype=stored, ladder=ladder)
    provenance = job.checkpoint.provenance | job.tokenizer.provenance
    return DecodeResult(
        _facts(job, dtype, why, stored), provenance, limits, predictor, job.pages, list(programs), runs, job.tokenizer
    )


def _dtype(job: Job) -> tuple[str, str]:
    """(dtype of the weights, why), with the memory checked for it: for the smallest one before the choice is measured."""
    s, config = job.settings, job.checkpoint.config

    def check_for(dtype: str) -> None:
        pool = pool_bytes(config, job.pages, s.page_size, s.kv_dtype or dtype)
        programs = len(job.ladder.buckets())
        need = MemoryNeed.of(job.checkpoint, dtype, pool=pool, rows=s.rows, chunk=CHUNK, programs=programs, layers=s.layers)
        need.check("this run", dtype, "--batch or --max-new-tokens", "--")

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


def _summary(
    batch: int, generation: Generation, first: int, model: Model, kv_dtype: str, limits: Ceilings, price: Price
) -> Run:
    """Totals over all steps; the first `first` of them were prefill."""
    prefill, decode = generation.records[:first], generation.records[first:]
    reports = report(generation.records, model, jnp.dtype(kv_dtype).itemsize, limits, price)
    return Run(batch, generation.rows, generation.records, reports, _rate(decode), _rate(prefill))


def _rate(records: Iterable[StepRecord]) -> float:
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
