"""How steady a clock was: what repeated times of the same programs say of the machine, and not of any model of it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Noise(NamedTuple):
    """Of programs that were measured in rounds, each once a round.

    Attributes:
      halves: by how much medians of odd rounds differ from those of even rounds, in the median over programs, as a share.
        Medians of all rounds are known to about half of that, and no model of them can be better.
      single: by how much one time strays from the median of its program, in the median over all times, as a share.
      drift: sd of the logarithm of the machine's speed, from one round to another: of the median over all programs of a round.
    """

    halves: float
    single: float
    drift: float

    @property
    def floor(self) -> float:
        """To what share a median of all rounds is known: sd of the difference of two halves is twice that of the whole."""
        return self.halves / 2


def noise(seconds: Any) -> Noise:
    """Of times f64 [rounds, programs], s; two rounds at least."""
    logs = np.log(np.asarray(seconds, float))
    off = logs - np.median(logs, axis=0)
    halves = np.abs(np.median(logs[::2], axis=0) - np.median(logs[1::2], axis=0))
    return Noise(float(np.median(halves)), float(np.median(np.abs(off))), float(np.median(off, axis=1).std(ddof=1)))


def another_minute(logs: Any, minutes: Any, drift: float) -> tuple[np.ndarray, float]:
    """(errors within one minute, f64 [steps], sd of the logarithm that another minute adds): for `Calibration`.

    Each minute's median is taken away, and the mean of these medians is what all share. The sd by which minutes differ is theirs or
    `drift`, whichever is larger: they are few, and a round is longer than they are. It counts once for the minute that is predicted,
    and once, over the root of their number, for that mean.

    Args:
      logs: log(measured / predicted), f64 [steps].
      minutes: what was measured in one go, [steps].
      drift: see `Noise`.
    """
    found, labels = np.array(logs, float), np.asarray(minutes)
    middles = []
    for label in dict.fromkeys(labels.tolist()):
        here = labels == label
        middles.append(float(np.median(found[here])))
        found[here] -= middles[-1]
    apart = float(np.std(middles, ddof=1)) if len(middles) > 1 else 0.0
    return found + float(np.mean(middles)), max(drift, apart) * math.sqrt(1 + 1 / len(middles))
