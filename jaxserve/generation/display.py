"""How answers are shown while they grow: to people, with a status line where there is a terminal, or to machines, line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from costmodel.terminal.tables import console as standard_output
from jaxserve.engine.request_handle import RequestHandle
from jaxserve.engine.request_output import RequestOutput
from jaxserve.engine.stats import EngineStats
from jaxserve.generation.program_table import programs_table
from jaxserve.generation.progress import Rate
from jaxserve.generation.results import Results
from jaxserve.programs.program_set import Program

EVERY = 0.1  # s between two pictures: reading text costs time that the device may wait for


class Display(Protocol):
    """What a run tells of itself, in this order. A context, within which answers grow."""

    def begin(self, programs: Sequence[Program]) -> None:
        """What was compiled."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> None: ...

    def step(self, status: Callable[[], EngineStats], live: Mapping[RequestHandle, int], tokens: int) -> None:
        """A step brought so many tokens; `live` are requests that have not ended or just have, with their numbers from 0."""

    def ended(self, number: int, completion: RequestOutput) -> None:
        """A request has ended; requests are counted from 0."""

    def end(self, results: Results) -> None:
        """All of it."""


class JsonLines:
    """One object for each request that has ended, and a last one with the summary."""

    def begin(self, programs: Sequence[Program]) -> None:
        """Nothing yet: the summary has it."""

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, status: Callable[[], EngineStats], live: Mapping[RequestHandle, int], tokens: int) -> None:
        """Nothing: a request is written when it has ended."""

    def ended(self, number: int, completion: RequestOutput) -> None:
        print(json.dumps({"request": number, **completion.to_json()}, allow_nan=False), flush=True)

    def end(self, results: Results) -> None:
        print(json.dumps({"summary": results.to_json()}, allow_nan=False), flush=True)


class Printed:
    """For people: answers as they end, and, on a terminal, those that grow above a status line.

    Args:
      console: standard output by default.
      clock: s, for the rate.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic):
        self._console = console or standard_output()
        self._clock, self._rate, self._next = clock, Rate(clock), clock()
        # Not by a thread of its own: it would draw in the middle of a step.
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None

    def begin(self, programs: Sequence[Program]) -> None:
        self._console.print(programs_table(programs))

    def __enter__(self) -> Printed:
        self._rate = Rate(self._clock)
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.update("")
            self._live.__exit__(*error)

    def step(self, status: Callable[[], EngineStats], live: Mapping[RequestHandle, int], tokens: int) -> None:
        self._rate.add(tokens)
        if self._live and self._clock() >= self._next:
            self._next = self._clock() + EVERY
            width = self._console.width
            line = status_line(status(), self._rate.per_second, width)
            most = max(self._console.height - 3 - line.plain.count("\n"), 1)
            lines = [tail(handle, number, i, width) for handle, number in live.items() for i in range(len(handle.answers))]
            growing = [line for line in lines if line][:most]
            self._live.update(Group(*map(Text, growing), line), refresh=True)

    def ended(self, number: int, completion: RequestOutput) -> None:
        self._console.print(Text(f"prompt {number + 1}", "bold"), f"{completion.prompt!r}", markup=False)
        several = len(completion.answers) > 1
        for i, answer in enumerate(completion.answers):
            name = f"answer {i + 1}" if several else "answer"
            ended = f"({answer.finish.reason}, {len(answer.tokens)} tokens)"
            self._console.print(Text(name, "bold"), f"{answer.text!r}", ended, markup=False)

    def end(self, results: Results) -> None:
        self._console.print(f"\n{results.head()}\n", markup=False)
        self._console.print(results.table())


def tail(handle: RequestHandle, number: int, sample: int, width: int) -> str:
    """The last part of an answer that grows, in one line; nothing before it has begun or when it has ended.

    It begins as the answer will be named when it has ended: with the prompt's number from 1, and the sample's if there are several.
    """
    answer = handle.answers[sample]
    if answer.finish or not answer.tokens:
        return ""
    name = f"{number + 1}.{sample + 1} " if len(handle.answers) > 1 else f"{number + 1} "
    room = max(width - len(name), 1)
    text = repr(answer.text)[1:-1][-room:]  # a model may draw what a terminal would obey
    while cell_len(text) > room:  # some characters are two cells wide
        text = text[1:]
    return name + text


def status_line(status: EngineStats, rate: float, width: int) -> Text:
    """Counts at this moment, and tokens a second over the last few; in as many lines as it takes."""
    share = f" ({status.pages / status.total_pages:.0%})" if status.total_pages else ""
    parts = [
        f"running {status.running}",
        f"waiting {status.waiting}",
        f"pages {status.pages} of {status.total_pages}{share}",
        f"{status.drawn} tokens",
        f"{rate:,.0f} tokens/s",
    ]
    if (accepted := status.acceptance.rate) is not None:
        parts.append(f"drafts accepted {accepted:.0%}")
    lines = parts[:1]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return Text("\n".join(lines), "bold")
