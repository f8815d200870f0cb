"""The closed set of compiled programs that an engine serves with: each compiled ahead of time, each carrying its own cost.

The object that runs a step is the object whose cost is read. After `compile_programs` nothing compiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import jax
import numpy as np

from costmodel.compile.xla import XlaTotals
from costmodel.hardware.host import cores
from costmodel.ledger.components import SCOPES
from costmodel.ledger.ledger import Ledger, ledger
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.executable import Executable, executable
from jaxserve.programs.features import PLAIN, Features
from jaxserve.programs.logit_bias import LogitBias
from jaxserve.programs.multi_step import SCOPE, MultiStep, multi_step_trips
from jaxserve.programs.penalties import Penalties
from jaxserve.programs.sampling import RowSampling
from jaxserve.programs.step import Output, Repeat, Step, Work
from jaxserve.sampling_params import SamplingParams
from models.errors import UserError
from models.forward import Serving, loop_trips
from models.layers import KV
from models.segment import Segment


class DonatedPoolError(RuntimeError):
    """A KV pool was used after a step had taken it over."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled step.

    Attributes:
      bucket: its static shape.
      pool: the cache that it was compiled for, shapes alone.
    """

    bucket: Bucket
    pool: KV = dataclasses.field(repr=False)
    _step: Step = dataclasses.field(repr=False)
    _executable: Executable = dataclasses.field(repr=False)
    _serving: list[jax.Array] = dataclasses.field(repr=False)

    @property
    def seconds(self) -> float:
        """What compiling it took, or, where it had been kept, loading it."""
        return self._executable.seconds

    @property
    def kept(self) -> bool:
        """It was not compiled now but came from the folder of compiled programs."""
        return self._executable.kept

    @property
    def totals(self) -> XlaTotals:
        """XLA's own counts and memory of this very executable."""
        return self._executable.totals

    @property
    def loops(self) -> int:
        """Loops in it, whose bodies `totals` counts once (blockwise attention is one a layer)."""
        return self._executable.loops

    def __call__(self, kv: KV, work: tuple[Work, ...]) -> tuple[KV, tuple[Output, ...]]:
        """Run the step; `kv` is consumed, use the pool that is returned.

        Raises:
          DonatedPoolError: `kv` was given to a step before.
        """
        if kv.keys[0].is_deleted():
            raise DonatedPoolError(
                "this KV pool was already given to a step, which wrote into it in place and returned the pool to use from then on; "
                "keep that one: kv, outputs = program(kv, work)"
            )
        return self._executable.compiled(self._serving, kv, work)

    def trips(self, rows: Sequence[Sequence[tuple[int, int]]]) -> dict[str, float]:
        """How often each of its loops that data bound runs (`models.forward.loop_trips`).

        Of a repeated decode they are means over its steps, and "repeat" is how many steps there were.

        Args:
          rows: for each segment its live rows, as (tokens in the cache after the step, tokens of this step). Of a repeated decode those
            are of all its steps: a row runs a token in each, from the first until it ends.
        """
        segments = [work.segment for work in blank(self.bucket, self.pool.units)]
        for segment, live in zip(segments, rows, strict=True):
            for i, (context, count) in enumerate(live):
                segment.start[i], segment.count[i] = context - count, count
        if self.bucket.steps > 1:
            (segment,), (live,) = segments, rows
            return multi_step_trips(self._step, self.pool, segment, [count for _, count in live])
        return loop_trips(self._step.config, self.pool, segments, stacked=self._step.stacked)

    def ledger(self, trips: Mapping[str, float]) -> Ledger:
        """What this very executable costs, instruction by instruction, with its loops run so often. Takes seconds for a large one."""
        return ledger(self._executable.text, trips or None, scopes={**SCOPES, SCOPE: None})


@dataclasses.dataclass(frozen=True)
class Programs:
    """The programs of a ladder, by bucket."""

    by_bucket: Mapping[Bucket, Program]

    def __getitem__(self, bucket: Bucket) -> Program:
        """Raises UserError where no such program was compiled: nothing compiles after warm-up."""
        try:
            return self.by_bucket[bucket]
        except KeyError:
            names = ", ".join(f"{known.name} ({known.width} pages wide)" for known in self.by_bucket)
            raise UserError(
                f"no program for {bucket.name} ({bucket.width} pages wide); compiled are {names or 'none'}"
            ) from None

    def __iter__(self) -> Iterator[Program]:
        return iter(self.by_bucket.values())

    def __len__(self) -> int:
        return len(self.by_bucket)


def compile_programs(
    step: Step,
    serving: Serving,
    kv: KV,
    buckets: Iterable[Bucket],
    *,
    done: Callable[[Program], None] = lambda program: None,
    threads: int | None = None,
    cache: CompileCache | None = None,
) -> Programs:
    """Compile a step for every bucket, in parallel threads (XLA compiles outside Python's lock).

    Args:
      step: what is compiled: as it is, or as a bucket that verifies or repeats wants it.
      serving: the read-only arguments; every program keeps a reference to these arrays and no copy.
      kv: a pool of the shape that will be served; it is only looked at.
      buckets: the shapes.
      done: called after each, from this thread, for a progress bar.
      threads: at most this many at once; the number of cores by default.
      cache: where programs are kept for the next start; only those of a `Step` itself, whose source is known.
    """
    shape = jax.eval_shape(lambda: kv)
    leaves, tree = jax.tree.flatten(serving)  # a flat list is the cheapest argument to check at each call

    def build(bucket: Bucket) -> Program:
        what = _stepping(step, bucket)

        def stepping(flat: list[jax.Array], kv: KV, work: tuple[Work, ...]) -> tuple[KV, tuple[Output, ...]]:
            return what(jax.tree.unflatten(tree, flat), kv, work)

        arguments = leaves, kv, blank(bucket, kv.units, step.features)
        made = executable(stepping, arguments, (what, tree), donate=1, cache=cache if type(step) is Step else None)
        return Program(bucket, shape, step, made, leaves)

    built: dict[Bucket, Program] = {}
    wanted = list(dict.fromkeys(buckets))
    pool = ThreadPoolExecutor(threads or cores())
    futures = {pool.submit(build, bucket) for bucket in in_turn(wanted)}
    try:
        while futures:
            ready, futures = wait(futures, return_when=FIRST_COMPLETED, timeout=0.2)  # wakes up for Ctrl-C
            for future in ready:
                program = future.result()
                built[program.bucket] = program
                done(program)
    finally:  # after an error or Ctrl-C nobody waits for compilations that still run: they may take minutes
        pool.shutdown(wait=False, cancel_futures=True)
    return Programs({bucket: built[bucket] for bucket in wanted})


def in_turn(buckets: Iterable[Bucket]) -> list[Bucket]:
    """The order in which programs are compiled: the last of a ladder first.

    Those are the large ones, which take longest, and with which a run begins: prompts, and decodes of all rows.
    """
    return list(dict.fromkeys(buckets))[::-1]


def _stepping(step: Step, bucket: Bucket) -> Step | MultiStep:
    """The step of a bucket."""
    if bucket.steps > 1:
        return MultiStep(step, bucket.steps)
    if bucket.verify:
        return dataclasses.replace(step, every_token=tuple(i == 0 for i in range(len(bucket.shape))))
    return step


def blank(bucket: Bucket, units: int, features: Features = PLAIN) -> tuple[Work, ...]:
    """Work of a bucket's shape in which every row is padding: host arrays to fill in. A repeated decode runs all its steps.

    Args:
      units: the pool's size: no page.
      features: of the program that it is for, `Step.features`.
    """
    scored = features.prompt_logprobs is not None and bucket.steps == 1
    return tuple(
        Work(
            Segment(
                tokens=np.zeros((rows, query), np.int32),
                start=np.zeros(rows, np.int32),
                count=np.zeros(rows, np.int32),
                table=np.full((rows, bucket.width), units, np.int32),
            ),
            RowSampling.of([SamplingParams()] * rows),
            penalties=Penalties.blank(rows, features.history) if features.history else None,
            biases=LogitBias.blank(rows, features.biases) if features.biases else None,
            following=np.zeros((rows, query), np.int32) if scored else None,
            repeat=Repeat.blank(rows, bucket.steps) if bucket.steps > 1 else None,
        )
        for rows, query in bucket.shape
    )
