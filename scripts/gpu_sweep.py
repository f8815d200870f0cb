"""Decode steps of one model at several batch sizes, compiled in the background and then timed, for `scripts.gpu_check`."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor, wait

import jax
import jax.numpy as jnp
import numpy as np

from costmodel.analytical.nominal import nominal_step
from costmodel.hardware.ceilings import Ceilings
from costmodel.hardware.chips import Chip
from costmodel.hardware.clock import Clock
from costmodel.hardware.host import cores
from jaxserve.engine.model import Model
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.memory import available_bytes, pool_bytes, workspace_bytes
from jaxserve.programs.program_set import Program, blank, compile_programs
from models.layers import KV

PAGE, WARM_UP = 16, 3
SPARE = 3_000_000_000  # bytes left for the comparison, which runs meanwhile


@dataclasses.dataclass(frozen=True)
class Point:
    """One batch size. Bytes are nominal: each weight once and each row's KV once. `skipped` says why there are no numbers."""

    batch: int
    skipped: str | None = None
    compile_seconds: float | None = None
    step_ms: float | None = None  # median
    step_ms_p95: float | None = None
    tokens_per_second: float | None = None
    nominal_bytes: float | None = None
    bytes_per_second: float | None = None
    of_data_sheet: float | None = None  # None for a chip that the table does not know
    of_measured: float | None = None
    xla_flops: float | None = None  # None where XLA does not say
    xla_bytes: float | None = None
    xla_temp_bytes: int | None = None
    xla_loops: int | None = None


class Sweep:
    """Decode programs of one model at several batch sizes over one pool, compiled in the background."""

    def __init__(self, model: Model, batches: tuple[int, ...], context: int):
        self.model, self.context, self.width = model, context, -(-context // PAGE)
        jax.block_until_ready(model.serving)  # so that its memory is taken
        free = available_bytes() - SPARE
        self.fits = tuple(batch for batch in batches if self._bytes(batch) <= free)
        self.left_out = {batch: self._bytes(batch) for batch in batches if batch not in self.fits}
        self.pool = self._empty()
        threads = ThreadPoolExecutor(cores())
        self.building: dict[int, Future[Program]] = {
            batch: threads.submit(self._compile, batch) for batch in sorted(self.fits, reverse=True)
        }

    def _empty(self) -> KV:
        return self.model.empty_pool(max(self.fits, default=1) * self.width, PAGE, self.model.dtype)

    def _bytes(self, batch: int) -> int:
        config, dtype = self.model.config, self.model.dtype
        return pool_bytes(config, batch * self.width, PAGE, dtype) + workspace_bytes(config, batch, 0)

    def _compile(self, batch: int) -> Program:
        bucket = Bucket(((batch, 1),), self.width)
        return compile_programs(self.model.step, self.model.serving, self.pool, [bucket], threads=1)[bucket]

    def wait(self, seconds: float) -> None:
        """Until all programs are compiled, at most so long; what is not done by then is skipped."""
        wait(self.building.values(), timeout=max(seconds, 0))
        for future in self.building.values():
            future.cancel()

    def measure(self, batch: int, steps: int, limits: Ceilings, chip: Chip | None) -> Point:
        """Time `steps` steps in which every row holds `context` tokens. What does not fit after all costs no other batch its point."""
        try:
            return self._measure(batch, steps, limits, chip)
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return Point(batch, f"the device ran out of memory ({str(error).partition(chr(10))[0]})")

    def _measure(self, batch: int, steps: int, limits: Ceilings, chip: Chip | None) -> Point:
        if batch in self.left_out:
            return Point(
                batch,
                f"needs {self.left_out[batch] / 1e9:.1f} GB beside the weights; {available_bytes() / 1e9:.1f} GB are free",
            )
        if self.building[batch].cancelled() or not self.building[batch].done():
            return Point(batch, "not compiled within the time limit")
        program, clock = self.building[batch].result(), Clock()
        if self.pool.keys[0].is_deleted():  # a step that failed took it along
            self.pool = self._empty()
        work = blank(program.bucket, self.pool.units)
        segment = work[0].segment
        segment.count[:], segment.start[:] = 1, self.context - 1
        segment.table[:] = np.arange(batch * self.width).reshape(batch, self.width)
        for i in range(WARM_UP + steps):
            if i == WARM_UP:
                clock = Clock()
            with clock.lap():
                self.pool, (output,) = program(self.pool, work)
                tokens = np.asarray(output.tokens)
            segment.tokens[:] = tokens
        itemsize = jnp.dtype(self.model.dtype).itemsize
        per_token = self.model.config.kv_bytes_per_token(itemsize)
        each = self.model.weight_bytes / self.model.parameters
        nominal = nominal_step(self.model.parameters, each, per_token, batch, self.context)
        timings, totals = clock.timings, program.totals
        rate = nominal.bytes / timings.median
        return Point(
            batch, None, program.seconds, timings.median * 1e3, timings.p95 * 1e3, batch / timings.median, nominal.bytes, rate,
            rate / chip.bandwidth if chip else None, rate / limits.read_bandwidth,
            totals.flops, totals.bytes_accessed, totals.temp_bytes, program.loops,
        )  # fmt: skip
