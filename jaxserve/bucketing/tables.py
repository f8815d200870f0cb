"""The tables and plain data of `python -m jaxserve.buckets`."""

from __future__ import annotations

from typing import Any

from costmodel.cli.output import Output, giga, table
from costmodel.terminal.tables import Table
from jaxserve.bucketing.economics import Choice, Share
from jaxserve.bucketing.study import Cliff, Study, shapes
from jaxserve.scheduling.registry import takes

MARKS = "plans simulated; seconds and bytes analytical (roofline of costmodel.step_cost)"


def output(found: Study, as_json: bool) -> Output:
    """All of it."""
    head = heading(found)
    shares = found.economics.shares(found.best.ladder)
    ladders = {
        "this ladder": found.best,
        f"powers of two, {found.powers.programs} programs": found.powers,
        f"every shape, {found.every.programs} programs": found.every,
    }
    said = [regret(found), _width(found)]
    parts: list[str | Table] = [*head, _programs(found, shares), _ladders(found, ladders), *said]
    if found.cliffs:
        parts.append(_cliffs(found.cliffs))
    return Output(plain(found, head, shares), parts, form="json" if as_json else "text")


def heading(found: Study) -> list[str]:
    """What the figures are of."""
    asked, run = found.asked, found.run
    scales = f"times x {asked.time_scale:g}, lengths x {asked.length_scale:g}"
    rows, query = asked.chunk
    budget = f" of {asked.budget} tokens a step" if takes(asked.policy, "budget") else ""
    lines = [
        f"{asked.model} on {found.chip.name}, {asked.policy}{budget}: {asked.rows} rows, prefills of up to {rows}x{query}, "
        f"{found.pages} pages of {asked.page} tokens{', shared by equal prefixes' if asked.prefix else ''}; {asked.attention} attention, "
        f"weights {asked.dtype}, KV {asked.kv_dtype or asked.dtype}",
        f"{asked.trace.name}, {scales}: {sum(run.ends.values()):,} requests, {run.ran:,} tokens run in {run.steps:,} steps, "
        f"{run.drawn / run.steps:.1f} drawn in each; {sum(run.busy):,.1f} s busy of {run.seconds * len(run.busy):,.1f} s",
        MARKS,
    ]
    if found.refused:
        lines.append(f"requests left out: {found.refused:,}, which need more than the context of {found.context:,} tokens")
    if run.preemptions:
        lines.append(f"{run.preemptions:,} preemptions: the pool is short, and prompts were run again")
    return lines


def regret(found: Study) -> str:
    """How much more padded work, in seconds, than other ladders."""
    best, wasted = found.best, found.wasted(found.best)
    how = "no ladder of as many programs pads less" if best.exact else "the best found, by a search that does not see all"
    return (
        f"this ladder, {best.programs} programs of {found.asked.programs} allowed ({how}): "
        f"{_more(wasted, found.wasted(found.every))} than every shape, "
        f"{_percent((best.seconds - found.every.seconds) / best.seconds)} of the total.\n"
        f"powers of two: {_more(found.wasted(found.powers), wasted)} than this ladder, "
        f"{_percent((found.powers.seconds - best.seconds) / found.powers.seconds)} of their total."
    )


def plain(found: Study, head: list[str], shares: list[Share]) -> dict[str, Any]:
    """For --json. Seconds, bytes, tokens."""
    run = found.run
    return {
        "heading": head,
        "ladder": found.best.ladder.to_json(),
        "exact": found.best.exact,
        "simulated": {
            "seconds": run.seconds,
            "busy": list(run.busy),
            "steps": run.steps,
            "ran": run.ran,
            "drawn": run.drawn,
            "preemptions": run.preemptions,
            "ends": dict(run.ends),
        },
        "programs": [
            {
                "name": share.bucket.name,
                "width": share.bucket.width,
                **{k: v for k, v in share._asdict().items() if k != "bucket"},
            }
            for share in shares
        ],
        "ladders": {
            name: {
                "ladder": choice.ladder.to_json() if name != "every shape" else None,
                "programs": choice.programs,
                "seconds": choice.seconds,
                "wasted": found.wasted(choice),
            }
            for name, choice in (("best", found.best), ("powers of two", found.powers), ("every shape", found.every))
        },
        "live_seconds": found.economics.live,
        "prompts": [
            {**cliff._asdict(), "runs": [run.bucket.name for run in cliff.runs if run.bucket]} for cliff in found.cliffs
        ],
    }


def _programs(found: Study, shares: list[Share]) -> Table:
    runs, seconds = sum(share.runs for share in shares), sum(share.seconds for share in shares)
    wide = len(found.best.ladder.widths) > 1
    rows = []
    for share in shares:
        cells = [share.bucket.name + (f", {share.bucket.width} pages wide" if wide else "")]
        if share.runs:
            each = f"{share.seconds / share.runs * 1e3:.3f}"
            cells += [f"{share.runs:,}", _percent(share.runs / runs), _percent(share.padded / share.tokens), giga(share.bytes)]
            cells += [each, f"{share.seconds:,.2f}", _percent(share.seconds / seconds), f"{share.wasted:,.3f}"]
        else:
            cells += ["0", *["-"] * 7]
        rows.append(cells)
    columns = ("program", "runs", "of all", "tokens padded", "GB padded", "ms a run", "s", "of all", "s padded")
    return table("programs", columns, rows)


def _ladders(found: Study, ladders: dict[str, Choice]) -> Table:
    rows = []
    for name, choice in ladders.items():
        shares = found.economics.shares(choice.ladder)
        padded, tokens = sum(share.padded for share in shares), sum(share.tokens for share in shares)
        sizes = choice.ladder
        rows.append(
            [
                name,
                f"{choice.seconds:,.2f}",
                f"{found.wasted(choice):,.3f}",
                _percent(found.wasted(choice) / choice.seconds),
                f"{padded:,.0f}",
                _percent(padded / tokens),
                giga(sum(share.bytes for share in shares)),
                _sizes(sizes.batches),
                _sizes((*sizes.prefills, sizes.chunk[0])),
                _sizes(sizes.mixed) if sizes.mixed else "-",
                _sizes(sizes.widths),
            ]
        )
    columns = (
        "ladder",
        "s",
        "s padded",
        "of all",
        "tokens padded",
        "of all",
        "GB padded",
        "decodes",
        "prefill rows",
        "together",
        "widths",
    )
    return table("ladders", columns, rows, words=4)


def _cliffs(cliffs: tuple[Cliff, ...]) -> Table:
    rows = [
        [
            f"{cliff.prompt:,}",
            f"{cliff.padded:,}",
            _percent(cliff.padded / cliff.tokens),
            f"{cliff.seconds * 1e3:.3f}",
            f"{cliff.wasted * 1e3:.3f}",
            _percent(cliff.wasted / cliff.seconds),
            shapes(cliff),
        ]
        for cliff in cliffs
    ]
    columns = ("prompt tokens", "padded", "of all", "ms", "ms padded", "of all", "programs")
    return table("a prompt alone on this ladder", columns, rows, left=0, words=1)


def _width(found: Study) -> str:
    if found.asked.attention == "gather":
        return (
            "gather reads the whole table of every row of a program, so its width is paid for and a ladder of widths pays off."
        )
    return f"blockwise attention follows the live context, so a wide table costs nothing: one width, {found.best.ladder.widths[-1]} pages."


def _more(this: float, other: float) -> str:
    return f"{_percent(this / other - 1)} more padded work" if other > 0 else f"{this:.3f} s more padded work"


def _percent(share: float) -> str:
    return f"{100 * share:z.2f} %"


def _sizes(sizes: tuple[int, ...]) -> str:
    if len(sizes) > 16:
        return f"{sizes[0]} to {sizes[-1]}"
    return " ".join(map(str, sizes))
