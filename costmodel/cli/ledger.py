"""`python -m costmodel ledger`: the instructions of a program that move most."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costmodel.cli.choices import choose_chip, choose_model
from costmodel.cli.output import Output, giga, table
from costmodel.compile.program import StepProgram
from costmodel.compile.target_table import TARGETS
from costmodel.compile.targets import compile_for
from costmodel.ledger.ledger import Ledger, Line, ledger
from costmodel.study import Study
from costmodel.terminal.tables import Table
from models.errors import UserError
from models.files.reading import LARGEST, decoded, read_bytes, write_file

Bar = Callable[[str, int], Callable[[int], None]]


def run(
    bar: Bar,
    *,
    file: Path | None,
    model: str,
    chip: str,
    batch: int,
    context: int,
    attention: str,
    layers: int,
    trips: int | None,
    top: int,
    text: Path | None,
    as_json: bool,
) -> Output:
    """See `--help`. Raises UserError for a file that is no HLO, or a step that cannot be compiled."""
    if file is not None:
        written, title, counts = read(file), str(file), trips
    else:
        if trips is not None:
            raise UserError("--trips belongs to a FILE; of a step that is compiled now the counts follow from its context")
        written, title, counts = compiled(bar, model, chip, batch, context, attention, layers)
    if text is not None:
        write(text, written)
    advance = bar("reading the program", 1)
    found = ledger(written, counts)
    advance(1)
    data = {
        "program": title,
        "source": found.source,
        "loop_counts": dict(found.trips),
        "unpriced": list(found.unpriced),
        "totals": {
            name: {"flops": cost.flops, "bytes": cost.bytes, "transcendentals": cost.transcendentals}
            for name, cost in (("reported", found.reported), ("with_trips", found.with_trips), ("traffic", found.traffic))
        },
        "components": {name: {"flops": cost.flops, "bytes": cost.bytes} for name, cost in found.by_component().items()},
        "link_bytes": dict(found.link_bytes),
        "top": [plain(line) for line in found.top(top)],
    }
    notes = [f"{title}; {found.source}"]
    if found.trips:
        notes.append("loop counts used: " + ", ".join(f"{name} {count:g}" for name, count in list(found.trips.items())[:8]))
    if found.unpriced:
        notes.append(f"at least: custom calls without a price: {', '.join(found.unpriced)}")
    return Output(data, [*notes, components(found), lines(found, top)], form="json" if as_json else "text")


def compiled(bar: Bar, model: str, chip: str, batch: int, context: int, attention: str, layers: int) -> tuple[str, str, Any]:
    """(text, title, loop counts) of a decode step's first layers, compiled now."""
    chosen = choose_model(model)
    limit = chosen.architecture.layers
    if layers > limit:  # before a machine is measured
        raise UserError(f"--layers is {layers}; {chosen.name} has {limit}")
    if chosen.config is not None:
        StepProgram(chosen.config, ((batch, 1),), context, attention=attention)  # refuses what could not be
    where = choose_chip(chip)
    if where.target is None:
        raise UserError(f"there is no compiler here for {chip}; take one of {', '.join(TARGETS)}, host")
    study = Study(chosen.best, where.chip, where.target, where.platform, (batch,), context, attention=attention)
    program = study.program(batch, layers)
    advance = bar(f"compiling for {where.chip.name}", 1)
    made = compile_for(where.target, program, *program.abstract_args(), donate=program.donate)
    advance(1)
    title = f"{layers} of {limit} layers of {chosen.name} on {where.chip.name}, batch {batch}, context {context}, {attention} attention"
    return made.text, title, program.trips(context) or None


def read(file: Path) -> str:
    """The text of a file, decompressed if its name ends in .xz."""
    fix = "give a file that Compiled.as_text() was written to"
    data = read_bytes(file, fix=fix)
    if file.suffix == ".xz":
        decompressor = lzma.LZMADecompressor()
        try:
            data = decompressor.decompress(data, LARGEST + 1)
        except lzma.LZMAError as error:
            raise UserError(f"{file} is no HLO text: {error}; {fix}") from None
        if len(data) > LARGEST:
            raise UserError(f"{file}: its text has more than {LARGEST >> 20} MiB, the most that is read; {fix}")
        if not decompressor.eof:
            raise UserError(f"{file} is no HLO text, or cut off; {fix}")
    return decoded(data, name=str(file), fix=fix)


def write(file: Path, text: str) -> None:
    """Compressed if its name ends in .xz."""
    data = text.encode()
    write_file(file, lzma.compress(data) if file.suffix == ".xz" else data, name=f"--text {file}")


def components(found: Ledger) -> Table:
    """Traffic and FLOPs by component of the model."""
    whole = found.traffic
    rows = [
        (name, giga(cost.bytes), f"{100 * cost.bytes / (whole.bytes or 1):.1f} %", giga(cost.flops))
        for name, cost in found.by_component().items()
    ]
    rows.append(("total", giga(whole.bytes), "", giga(whole.flops)))
    return table("by component (memory traffic)", ("component", "GB", "share", "GFLOP"), rows, rules=(len(rows) - 1,))


def lines(found: Ledger, top: int) -> Table:
    """The instructions with the most traffic."""
    rows = [
        (
            line.name,
            line.opcode,
            line.component,
            f"{line.runs:g}",
            giga(line.reported.bytes * line.runs),
            giga(line.traffic.cost.bytes * line.runs),
            giga(line.traffic.cost.flops * line.runs),
            line.confidence,
            "; ".join(line.notes),
        )
        for line in found.top(top)
        if line.runs is not None
    ]
    columns = ("instruction", "opcode", "component", "runs", "GB, XLA", "GB moved", "GFLOP", "confidence", "why they differ")
    return table(f"the {len(rows)} instructions that move most", columns, rows, left=3, words=2)


def plain(line: Line) -> dict[str, Any]:
    """A line as plain data, of one run."""
    return {
        "instruction": line.name,
        "computation": line.computation,
        "opcode": line.opcode,
        "op_name": line.op_name,
        "component": line.component,
        "runs": line.runs,
        "reported_bytes": line.reported.bytes,
        "traffic_bytes": line.traffic.cost.bytes,
        "flops": line.traffic.cost.flops,
        "confidence": line.confidence,
        "notes": list(line.notes),
    }
