"""SmolLM2 on the built-in prompts, for the slow comparisons: weights, token ids, and 64 greedy tokens of each prompt in f32."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.generation.prompts import builtin_prompts
from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.load import load
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from tests.jaxserve.driver import Driver, Rows, Sequence
from tests.oracle import Weights

NEW, CONTEXT, PAGE = 64, 128, 16


@functools.cache
def checkpoint() -> GGUFCheckpoint:
    try:
        found = open_checkpoint("smollm2")
    except UserError as error:
        pytest.skip(str(error))
    assert isinstance(found, GGUFCheckpoint)
    return found


@functools.cache
def weights(dtype: str) -> Weights:
    return load(checkpoint(), jnp.dtype(dtype))


@functools.cache
def prompts() -> tuple[tuple[int, ...], ...]:
    """The 64 prompts as a user sends them: through the chat template."""
    tokenizer = checkpoint().tokenizer()
    return tuple(tuple(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in builtin_prompts())


def shared_prefix() -> int:
    """Tokens that all prompts begin with: the template's system message."""
    columns = zip(*prompts(), strict=False)
    return next(i for i, column in enumerate(columns) if len(set(column)) > 1)


@functools.cache
def greedy() -> tuple[tuple[int, ...], ...]:
    """The 64 tokens that follow each prompt: f32 weights and KV, all rows together, EOS or not."""
    driver = Driver(checkpoint().config, weights("float32"), context=CONTEXT, sequences=64, page=PAGE)
    rows = [driver.sequence(tokens) for tokens in prompts()]
    for i in range(0, 64, 8):  # 8 prompts at a time, for the memory that their activations take
        part = rows[i : i + 8]
        longest = max(len(tokens) for tokens in prompts())
        append(part, driver.step(Rows(part, longest, [len(s.tokens) for s in part]))[0])
    for _ in range(NEW - 1):
        append(rows, driver.step(Rows(rows))[0])
    return tuple(tuple(s.tokens[-NEW:]) for s in rows)


def append(rows: list[Sequence], results: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for s, (_, tokens) in zip(rows, results, strict=True):
        s.tokens.append(int(tokens[0]))


@dataclasses.dataclass
class Scorer:
    """Logits of every token of a text in one step, f32 [tokens, vocab], for a dtype of weights and of KV."""

    dtype: str
    kv_dtype: str

    def __post_init__(self) -> None:
        options: dict[str, Any] = {"context": CONTEXT, "page": PAGE, "every_token": True, "dtype": self.kv_dtype}
        self.driver = Driver(checkpoint().config, weights(self.dtype), **options)
        self.pages = self.driver.sequence([]).pages

    def __call__(self, tokens: tuple[int, ...]) -> np.ndarray:
        ((result,),) = self.driver.step(Rows([Sequence(list(tokens), self.pages)], CONTEXT, [len(tokens)]))
        return result[0]


def texts() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prompt, its 64 greedy tokens)."""
    return zip(prompts(), greedy(), strict=True)
