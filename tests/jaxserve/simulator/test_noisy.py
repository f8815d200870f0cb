"""Steps that stray. Oracle: the distribution that the quantiles describe, worked out by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from jaxserve.scheduling.plan import Plan
from jaxserve.simulator.pace import Noisy
from models.errors import UserError


def test_draws_are_of_the_quantiles():
    """Half of all errors lie in [-0.1, 0], evenly, and half in [0, 0.3]: mean (-0.05 + 0.15) / 2, sd of it 0.001 over 10,000 draws."""
    noisy = Noisy(lambda plan: 2.0, (-0.1, 0.0, 0.3))
    drawn = [noisy.error(step) for step in range(10_000)]
    assert min(drawn) >= -0.1 and max(drawn) <= 0.3
    assert statistics.fmean(drawn) == pytest.approx(0.05, abs=0.005)
    assert np.quantile(drawn, (0.25, 0.5, 0.75)) == pytest.approx((-0.05, 0.0, 0.15), abs=0.01)


def test_a_step_takes_what_is_drawn_for_it_whenever_it_is_asked():
    noisy, other = Noisy(lambda plan: 2.0, (-0.1, 0.0, 0.3)), Noisy(lambda plan: 2.0, (-0.1, 0.0, 0.3), seed=1)
    plans = [Plan(step, ids=(0,)) for step in range(20)]
    there, back = [noisy(plan) for plan in plans], [noisy(plan) for plan in reversed(plans)]
    assert there == back[::-1] and len(set(there)) == 20 and there != [other(plan) for plan in plans]
    assert there == [2.0 * math.exp(noisy.error(step)) for step in range(20)]


def test_where_nothing_strays_nothing_changes():
    assert Noisy(lambda plan: 0.25, (0.0,))(Plan(7)) == 0.25


def test_without_errors_nothing_can_be_drawn():
    with pytest.raises(UserError, match="no errors of steps are known"):
        Noisy(lambda plan: 1.0, ())
