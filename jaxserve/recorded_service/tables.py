"""The tables and plain data of `python -m jaxserve.replay_service`."""

from __future__ import annotations

from typing import Any

from costmodel.cli.output import Output, table
from costmodel.terminal.tables import Table
from jaxserve.load.percentile import RULE
from jaxserve.recorded_service.compare import LEVEL, peer_error, to_json
from jaxserve.recorded_service.fit import Fitted
from jaxserve.recorded_service.step_time import MEANINGS
from jaxserve.recorded_service.study import Judged, Study

DEFINITIONS = (
    "TTFT from the queue to the first token, E2E from the queue to the last, TPOT their difference over the tokens after the first; s; "
    f"percentiles: {RULE}"
)
PEER = "peer's error: of another simulator on all requests of the recording, as it is given there (peer_simulator_summary.txt)"


def output(found: Study, as_json: bool) -> Output:
    """All of it."""
    head = heading(found)
    parts: list[str | Table] = [*head]
    for judged in found.judged:
        if judged.fitted:
            parts.append(parameters(judged.fitted, judged.name))
        parts += [errors(judged, found), covered(judged)]
    parts.append(DEFINITIONS)
    if found.recorded.peer:
        parts.append(PEER)
    return Output(plain(found, head), parts, form="json" if as_json else "text")


def heading(found: Study) -> list[str]:
    """What was simulated."""
    recorded, service = found.recorded, found.service
    requests = recorded.requests
    prompts, answers = sum(r.prompt for r in requests), sum(r.output for r in requests)
    return [
        f"{recorded.name}: {len(requests)} requests, {prompts:,} tokens of prompts, {answers:,} of answers, recorded; "
        f"{service.architecture.name} on {service.chip.name}, simulated",
        f"chunked prefill: {service.budget:,} tokens a step, {service.rows} sequences, {service.pages:,} pages of {service.page} tokens, "
        f"{service.ahead} step planned ahead; weights {service.dtype}, KV {service.kv_dtype}",
        *[f"assumed: {each}" for each in service.assumed],
    ]


def parameters(fitted: Fitted, name: str) -> Table:
    """What was fitted, with standard errors."""
    rows = []
    for each, meaning in MEANINGS.items():
        value, error = getattr(fitted.parameters, each), getattr(fitted.errors, each)
        rows.append([each, f"{value:.1%}", f"{error:.1%}", meaning])
    title = f"{name}: parameters; {fitted.moments} moments, residual {fitted.residual:.1%}"
    return table(title, ("parameter", "value", "standard error", "meaning"), rows, words=1)


def errors(judged: Judged, found: Study) -> Table:
    """Theirs, ours with their interval, and the errors, beside another simulator's."""
    rows = []
    for each in judged.compared.errors:
        peer = peer_error(found.recorded.peer, each)
        cells = [each.metric, each.statistic, f"{each.recorded:.4g}", f"{each.simulated:.4g}", f"{each.relative:+.1%}"]
        ends = [f"{each.low:.4g}", f"{each.high:.4g}", "yes" if each.within else "no"] if judged.interval else ["-"] * 3
        rows.append([*cells, *ends, "-" if peer is None else f"{peer:+.1%}"])
    columns = ("", "", "recorded s", "simulated s", "error", f"{LEVEL:.0%} from", "to", "within", "peer's error")
    return table(f"{judged.name}: {judged.of}", columns, rows, left=2, rules=(4, 8))


def covered(judged: Judged) -> str:
    """What intervals are made of, and what they turned out to hold."""
    if not judged.interval:
        return "no intervals: a roofline says nothing of its error"
    errors = judged.compared.errors
    each = ", ".join(f"{c.metric} of {c.within} of {c.requests} requests" for c in judged.compared.covered)
    return (
        f"intervals of {LEVEL:.0%} hold {sum(e.within for e in errors)} of {len(errors)} recorded figures; made the same way for each "
        f"request, {each}. They are made of {judged.interval}"
    )


def plain(found: Study, head: list[str]) -> dict[str, Any]:
    """For --json: s, and errors as shares."""
    recorded = found.recorded
    return {
        "heading": head,
        "definitions": DEFINITIONS,
        "peer": [{"metric": metric, "statistic": name, "error": error} for (metric, name), error in recorded.peer.items()],
        "simulations": [
            {
                "name": judged.name,
                "of": judged.of,
                "parameters": judged.fitted and judged.fitted.parameters._asdict(),
                "standard_errors": judged.fitted and judged.fitted.errors._asdict(),
                "level": LEVEL if judged.interval else None,
                "interval": judged.interval,
                **to_json(judged.compared),
            }
            for judged in found.judged
        ],
    }
