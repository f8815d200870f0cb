"""Our engine under each policy, as one of the systems that a benchmark compares."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from jaxserve import Engine, SamplingParams
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.model import Model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets, powers
from jaxserve.programs.program_set import Program
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.static import Static
from scripts.served import Served
from scripts.workload import Workload

PAGE = 16
PIECE = 16  # tokens of a prefill program's row: a prompt fills up its last one only, so short prompts pad little
PIECES = (1, 2, 4, 8, 16)  # rows of the prefill programs: close together where prompts join a decode, for that is padded too
# (file, function) of each thing that the host does for a step; the last two hold time of the device as well
HOST_PARTS = {
    "plan": ("scheduler.py", "plan"),
    "pack": ("prepare_inputs.py", "pack"),
    "unpack": ("output_processor.py", "unpack"),
    "update": ("scheduler.py", "update"),
    "learn": ("model_runner.py", "learn"),
    "list": ("model_runner.py", "drawn"),
    "record": ("core.py", "_record"),
    "fill in": ("model_runner.py", "fill"),
    "dispatch, with what the device does at once": ("model_runner.py", "dispatch"),
    "wait for the device": ("model_runner.py", "wait"),
}


class Ours:
    """An engine that is compared.

    Args:
      name, settings: what it is called and how it is set, in words.
      policy: who runs when.
      programs: its ladder.
      pages: of the pool: enough for whatever is served at once, so that nothing is ever preempted.
      prepared: of another of these with the same programs, which then serve here too.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        policy: Policy,
        programs: Buckets,
        pages: int,
        compiled: Callable[[Program], None] = lambda program: None,
        prepared: CompiledPrograms | None = None,
    ):
        self.name = name
        self.settings = f"{model.dtype}, {policy.limits.rows} rows"
        if isinstance(policy, Chunked):
            self.settings += f", {policy.budget} tokens a step"
        self.engine = Engine(model, policy, KVLayout(pages, PAGE, model.dtype), programs, compiled=compiled, prepared=prepared)

    def serve(self, workload: Workload) -> Served:
        engine, waiting, handles = self.engine, deque(workload.items), []
        engine.records.clear()
        start = time.monotonic()  # the engine's clock
        while waiting or not engine.idle:
            while waiting and start + waiting[0].arrival <= time.monotonic():
                item = waiting.popleft()
                handles.append(engine.submit(item.prompt, SamplingParams(max_tokens=item.output, ignore_eos=True)))
            if engine.idle:
                time.sleep(max(start + waiting[0].arrival - time.monotonic(), 0))
                continue
            engine.step()
            engine.wait()
        times = [handle.token_times[0] for handle in handles]
        seconds = max(each[-1] for each in times) - start
        return Served(seconds, [handle.answers[0].tokens for handle in handles], times, tuple(engine.records))

    def host_parts(self, workload: Workload) -> dict[str, float]:
        """ms a step of each of the host's tasks while the workload is served, under Python's profiler, which makes all of them slower."""
        with cProfile.Profile() as profiler:
            steps = len(self.serve(workload).records)
        found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # not in the type stubs, but documented
        seconds = {(Path(file).name, function): entry[3] for (file, _, function), entry in found.items()}
        return {name: seconds[place] * 1e3 / steps for name, place in HOST_PARTS.items()}


def policy_of(name: str, rows: int, budget: int, ahead: int = 1) -> Policy:
    """static, continuous or chunked.

    Args:
      budget: tokens of a step where it is chunked.
      ahead: steps that are planned while one runs, so that the host's work is hidden behind it.

    Raises:
      UserError: a budget smaller than the rows.
    """
    limits = Limits(rows=rows, ahead=ahead)
    if name == "chunked":
        return Chunked(limits, budget, piece=PIECE)
    return Static(limits) if name == "static" else Continuous(limits)


def ladder(policy: str, rows: int, context: int) -> Buckets:
    """The programs of a policy.

    A static batch keeps its shape until its longest answer ends, so it has one decode program, of all its rows. The other policies share
    a ladder: decodes by powers of two, prefills, and each decode together with each prefill.
    """
    batches = (rows,) if policy == "static" else powers(rows, min(rows, 8))
    mixed = () if policy == "static" else batches
    return Buckets(batches, (-(-context // PAGE),), (PIECES[-1], PIECE), PAGE, PIECES[:-1], mixed)
