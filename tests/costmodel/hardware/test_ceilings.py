"""Races, ceilings and the choice of dtype with a made-up timer: no test here depends on how fast this machine is."""

import dataclasses

import pytest

from costmodel.hardware import ceilings as measure
from costmodel.hardware import probes as kernels
from costmodel.hardware.host import Store, host_key
from models.errors import UserError


class Machine:
    """A machine whose runs take the time that they are told to: its clock advances only while one runs."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def timer(self):
        return self.now

    def run(self, name, *seconds):
        """Takes seconds[0] on the warm-up call, then the others in turn."""
        times = iter(seconds)

        def call():
            self.log.append(name)
            self.now += next(times)

        return call


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "ceilings.json")


@pytest.fixture
def quiet(monkeypatch):
    """Contention of every measurement; a test may change it."""
    level = {"value": 0.0}

    class Queue:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.contention = level["value"]

    monkeypatch.setattr(measure, "RunQueue", Queue)
    return level


def test_a_measurement_is_the_median_of_runs_after_warming_up(quiet):
    machine = Machine()
    found = measure.measure(machine.run("a", 50, 40, 3e-3, 1e-3, 2e-3), repeats=3, warmup=2, timer=machine.timer)
    assert found.timings.seconds == pytest.approx((3e-3, 1e-3, 2e-3), abs=1e-12) and found.seconds == pytest.approx(
        2e-3, abs=1e-12
    )
    assert found.host == host_key() and not found.busy
    assert found.note == f"median of 3 runs, P5 1.00 to P95 3.00 ms, {found.date}, {host_key()}"
    with pytest.raises(UserError, match="repeats is 0 and warmup 2; both must be at least 1"):
        measure.measure(lambda: None, repeats=0)


def test_a_machine_under_load_is_said(quiet):
    quiet["value"] = 0.7
    machine = Machine()
    found = measure.measure(machine.run("a", 1, 1, 1), repeats=1, timer=machine.timer)
    assert found.busy and found.note.endswith("; the machine was under load (contention 0.70): measure again")


def test_race_warms_up_and_interleaves():
    machine = Machine()
    timings = measure.race({"a": machine.run("a", 9, 1, 2), "b": machine.run("b", 9, 4, 3)}, rounds=2, timer=machine.timer)
    assert {name: t.seconds for name, t in timings.items()} == {"a": (1, 2), "b": (4, 3)}
    assert machine.log == ["a", "b"] * 3
    with pytest.raises(UserError, match="rounds is 0"):
        measure.race({}, rounds=0)


def fake_ceilings(machine):
    def probe(amount, *seconds):
        return kernels.Probe(machine.run("p", *seconds), amount)

    return measure.measure_ceilings(
        read={"slow": probe(100.0, 0, 4, 5), "fast": probe(100.0, 0, 9, 2)},
        f32={"64 rows": probe(300.0, 0, 1, 3)},
        bf16={"64 rows": probe(300.0, 0, 1, 1), "256 rows": probe(1000.0, 0, 2, 2)},
        rounds=2,
        timer=machine.timer,
    )


def test_ceilings_keep_the_best_and_say_which(quiet):
    result = fake_ceilings(Machine())
    assert (result.read_bandwidth, result.read_by) == (50, "fast")
    assert (result.matmul_f32, result.matmul_bf16, result.matmul_bf16_by) == (300, 500, "256 rows")
    assert (result.host, result.contention) == (host_key(), 0)
    chip = result.chip()
    assert (chip.source, chip.bandwidth, chip.peak(2), chip.peak(4)) == ("measured", 50, 500, 300)


def test_ceilings_are_measured_once(store, quiet):
    first = measure.ceilings(store=store, measure=lambda: fake_ceilings(Machine()))
    assert measure.ceilings(store=store, measure=lambda: pytest.fail("measured again")) == first


def test_ceilings_of_a_busy_machine_are_not_kept(store, quiet):
    quiet["value"] = 0.5
    assert measure.ceilings(store=store, measure=lambda: fake_ceilings(Machine())).contention == 0.5
    assert not store.path.exists()


def test_an_entry_of_another_version_is_measured_again(store, quiet):
    store.put(host_key(), "ceilings", {"host": "x", "old_field": 1})
    assert measure.ceilings(store=store, measure=lambda: fake_ceilings(Machine())).read_bandwidth == 50


def choice(rows=(1, 8), contention=0.0, **seconds):
    return measure.DtypeChoice("host", "2026-01-31", contention, list(rows), seconds)


def test_the_faster_dtype_wins_by_geometric_mean():
    won = choice(float32=[2.0, 8.0], bfloat16=[2.5, 4.0])
    assert won.winner == "bfloat16"
    assert won.reason == "bfloat16: 1.26 times the speed of float32 (rows: 0.80 at 1, 2.00 at 8), measured 2026-01-31"


def test_the_first_dtype_stays_unless_clearly_beaten():
    assert choice(float32=[1.0, 1.0], bfloat16=[0.97, 0.97]).winner == "float32"
    assert choice(float32=[1.0, 1.0], bfloat16=[0.94, 0.94]).winner == "bfloat16"
    slow = choice(float32=[1.0, 1.0], bfloat16=[8.0, 8.0])
    assert slow.reason.startswith("float32: 8.00 times the speed of bfloat16")


def test_a_busy_machine_is_said():
    assert choice(contention=1.06, float32=[1.0, 1.0]).reason.endswith(
        "the only dtype tried, measured 2026-01-31; measured on a busy machine, contention 1.06"
    )


def test_measure_dtypes_and_its_cache(store, quiet):
    machine = Machine()

    def run(rows):
        stacks = {"float32": lambda n: machine.run("f", 0, 3 * n, 2 * n), "bfloat16": lambda n: machine.run("b", 0, n, 5 * n)}
        return measure.measure_dtypes(stacks, rows, rounds=2, timer=machine.timer)

    first = measure.default_dtype((2, 8), store=store, measure=run)
    assert first.seconds == {"float32": [4, 16], "bfloat16": [2, 8]}
    again = measure.default_dtype((2, 8), store=store, measure=lambda rows: pytest.fail("measured again"))
    assert again == first and again.winner == "bfloat16"
    assert measure.default_dtype((1,), store=store, measure=run).rows == [1]  # other rows are another question
    with pytest.raises(UserError, match=r"rows are \[0\]"):
        measure.measure_dtypes({}, [0])
    with pytest.raises(UserError, match=r"rows are \[\]"):
        measure.measure_dtypes({}, [])


def test_the_default_probes_run():
    """Their amounts are what they say; how fast they are is no business of a test."""
    read = kernels.read_probes(size=2**20)
    assert all(probe.amount == 2**20 for probe in read.values())
    assert float(read["jax sum"].run()) == 2**18
    probes = {name: probe for name, probe in kernels.matmul_probes("bfloat16").items() if name.startswith("64 ")}
    result = measure.measure_ceilings(read, probes, probes, rounds=1)
    assert dataclasses.asdict(result) and min(result.read_bandwidth, result.matmul_f32, result.matmul_bf16) > 0


def test_the_default_stacks_yield_a_token_for_each_row():
    stacks = kernels.decode_stacks(layers=1)
    assert [stacks[name](rows)().shape for name in ("float32", "bfloat16") for rows in (1, 3)] == [(1,), (3,), (1,), (3,)]
