"""A run of the load harness, held against the SLO of a study: the witness that decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from costmodel.sizing import MEASURED, Demand, Verdict
from jaxserve.load.metrics import summarise
from jaxserve.load.result import Run
from jaxserve.load.slo import SLO
from models.errors import UserError
from models.files.json_text import read_json
from models.files.reading import LARGEST

RANDOM = "random:"  # before the shape of a model whose weights were drawn
ON_CPU = ", cpu,"  # within the name of a machine without an accelerator (`costmodel.hardware.host.host_key`)
ALIKE = 0.05  # of a rate or a length, within which two loads are the same
_WHAT = "give what python -m jaxserve.load --json printed"


class Measured(NamedTuple):
    """A measured run, and the cap on active sequences that its engine had."""

    path: Path
    run: Run
    cap: int

    @classmethod
    def read(cls, text: str) -> tuple[Measured, ...]:
        """All runs of a file, as `python -m jaxserve.load --json` printed them.

        Args:
          text: its path; with the cap before it, as 128=run.json, where the server did not tell it.

        Raises:
          UserError: it can't be read, is none, was simulated, holds nothing, or nothing says its engine's cap.
        """
        before, equals, after = text.partition("=")
        said = int(before) if equals and before.isdecimal() else None
        path = Path(after if said is not None else text)
        given = read_json(path, name=f"--measured {path}", fix=_WHAT, most=LARGEST)
        try:
            runs = [Run.from_json(each) for each in _runs(given)]
        except UserError as error:
            raise UserError(f"--measured {path}: {error}") from None
        return tuple(cls._of(path, run, said) for run in runs)

    @classmethod
    def _of(cls, path: Path, run: Run, said: int | None) -> Measured:
        if run.witness != "measured":
            raise UserError(f"--measured {path} is of a run that was {run.witness}; {_WHAT}")
        if not run.records:
            raise UserError(f"--measured {path} has a run without a request; {_WHAT}")
        cap = run.settings.get("rows") if said is None else said
        if type(cap) is not int:
            raise UserError(f"--measured {path} does not say how many sequences its server ran at once; say it, as 128={path}")
        return cls(path, run, cap)

    @property
    def load(self) -> str:
        return str(self.run.settings.get("load", "a load"))

    def elsewhere(self, model: str, chip: str) -> str:
        """Why it says nothing of this model on this chip, in words; "" where nothing is known against it.

        What an engine of ours was given and ran on is known; what a server at a URL is, only its user knows.
        """
        ran, device = (str(self.run.settings.get(key) or "") for key in ("model", "device"))
        if self.run.settings.get("target") != "engine":
            return ""
        if ran.startswith(RANDOM) and ran.removeprefix(RANDOM) != model:
            return f"an engine of {ran}, and the study is of {model}"
        if ON_CPU in device and device != chip:
            return f"an engine on {device}, and the study is of {chip}"
        return ""

    def foreign(self, rate: float, demand: Demand) -> str:
        """Why it says nothing of this traffic, in words; "" where it was measured under the like of it.

        The same open-loop rate and mean lengths, each within `ALIKE`. A closed loop has no rate of its own.
        """
        arrivals = self.run.settings.get("arrivals") or {}
        records = [record for record in self.run.records if record.answered]
        if arrivals.get("kind") == "closed":
            return "a closed loop, which has no rate of its own"
        if arrivals.get("kind") != "replay" and not _near(arrivals.get("rate"), rate):
            return f"another rate than {rate:.4g}/s"
        for name, wanted in (("prompt", demand.prompt), ("output", demand.answer)):
            mean = sum(getattr(record, name) for record in records) / len(records) if records else 0.0
            if not _near(mean, wanted):
                return f"{name}s of {mean:,.0f} tokens on average and not {wanted:,.0f}"
        return ""

    def verdict(self, slo: SLO) -> Verdict:
        """Measured; whether that keeps the SLO stands in the reason."""
        found = summarise(self.run.records, duration=self.run.duration, slo=slo, warm=self.run.warm)
        said = [f"{v.name} {v.found * 1e3:,.1f} ms of {v.limit * 1e3:g} ms: {v.word}" for v in found.verdicts]
        partial = "" if self.run.complete else f"; partial: {self.run.why}"
        return Verdict(MEASURED, f"{self.load}, {found.requests} requests ({self.path.name}): {', '.join(said)}{partial}")


def _near(value: Any, wanted: float) -> bool:
    return isinstance(value, (int, float)) and abs(value - wanted) <= ALIKE * wanted


def _runs(given: Any) -> list[Any]:
    """A file holds one run, or several."""
    if isinstance(given, dict) and "runs" in given:
        given = given["runs"]
    return given if isinstance(given, list) else [given]
