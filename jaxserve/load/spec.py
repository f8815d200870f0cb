"""What a user asks of a load, checked as far as that goes without a server, and the loads that it comes to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.hardware.host import free_memory_bytes
from jaxserve.load.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Replay
from jaxserve.load.schedule import Closed, Open, Schedule
from jaxserve.load.slo import SLO
from jaxserve.load.source import Drawn, Source, Span, Traced
from jaxserve.scheduling.request import Request
from models.errors import UserError, check_count

KINDS = ("poisson", "gamma", "constant", "ramp", "replay")
REQUESTS = 10_000_000  # of a run, and clients
PROMPT, OUTPUT = "128", "64"  # tokens where nothing is said


@dataclasses.dataclass(frozen=True)
class Load:
    """One run that is asked for.

    Attributes:
      name: for people, such as "poisson 5/s" or "32 clients".
      schedule: makes its schedule.
      arrivals: what it is, plain.
      steady: its rate doesn't change.
      clients: of a closed loop; 0 of an open one.
    """

    name: str
    schedule: Callable[[np.random.Generator], Schedule]
    arrivals: dict[str, Any]
    steady: bool = True
    clients: int = 0


@dataclasses.dataclass(frozen=True)
class LoadSpec:
    """Attributes are the options of `python -m jaxserve.load`; None where one was not given.

    Raises:
      UserError: options that contradict each other, or say nothing together.
    """

    rates: tuple[float, ...] | None = None
    clients: tuple[int, ...] | None = None
    arrivals: str | None = None
    burstiness: float | None = None
    to: float | None = None
    over: float | None = None
    think: float | None = None
    trace: Path | None = None
    length_scale: float | None = None
    time_scale: float | None = None
    prompt: str | None = None
    output: str | None = None
    requests: int = 100
    duration: float = math.inf
    warmup: int = 0
    slo: SLO | None = None
    saturate: bool = False
    probes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("requests", self.requests), *(("clients", n) for n in self.clients or ())):
            check_count(f"--{name}", value, least=0, most=REQUESTS, why="what is measured of them is kept in memory")
        if self.requests < 1 or not 0 <= self.warmup < self.requests:
            raise UserError(
                f"{self.requests} requests with {self.warmup} of them to warm up measure nothing; ask for more, or warm up with fewer"
            )
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}; it must be at least 0")
        if self.clients is not None:
            self._none(
                ("rates", "arrivals", "to", "over", "burstiness"),
                "of an open loop, and --clients makes a closed one; leave one of them out",
            )
        else:
            self._none(("think",), "of a closed loop; give --clients as well, or leave it out")
            self._check_open()
        if self.trace is None:
            self._none(("length_scale", "time_scale"), "of a trace; give --trace as well, or leave it out")
        else:
            self._none(
                ("prompt", "output"), "of requests without a trace; leave it out, and take --length-scale to scale the trace"
            )
        if self.clients is not None or self.kind != "replay":
            self._none(("time_scale",), "of the times of a trace, which only --arrivals replay uses; leave it out")
        if self.saturate and (
            self.slo is None or self.clients is not None or self.kind in ("ramp", "replay") or len(self.rates or ()) != 1
        ):
            raise UserError(
                "--saturate looks for the highest rate that meets an SLO; give --slo and one --rate to begin with, of poisson, gamma or "
                "constant arrivals"
            )
        _ = self.source, self.loads  # what is wrong with them is said now
        self._check_memory()

    def _check_memory(self) -> None:
        """Refuse more requests than there is memory to keep what was measured of them."""
        if isinstance(self.source, Drawn):
            requests, tokens = self.requests, self.requests * self.source.output.high
        else:
            answers = [request.limit for request in self.drawn(0)[1]]
            requests, tokens = len(answers), sum(answers)
        check_kept(requests, tokens)

    @property
    def kind(self) -> str:
        """Of arrivals: as asked, or what fits the rest."""
        return self.arrivals or ("replay" if self.rates is None else "poisson")

    def _check_open(self) -> None:
        if self.rates is None and self.trace is None:
            raise UserError("nothing says how requests come; give --rate 5/s, --clients 8, or a --trace to replay")
        if (self.kind == "replay") != (self.rates is None):
            what = "its trace has times of its own; leave --rate out" if self.rates else "it needs --rate, such as 5/s"
            raise UserError(f"arrivals are {self.kind}: {what}")
        if self.kind == "replay" and self.trace is None:
            raise UserError("arrivals are replay, and there is nothing to replay; give --trace")
        if (self.kind == "gamma") != (self.burstiness is not None):
            raise UserError("--burstiness and --arrivals gamma go together; give both or neither")
        if (self.kind == "ramp") != (self.to is not None) or (self.to is None) != (self.over is None):
            raise UserError(
                "--arrivals ramp goes with --rate, --to and --over, such as --rate 1/s --to 20/s --over 60s; give all or none"
            )

    def _none(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise UserError(f"--{'rate' if name == 'rates' else name.replace('_', '-')} is {why}")

    @functools.cached_property
    def source(self) -> Source:
        """What is asked."""
        if self.trace is None:
            prompt, output = Span.parse(self.prompt or PROMPT, "--prompt"), Span.parse(self.output or OUTPUT, "--output")
            return Drawn(prompt, output)
        time, length = (1.0 if scale is None else scale for scale in (self.time_scale, self.length_scale))
        return Traced.read(self.trace, self.requests, time=time, length=length)

    @functools.cached_property
    def loads(self) -> tuple[Load, ...]:
        """Each run, in order; the first one alone where saturation is looked for."""
        if self.clients is not None:
            return tuple(_closed(n, self.think or 0.0) for n in self.clients)
        if self.kind == "replay":
            source = self.source
            assert isinstance(source, Traced)
            return (_open("replay", Replay(tuple(request.arrival for request in source.requests()), source.time)),)
        return tuple(self.at(rate) for rate in self.rates or ())

    def at(self, rate: float) -> Load:
        """The load at another rate, requests a second."""
        process: Arrivals
        match self.kind:
            case "gamma":
                process = Gamma(rate, 1.0 if self.burstiness is None else self.burstiness)
            case "constant":
                process = Constant(rate)
            case "ramp":
                process = Ramp(rate, self.to or 0.0, self.over or 0.0)
            case _:
                process = Poisson(rate)
        return _open(f"{self.kind} {rate:.4g}/s", process)

    def drawn(self, part: int) -> tuple[np.random.Generator, Iterator[Request], int]:
        """(generator of the arrivals, requests, key of the prompts), all from one seeded generator.

        Args:
          part: number of the run: lengths and times are drawn alike in each, so that they can be compared; prompts are others, so that
            none finds the KV of the run before.
        """
        times, lengths, keys = np.random.default_rng(self.seed).spawn(3)
        key = int(keys.integers(2**63, size=part + 1)[part])
        return times, itertools.islice(self.source.requests(lengths), self.requests), key

    def settings(self, load: Load, part: int) -> dict[str, Any]:
        """What a run of one of its loads has in common with others, measured or simulated, for the report; `part` as `drawn` has it."""
        return {"load": load.name, "arrivals": load.arrivals, **self.to_json(), "part": part}

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        limits = {"requests": self.requests, "duration": None if self.duration == math.inf else self.duration}
        return {"seed": self.seed, "source": self.source.to_json(), **limits, "warmup": self.warmup}


def check_kept(requests: int, tokens: int) -> None:
    """Raises UserError where there is not the memory for what is measured of so many requests with so many tokens to follow in all."""
    needed, free = kept_bytes(requests, tokens), free_memory_bytes()
    if needed > free:
        raise UserError(
            f"--requests {requests} with {tokens} tokens to follow needs about {needed / 1e9:.1f} GB to keep what is measured of them, "
            f"but {free / 1e9:.1f} GB are available; ask for fewer requests or shorter answers"
        )


def kept_bytes(requests: int, tokens: int) -> int:
    """B that are taken while so many requests with so many tokens to follow in all are measured and told, an estimate from above.

    Of a token its time (a float in a list that grows, then in a tuple), its gap while percentiles are computed, and its text in JSON; of a
    request its lengths, its record and its share of the tables. Measured: tests/jaxserve/load/test_asked_memory.py.
    """
    return 5000 * requests + 150 * tokens


def _open(name: str, process: Arrivals) -> Load:
    return Load(name, lambda rng: Open(process.times(rng)), process.to_json(), process.steady)


def _closed(clients: int, think: float) -> Load:
    Closed(clients, think)  # says what is wrong with them
    name = f"{clients} client" + "s" * (clients > 1)
    arrivals = {"kind": "closed", "clients": clients, "think": think}
    return Load(name, lambda rng: Closed(clients, think), arrivals, clients=clients)
