"""Many points at once. Oracle: `step_cost` of one point at a time, in f64."""

import numpy as np
import pytest

from costmodel.analytical.step import step_cost
from costmodel.analytical.sweep import sweep
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import CHIPS
from models.errors import UserError


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("llama-3-8b", {}),
        ("gemma-3-1b", {"kind": "prefill"}),
        ("mixtral-8x7b", {"dtype": "int8", "tensor_parallel": 4}),
        ("deepseek-v2-lite", {"detail": "nominal"}),
    ],
)
def test_random_points_against_single_calls(model, more):
    random, names, n = np.random.default_rng(1), list(CHIPS), 20_000
    which, batch, context = random.integers(0, len(names), n), random.integers(1, 1025, n), random.integers(1, 8193, n)
    found = sweep(model, names, which, batch, context, **more)
    assert found.seconds.shape == (n,)
    for i in random.integers(0, n, 40):
        one = step_cost(model, batch=int(batch[i]), context=int(context[i]), chip=names[which[i]], **more)
        assert found.seconds[i] == pytest.approx(one.seconds(), rel=2e-6)
        assert found.tokens_per_second[i] == pytest.approx(one.tokens_per_second(), rel=2e-6)
        assert found.intensity[i] == pytest.approx(one.intensity, rel=2e-6)
        times = sorted((one.memory_seconds(), one.compute_seconds(), one.link_seconds()))
        assert found.bound[i] == one.bound() or times[2] / times[1] < 1 + 1e-5  # a tie may fall either way in f32


def test_a_grid():
    chips: list[Chip | str] = [CHIPS["h100-sxm"], "v6e"]
    found = sweep("llama-3-8b", chips, np.arange(2)[:, None, None], np.array([1, 64])[:, None], np.array([100, 1000, 8192]))
    assert found.seconds.shape == found.bound.shape == (2, 2, 3)
    assert found.seconds[1, 0, 2] == pytest.approx(
        step_cost("llama-3-8b", batch=1, context=8192, chip="v6e").seconds(), rel=2e-6
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2], [1], [1]), "which must hold whole numbers from 0 to 1"),
        (([-1], [1], [1]), "which must hold whole numbers from 0 to 1"),
        (([0.5], [1], [1]), "which must hold whole numbers"),
        (([0, 1], [1, 0], [1]), "batch is 0"),
        (([0], [1], [8193]), "context is 8193; it must be at most 8192, the longest that llama-3-8b takes"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        sweep("llama-3-8b", ["h100", "v5e"], *arguments)


def test_a_dtype_that_one_of_the_chips_lacks():
    with pytest.raises(UserError, match="chip h100-sxm, tpu-v5e: no dense peak for float8; it has bfloat16, int8"):
        sweep("llama-3-8b", ["h100", "v5e"], [0], [1], [1], dtype="float8")
