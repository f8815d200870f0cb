"""Whether a run found KV that it had not put there: the same load twice is not the same work, and has to say so."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxserve.load.recorder import RequestRecord

_TOKEN = np.dtype(np.uint32)


class Beginnings:
    """Prompts that have been sent, and how much of another one they begin with. Four bytes a token are kept."""

    def __init__(self) -> None:
        self._known: list[
            bytes
        ] = []  # sorted, as bytes: whatever begins alike stands together, so the longest common beginning is a neighbour's

    def add(self, prompt: Sequence[int]) -> int:
        """Tokens at its beginning that some prompt before it begins with as well."""
        tokens = np.asarray(prompt, dtype=_TOKEN).tobytes()
        at = bisect.bisect_left(self._known, tokens)
        shared = max((_common(tokens, other) for other in self._known[max(at - 1, 0) : at + 1]), default=0)
        self._known.insert(at, tokens)
        return shared


def _common(a: bytes, b: bytes) -> int:
    x, y = np.frombuffer(a, _TOKEN), np.frombuffer(b, _TOKEN)
    size = min(len(x), len(y))
    differ = x[:size] != y[:size]
    return int(differ.argmax()) if differ.any() else size


def warm_tokens(records: Iterable[RequestRecord], own: Mapping[int, int]) -> int:
    """Prompt tokens whose KV was there before the run began: what was found beyond what the run itself had sent before.

    Args:
      own: of each request, by id, what it shares with those that were sent before it; see `Beginnings`.
    """
    return sum(max(record.cached - own.get(record.id, 0), 0) for record in records)
