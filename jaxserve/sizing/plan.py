"""What is left to measure, as commands that run as they stand."""

from __future__ import annotations

import math
import shlex
from typing import NamedTuple

from jaxserve.scheduling.registry import takes
from jaxserve.sizing.study import Study
from jaxserve.values import DTYPES
from models.config.presets import PRESETS

URL = "http://127.0.0.1:8000"  # of a server that was started apart
RISING = (0.5, 0.75, 1.0, 1.25)  # rates of the open loop, of the one that was asked for


class Command(NamedTuple):
    """One command: what it is for, its words, and the file that takes its output."""

    purpose: str
    words: tuple[str, ...]
    file: str

    @property
    def text(self) -> str:
        """For a shell."""
        return f"{shlex.join(self.words)} > {self.file}"


def commands(found: Study) -> list[Command]:
    """Closed loop, open loops at rising rates for each cap, and the search for saturation; none where every candidate is ruled out."""
    if not found.open:
        return []
    cap, slo, count = max(found.open), _slo(found), found.asked.requests
    size = ("--requests", str(count), "--warmup", str(count // 5), "--seed", str(found.asked.seed))
    head, lengths = ("python", "-m", "jaxserve.load"), _lengths(found)
    closed = ("--clients", ",".join(map(str, found.clients)))
    plan = [
        Command(
            f"closed loop: {', '.join(map(str, found.clients))} clients that each wait for their answer; cap {cap}",
            (*head, *_server(found, cap), *closed, *lengths, *size, "--slo", slo, "--json"),
            f"closed-{cap}.json",
        )
    ]
    rates = ",".join(f"{rate:.4g}/s" for rate in _rates(found))
    for each in found.open:
        plan.append(
            Command(
                f"open loop: Poisson arrivals at rising rates, P50, P95 and P99 of TTFT and ITL; cap {each}",
                (
                    *head,
                    *_server(found, each),
                    "--arrivals",
                    "poisson",
                    "--rate",
                    rates,
                    *lengths,
                    *size,
                    "--slo",
                    slo,
                    "--json",
                ),
                f"open-{each}.json",
            )
        )
    begin = f"{found.traffic.rate:.4g}/s"
    plan.append(
        Command(
            f"the arrival rate at which the SLO breaks, and the admission limit that follows from it; cap {cap}",
            (
                *head,
                *_server(found, cap),
                "--arrivals",
                "poisson",
                "--rate",
                begin,
                *lengths,
                *size,
                "--slo",
                slo,
                "--saturate",
                "--json",
            ),
            f"saturation-{cap}.json",
        )
    )
    return plan


def needs_server(found: Study) -> bool:
    """The engine of this project runs on one chip, in 16 or 32 bits, some architectures; whatever else is meant is measured over HTTP."""
    formats = {found.asked.dtype, found.asked.kv_dtype or found.asked.dtype}
    return found.placement.degree > 1 or found.chosen.config is None or not formats <= set(DTYPES)


def _server(found: Study, cap: int) -> tuple[str, ...]:
    """Who is measured. A server over HTTP has its cap from whoever started it."""
    asked = found.asked
    if needs_server(found):
        return ("--url", URL)
    name = f"random:{found.chosen.name}" if found.chosen.name in PRESETS else asked.model
    policy = (
        "--policy",
        asked.policy[0],
        *(("--budget", str(max(asked.budget, cap))) if takes(asked.policy[0], "budget") else ()),
    )
    kv = ("--kv-dtype", asked.kv_dtype) if asked.kv_dtype else ()
    memory = (
        "--rows",
        str(cap),
        "--context",
        str(found.context),
        "--page-size",
        str(asked.page),
        "--pages",
        str(found.pool.usable),
    )
    return ("--model", name, "--dtype", asked.dtype, *kv, *policy, *memory)


def _lengths(found: Study) -> tuple[str, ...]:
    asked = found.asked
    if asked.trace is not None:
        return ("--trace", str(asked.trace), "--length-scale", f"{asked.length_scale:g}")
    request = found.traffic.requests[0]
    return ("--prompt", str(len(request.prompt)), "--output", str(request.limit))


def _rates(found: Study) -> list[float]:
    """Rising: around what was asked for, and on both sides of where the simulation breaks."""
    rates = [found.traffic.rate * part for part in RISING]
    if found.limit is not None and found.limit.above < math.inf:
        rates += [rate for rate in (found.limit.rate, found.limit.above) if rate]
    return sorted(set(rates))


def _slo(found: Study) -> str:
    return ",".join(f"{metric}-p{q:g}={limit * 1e3:g}ms" for metric, q, limit in found.asked.slo.limits())
