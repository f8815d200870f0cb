"""What forms need of NumPy, for plain floats: predictors are asked before every step, and an array of one is slow."""

from __future__ import annotations

import math
from typing import Any


class Scalars:
    """Stands in for the module `numpy` where every feature is one number."""

    ceil = staticmethod(math.ceil)
    maximum = staticmethod(max)
    minimum = staticmethod(min)
    log2 = staticmethod(math.log2)

    @staticmethod
    def asarray(value: Any, kind: type = float) -> Any:
        return kind(value)
