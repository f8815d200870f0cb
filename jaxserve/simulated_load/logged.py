"""A real run from its step log, simulated again: its policy, memory, requests and step times, and so its plans and token times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxserve.load.measure import Bar
from jaxserve.load.recorder import Recorder, RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.slo import SLO
from jaxserve.reporting.virtual_steps import VirtualSteps
from jaxserve.scheduling.names import memory_json, policy_json
from jaxserve.scheduling.observer import Observers
from jaxserve.simulated_load.run import TARGET, totals_of
from jaxserve.simulator.recorded import Recording
from jaxserve.simulator.run import simulate
from jaxserve.sizing.trial import BatchOccupancy
from jaxserve.version import version
from models.errors import UserError


def run_log(path: Path, slo: SLO | None, warmup: int, bar: Bar, *, priced: bool = False, own: str | None = None) -> Run:
    """Simulate the run of a log. Its times are from the arrival of its first request.

    Args:
      warmup: so many requests first, which are in no figure.
      priced: keep every step for a report's pictures.

    Raises:
      UserError: as `Recording.read`; no request that is measured.
    """
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    log = Recording.read(path, bar("reading the log, bytes", size), own)
    if not 0 <= warmup < len(log.requests):
        raise UserError(f"{path} has {len(log.requests)} requests, and --warmup {warmup} leaves none to measure; give fewer")
    advance, recorder, occupied = bar("simulating the log, requests", len(log.requests)), Recorder(), BatchOccupancy()
    seen = VirtualSteps()
    watches = Observers(recorder, occupied, *([seen] if priced else []))
    totals = simulate(
        log.policy,
        log.state,
        log.clients,
        log.pace,
        run=log.run,
        cancels=log.cancels,
        served=lambda answer: advance(1),
        watch=watches,
    )
    start = min(request.arrival for _, request in log.requests)
    policy, memories = policy_json(log.policy), [memory_json(worker.memory) for worker in log.state.workers]
    return Run.of(
        [_since(record, start) for record in recorder.records()],
        warmup=warmup,
        witness="simulated",
        settings={
            "load": f"log {path.name}",
            "arrivals": {"kind": "log", "requests": len(log.requests)},
            "target": TARGET,
            "jaxserve": version(),
            "policy": str(policy["name"]),
            "rows": log.policy.limits.rows,
            "scheduling": policy,
            "memories": memories,
            "step_times": {"witness": "measured", "source": f"those of {path.name}"},
            "plans": len(log.digests),
            "faults": [],
            "nothing_came_of": [],
            "totals": totals_of(occupied, totals, since=start),
        },
        warm=0,
        slo=slo,
        steps=tuple(step._replace(at=step.at - start) for step in seen.steps),
        pool=_pool(memories),
    )


def header(run: Run) -> Iterator[str]:
    """What its figures are of, line by line."""
    settings, pool = run.settings, run.pool
    assert pool is not None
    kv = f"KV of {pool.units:,} {'pages' if pool.kind == 'paged' else 'slots'} of {pool.unit} tokens"
    yield f"policy {settings['policy']}: {settings['rows']} sequences at once; {kv}"
    yield f"step times: measured, {settings['step_times']['source']}; times count from when the engine had a request"
    yield f"{settings['plans']:,} plans, each with the hash that the log has; tokens come when they came"


def _pool(memories: Sequence[Mapping[str, Any]]) -> Pool:
    """Of all workers, from what `memory_json` says of each."""
    kind, count, size = ("paged", "pages", "page") if memories[0]["kind"] == "paged" else ("contiguous", "total", "size")
    return Pool(sum(memory[count] for memory in memories), memories[0][size], kind)


def _since(record: RequestRecord, start: float) -> RequestRecord:
    """The same with times from `start` s on."""
    names = ("intended", "sent", "submitted", "ready", "started", "prefilled", "end")
    moved = {name: getattr(record, name) - start for name in names}
    return record._replace(**moved, tokens=tuple(at - start for at in record.tokens))
