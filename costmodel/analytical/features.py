"""What a step has to do, as a few figures in which its cost is linear, and what each of them costs.

Bytes and FLOPs of `costmodel.analytical.step.step_cost` are linear in: 1; experts met; tokens; samples; and, for rows that decode and for
pieces of prompts, the tokens that enter the cache and, for each kind of layer, the cached tokens that are read and the pairs of query
and key. Its terms are evaluated with one figure at a time, so the coefficients are exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from costmodel.analytical.attention_terms import attention_terms
from costmodel.analytical.linear_terms import linear_terms
from costmodel.analytical.rows import Rows
from costmodel.analytical.terms import StepCost
from costmodel.arch.architecture import Architecture, Experts
from costmodel.arch.deployment import Deployment, Storage
from costmodel.arch.formats import Format
from costmodel.hardware.chip import Chip, Quantity


class StepFeatures(NamedTuple):
    """What the cost of a step depends on. Numbers, or arrays of them that broadcast.

    Attributes:
      tokens: that are multiplied, padding included.
      samples: tokens after which logits are computed, padding included.
      attention: of rows that decode, then of pieces of prompts: tokens that enter the cache, and then for each kind of layer cached tokens
        that are read and pairs of query and key, see `attended`.
    """

    tokens: Any
    samples: Any
    attention: tuple[Any, ...]


class Coefficients(NamedTuple):
    """Seconds of each figure: of 1, experts met, tokens, samples, and those of attention. Empty where no figure costs any."""

    memory: tuple[float, ...]
    compute: tuple[float, ...]
    link: tuple[float, ...]


def attended(rows: Sequence[tuple[int, int]], windows: Sequence[int | None]) -> list[float]:
    """The figures of attention of rows of (tokens in the cache before, tokens to run); see
    `costmodel.analytical.rows.Rows.cached` and `pairs`.

    Returns:
      Tokens that enter the cache, then cached tokens that are read and pairs for each window.
    """
    sums: list[float] = [sum([count for _, count in rows])]
    for window in windows:
        read = pairs = 0.0
        for start, count in rows:
            if window is None:
                read += start + count
                pairs += count * (start + (count + 1) / 2)
            else:
                read += min(start + count, window + count - 1)
                short = min(max(window - start, 0), count)
                pairs += short * (start + (short + 1) / 2) + (count - short) * window
        sums += [read, pairs]
    return sums


def coefficients(
    architecture: Architecture,
    chip: Chip,
    *,
    dtype: str | Format | Mapping[str, str | Format] = "bfloat16",
    kv_dtype: str | Format | None = None,
    tensor_parallel: int = 1,
) -> Coefficients:
    """Those of a model on a chip. A cache format may have a scale for each token, or for none; not for several tokens.

    Args:
      dtype, kv_dtype, tensor_parallel: as of `step_cost`.

    Raises:
      UserError: as `step_cost`.
    """
    windows = tuple(dict.fromkeys(architecture.windows))
    width = 1 + 2 * len(windows)
    storage = Storage.of(dtype, kv_dtype)

    def roofs(figures: Sequence[float]) -> list[tuple[float, float, float]]:
        """(memory, compute, link) seconds of each term, of experts met, tokens, samples, and the figures of attention."""
        met, tokens, samples, *attention = figures
        model = architecture
        if model.experts is not None:
            model = dataclasses.replace(model, experts=_Met(**dataclasses.asdict(model.experts), met=met))
        held = Deployment(model, storage, tensor_parallel)
        decode, prompts = attention[:width], attention[width:]
        rows = (
            _Given.of([0.0] * width, windows, tokens=tokens, samples=samples, empty=True),
            _Given.of(decode, windows, decoding=True),
            _Given.of(prompts, windows, decoding=False),
        )
        found = []
        for term in (*linear_terms(held, rows), *attention_terms(held, rows)):
            cost = StepCost((term,), 0.0, 0.0, chip)
            found.append((float(cost.memory_seconds()), float(cost.compute_seconds()), float(cost.link_seconds())))
        return found

    count = 3 + 2 * width
    nothing = roofs([0.0] * count)
    each = [[sum(term[k] for term in nothing) for k in range(3)]]
    for i in range(count):
        some = roofs([float(j == i) for j in range(count)])
        # Term by term, so that what does not depend on the figure cancels to nothing.
        each.append([sum(a[k] - b[k] for a, b in zip(some, nothing, strict=True)) for k in range(3)])
    for entering in (4, 4 + width):  # tokens that enter the cache were counted among those that are multiplied too
        each[entering] = [a - b for a, b in zip(each[entering], each[2], strict=True)]
    found = [tuple(figure[k] for figure in each) for k in range(3)]
    return Coefficients(*(one if any(one) else () for one in found))


@dataclasses.dataclass(frozen=True)
class _Met(Experts):
    """Experts of which so many are met, whatever the tokens."""

    met: float = 0.0

    def distinct(self, tokens: Quantity) -> Quantity:
        return self.met


@dataclasses.dataclass(frozen=True)
class _Given(Rows):
    """Rows of which the figures are given, and not worked out from lengths."""

    of_tokens: float = 0.0
    of_samples: float = 0.0
    read: Mapping[int | None, float] = dataclasses.field(default_factory=dict)
    paired: Mapping[int | None, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        attention: Sequence[float],
        windows: Sequence[int | None],
        *,
        tokens: float = 0.0,
        samples: float = 0.0,
        decoding: bool = True,
        empty: bool = False,
    ) -> _Given:
        """`attention` as `attended` gives it; `tokens` are multiplied beside those that enter the cache."""
        entering, *figures = attention
        read, paired = dict(zip(windows, figures[::2], strict=True)), dict(zip(windows, figures[1::2], strict=True))
        return cls(1.0, 0.0, entering, False, False, decoding, empty, tokens + entering, samples, read, paired)

    @property
    def tokens(self) -> Quantity:
        return self.of_tokens

    @property
    def samples(self) -> Quantity:
        return self.of_samples

    def cached(self, window: int | None) -> Quantity:
        return self.read[window]

    def pairs(self, window: int | None) -> Quantity:
        return self.paired[window]
