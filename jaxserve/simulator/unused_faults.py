"""Whether a fault came to anything: one that is due when all is over has changed no figure, and whoever asked for it has to know."""

from __future__ import annotations

from collections.abc import Mapping

from jaxserve.load.record import RequestRecord
from jaxserve.load.served import CANCELLED
from jaxserve.simulator.faults import Fault, Leave, Slow, Stall


def unused_fault_reason(fault: Fault, records: Mapping[int, RequestRecord], steps: int, end: float) -> str:
    """Why not, for people; "" where something did.

    Args:
      records: of all answers, by id.
      steps: plans that were made; end: s, when the last thing happened.
    """
    match fault:
        case Slow(step=int(step)) if step >= steps:
            return f"there were {steps} steps, counted from 0"
        case Slow(at=float(at)) | Stall(at=float(at)) if at >= end:
            return f"all was over at {end:.4g} s"
        case Leave(id=id) if id not in records:
            return "it never came"
        case Leave(id=id) if records[id].reason != CANCELLED:
            return f"its answer was over at {records[id].end:.4g} s, with {records[id].output} tokens"
    return ""
