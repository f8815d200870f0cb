"""Units. Oracle: powers of ten and of two, by hand."""

from __future__ import annotations

import click
import pytest

from jaxserve.load.units import Unit, rate, seconds, size
from models.errors import UserError


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (seconds, "250ms", 0.25),
        (seconds, " 12 ms ", 0.012),
        (seconds, "1.5s", 1.5),
        (seconds, "2min", 120.0),
        (seconds, "3e2us", 3e-4),
        (seconds, ".5h", 1800.0),
        (rate, "20/s", 20.0),
        (rate, "90/min", 1.5),
        (rate, "7200 /h", 2.0),
        (size, "30GiB", 30 * 2**30),
        (size, "80GB", 80 * 10**9),
        (size, "1.5KiB", 1536),
        (size, "7B", 7),
    ],
)
def test_values(read, text: str, value: float):
    assert read(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (seconds, "250", "no unit"),
        (seconds, "20/s", "'/s'"),
        (seconds, "5 parsecs", "'parsecs'"),
        (seconds, "0ms", "above 0"),
        (seconds, "-3ms", "above 0"),
        (seconds, "1e999s", "from 1e-09s to 1e+09s"),
        (seconds, "1e-300s", "from 1e-09s to 1e+09s"),
        (seconds, "1e6h", "from 1e-09s to 1e+09s"),
        (rate, "1e10/s", "from 1e-09/s to 1e+09/s"),
        (rate, "1e-9/h", "from 1e-09/s to 1e+09/s"),
        (size, "0.5B", "from 1B to 1e+18B"),
        (size, "1e300GB", "from 1B to 1e+18B"),
        (seconds, "fast", "a number with a unit"),
        (seconds, "", "a number with a unit"),
        (rate, "20", "no unit"),
        (rate, "250ms", "'ms'"),
        (rate, "0/s", "above 0"),
        (size, "30", "no unit"),
        (size, "30gib", "'gib'"),
        (size, "80 GBit", "'GBit'"),
    ],
)
def test_refusals_name_the_value_and_an_example(read, text: str, said: str):
    with pytest.raises(UserError) as refused:
        read(text, "--it")
    assert said in str(refused.value) and repr(text) in str(refused.value) and "--it" in str(refused.value)
    assert "such as" in str(refused.value)


def test_zero_where_it_makes_sense():
    assert seconds("0s", zero=True) == 0.0
    with pytest.raises(UserError, match="at least 0"):
        seconds("-1s", zero=True)


def test_as_an_option():
    @click.command()
    @click.option("--rate", type=Unit(rate, "RATE", several=True))
    @click.option("--for", "time", type=Unit(seconds, "TIME"), default="3s")
    def command(rate: tuple[float, ...], time: float) -> tuple[tuple[float, ...], float]:
        return rate, time

    assert command.main(["--rate", "1/s,30/min"], standalone_mode=False) == ((1.0, 0.5), 3.0)
    with pytest.raises(UserError, match="--rate"):
        command.main(["--rate", "1/s,30"], standalone_mode=False)
