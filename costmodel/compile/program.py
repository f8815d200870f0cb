"""A model's step as a value that any compiler can be handed: which function, on which abstract arguments, and how often its loops run.

It is the step that the engine serves with (`models.forward` over a paged cache, donated), with the greedy choice in place of the full
sampler. Nothing is allocated: an 8B or 70B step is described as cheaply as a tiny one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.stages import Compiled

from costmodel.hardware.ceilings import Measured, measure
from costmodel.hardware.host import memory_bytes
from models.config.model_config import ModelConfig
from models.errors import UserError
from models.forward import Serving, forward, loop_trips, serving
from models.kv_cache import PagedKV
from models.layers import KV, stack_layers
from models.segment import Segment
from models.transformer import Transformer, abstract

Platform = Literal["cpu", "gpu", "tpu"]
Arguments = tuple[Serving, KV, tuple[Segment, ...]]

DTYPES = ("float32", "bfloat16")
ATTENTION = ("blockwise", "gather")


TABLE = 1 << 26  # entries of the page tables of a step that is described here: they are made, 4 B each


@dataclasses.dataclass(frozen=True)
class StepProgram:
    """A step of fixed shape. Calling it with real arguments runs it; `abstract_args` are what to compile it with.

    Attributes:
      config: the architecture.
      shape: (rows, query) of each segment: ((32, 1),) decodes 32 rows, ((1, 256),) prefills a chunk, both together are a mixed step,
        ((8, 5),) with `every_token` verifies drafts of four tokens.
      context: tokens that the longest row holds after the step; page tables are as wide as that needs.
      page: tokens of a page.
      dtype: of the matrices. kv_dtype: what K and V are stored in. compute: what attention multiplies in.
      attention: "blockwise", or the reference: "gather".
      scanned: the layers are one scan over stacked weights and one pool, not unrolled.
      heads_first: how K and V lie, see `PagedKV.zeros`.
      slack: pages of the pool over those that all rows need when full.
      every_token: choose a token after every query token and not only after the last.
    """

    config: ModelConfig
    shape: tuple[tuple[int, int], ...]
    context: int
    page: int = 16
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    compute: str = "bfloat16"
    attention: str = "blockwise"
    scanned: bool = False
    heads_first: bool = False
    slack: float = 1.0
    every_token: bool = False

    def __post_init__(self) -> None:
        if not self.shape or min(min(rows, query) for rows, query in self.shape) < 1:
            raise UserError(f"step program: its segments are {self.shape}; give at least one, rows and query at least 1 each")
        longest = max(query for _, query in self.shape)
        if not longest <= self.context <= self.config.max_positions:
            raise UserError(
                f"step program: context is {self.context}; it must be {longest} (the tokens of this step) to "
                f"{self.config.max_positions} (what the model takes)"
            )
        if self.page < 1:
            raise UserError(f"step program: page is {self.page} tokens; it must be at least 1")
        if (entries := sum(rows for rows, _ in self.shape) * self.width) > TABLE:
            raise UserError(
                f"step program: its rows have {entries} pages in all, {self.width} each; {TABLE} are the most, so lower the batch or the "
                "context"
            )
        if not 1 <= self.slack < math.inf:
            raise UserError(
                f"step program: slack is {self.slack}; it must be at least 1, for a smaller pool cannot hold the rows"
            )
        for name, known in (("dtype", DTYPES), ("kv_dtype", DTYPES), ("compute", DTYPES), ("attention", ATTENTION)):
            if getattr(self, name) not in known:
                raise UserError(f"step program: {name} is {getattr(self, name)!r}; give {' or '.join(known)}")

    @classmethod
    def on(
        cls, platform: Platform, config: ModelConfig, shape: Sequence[tuple[int, int]], context: int, **options: Any
    ) -> StepProgram:
        """The step as the engine would serve it there: float32 on a CPU and bfloat16 elsewhere, layers scanned on a TPU.

        Args:
          platform: of the chip.
          options: any other attribute, which then is as given.
        """
        dtype = options.pop("dtype", "float32" if platform == "cpu" else "bfloat16")
        stored = options.pop("kv_dtype", dtype)
        compute = options.pop("compute", "float32" if platform == "cpu" else stored)
        fixed = {"scanned": platform == "tpu", "heads_first": platform == "cpu", **options}
        return cls(config, tuple(shape), context, dtype=dtype, kv_dtype=stored, compute=compute, **fixed)

    __name__ = "step"  # what JAX calls the compiled module
    donate = (1,)  # of the arguments: the cache, which the step updates in place

    @property
    def width(self) -> int:
        """Pages of a row's table."""
        return -(-self.context // self.page)

    @property
    def pages(self) -> int:
        """Pages of the pool."""
        return math.ceil(self.slack * self.width * sum(rows for rows, _ in self.shape))

    def __call__(self, serving: Serving, kv: KV, segments: tuple[Segment, ...]) -> tuple[KV, tuple[jax.Array, ...]]:
        """Weights and rotary tables, the cache and the segments -> the cache and each segment's next tokens i32 [rows * picked]."""
        graph = _graph(self.config.first_layer() if self.scanned else self.config)
        kv, logits = forward(graph, self.config, serving, kv, segments, every_token=self.every_token, stacked=self.scanned)
        with jax.named_scope("sample"):
            return kv, tuple(jnp.argmax(rows, axis=1).astype(jnp.int32) for rows in logits)

    def abstract_args(self) -> Arguments:
        """What `__call__` takes, as `jax.ShapeDtypeStruct`."""
        return jax.eval_shape(self.arguments)

    def arguments(self) -> Arguments:
        """The real ones: random weights, an empty cache, and rows that hold `context` tokens each, in pages of their own."""
        state = nnx.state(Transformer(self.config, rngs=nnx.Rngs(0), dtype=self.dtype))
        if self.scanned:
            _, state = stack_layers(self.config, dict(nnx.to_flat_state(state)))
        segments, used = [], 0
        for rows, query in self.shape:
            segment = self._segment(rows, query, self.context)
            table = used + np.arange(rows * self.width, dtype=np.int32).reshape(rows, self.width)
            segments.append(dataclasses.replace(segment, table=table))
            used += rows * self.width
        return serving(self.config, state, self.context), self._pool(), jax.tree.map(jnp.asarray, tuple(segments))

    def _pool(self) -> PagedKV:
        return PagedKV.zeros(
            self.config,
            self.pages,
            self.page,
            self.kv_dtype,
            compute=self.compute,
            stacked=self.scanned,
            attention=self.attention,
            heads_first=self.heads_first,
        )

    def _segment(self, rows: int, query: int, held: Any) -> Segment:
        """Host arrays of rows that hold `held` tokens after the step, as many of them new as fit the query; the tables are empty."""
        held = np.broadcast_to(np.asarray(held, np.int32), rows)
        count = np.minimum(held, query)
        return Segment(np.zeros((rows, query), np.int32), held - count, count, np.zeros((rows, self.width), np.int32))

    def trips(self, *contexts: int | Sequence[int]) -> dict[str, float]:
        """How often each loop of blockwise attention runs, which depends on data and so stands nowhere in the compiled text.

        Args:
          contexts: for each segment the tokens that its rows hold after the step, one number for all rows or one a row; 0 is a
            padding row. As many of those tokens as fit the query are this step's.

        Returns:
          Iterations by scope, see `models.forward.loop_trips`.

        Raises:
          UserError: not one entry a segment or a row, or a context that the step does not take.
        """
        if len(contexts) != len(self.shape):
            raise UserError(f"trips: contexts of {len(contexts)} segments are given, but this step has {len(self.shape)}")
        segments = []
        for (rows, query), held in zip(self.shape, contexts, strict=True):
            given = np.asarray(held)
            if given.shape not in ((), (rows,)):
                raise UserError(f"trips: {given.size} contexts are given for a segment of {rows} rows; give one, or one a row")
            if given.min() < 0 or given.max() > self.context:
                raise UserError(
                    f"trips: contexts are {given.min()} to {given.max()}; this step takes 0 to {self.context} tokens"
                )
            segments.append(self._segment(rows, query, given))
        return loop_trips(self.config, jax.eval_shape(self._pool), segments, stacked=self.scanned)


@functools.cache  # a model of 80 layers takes a second
def _graph(config: ModelConfig) -> nnx.GraphDef[Transformer]:
    return nnx.split(abstract(config))[0]


# A step run on this machine: real arguments for a `StepProgram`, its compiled form, and what it takes here.


@dataclasses.dataclass(frozen=True)
class HostedStep:
    """The program, compiled for this machine's default device."""

    program: StepProgram
    compiled: Compiled

    @classmethod
    def compile(cls, program: StepProgram) -> HostedStep:
        jitted = jax.jit(program, donate_argnums=program.donate)
        return cls(program, jitted.lower(*program.abstract_args()).compile())

    def measure(self, *, repeats: int = 20) -> Measured:
        """Time steps in which every row holds the program's full context, over random weights and an empty cache.

        What a step takes does not depend on the values in its arguments; the cache that a step returns goes into the next.

        Raises:
          UserError: the arguments need more memory than there is.
        """
        needed = _bytes(self.program.abstract_args())
        if needed > 0.9 * memory_bytes() and jax.default_backend() == "cpu":
            raise UserError(
                f"measuring this step needs {needed / 1e9:.1f} GB for weights and KV, and this machine has "
                f"{memory_bytes() / 1e9:.1f} GB; take a smaller model, batch or context"
            )
        serving, kv, segments = self.program.arguments()
        held = [kv]

        def step() -> Any:
            held[0], tokens = self.compiled(serving, held[0], segments)
            return tokens

        return measure(step, repeats=repeats)


def _bytes(arguments: Any) -> int:
    """B of a tree of abstract arrays."""
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arguments))
