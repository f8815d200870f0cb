"""What the host knows of the rows that run, as arrays: a step is packed by taking lines of them, not by asking row after row.

A row has a seat from its first plan until it ends or is preempted. Its line holds its tokens, its page table and its settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jaxserve.programs.step import STOPS
from jaxserve.sampling_params import SamplingParams

NOBODY = -1

# All of 32 bits, so that the settings of a row are one column of bits and those of many rows one gather.
_SETTINGS = {"temperature": np.float32, "top_k": np.int32, "top_p": np.float32, "min_p": np.float32, "seed": np.uint32}


def tokens_seen(bits: np.ndarray) -> dict[str, np.ndarray]:
    """The settings in u32 [settings, n], by name, [n] in their own types: views, no copies."""
    return {name: line.view(dtype) for (name, dtype), line in zip(_SETTINGS.items(), bits, strict=True)}


class InputBatch:
    """Lines of rows.

    Attributes:
      tokens: i32 [seats, context + 1], by position, as far as they are known.
      tables: i32 [seats, width]; `units` where there is no page.
      stops: i32 [seats, STOPS], -1 where there is none.
      settings: by name, [seats], views of `bits`; see `RowSampling`.
      bits: u32 [settings, seats], what they are made of.
      owner: i64 [seats], the row's id, NOBODY where it is free.
    """

    def __init__(self, context: int, width: int, units: int):
        self._units = units
        self.tokens = np.zeros((0, context + 1), np.int32)
        self.tables = np.zeros((0, width), np.int32)
        self.stops = np.zeros((0, STOPS), np.int32)
        self.bits = np.zeros((len(_SETTINGS), 0), np.uint32)
        self.settings = tokens_seen(self.bits)
        self.owner = np.zeros(0, np.int64)
        self._of: dict[int, int] = {}
        self._free: list[int] = []

    def __contains__(self, id: int) -> bool:
        return id in self._of

    def __len__(self) -> int:
        return len(self._of)

    def of(self, ids: Iterable[int]) -> np.ndarray:
        """The seats of rows that have one, i64 [n]."""
        return np.array([self._of[id] for id in ids], np.int64)

    def take(self, id: int, tokens: Sequence[int], params: SamplingParams, stops: Iterable[int]) -> None:
        """Seat a row with the tokens that are known of it."""
        if not self._free:
            self._grow()
        seat = self._of[id] = self._free.pop()
        self.owner[seat] = id
        self.tokens[seat, : len(tokens)] = tokens
        self.stops[seat] = -1
        some = sorted(stops)[:STOPS]
        self.stops[seat, : len(some)] = some
        for name, column in self.settings.items():
            column[seat] = min(getattr(params, name) or 0, 2**31 - 1) if name == "top_k" else getattr(params, name) or 0

    def leave(self, id: int) -> None:
        """The row's seat is free; nothing happens if it has none."""
        seat = self._of.pop(id, None)
        if seat is not None:
            self.owner[seat] = NOBODY
            self._free.append(seat)

    def show(self, id: int, table: Sequence[int], first: int) -> None:
        """A row's table differs from entry `first` on."""
        line = self.tables[self._of[id]]
        line[first : len(table)] = table[first:]
        line[len(table) :] = self._units

    def learn(self, owners: np.ndarray, seats: np.ndarray, at: np.ndarray, drawn: np.ndarray) -> None:
        """Tokens that rows drew; a row that has left its seat meanwhile is passed over.

        Args:
          owners, seats: [n], as they were when the step was packed.
          at: [n], position of each one's first drawn token.
          drawn: i32 [n, tokens]; what stands after a row's end does no harm.
        """
        here = self.owner[seats] == owners
        if not here.all():
            seats, at, drawn = seats[here], at[here], drawn[here]
        self.tokens[seats, at] = drawn[:, 0]
        for i in range(1, drawn.shape[1]):
            self.tokens[seats, np.minimum(at + i, self.tokens.shape[1] - 1)] = drawn[:, i]

    def tell(self, id: int, at: int, tokens: Sequence[int]) -> None:
        """Tokens of a row from position `at` on, as far as it has a seat."""
        seat = self._of.get(id)
        if seat is not None:
            self.tokens[seat, at : at + len(tokens)] = tokens

    def _grow(self) -> None:
        old = len(self.owner)
        more = max(old, 8)

        def longer(array: np.ndarray, fill: int = 0) -> np.ndarray:
            return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])

        self.tokens, self.stops = longer(self.tokens), longer(self.stops, -1)
        self.tables, self.owner = longer(self.tables, self._units), longer(self.owner, NOBODY)
        self.bits = np.ascontiguousarray(longer(self.bits.T).T)
        self.settings = tokens_seen(self.bits)
        self._free += range(old + more - 1, old - 1, -1)
