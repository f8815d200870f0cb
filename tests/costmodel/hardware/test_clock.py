"""Summaries of timings, laps with an injected timer, and contention from a made-up /proc."""

import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.hardware.clock import Clock, RunQueue, Timings, nearest_rank
from models.errors import UserError


def test_nearest_rank():
    hundred = Timings(tuple(float(n) for n in range(100, 0, -1)))
    assert (hundred.p95, hundred.percentile(5), hundred.percentile(100), hundred.median) == (95, 5, 100, 50.5)
    assert hundred.spread == 90 / 50.5
    assert (hundred.count, hundred.best, hundred.total) == (100, 1, 5050)
    few = Timings((3.0, 1.0, 2.0))
    assert (few.p95, few.median) == (3, 2)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60), st.decimals("0.01", 100, places=2))
def test_percentile_against_its_definition(seconds, percent):
    timings = Timings(tuple(seconds))
    value = timings.percentile(float(percent))
    assert value in seconds
    assert sum(v <= value for v in seconds) * 100 >= percent * len(seconds)
    assert sum(v < value for v in seconds) * 100 < percent * len(seconds)
    assert timings.median == statistics.median(seconds)


@given(st.integers(1, 10**6), st.decimals("0.001", 100, places=3))
def test_the_rank_is_exact(count, percent):
    """Oracle: the smallest whole number that is enough, in fractions of the number as it is written."""
    rank = nearest_rank(float(percent), count)
    share = Fraction(percent) * count / 100
    assert rank - 1 < share <= rank


def test_no_rank_is_one_too_high():
    """P16.1 of 1,000 values is the 161st, and 16.1 * 1000 / 100 of floats is above 161."""
    assert [nearest_rank(i / 10, 1000) for i in range(1, 1001)] == list(range(1, 1001))
    assert nearest_rank(100, 7) == 7 and nearest_rank(1e-9, 7) == 1


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_percentile_out_of_range(percent):
    with pytest.raises(UserError, match=f"percentile {percent} is out of range"):
        Timings((1.0,)).percentile(percent)


def test_nothing_timed():
    with pytest.raises(UserError, match="nothing was timed"):
        _ = Clock().timings


def test_laps():
    ticks = iter([0.0, 1.5, 2.0, 10.0, 12.0])
    clock = Clock(lambda: next(ticks))
    with clock.lap():
        pass
    with pytest.raises(RuntimeError), clock.lap():
        raise RuntimeError
    with clock.lap():
        pass
    assert clock.timings.seconds == (1.5, 2.0)


def thread(process, name, text):
    folder = process / "task" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(text)


def test_contention(tmp_path):
    thread(tmp_path, "1", "1000 100 5\n")
    thread(tmp_path, "2", "500 0 5\n")
    thread(tmp_path, "3", "77 9999 5\n")
    with RunQueue(tmp_path) as queue:
        assert queue.contention is None
        thread(tmp_path, "1", "2000 300 6\n")
        (tmp_path / "task" / "3" / "schedstat").unlink()  # a thread that ends takes its counts with it
        thread(tmp_path, "4", "1000 200 6\n")
        thread(tmp_path, "5", "nonsense\n")
    assert queue.contention == (200 + 200) / (1000 + 1000)


def test_contention_unknown(tmp_path):
    with RunQueue(tmp_path) as queue:
        pass
    assert queue.contention is None
