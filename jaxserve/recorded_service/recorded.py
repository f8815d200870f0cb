"""A folder with the recording of a service: what it was asked, when it answered, and how it was set up.

* `requests.jsonl`: an object a line with request_id, input_toks, output_toks, and queued_ts, scheduled_ts, first_token_ts,
  last_token_ts in s on one clock.
* `meta.json`: of vLLM: the model, the engine's arguments, the KV pages and the GPU, where the recorder wrote them down.
* `peer_simulator_summary.txt`: what another simulator makes of the same run, in ms; it may be absent.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UserError
from models.files.json_text import parse_json, read_object
from models.files.reading import read_text

REQUESTS, META, PEER = "requests.jsonl", "meta.json", "peer_simulator_summary.txt"
_WHAT = f"give a folder with {REQUESTS} and {META}"
_TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")


class Served(NamedTuple):
    """One request. Times are s after the first request was queued.

    Attributes:
      name: its request_id.
      prompt, output: tokens.
      queued: when the scheduler had it; scheduled: when it was first given a step.
      first, last: when its first and its last token were known.
    """

    name: str
    prompt: int
    output: int
    queued: float
    scheduled: float
    first: float
    last: float

    @property
    def ttft(self) -> float:
        """s from the queue to the first token."""
        return self.first - self.queued

    @property
    def tpot(self) -> float:
        """s a token after the first; nan for an answer of one token."""
        return (self.last - self.first) / (self.output - 1) if self.output > 1 else math.nan

    @property
    def e2e(self) -> float:
        """s from the queue to the last token."""
        return self.last - self.queued


class Recorded(NamedTuple):
    """A recorded service.

    Attributes:
      name: of the folder.
      requests: in the order in which they were queued.
      meta: as it stands in the file.
      peer: by how much another simulator is off, as a share, by metric and statistic: (TTFT, Mean); empty where there is none.
    """

    name: str
    requests: tuple[Served, ...]
    meta: Mapping[str, Any]
    peer: Mapping[tuple[str, str], float]


def read(folder: Path) -> Recorded:
    """All of a folder.

    Raises:
      UserError: a file is missing or can't be read; a line or a field is not what it should be: file and line are named.
    """
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is no folder; give one with {REQUESTS} and {META}")
    requests = sorted(_requests(folder / REQUESTS), key=lambda request: request.queued)
    if not requests:
        raise UserError(f"{folder / REQUESTS} holds no request; give at least one")
    zero = requests[0].queued
    shifted = tuple(
        r._replace(queued=r.queued - zero, scheduled=r.scheduled - zero, first=r.first - zero, last=r.last - zero)
        for r in requests
    )
    peer = folder / PEER
    return Recorded(folder.resolve().name, shifted, _meta(folder / META), _peer(peer) if peer.exists() else {})


def _requests(path: Path) -> Iterator[Served]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            try:
                yield _request(parse_json(line))
            except (ValueError, TypeError, KeyError) as error:
                what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise UserError(
                    f"{path} line {number}: {what}; give lines as vLLM's per-request recorder writes them"
                ) from None


def _request(given: Any) -> Served:
    if not isinstance(given, dict):
        raise ValueError(f"it holds a JSON {type(given).__name__}, not an object")
    sizes = []
    for name in ("input_toks", "output_toks"):
        size = given[name]
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} is {size!r}, not a number of at least 1")
        sizes.append(size)
    times = []
    for name in _TIMES:
        at = given[name]
        if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
            raise ValueError(f"{name} is {at!r}, not seconds")
        times.append(float(at))
    for (early, before), (late, after) in itertools.pairwise(zip(_TIMES, times, strict=True)):
        if after < before:
            raise ValueError(f"{late} is {before - after:g} s before {early}")
    return Served(str(given["request_id"]), *sizes, *times)


def _meta(path: Path) -> Mapping[str, Any]:
    return read_object(path, fix=_WHAT, strict=False)


def _peer(path: Path) -> dict[tuple[str, str], float]:
    """Lines such as `TTFT Mean  65456.6  65820.2  +0.6%`: what was recorded and what was simulated, ms, and the error.

    Theirs is taken, which they worked out before they rounded the times: of 32.4 and 32.5 ms one would make 0.3 % of their 0.2 %.
    """
    found = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.split()
        if len(words) != 5 or words[0] == "Metric":
            continue
        try:
            found[words[0], words[1]] = float(words[4].removesuffix("%")) / 100 + 0.0  # no -0
        except ValueError:
            raise UserError(f"{path} line {number}: {words[4]} is no error in percent, such as +0.6%") from None
    return found


def _text(path: Path) -> str:
    return read_text(path, fix=_WHAT)
