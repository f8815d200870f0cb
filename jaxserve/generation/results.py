"""What a run of requests came to, for machines and for people. Every figure is marked with its witness."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from costmodel.hardware.host import host_key, today
from costmodel.terminal.tables import Table
from jaxserve.engine.build import EngineBuild
from jaxserve.engine.model import batch_caveat
from jaxserve.engine.stats import EngineStats
from jaxserve.generation.program_table import programs_json
from jaxserve.programs.program_set import Program
from jaxserve.scheduling.names import policy_json, policy_name
from jaxserve.steplog.summary import Summary


@dataclasses.dataclass(frozen=True)
class Results:
    """Of one run.

    Attributes:
      setup: what ran.
      asked, answered, expired: prompts, how many of them have their answers, all to their ends, and how many waited too long.
      cut: what came between, as "interrupted by SIGTERM"; "" for nothing.
      seconds: from the first submission to the end (clock).
      status: of the engine at the end, which ran nothing else.
      steps: sums over its steps.
      programs: all that were compiled.
    """

    setup: EngineBuild
    asked: int
    answered: int
    expired: int
    cut: str
    seconds: float
    status: EngineStats
    steps: Summary
    programs: Sequence[Program]

    @property
    def tokens_per_second(self) -> float:
        """Tokens of answers, each counted once."""
        return self.status.drawn / self.seconds if self.seconds else 0.0

    @property
    def interrupted(self) -> bool:
        """Not all prompts came to an end."""
        return self.answered + self.expired < self.asked

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        setup, pool = self.setup, self.setup.room.pool
        return {
            "witness": "measured",
            "date": today(),
            "machine": host_key(),
            "jax": jax.__version__,
            "model": setup.settings.model,
            "provenance": setup.provenance.to_json(),
            "dtype": setup.dtype,
            "dtype_reason": setup.dtype_reason,
            "batch_invariant": setup.settings.batch_invariant,
            "context": setup.context,
            "policy": policy_json(setup.policy),
            "pool": dataclasses.asdict(pool),
            "pool_reason": setup.room.reason,
            "memory_estimate": {**setup.room.need._asdict(), "total": setup.room.need.total},
            "ladder": setup.ladder.to_json(),
            "prompts": self.asked,
            "answered": self.answered,
            "expired": self.expired,
            "interrupted": self.interrupted,
            "why": self.cut,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "prefix_hit_tokens": self.status.cached,
            "speculation": self._speculation(),
            "run": self.steps.to_json("monotonic"),
            "programs": programs_json(self.programs),
        }

    def table(self) -> Table:
        """The summary."""
        table = self.steps.table("monotonic")
        table.title = "The run"
        if self.setup.settings.remembers:
            table.add_row("prompt tokens found in the prefix cache", str(self.status.cached), "counted")
        if found := self._speculation():
            tried = f"{found['accepted']} of {found['tried']} tried, {found['offered']} offered"
            table.add_row("drafts accepted", tried, "counted")
            if found["acceptance_rate"] is not None:
                table.add_row("acceptance rate a", f"{found['acceptance_rate']:.3f}", "counted")
                table.add_row("tokens a verified row and step", f"{found['tokens_per_step']:.3f}", "counted")
                formula = f"(1 - a^(k+1)) / (1 - a), k = {found['drafts']}"
                table.add_row(f"the same by {formula}", f"{found['tokens_per_step_formula']:.3f}", "analytical")
        table.add_row("seconds", f"{self.seconds:.2f}", "measured")
        table.add_row("tokens of answers a second", f"{self.tokens_per_second:,.1f}", "measured")
        return table

    def head(self) -> str:
        """What runs here, in a few lines."""
        s, setup, kv_dtype = self.setup.settings, self.setup, self.setup.room.pool.dtype
        caveat = "" if s.batch_invariant else batch_caveat(setup.dtype, kv_dtype, "--batch-invariant or --dtype float32")
        return (
            f"{s.model} on {host_key()}, {today()}; weights {setup.dtype} ({setup.dtype_reason}), KV {kv_dtype}\n"
            f"{caveat}"
            f"{setup.provenance}\n"
            f"policy {policy_name(setup.policy)}, {s.kv} KV: {setup.room.reason}\n"
            f"memory: {setup.room.need.total / 1e9:.1f} GB at most, estimated"
        )

    def _speculation(self) -> dict[str, Any] | None:
        """Beside the formula, Leviathan et al. 2023, equation 1; None where nothing drafts."""
        drafter, found = self.setup.settings.drafter, self.status.acceptance
        if drafter is None:
            return None
        return {
            "drafts": drafter.drafts,
            "verified": found.steps,
            "offered": found.offered,
            "tried": found.tried,
            "accepted": found.accepted,
            "acceptance_rate": found.rate,
            "tokens_per_step": found.tokens_per_step,
            "tokens_per_step_formula": found.expected(drafter.drafts),
        }
