"""Makes the systems that `scripts/bench_engine.py` compares, and lets them take turns."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from costmodel.hardware.clock import RunQueue
from costmodel.hardware.host import host_key, today
from costmodel.terminal import cli
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.engine.model import load_model
from jaxserve.programs.buckets import Buckets
from jaxserve.scheduling.policy import Policy
from models.checkpoint.sources import open_checkpoint
from models.errors import UserError
from scripts.engine_ours import PAGE, Ours, ladder, policy_of
from scripts.engine_results import EXPOSED, HIDDEN, results
from scripts.served import Served
from scripts.workload import Item, Workload

PURE_STEPS = 130  # of the run that looks at single steps: more than 100, for a P99
PEER_TOKENS = {"transformers": 256, "llama.cpp": 512}  # of a step at most; transformers took equal time with 128, 256 and 512
PACKAGES = {"transformers": ("transformers", "torch"), "llama.cpp": ("llama-cpp-python",)}
WARM = 8  # requests that each system serves before anything is timed


class System(Protocol):
    """What takes turns: a name, what it was set to, and `serve`."""

    name: str
    settings: str

    def serve(self, workload: Workload) -> Served:
        """Serve all of it, each answer to its full length, and wait for the last token."""


def compare(
    model: str,
    policies: Sequence[str],
    peers: Sequence[str],
    bars: cli.Bars,
    *,
    tell: Callable[[str], None],
    trace: Path | None,
    context: int,
    repeat: int,
    rows: int,
    transformers_rows: int,
    budget: int,
    dtype: str,
    **draw: Any,
) -> dict[str, Any]:
    """Everything, as plain data; see the options of `scripts/bench_engine.py`. `tell` is given a line after each run."""
    chosen = {name: policy_of(name, rows, budget) for name in policies}
    facts = {"machine": host_key(), "date": today(), "dtype": dtype, **versions(peers)}
    workload = Workload.of(trace, open_checkpoint(model).tokenizer(), context=context, **draw)
    single = steady(workload, rows, context)
    with tempfile.TemporaryDirectory() as folder:
        ours, exposed, hidden = make_ours(model, chosen, workload, single, rows, dtype, bars)
        systems: list[System] = [*ours, *make_peers(peers, workload, rows, transformers_rows, Path(folder))]
        runs: dict[str, list[Served]] = {system.name: [] for system in systems}
        steps: dict[str, list[Served]] = {EXPOSED: [], HIDDEN: []}
        advance = bars.bar("runs", (repeat + 1) * (len(systems) + 2))
        warm = dataclasses.replace(workload, items=tuple(item._replace(arrival=0.0) for item in workload.items[:WARM]))
        for system in (*systems, exposed, hidden):
            system.serve(warm)
            advance(1)
        for number in range(1, repeat + 1):
            for system in systems:
                served = clocked(system, workload)
                runs[system.name].append(served)
                advance(1)
                tell(f"round {number}, {system.name}: {served.seconds:.1f} s, {served.useful:.1f} tokens/s of answers")
            for how, engine in ((EXPOSED, exposed), (HIDDEN, hidden)):
                steps[how].append(clocked(engine, single))
                advance(1)
    parts = exposed.host_parts(single)
    settings = {system.name: system.settings for system in systems}
    return {"facts": facts, **results(workload, rows, settings, runs, steps, parts)}


def clocked(system: System, workload: Workload) -> Served:
    """A run, with how busy the machine was otherwise."""
    with RunQueue() as queue:
        served = system.serve(workload)
    for item, answer in zip(workload.items, served.tokens, strict=True):
        if len(answer) != item.output:
            raise RuntimeError(f"{system.name} gave {len(answer)} tokens where {item.output} were asked for")
    return served._replace(contention=queue.contention)


def steady(workload: Workload, rows: int, context: int) -> Workload:
    """A request a row, with prompts of the workload's mean length and answers all equally long: nearly all steps decode all rows."""
    output = min(PURE_STEPS, context // 2)
    length = min(max(workload.prompt_tokens // len(workload.items), 1), context - output)
    tokens = itertools.cycle(itertools.chain.from_iterable(item.prompt for item in workload.items))
    return Workload(tuple(Item(tuple(itertools.islice(tokens, length)), output) for _ in range(rows)))


def make_ours(
    model: str, policies: Mapping[str, Policy], workload: Workload, single: Workload, rows: int, dtype: str, bars: cli.Bars
) -> tuple[list[Ours], Ours, Ours]:
    """An engine a policy; one that plans nothing ahead, which shows all of the host's work; and one that does, under the same policy, which
    fills every row at once, as a chunked one with a small budget never does. Each has a pool of its own; those with the same ladder share
    its programs."""
    loaded = load_model(model, dtype=dtype, context=max(workload.longest, single.longest))
    pages = max(each.room(rows, PAGE) for each in (workload, single))
    engines = {name: (policy, ladder(name, rows, loaded.context)) for name, policy in policies.items()}
    for how, ahead in ((EXPOSED, 0), (HIDDEN, 1)):
        engines[how] = policy_of("continuous", rows, rows, ahead=ahead), ladder("static", rows, loaded.context)
    advance = bars.bar("compiling", sum(len(programs.buckets()) for programs in {programs for _, programs in engines.values()}))
    prepared: dict[Buckets, CompiledPrograms] = {}
    found = []
    for name, (policy, programs) in engines.items():
        found.append(Ours(loaded, name, policy, programs, pages, lambda program: advance(1), prepared.get(programs)))
        prepared[programs] = found[-1].engine.prepared
    return found[:-2], found[-2], found[-1]


def make_peers(peers: Sequence[str], workload: Workload, rows: int, transformers_rows: int, folder: Path) -> Iterator[System]:
    """The other engines."""
    if not peers:
        return
    from scripts.engine_peers import LlamaParallel, TransformersBatching
    from scripts.peers import write_gguf

    if "transformers" in peers:
        yield TransformersBatching(transformers_rows, PEER_TOKENS["transformers"])
    if "llama.cpp" in peers:
        gguf = write_gguf(folder / "f32.gguf", np.float32)
        yield LlamaParallel(gguf, rows, PEER_TOKENS["llama.cpp"], workload.longest)


def versions(peers: Sequence[str]) -> dict[str, str]:
    """Of the packages that take part. Raises UserError for a peer that is not installed."""
    found = {"jax": importlib.metadata.version("jax")}
    for peer in peers:
        for package in PACKAGES[peer]:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                raise UserError(f"{package} is not installed; run `make test-all`, or leave {peer} out of --peers") from None
    return found
