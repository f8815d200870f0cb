"""Records as tests need them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxserve.load.recorder import RequestRecord


def record(id: int = 0, intended: float = 0.0, tokens: Sequence[float] = (), **fields: Any) -> RequestRecord:
    """A request whose server tells nothing of its inside. It was sent when it was due, and ended with its last token."""
    nan = math.nan
    given: dict[str, Any] = {
        "sent": intended,
        "submitted": nan,
        "ready": nan,
        "started": nan,
        "prefilled": nan,
        "end": tokens[-1] if tokens else intended,
        "prompt": 8,
        "output": len(tokens),
    }
    return RequestRecord(id=id, intended=intended, tokens=tuple(tokens), **{**given, **fields})


def served(id: int, intended: float, stay: float, **fields: Any) -> RequestRecord:
    """A request that is answered with one token after so many seconds."""
    return record(id, intended, (intended + stay,), **fields)
