"""What a run reports. Oracles: the nominal formulas worked out by hand and by `costmodel.analytical.nominal`, seconds that the
test chose, and XLA's own totals of the programs that ran."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from costmodel.analytical.nominal import nominal_of_model, nominal_step
from costmodel.compile.xla import XlaTotals, xla_totals
from costmodel.hardware.ceilings import Ceilings
from costmodel.ledger.ledger import ledger
from jaxserve.generation.program_table import programs_json, programs_table
from jaxserve.main_job.program_report import ProgramReport, ProgramRun, report, table
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.executable import Executable
from jaxserve.programs.program_set import Program
from tests.jaxserve import tiny
from tests.jaxserve.rows import Generation
from tests.jaxserve.served import LADDER, row, served
from tests.jaxserve.tiny import prompt

LIMITS = Ceilings("here", "2026-01-31", 0.0, 20e9, "a sum", 100e9, "a matmul", 400e9, "a matmul")
TOTALS = XlaTotals(7e9, 3e6, 5.0, 100_000_000, 20, 2_000_000, 10, 1, 1)


def program(shape: Any = ((4, 1),), totals: XlaTotals = TOTALS, loops: int = 0) -> Program:
    return Program(Bucket(shape, 10), None, None, Executable(None, totals, loops, 1.25, False), [])  # type: ignore[arg-type]


def record(
    of: Program, contexts: tuple[int, ...], seconds: float, host: float = 0.001, tokens: int | None = None
) -> ProgramRun:
    counts = (1,) * len(contexts) if tokens is None else (tokens - len(contexts) + 1, *(1,) * (len(contexts) - 1))
    return ProgramRun(of, contexts, counts, seconds, host)


def ran(generation: Generation) -> list[ProgramRun]:
    return [ProgramRun(x.program, x.contexts, x.counts, x.seconds, x.host_seconds) for x in generation.records]


def test_decode_by_hand():
    """Three steps of 3, 3 and 1 live rows in a program of 4; the weights of the tiny model are f32."""
    model, p = served().model, program()
    records = [record(p, (10, 20, 30), 0.002), record(p, (11, 21, 31), 0.004), record(p, (12,), 0.009)]
    (r,) = report(records, model, 2, LIMITS)
    c = model.config
    token = 2 * c.layers * c.kv_heads * c.head_dim * 2  # K and V of all layers in 2 bytes
    matrices = 2 * 96 * 24 + c.layers * (24 * (4 + 2 + 2) * 8 + 24 * 4 * 8 + 3 * 24 * 40)
    norms = 24 * (2 * c.layers + 1)
    assert model.parameters == matrices + norms
    assert r.program == "decode 4" and r.width == 10 and r.steps == 3
    assert r.live_rows == pytest.approx(7 / 3) and r.padded_rows == pytest.approx(4 - 7 / 3)
    assert (r.step_ms, r.step_ms_p95, r.host_ms) == pytest.approx((4.0, 9.0, 1.0))
    assert r.tokens_per_second == pytest.approx(7 / (0.015 + 0.003))
    assert r.weight_bytes == pytest.approx(4 * (matrices + norms))
    assert r.kv_bytes == pytest.approx(token * (60 + 63 + 12) / 3)
    assert r.flops == pytest.approx(2 * (matrices + norms) * 7 / 3)
    assert r.bytes_per_second == pytest.approx((r.weight_bytes + r.kv_bytes) / 0.004)
    assert r.bandwidth_fraction == pytest.approx(r.bytes_per_second / 20e9)
    assert r.flops_per_second == pytest.approx(r.flops / 0.004)
    assert r.peak_fraction == pytest.approx(r.flops_per_second / 100e9)
    assert (r.xla_flops, r.xla_bytes, r.xla_loops) == (7e9, 3e6, 0)


def test_rows_of_equal_context_equal_the_nominal_step():
    model = served().model
    (r,) = report([record(program(), (33,) * 4, 0.01)], model, 4, LIMITS)
    nominal = nominal_step(model.parameters, 4, model.config.kv_bytes_per_token(4), 4, 33)
    assert (r.weight_bytes, r.kv_bytes, r.flops) == pytest.approx((nominal.weight_bytes, nominal.kv_bytes, nominal.flops))
    assert r.bytes_per_second == pytest.approx(nominal.bytes / 0.01)


def test_a_window_bounds_what_is_read():
    config = tiny.model("gemma3")[0]
    assert sorted({w for w in config.windows if w}) == [6]
    model = dataclasses.replace(served().model, config=config)
    (r,) = report([record(program(), (4, 30), 0.01)], model, 4, LIMITS)
    layer = config.kv_bytes_per_token(4) / config.layers
    local = sum(w is not None for w in config.windows)
    assert r.kv_bytes == pytest.approx(layer * (local * (4 + 6) + (config.layers - local) * (4 + 30)))


def test_16_bit_weights_are_held_against_the_16_bit_peak():
    model = dataclasses.replace(served().model, dtype="bfloat16")
    (r,) = report([record(program(), (1,), 0.01)], model, 2, LIMITS)
    assert r.peak_fraction == pytest.approx(r.flops_per_second / 400e9)


def test_prefill_computes_for_every_token_and_reads_the_weights_once():
    model, chunk = served().model, program(((2, 8),))
    (r,) = report([record(chunk, (8, 5), 0.01, tokens=13)], model, 4, LIMITS)
    assert r.flops == pytest.approx(2 * model.parameters * 13) and r.weight_bytes == pytest.approx(model.weight_bytes)
    assert r.program == "prefill 2x8" and r.padded_rows == 0 and r.tokens_per_second == pytest.approx(13 / 0.011)


def test_a_real_run_reports_each_program_with_xlas_own_numbers():
    s = served()
    rows = [row(prompt(i, 6 + i), 4 + 2 * i, first=10 * i) for i in range(3)]
    found = ran(s.run(rows))
    reports = report(found, s.model, 4, LIMITS)
    assert [r.program for r in reports] == ["prefill 2x8", "decode 4", "decode 2", "decode 1"]  # in order of first use
    assert sum(r.steps for r in reports) == len(found)
    by_name = {p.bucket.name: p for p in s.programs}
    for r in reports:
        mine = by_name[r.program]
        assert (r.xla_flops, r.xla_bytes, r.xla_loops) == (mine.totals.flops, mine.totals.bytes_accessed, mine.loops)
        assert mine.totals == xla_totals(mine._executable.compiled)
        steps = [x for x in found if x.program is mine]
        c, n = s.model.config, s.model.parameters
        each = [nominal_of_model(c, n, np.array(x.contexts), weight_itemsize=4, kv_itemsize=4) for x in steps]
        assert r.kv_bytes == pytest.approx(sum(one.kv_bytes for one in each) / len(each))
        assert r.step_ms_p95 >= r.step_ms > 0
    # XLA counts nothing for the embedding, which is looked up, and more than the matmuls: attention and sampling, which in a model
    # as tiny as this are half of it all.
    decode = next(r for r in reports if r.program == "decode 4")
    per_row = (decode.xla_flops or 0) / 4
    multiplied = 2 * (s.model.parameters - 96 * 24)
    assert multiplied < per_row < 3 * multiplied


def test_the_ledger_of_what_ran():
    """Of each program its own ledger, with the loops of its middle step by context: by hand, blocks of 64 tokens for 4 rows."""
    s = served()
    found = ran(s.run([row(prompt(i, 9), 4, first=10 * i) for i in range(4)]))
    reports = report(found, s.model, 4, LIMITS, Program.ledger)
    for r in reports:
        mine = next(p for p in s.programs if p.bucket.name == r.program)
        contexts = sorted(max(x.contexts) for x in found if x.program is mine)
        middle = next(x for x in found if x.program is mine and max(x.contexts) == contexts[len(contexts) // 2])
        assert r.loop_counts == {f"layer{i}/attention/segment0": 1 for i in range(s.model.config.layers)}
        book = ledger(mine._executable.compiled, middle.trips())
        assert (r.trip_flops, r.traffic_bytes) == (book.traffic.flops, book.traffic.bytes)
        assert (r.trip_flops or 0) >= (r.xla_flops or 0) and r.traffic_bytes and r.xla_bytes
    shown = text(table(reports, "batch 4"))
    assert all(f"{r.trip_flops / 1e9:.2g} x1" in shown for r in reports if r.trip_flops)  # each is less than 0.01


def test_nothing_ran_nothing_reported():
    assert report([], served().model, 4, LIMITS) == []


def text(view: Any) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_tables():
    """An unknown total is never a number, and one that counts a loop once is marked."""
    unknown = program(((2, 1),), XlaTotals(), loops=0)
    records = [record(program(loops=3), (10, 20, 30, 40), 0.002), record(unknown, (5, 6), 0.001)]
    shown = text(table(report(records, served().model, 4, LIMITS), "batch 4"))
    first, second = (next(line for line in shown.splitlines() if name in line) for name in ("decode 4", "decode 2"))
    assert "7.00+" in first and "3+" in first and "4.0+0.0" in first and "2.0" in first
    assert second.count("unknown") == 2 and "+0.0" in second
    listed = text(programs_table([program(), unknown]))
    line = next(line for line in listed.splitlines() if "decode 4" in line)
    assert [part.strip(" │") for part in line.split("│")[1:-1]] == ["decode 4", "10", "1.2", "100.0", "2.0", "0.0"]
    assert next(line for line in listed.splitlines() if "decode 2" in line).count("unknown") == 3


def test_programs_that_were_kept_are_told_apart():
    """Their seconds are of loading, so they are no compile times."""
    made = program()
    taken = dataclasses.replace(made, _executable=dataclasses.replace(made._executable, kept=True))
    assert [entry["kept"] for entry in programs_json([made, taken])] == [False, True]
    assert "1 of 2 from the compile cache, loaded in these seconds" in " ".join(text(programs_table([made, taken])).split())
    assert "cache" not in text(programs_table([made]))


def test_what_is_small_is_not_printed_as_nothing():
    """40 kFLOP and 30 kB are 0.00004 GFLOP and 0.03 MB; the columns have two decimals and none."""
    small = program(totals=XlaTotals(flops=4e4, bytes_accessed=3e4))
    shown = text(table(report([record(small, (1,), 0.002)], served().model, 4, LIMITS), "batch 1"))
    assert "4e-05" in shown and "0.03" in shown


def test_json():
    found = json.loads(json.dumps(programs_json(list(served().programs)), allow_nan=False))
    assert [entry["program"] for entry in found] == [bucket.name for bucket in LADDER.buckets()] + ["decode 2 + prefill 1x8"]
    for entry, p in zip(found, served().programs, strict=True):
        assert entry["compile_seconds"] == p.seconds and entry["width"] == 10 and entry["loops"] == p.loops
        assert entry["xla"] == dataclasses.asdict(p.totals)
    (r,) = report([record(program(totals=XlaTotals()), (1,), 0.01)], served().model, 4, LIMITS)
    assert json.loads(json.dumps(dataclasses.asdict(r), allow_nan=False))["xla_flops"] is None
    assert {field.name for field in dataclasses.fields(ProgramReport)} == set(dataclasses.asdict(r))
