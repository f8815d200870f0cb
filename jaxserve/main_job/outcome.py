"""What the main job found, for machines and for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.text import Text

from costmodel.hardware.ceilings import Ceilings
from costmodel.terminal.tables import console
from jaxserve.engine.model import batch_caveat
from jaxserve.engine.request_output import RequestOutput
from jaxserve.generation.program_table import programs_json, programs_table
from jaxserve.load.recorder import RequestRecord
from jaxserve.main_job.program_report import ProgramReport, table
from jaxserve.predict.step_costs import StepCosts
from jaxserve.programs.program_set import Program
from jaxserve.scheduling.step_record import StepRecord
from models.files.provenance import Provenance
from models.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of one batch size. Rates count the live tokens of all steps and the time of the host between them.

    Attributes:
      rows: the answers, in the order of the prompts.
      decode_tokens_per_second, prefill_tokens_per_second: measured; 0 where there was no such step.
      records: of the requests; times count from when all of them were submitted.
      steps: of the engine.
      costs: what its steps should have moved and computed (witness: analytical).
    """

    batch: int
    rows: list[RequestOutput]
    reports: list[ProgramReport]
    decode_tokens_per_second: float
    prefill_tokens_per_second: float
    records: list[RequestRecord]
    steps: list[StepRecord]
    costs: StepCosts

    def to_json(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "measured_decode_tokens_per_second": self.decode_tokens_per_second,
            "measured_prefill_tokens_per_second": self.prefill_tokens_per_second,
            "programs": [dataclasses.asdict(r) for r in self.reports],
            "completions": [
                {
                    "prompt_tokens": len(r.prompt_tokens),
                    "tokens": list(r.answers[0].tokens),
                    "text": tokenizer.decode(list(r.answers[0].tokens)),
                    "finish_reason": r.answers[0].finish.reason,
                }
                for r in self.rows
            ],
        }

    @property
    def title(self) -> str:
        rates = f"decode {self.decode_tokens_per_second:,.0f} tokens/s, prefill {self.prefill_tokens_per_second:,.0f} tokens/s"
        return f"batch {self.batch}: {rates} (measured)"


@dataclasses.dataclass(frozen=True)
class DecodeResult:
    """All of it.

    Attributes:
      facts: model, machine, date, dtypes, context and what else a reader needs to repeat the run.
      provenance: which files gave what of the model.
      limits: this machine's measured ceilings.
      pages: of the KV pool.
      programs: every program that was compiled, used or not.
      runs: one for each batch size, in the order in which they ran.
    """

    facts: dict[str, Any]
    provenance: Provenance
    limits: Ceilings
    pages: int
    programs: list[Program]
    runs: list[Run]
    tokenizer: Tokenizer

    def to_json(self) -> dict[str, Any]:
        """Everything, with the source of each figure in its key or in the docstring of `ProgramReport`."""
        return {
            **self.facts,
            "provenance": self.provenance.to_json(),
            "measured_ceilings": dataclasses.asdict(self.limits),
            "programs": programs_json(self.programs),
            "runs": [run.to_json(self.tokenizer) for run in self.runs],
        }

    def show(self, completions: int) -> None:
        """Print some completions, what was compiled, and a table for each batch size."""
        shown = console()
        for row in self.runs[-1].rows[:completions]:
            shown.print(Text("prompt", "bold"), f" {self.tokenizer.decode(list(row.prompt_tokens))!r}", markup=False)
            shown.print(Text("answer", "bold"), f" {self.answer(row)!r} ({row.answers[0].finish.reason})\n", markup=False)
        shown.print(programs_table(self.programs))
        shown.print(f"\n{self.summary()}\n", markup=False)
        for run in self.runs:
            shown.print(table(run.reports, run.title))

    def answer(self, row: RequestOutput) -> str:
        """A row's text without the token that ended it."""
        stop = {*self.tokenizer.eos_tokens}
        return self.tokenizer.decode([token for token in row.answers[0].tokens if token not in stop])

    def summary(self) -> str:
        """Where and how, and what the tables' shares are shares of."""
        f, limits = self.facts, self.limits
        used = (
            f"the first {f['rows']} prompts"
            if f["rows"] == f["distinct_prompts"]
            else f"{f['distinct_prompts']} prompts, used in turn"
        )
        return (
            f"{f['model']} on {f['machine']}, {f['date']}; weights {f['dtype']} ({f['dtype_reason']}), KV {f['kv_dtype']}\n"
            f"{batch_caveat(f['dtype'], f['kv_dtype'], '--dtype float32')}"
            f"{self.provenance}\n"
            f"rows: up to {f['rows']}, from {used}\n"
            f"measured ceilings ({limits.date}): read {limits.read_bandwidth / 1e9:.1f} GB/s, matmul f32 "
            f"{limits.matmul_f32 / 1e9:.0f} and bf16 {limits.matmul_bf16 / 1e9:.0f} GFLOP/s"
        )
