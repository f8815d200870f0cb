"""Runs that are made up, from one seed, so that every figure of the page has something to show. No engine, no clock."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxserve.load.recorder import RequestRecord
from jaxserve.load.result import Pool, Run
from jaxserve.load.slo import SLO
from jaxserve.scheduling.step_record import StepRecord

CHIP = {"name": "made up", "source": "made up", "bandwidth": 20e9, "peak": 150e9, "dtype": "float32"}
DECODE, MIXED = ("decode 16",), ("decode 16", "prefill 4x64")


def records(count: int = 300, *, seed: int = 0, told: bool = True) -> list[RequestRecord]:
    """Requests at 5/s, a few of which fail. told: the server tells what it did with them."""
    draw, found, due = np.random.default_rng(seed), list[RequestRecord](), 0.0
    for id in range(count):
        due += float(draw.exponential(0.2))
        waits = draw.exponential([0.0005, 0.001, 0.002, 0.15 if id % 10 else 1.5, 0.08, 0.0003])
        sent, submitted, ready, started, prefilled, first = np.cumsum([due, *waits])[1:].tolist()
        gaps = draw.exponential(0.02, size=int(draw.integers(1, 40))) + (draw.random() < 0.1) * 0.05
        tokens = tuple((first + np.concatenate([[0.0], np.cumsum(gaps)])).tolist())
        prompt = int(draw.integers(10, 400))
        record = RequestRecord(id, due, sent, submitted, ready, started, prefilled, tokens, tokens[-1], prompt, len(tokens))
        if id % 50 == 49:
            record = record._replace(tokens=(), output=0, end=sent + 0.01, reason="failed", error="it went away")
        if id % 50 == 49 or not told:
            record = record._replace(submitted=math.nan, ready=math.nan, started=math.nan, prefilled=math.nan)
        found.append(record)
    return found


def steps(until: float, *, seed: int = 0) -> list[StepRecord]:
    """Of an engine that now and then runs prompts beside its decodes."""
    draw, found, at, pages = np.random.default_rng(seed), list[StepRecord](), 0.0, 20
    while at < until:
        prefill = int(draw.integers(32, 256)) if draw.random() < 0.2 else 0
        rows = int(draw.integers(4, 17))
        said = 0.02 + 1e-4 * prefill
        took = said * float(draw.lognormal(0.15, 0.1))
        at += took + 0.001
        pages = int(np.clip(pages + draw.integers(-8, 9), 0, 512))
        programs = MIXED if prefill else DECODE
        found.append(
            StepRecord(
                len(found),
                0,
                "",
                programs,
                rows + bool(prefill),
                16 - rows,
                prefill,
                rows,
                0,
                rows,
                pages,
                said,
                took,
                0.001,
                at,
            )
        )
    return found


def made(name: str, *, seed: int = 0, inside: bool = True, count: int = 300, complete: bool = True) -> Run:
    """A run. inside: with all that an engine in this process tells; else as of a server elsewhere."""
    asked = records(count, seed=seed, told=inside)
    settings: dict[str, Any] = {"name": name, "arrivals": {"kind": "poisson", "rate": 5.0}, "seed": seed, "date": "2026-01-31"}
    ran = steps(max(record.end for record in asked), seed=seed) if inside else []
    if inside:
        costs = [(kind, sum(step.programs == kind for step in ran)) for kind in (DECODE, MIXED)]
        sums = [
            {"programs": list(kind), "steps": count, "bytes": count * moved, "flops": count * flops}
            for (kind, count), moved, flops in zip(costs, (300e6, 400e6), (1e9, 4e9), strict=True)
        ]
        compiled = [{"program": "decode 16", "width": 32, "flops": 1.1e9, "bytes": 350e6, "loops": 30}]
        settings["programs"] = {"chip": CHIP, "steps": sums, "compiled": compiled}
    return Run.of(
        asked,
        witness="measured",
        settings=settings,
        warm=0 if inside else None,
        complete=complete,
        why="" if complete else "interrupted",
        slo=SLO(ttft={95: 0.25}, itl={95: 0.05}),
        steps=tuple(ran),
        pool=Pool(512, 16) if inside else None,
    )
