"""One load on the virtual clock, as a run that the tables and the page of the load harness show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from costmodel import endings
from jaxserve.deployment.deployment import Deployment
from jaxserve.deployment.step_times import roofline
from jaxserve.load.recorder import Recorder, RequestRecord
from jaxserve.load.result import Run
from jaxserve.load.spec import Load, LoadSpec
from jaxserve.predict.step_costs import StepCosts
from jaxserve.reporting.virtual_steps import VirtualSteps
from jaxserve.scheduling.names import policy_json, policy_name
from jaxserve.scheduling.observer import Observer, Observers
from jaxserve.simulated_load.fault_text import told
from jaxserve.simulator.clients import Scheduled
from jaxserve.simulator.faults import Burst, Fault, unused_fault_reason
from jaxserve.simulator.run import SimulationResult, simulate
from jaxserve.sizing.trial import BatchOccupancy
from jaxserve.version import version

TARGET = "simulation"  # in place of a server


def run_load(
    deployment: Deployment,
    asked: LoadSpec,
    load: Load,
    part: int,
    faults: Sequence[Fault],
    *,
    ended: Callable[[int], None] = lambda count: None,
    priced: bool = False,
) -> Run:
    """Simulate it. After Ctrl-C or a signal like it it is the run up to then.

    Args:
      part: number of this load among those that are asked.
      ended: told how many requests have just ended.
      priced: keep every step, and what it should move and compute, for a report's pictures; memory grows with them.
    """
    rng, requests, _ = asked.drawn(part)
    policy, state = deployment.make()
    kept: list[RequestRecord] = []

    def over(record: RequestRecord) -> None:
        kept.append(record)
        ended(1)

    recorder, occupied, why, totals = Recorder(over), BatchOccupancy(), "", None
    watches: list[Observer] = [recorder, occupied]
    placement, costs, seen = deployment.placement, None, None
    if priced:
        roof = roofline(placement)
        costs, seen = StepCosts(roof, placement.chip, placement.dtype), VirtualSteps(predictor=roof)
        watches += [costs, seen]
    clients = Scheduled(load.schedule(rng), requests, until=asked.duration)
    try:
        totals = simulate(policy, state, clients, deployment.steps.seconds, faults=faults, watch=Observers(*watches))
    except KeyboardInterrupt as error:
        why = endings.why(error)
    records = [*kept, *recorder.records()]
    return Run.of(
        records,
        warmup=asked.warmup,
        witness="simulated",
        settings={
            **asked.settings(load, part),
            "target": TARGET,
            "jaxserve": version(),
            "model": placement.model.name,
            "chip": f"{placement.degree} x {placement.chip.name}",
            "weights": placement.dtype,
            "kv": placement.kv.name,
            "policy": policy_name(policy),
            "rows": deployment.asked.rows,
            "scheduling": policy_json(policy),
            "prefix_cache": deployment.prefix,
            "step_times": {"witness": deployment.steps.witness, "source": deployment.steps.source},
            "faults": [told(fault) for fault in faults],
            "nothing_came_of": _idle(faults, records, totals),
            "totals": totals_of(occupied, totals),
            **({"programs": costs.to_json()} if costs else {}),
        },
        warm=0,
        complete=not why,
        why=why,
        steady=load.steady and not any(isinstance(fault, Burst) for fault in faults),
        slo=asked.slo,
        steps=tuple(seen.steps) if seen else (),
        pool=deployment.memory,
    )


def _idle(faults: Sequence[Fault], records: Sequence[RequestRecord], found: SimulationResult | None) -> list[str]:
    """Faults of which nothing came, and why, as far as that is known."""
    if found is None:
        return []
    by_id = {record.id: record for record in records}
    why = ((fault, unused_fault_reason(fault, by_id, found.state.steps, found.seconds)) for fault in faults)
    return [f"{told(fault)}, but {each}" for fault, each in why if each]


def totals_of(occupied: BatchOccupancy, found: SimulationResult | None, since: float = 0.0) -> dict[str, Any]:
    """What all steps of a run that began at `since` s came to, plain. found: None of one that was cut short; less is known of it."""
    batch, active = (occupied.batch, occupied.active) if occupied.steps else (None, None)
    known = {
        "steps": occupied.steps,
        "rows": batch._asdict() if batch else None,
        "places": active._asdict() if active else None,
        "most_pages": occupied.pages,
    }
    if found is None:
        return known
    took = found.seconds - since
    return {
        **known,
        "busy": [each / took if took else 0.0 for each in found.busy],
        "preemptions": found.preemptions,
        "ran": found.ran,
        "seconds": took,
    }
