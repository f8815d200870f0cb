"""A run for people: tables with every figure's witness, and footnotes that say what each means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console

from costmodel.terminal.tables import Table
from jaxserve.load.metrics import CHUNKED, DEFINITIONS
from jaxserve.load.quantiles import PERCENTS, Quantiles
from jaxserve.load.result import Run
from jaxserve.load.saturation import Saturation

NAMES = {
    "ttft": "TTFT, ms",
    "itl": "ITL, ms",
    "tpot": "TPOT, ms",
    "e2e": "E2E, ms",
    "queue": "queue, ms",
    "client_delay": "client delay, ms",
}
_FLAG = "*"  # of a percentile that the sample is too small for
_CHUNKS = "†"  # of figures in which some answers' chunks count as tokens


def show(console: Console, runs: Sequence[Run], saturation: Saturation | None = None, more: Sequence[Table | str] = ()) -> None:
    """Everything, on a console. more: of whoever asks, to stand before the footnotes."""
    shown: list[Table | str] = [part for run in runs for part in ("", *tables(run))]
    if len(runs) > 1:
        shown.append(comparison(runs))
    if saturation is not None:
        shown += [probes(saturation), saturation.verdict]
    shown += more
    for part in shown:
        console.print(part, markup=False)  # what a server says is no markup
    console.print(*footnotes(runs), sep="\n", style="dim", markup=False)


def tables(run: Run) -> Iterator[Table | str]:
    """Of one run."""
    yield headline(run)
    if not run.complete:
        yield f"INCOMPLETE: {run.why}; these are the results up to then"
    yield latencies(run)
    yield counts(run)
    if run.summary.verdicts:
        yield verdicts(run)
    if run.parts:
        yield parts(run)
    yield little(run)


def headline(run: Run) -> str:
    """What was run, in a line."""
    known = (run.settings.get(key) for key in ("load", "target", "model", "policy"))
    return ", ".join(str(each) for each in known if each) + f" ({run.witness})"


def latencies(run: Run) -> Table:
    """Every metric, with percentiles and their intervals."""
    table = _table(
        f"Latencies ({run.witness})", "", "n", "mean", *(f"P{q}" for q in PERCENTS), "most", f"P95 interval, {0.95:.0%}"
    )
    for name, title in NAMES.items():
        each: Quantiles = getattr(run.summary, name)
        mark = _mark(run) if name == "tpot" else ""
        table.add_row(title + mark, str(each.n), _ms(each.mean), *_points(each), _ms(each.most), _interval(each.intervals[95]))
    return table


def counts(run: Run) -> Table:
    """What became of requests, and rates."""
    s = run.summary
    table = _table("Requests", "what", "how much", "witness")
    table.add_row(
        "requests", f"{s.requests}; " + ", ".join(f"{reason} {n}" for reason, n in sorted(s.counts.items())), "counted"
    )
    if run.warmup:
        table.add_row("warm-up, in no figure", f"{len(run.warmup)} requests before {run.begin:.3g} s", "counted")
    if s.empty or s.single:
        table.add_row("answers without a token, of one token", f"{s.empty}, {s.single}", "counted")
    errors = {record.error: 0 for record in run.records if record.error}
    for record in run.records:
        if record.error:
            errors[record.error] += 1
    for error, n in list(errors.items())[:5]:
        table.add_row(f"said of {n}", error, "counted")
    table.add_row(
        "tokens of prompts, found cached, of answers",
        f"{s.prompt_tokens}, {s.cached_tokens}, {s.output_tokens}{_mark(run)}",
        "counted",
    )
    table.add_row("prefix cache", warmth(run), "counted")
    table.add_row("requests/s, tokens/s", f"{_number(s.requests_per_s)}, {_number(s.tokens_per_s)}{_mark(run)}", run.witness)
    if s.goodput is not None:
        share = s.goodput / s.requests_per_s if s.requests_per_s else math.nan
        table.add_row("goodput, requests/s", f"{_number(s.goodput)} ({share:.0%} of those answered)", run.witness)
    table.add_row("seconds", f"{run.duration:.3f}", run.witness)
    return table


def warmth(run: Run) -> str:
    """Whether it was warm, in words."""
    if run.warm is None:
        return "nobody knows whether it was warm: the server doesn't say what it found cached"
    if run.warm:
        return f"WARM: {run.warm} prompt tokens were there before this run; a cold run takes longer"
    return "cold: nothing was found that this run had not put there"


def verdicts(run: Run) -> Table:
    """Each limit of the SLO."""
    table = _table("SLO", "limit", "asked, ms", "found, ms", f"interval, {0.95:.0%}", "verdict")
    for each in run.summary.verdicts:
        found = "no answer" if each.found == math.inf else _ms(each.found)
        below = f"; it is below the quickest step, {_ms(run.quickest)} ms" if each.limit < run.quickest else ""
        mark = _mark(run) if each.metric == "tpot" else ""
        table.add_row(each.name + mark, _ms(each.limit), found, _interval(each.interval), each.word + below)
    return table


def parts(run: Run) -> Table:
    """Where TTFT went."""
    table = _table(f"TTFT by part ({run.witness}); the means sum to the mean TTFT", "part", "mean, ms", "P50", "P95", "share")
    for part in run.parts:
        each = part.seconds
        table.add_row(part.name, _ms(each.mean), _ms(each.p50), _ms(each.p95), f"{part.share:.1%}")
    return table


def little(run: Run) -> Table:
    """Both sides."""
    found = run.little
    title = f"Little's law, from {found.start:.3g} to {found.stop:.3g} s ({run.witness})"
    table = _table(title, "open requests, by sweep line", "arrivals/s", "mean stay, s", "rate x stay", "verdict")
    numbers = (found.concurrency, found.rate, found.residence, found.product)
    table.add_row(*map(_number, numbers), found.verdict)
    return table


def comparison(runs: Sequence[Run]) -> Table:
    """Several runs side by side."""
    percents = (50, 95, 99)
    columns = [f"{name} P{q}, ms" for name in ("TTFT", "ITL") for q in percents]
    table = _table("All runs", "load", "answered", "requests/s", "tokens/s", *columns, "open", "SLO")
    for run in runs:
        s = run.summary
        points = [_point(each, q) for each in (s.ttft, s.itl) for q in percents]
        met = "" if s.met is None else "met" if s.met else "missed"
        load, done = str(run.settings.get("load", "")), f"{s.answered} of {s.requests}"
        table.add_row(
            load,
            done,
            _number(s.requests_per_s),
            _number(s.tokens_per_s) + _mark(run),
            *points,
            _number(run.little.concurrency),
            met,
        )
    return table


def probes(saturation: Saturation) -> Table:
    """The search for saturation."""
    table = _table(
        "Saturation", "rate, 1/s", "requests", "holds", "what is wrong", "trend of the wait, s/s", "p", "stay, s", "open, most"
    )
    for probe in sorted(saturation.probes, key=lambda probe: probe.rate):
        trend = (_number(probe.trend.slope), _number(probe.trend.p))
        holds = "yes" if probe.holds else "no"
        table.add_row(
            f"{probe.rate:.4g}", str(probe.requests), holds, probe.why, *trend, _number(probe.residence), str(probe.most)
        )
    return table


def footnotes(runs: Sequence[Run]) -> Iterator[str]:
    """What the figures mean."""
    named = {
        **{name: title.removesuffix(", ms") for name, title in NAMES.items()},
        "requests_per_s": "requests/s",
        "tokens_per_s": "tokens/s",
    }
    slo = any(run.slo for run in runs)
    if chunked := sum(run.summary.by_chunks for run in runs):
        yield f"{_CHUNKS} {CHUNKED.format(chunked)}; give --tokenizer to count their text"
    for name, text in DEFINITIONS.items():
        if name == "goodput" and not slo:
            continue
        mark = f"{_FLAG} few" if name == "few" else named.get(name, name)
        yield f"{mark}: {text}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(
            column, justify="left" if not i or column in ("how much", "verdict", "witness", "what is wrong") else "right"
        )
    return table


def _mark(run: Run) -> str:
    return _CHUNKS if run.summary.by_chunks else ""


def _points(each: Quantiles) -> list[str]:
    return [_point(each, q) for q in PERCENTS]


def _point(each: Quantiles, q: int) -> str:
    return _ms(each.at(q)) + (_FLAG if q in each.few and each.n else "")


def _interval(bounds: tuple[float, float] | None) -> str:
    return f"{_ms(bounds[0])} to {_ms(bounds[1])}" if bounds else "too few"


def _ms(seconds: float) -> str:
    return "none" if not math.isfinite(seconds) else f"{seconds * 1e3:,.2f}"


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:,.4g}"
