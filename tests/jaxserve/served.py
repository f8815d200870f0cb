"""A tiny model with its whole closed set of programs, compiled once for all tests that serve with it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.engine.model import Model
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.program_set import Programs, compile_programs
from jaxserve.programs.step import Step
from jaxserve.sampling_params import SamplingParams
from models.forward import serving
from models.kv_cache import PagedKV
from models.layers import KV
from models.text.tokenizer import byte_tokenizer
from tests.jaxserve import tiny
from tests.jaxserve.rows import Generation, Row, pages_needed

PAGE, WIDTH, UNITS = 4, 10, 44
CONTEXT = PAGE * WIDTH
LADDER = Buckets((1, 2, 4), (WIDTH,), (2, 8), PAGE)
MIXED = Bucket(((2, 1), (1, 8)), WIDTH)
GREEDY = SamplingParams()


@dataclasses.dataclass(frozen=True)
class Served:
    model: Model
    programs: Programs

    def pool(self, fill: float = float("nan")) -> PagedKV:
        """Full of NaN, so that whatever reads what was never written shows it."""
        pool = PagedKV.zeros(self.model.config, UNITS, PAGE, jnp.float32)
        return jax.tree.map(lambda a: jnp.full_like(a, fill), pool)

    def run(self, rows: list[Row], pool: KV | None = None) -> Generation:
        """All rows to their end."""
        generation = Generation(rows, LADDER, self.programs, self.pool() if pool is None else pool)
        generation.prefill()
        generation.decode()
        return generation


@functools.cache
def served() -> Served:
    """The plain tiny model behind every bucket of `LADDER`, and a mixed one."""
    config, (graph, state) = tiny.model("llama")
    sizes = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    arrays = serving(config, jax.tree.map(jnp.asarray, state), CONTEXT)
    step = Step(graph, config)
    parameters, size = sum(a.size for a in sizes), sum(a.nbytes for a in sizes)
    model = Model("tiny", config, byte_tokenizer(512), step, arrays, CONTEXT, "float32", parameters, size)
    pool = PagedKV.zeros(config, UNITS, PAGE, jnp.float32)
    return Served(model, compile_programs(step, arrays, pool, [*LADDER.buckets(), MIXED]))


def row(tokens: Sequence[int], limit: int, sampling: SamplingParams = GREEDY, *, eos: Iterable[int] = (), **where: Any) -> Row:
    """One row whose pages are `pages`, or follow each other from `first`."""
    needed = pages_needed(len(tokens), limit, PAGE)
    pages = where.get("pages", np.arange(needed, dtype=np.int32) + where.get("first", 0))
    return Row(list(tokens), limit, sampling, frozenset(eos), pages)


def argmaxes(tokens: Sequence[int]) -> list[int]:
    """What the oracle says follows each token of a sequence."""
    return tiny.logits("llama", tuple(tokens)).argmax(axis=1).tolist()
