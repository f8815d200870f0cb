"""How closely a model follows the same model in another dtype or on another device.

Tokens alone say little: after one near-tie two greedy texts part for good. So the texts of the reference are also fed to both, and
the distributions that they give at every position are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from jaxserve.engine.engine import Engine
from jaxserve.engine.model import Model, load_model
from jaxserve.generation.prompts import builtin_prompts
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.buckets import Buckets, powers
from jaxserve.programs.program_set import blank, compile_programs
from jaxserve.sampling_params import SamplingParams
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.static import Static
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from models.layers import KV

PAGE = 16
CHUNK = 512  # tokens of a scoring step: at 49,152 words their logits are 100 MB

SAME_TOP, MEAN_KL = 0.99, 1e-3  # what 16 bits have to reach


@dataclasses.dataclass(frozen=True)
class Agreement:
    """A candidate against a reference.

    Attributes:
      positions: how many were compared with the same tokens before them.
      same_top: share of them at which both find the same token likeliest.
      mean_kl: mean divergence of the candidate's distribution from the reference's, in nats.
      greedy_tokens: tokens that the reference generated, over all prompts.
      greedy_same: how many the candidate generates alike, up to each prompt's first difference.
    """

    positions: int
    same_top: float
    mean_kl: float
    greedy_tokens: int
    greedy_same: int

    @property
    def holds(self) -> bool:
        """Same top token on at least 99 % of the positions, and a mean divergence below 1e-3."""
        return self.same_top >= SAME_TOP and self.mean_kl < MEAN_KL


def compare(
    reference: Model, candidate: Model, prompts: Sequence[list[int]], limit: int, *, positions: int = 4096
) -> Agreement:
    """Let both continue the prompts greedily by `limit` tokens, then score the reference's texts with both.

    Args:
      reference, candidate: of one architecture, each with room for the longest prompt and `limit` tokens; KV in their own dtype.
      prompts: token ids.
      limit: tokens to generate; the end of a text is not looked for, so that all prompts count alike.
      positions: at most so many are compared; the tokens with which all prompts begin do not count.
    """
    expected, found = greedy(reference, prompts, limit), greedy(candidate, prompts, limit)
    texts = [prompt + answer for prompt, answer in zip(prompts, expected, strict=True)]
    first = _shared(prompts) if len(prompts) > 1 else 0
    same, divergence, count = 0, 0.0, 0
    for ours, theirs in zip(score(candidate, texts), score(reference, texts), strict=True):
        q, p = (_log_softmax(x[first:][: positions - count]) for x in (ours, theirs))
        same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
        divergence += float((np.exp(p) * (p - q)).sum())
        count += len(p)
        if count >= positions:
            break
    alike = sum(_alike(a, b) for a, b in zip(expected, found, strict=True))
    return Agreement(count, same / count, divergence / count, sum(map(len, expected)), alike)


def compare_with_f32(name: str, rows: int, tokens: int, dtype: str) -> Agreement:
    """The model in `dtype` on the default device against itself in f32 on the CPU, on the first `rows` built-in prompts."""
    try:
        cpu = jax.devices("cpu")[-1]
    except RuntimeError:
        raise UserError("JAX was told to leave the CPU out; unset JAX_PLATFORMS, or add cpu to it") from None
    checkpoint = open_checkpoint(name)
    tokenizer = checkpoint.tokenizer()
    prompts = [tokenizer.encode_prompt(text) for text in builtin_prompts()[:rows]]
    context = max(map(len, prompts)) + tokens
    reference, candidate = (
        load_model(name, dtype=of, context=context, checkpoint=checkpoint, device=where)
        for of, where in (("float32", cpu), (dtype, None))
    )
    return compare(reference, candidate, prompts, tokens)


def greedy(model: Model, prompts: Sequence[list[int]], limit: int) -> list[list[int]]:
    """The likeliest continuation of each prompt by `limit` tokens, all prompts together."""
    context = max(map(len, prompts)) + limit
    query = min(256, powers(max(map(len, prompts)), smallest=2)[-1])
    width = -(-context // PAGE)
    ladder = Buckets((len(prompts),), (width,), (max(1, min(256 // query, len(prompts))), query), PAGE)
    pool = KVLayout(width * len(prompts), PAGE, model.dtype)
    engine = Engine(model, Static(Limits(rows=len(prompts))), pool, ladder)
    params = SamplingParams(max_tokens=limit, ignore_eos=True)
    handles = [engine.submit(prompt, params) for prompt in prompts]
    for _ in engine.run():
        pass
    return [handle.answers[0].tokens for handle in handles]


def score(model: Model, texts: Sequence[list[int]]) -> Iterator[np.ndarray]:
    """What the model says follows each token: logits f32 [tokens, vocab] of one text after the other."""
    query = powers(max(map(len, texts)), smallest=PAGE)[-1]
    rows = max(1, min(CHUNK // query, len(texts)))
    width = query // PAGE
    step = dataclasses.replace(model.step, every_token=True, with_logits=True)
    bucket = Bucket(((rows, query),), width)
    pool: KV = model.empty_pool(rows * width, PAGE, model.dtype)
    program = compile_programs(step, model.serving, pool, [bucket])[bucket]
    for at in range(0, len(texts), rows):
        part = texts[at : at + rows]
        work = blank(bucket, pool.units)
        segment = work[0].segment
        for i, text in enumerate(part):
            segment.tokens[i, : len(text)], segment.count[i] = text, len(text)
            segment.table[i] = np.arange(i * width, (i + 1) * width)
        pool, (output,) = program(pool, work)
        logits = np.asarray(output.logits).reshape(rows, query, -1)
        yield from (logits[i, : len(text)] for i, text in enumerate(part))


def _shared(prompts: Sequence[list[int]]) -> int:
    """Tokens that all prompts begin with: the template's system message."""
    for i, column in enumerate(zip(*prompts, strict=False)):
        if len(set(column)) > 1:
            return i
    return min(map(len, prompts)) - 1


def _alike(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))
