"""A run as it is kept: what was asked, what became of it, and what is known of the server. Reports and experiments read it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from jaxserve.load.little import Little, littles_law
from jaxserve.load.metrics import Summary, summarise
from jaxserve.load.parts import Share, shares
from jaxserve.load.quantiles import plain
from jaxserve.load.recorder import RequestRecord
from jaxserve.load.slo import SLO
from jaxserve.scheduling.step_record import StepRecord
from models.errors import UserError

FORMAT = 1  # of the JSON
WITNESSES = ("measured", "simulated")
_TIMES = ("intended", "sent", "submitted", "ready", "started", "prefilled", "end")  # of a record, that may be nan


class Pool(NamedTuple):
    """The KV memory of all workers. units: pages, or slots; unit: tokens of each; kind: paged or contiguous."""

    units: int
    unit: int
    kind: str = "paged"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a load. Times are s from its start.

    Attributes:
      records: of the measured requests, by id.
      duration: s from `begin` to the end of the last of them.
      witness: "measured" or "simulated".
      settings: what was asked: seed, arrivals, scales, model, policy, ...
      begin: s, when the measured part began: after the warm-up.
      warmup: records of the requests before (and after, where a run is emptied); they are in no figure but the number of open requests.
      warm: prompt tokens whose KV was there before the run began; None where nobody knows.
      complete: everything that was asked was sent and has ended; why: else, what came between.
      steady: arrivals come at one rate.
      slo: what is asked of it; None for nothing.
      steps: of the engine; none of a server that tells nothing.
      pool: None where it is not known.
      programs: names of the buckets that were compiled.
    """

    records: tuple[RequestRecord, ...]
    duration: float
    witness: str
    settings: Mapping[str, Any]
    begin: float = 0.0
    warmup: tuple[RequestRecord, ...] = ()
    warm: int | None = None
    complete: bool = True
    why: str = ""
    steady: bool = True
    slo: SLO | None = None
    steps: tuple[StepRecord, ...] = ()
    pool: Pool | None = None
    programs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.witness not in WITNESSES:
            raise UserError(f"a run's witness is {self.witness!r}; it is {' or '.join(WITNESSES)}")

    @classmethod
    def of(cls, records: Sequence[RequestRecord], *, warmup: int = 0, **fields: Any) -> Self:
        """A run of these records, of which the first `warmup`, by id, are its warm-up."""
        ordered = sorted(records, key=lambda record: record.id)
        before, after = tuple(ordered[:warmup]), tuple(ordered[warmup:])
        begin = max((record.intended for record in before), default=0.0)
        end = max((record.end for record in after if not math.isnan(record.end)), default=begin)
        return cls(after, max(end - begin, 0.0), begin=begin, warmup=before, **fields)

    @functools.cached_property
    def summary(self) -> Summary:
        return summarise(self.records, duration=self.duration, slo=self.slo, warm=self.warm)

    @functools.cached_property
    def little(self) -> Little:
        """Over the measured part, up to the last arrival."""
        last = max((record.intended for record in self.records), default=self.begin)
        return littles_law((*self.warmup, *self.records), start=self.begin, stop=last, steady=self.steady)

    @property
    def quickest(self) -> float:
        """s of the quickest step; no token can follow another sooner. nan where no steps are known."""
        return min((step.measured for step in self.steps), default=math.nan)

    @functools.cached_property
    def parts(self) -> tuple[Share, ...]:
        """Where TTFT went."""
        return shares(self.records)

    def to_json(self) -> dict[str, Any]:
        """All of it, plain; nan is null."""
        return {
            "format": FORMAT,
            "witness": self.witness,
            "settings": dict(self.settings),
            "complete": self.complete,
            "why": self.why,
            "begin": self.begin,
            "duration": self.duration,
            "warm": self.warm,
            "steady": self.steady,
            "slo": self.slo.to_json() if self.slo else None,
            "summary": self.summary.to_json(),
            "little": self.little.to_json(),
            "ttft_parts": [{"name": p.name, "share": plain(p.share), **p.seconds.to_json()} for p in self.parts],
            "pool": self.pool._asdict() if self.pool else None,
            "programs": list(self.programs),
            "records": list(map(_plain, self.records)),
            "warmup": list(map(_plain, self.warmup)),
            "steps": [step._asdict() for step in self.steps],
        }

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """What `to_json` gave; figures that follow from the records are computed again.

        Raises:
          UserError: it is something else.
        """
        try:
            if given["format"] != FORMAT:
                raise UserError(f"a run in format {given['format']}; this version reads {FORMAT}")
            return cls(
                records=tuple(map(_record, given["records"])),
                duration=given["duration"],
                witness=given["witness"],
                settings=given["settings"],
                begin=given["begin"],
                warmup=tuple(map(_record, given["warmup"])),
                warm=given["warm"],
                complete=given["complete"],
                why=given["why"],
                steady=given["steady"],
                slo=SLO.from_json(given["slo"]) if given["slo"] else None,
                steps=tuple(StepRecord(**{**step, "programs": tuple(step["programs"])}) for step in given["steps"]),
                pool=Pool(**given["pool"]) if given["pool"] else None,
                programs=tuple(given["programs"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"this is no run ({type(error).__name__}: {error}); give what python -m jaxserve.load --json printed"
            ) from None


def _plain(record: RequestRecord) -> dict[str, Any]:
    fields = record._asdict()
    return fields | {name: None for name in _TIMES if math.isnan(fields[name])}


def _record(given: Mapping[str, Any]) -> RequestRecord:
    times = {name: math.nan if given[name] is None else given[name] for name in _TIMES}
    return RequestRecord(**{**given, **times, "tokens": tuple(given["tokens"])})
