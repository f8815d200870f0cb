"""Compiled functions that are kept: the same machine code, the same cost, and nothing is traced; whatever differs is compiled anew.

Oracles: the function itself in NumPy, the compiled function's own text and totals, and how often Python ran it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

from jaxserve.engine.compiled_programs import KVCopier
from jaxserve.llm import LLM
from jaxserve.programs import executable as kept
from jaxserve.programs.bucket import Bucket
from jaxserve.programs.compile_cache import CompileCache
from jaxserve.programs.executable import Executable, executable, program_key
from jaxserve.programs.program_set import blank, compile_programs
from jaxserve.programs.step import Step
from jaxserve.sampling_params import SamplingParams
from models.checkpoint.base import RandomCheckpoint
from models.checkpoint.load import load
from models.forward import Serving, serving
from models.kv_cache import PagedKV
from tests.jaxserve import tiny

pytestmark = pytest.mark.usefixtures("without_jax_cache")

X = np.arange(6, dtype=np.float32)


class Traced:
    """x -> 2 x + 1, and how often it was traced."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, x: jax.Array) -> jax.Array:
        self.times += 1
        with jax.named_scope("mine"):
            return 2 * x + 1


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "programs")


def made(cache: CompileCache | None, function: Any = None, x: Any = X, what: Any = "2 x + 1") -> Executable:
    return executable(function or Traced(), (jnp.asarray(x),), what, donate=0, cache=cache)


def entries(cache: CompileCache) -> list[Path]:
    return sorted(cache.folder.glob("*.program"))


@pytest.mark.slow
def test_beside_jaxs_own_cache_nothing_is_kept(tmp_path: Path):
    """Three processes: JAX's cache is filled by the first; what the second kept of it could not be run by the third."""
    body = """
        import sys; from pathlib import Path
        import jax.numpy as jnp
        from jaxserve.programs.compile_cache import CompileCache
        from jaxserve.programs.executable import executable
        table, at = jnp.ones((50, 8)), jnp.arange(8)
        def total(table, at): return jnp.sort(table[at].sum(0) + (table @ table.T)[:8, 0])[::-1].cumsum()
        cache = CompileCache(Path(sys.argv[1])) if len(sys.argv) > 1 else None
        print(float(executable(total, (table, at), "total", donate=0, cache=cache).compiled(table, at)[-1]))
    """
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    for arguments in ((), (str(tmp_path / "ours"),), (str(tmp_path / "ours"),)):
        command = [sys.executable, "-c", textwrap.dedent(body), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "128.0\n"), done.stderr
    assert not list((tmp_path / "ours").glob("*.program")) and list((tmp_path / "jax").iterdir())


def test_the_second_one_is_taken_and_not_traced(cache: CompileCache):
    functions = Traced(), Traced()
    first, second = made(cache, functions[0]), made(CompileCache(cache.folder), functions[1])
    assert [function.times for function in functions] == [1, 0] and not first.kept and second.kept and len(entries(cache)) == 1
    assert second.totals == first.totals and second.totals.flops and second.loops == first.loops
    assert second.text == first.text == first.compiled.as_text() and "mine" in second.text
    for one in (first, second):
        x = jnp.asarray(X)
        np.testing.assert_array_equal(one.compiled(x), 2 * X + 1)
        assert x.is_deleted()  # donated, whether kept or not


def test_without_a_folder_nothing_is_kept():
    functions = Traced(), Traced()
    assert not any(made(None, function).kept for function in functions)
    assert [function.times for function in functions] == [1, 1]


@pytest.mark.parametrize(
    "change", ["shape", "dtype", "weak type", "what", "flags", "settings", "context", "cpu", "cores", "source"]
)
def test_whatever_a_program_is_made_from_is_in_its_name(cache: CompileCache, change: str, monkeypatch: pytest.MonkeyPatch):
    """Among them the instruction sets: a program for others would end the process (SIGILL)."""
    made(cache)
    given: dict[str, Any] = {}
    undo = contextlib.ExitStack()
    match change:
        case "shape":
            given["x"] = X[:5]
        case "dtype":
            given["x"] = X.astype(np.int32)
        case "weak type":
            given["x"] = jnp.broadcast_to(1.0, 6)
            assert given["x"].weak_type
        case "what":
            given["what"] = "2 x + 2"
        case "flags":
            monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2")
        case "settings":
            undo.callback(jax.config.update, "jax_default_matmul_precision", jax.config.values["jax_default_matmul_precision"])
            jax.config.update("jax_default_matmul_precision", "highest")
        case "cpu":
            monkeypatch.setattr(kept, "processor", lambda: "one with avx512f")
        case "cores":
            monkeypatch.setattr(kept, "cores", lambda: 999)
        case "source":
            monkeypatch.setattr(kept, "source_digest", lambda: "another")
    if change == "context":
        undo.enter_context(jax.default_matmul_precision("float32"))
    with undo:
        assert not made(cache, **given).kept
    assert len(entries(cache)) == 2
    monkeypatch.undo()
    assert made(cache).kept


def test_the_source_is_all_of_ours_and_no_older_than_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "jaxserve_made_up"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "step.py").write_text("x = 1")
    module = type(sys)("jaxserve_made_up")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "jaxserve_made_up", module)
    monkeypatch.setattr(kept, "PACKAGES", ("jaxserve_made_up",))
    now = (package / "step.py").stat().st_mtime
    monkeypatch.setattr(kept, "process_start", lambda: now + 1)
    before = kept.source_digest.__wrapped__()
    assert before and before == kept.source_digest.__wrapped__()
    (package / "step.py").write_text("x = 2")
    os.utime(package / "step.py", (now, now))
    assert kept.source_digest.__wrapped__() not in (None, before)
    os.utime(package / "step.py", (now + 2, now + 2))  # this process may run what it said before
    assert kept.source_digest.__wrapped__() is None


def test_what_has_no_name_is_compiled_each_time(cache: CompileCache):
    assert not made(cache, what=lambda x: 2 * x + 1).kept and not made(cache, what=lambda x: 3 * x).kept
    assert entries(cache) == []


@pytest.mark.parametrize("content", [b"", b"nothing that zlib knows", "another pickle"], ids=str)
def test_an_entry_that_jax_cannot_take_is_replaced(cache: CompileCache, content: Any, caplog: pytest.LogCaptureFixture):
    """Its digest is right, so it was put there so."""
    first = made(cache)
    (entry,) = entries(cache)
    cache.put(entry.stem, zlib.compress(pickle.dumps(content)) if isinstance(content, str) else content)
    assert not made(cache).kept and made(cache).kept
    cache.tell()
    (record,) = caplog.records
    assert record.getMessage().startswith("1 kept program in ") and "\n" not in record.getMessage()
    assert made(cache).totals == first.totals


def test_a_backend_that_cannot_write_programs_down(
    cache: CompileCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(compiled: Any) -> Any:
        raise ValueError("Compilation does not support serialization\nand more")

    monkeypatch.setattr(serialize_executable, "serialize", refuse)
    np.testing.assert_array_equal(made(cache).compiled(X), 2 * X + 1)
    made(cache)
    cache.tell()
    (record,) = caplog.records
    assert (
        "can't be kept" in record.getMessage()
        and "ValueError: Compilation does not support serialization)" in record.getMessage()
    )


@pytest.fixture(scope="module")
def parts() -> tuple[Step, Serving, PagedKV]:
    """The first layer of a tiny model."""
    config = tiny.model("llama")[0].first_layers(1)
    graph, state = load(RandomCheckpoint("tiny", config), jnp.dtype("float32"))
    return Step(graph, config), serving(config, state, 8), PagedKV.zeros(config, 4, 4, jnp.float32)


def test_a_kept_step_is_the_same_step_with_the_same_cost(
    cache: CompileCache, parts: tuple[Step, Serving, PagedKV], monkeypatch: pytest.MonkeyPatch
):
    """The second time whoever traces fails."""
    step, weights, pool = parts
    bucket = Bucket(((2, 1),), 2)
    first = compile_programs(step, weights, pool, [bucket], cache=cache)[bucket]
    monkeypatch.setattr("jaxserve.programs.step.forward", None)
    second = compile_programs(step, weights, pool, [bucket], cache=cache)[bucket]
    assert not first.kept and second.kept and first.totals == second.totals and first.loops == second.loops
    work = blank(bucket, pool.units)
    work[0].segment.tokens[:], work[0].segment.count[:], work[0].segment.table[:, 0] = [[3], [5]], 1, [0, 1]
    found = []
    for program in (first, second):
        _, (output,) = program(jax.tree.map(jnp.copy, pool), work)
        found.append(np.asarray(output.tokens).tolist())
    assert found[0] == found[1]
    one, two = (program.ledger(program.trips([[(1, 1), (1, 1)]])) for program in (first, second))
    assert one.lines == two.lines and one.traffic.bytes > 0


def test_only_a_step_itself_is_kept(cache: CompileCache, parts: tuple[Step, Serving, PagedKV]):
    """A class of somebody's may do anything, and its source is not ours."""

    class Mine(Step):
        def __call__(self, serving: Any, kv: Any, work: Any) -> Any:
            return kv, ()

    step, weights, pool = parts
    compile_programs(Mine(step.graph, step.config), weights, pool, [Bucket(((1, 1),), 2)], cache=cache)
    assert not cache.folder.exists()


def test_copies_are_kept_too(cache: CompileCache, parts: tuple[Step, Serving, PagedKV], monkeypatch: pytest.MonkeyPatch):
    pool = jax.tree.map(lambda a: a.at[0].set(1), parts[2])
    KVCopier(pool, 2, workers=True, cache=cache)
    assert len(entries(cache)) == 4
    monkeypatch.setattr("jaxserve.engine.compiled_programs.copy_units", None)
    moved = KVCopier(pool, 2, workers=True, cache=cache).copy(pool, [(0, 1)])
    assert all((np.asarray(a[:2]) == 1).all() and not a[2:].any() for a in moved.keys)


@pytest.mark.parametrize("name", tiny.KINDS)
def test_every_architectures_step_has_a_name(name: str):
    config, (graph, _) = tiny.model(name)
    assert program_key((X,), Step(graph, config), 0, jax.devices()[0])


NAME = """
import jax
from jaxserve.programs.executable import program_key
from jaxserve.engine.model import load_model
model = load_model("random:tiny", dtype="float32", context=32)
arguments = jax.tree.leaves(model.serving), model.empty_pool(2, 16, "float32")
print(program_key(arguments, model.step, 1, jax.devices()[0]))
"""


@pytest.mark.slow
def test_the_name_is_the_same_in_the_next_process():
    """Whatever Python's hashes are: a name of its own for each process would never be found."""
    names = {
        subprocess.run(
            [sys.executable, "-c", NAME],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (name,) = names
    assert len(name.strip()) == 64
    assert program_key((X,), "what", 0, jax.devices()[0])


@pytest.mark.slow
def test_two_folders_in_one_process(tmp_path: Path):
    """cases.md, Compile cache: a second folder in one process takes its programs too, and a second start compiles none."""
    answers = []
    for name in ("A", "B", "A"):
        with LLM("random:tiny", dtype="float32", rows=1, context=16, page_size=8, compile_cache=tmp_path / name) as llm:
            answers.append([one.text for one in llm.generate(["x"], SamplingParams(max_tokens=3))])
            programs = [program.kept for program in llm.engine.programs]
            assert all(programs) if len(answers) == 3 else not any(programs)
    kept_in = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in "AB"]
    assert kept_in[0] == kept_in[1] and kept_in[0] and answers[0] == answers[1] == answers[2]
