"""Rotary tables against float64 arithmetic written out here, and frequencies against transformers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import rotary
from models.config.hf_config import from_hf
from models.config.hf_rope import TYPES
from models.config.model_config import RopeConfig
from models.errors import UserError
from tests.models import checkpoints

HEAD_DIM, FAR = 64, 131_071

ROPES = {
    "default": RopeConfig(theta=500_000.0),
    "linear": RopeConfig(kind="linear", factor=4.0),
    "dynamic": RopeConfig(kind="dynamic", factor=2.0, original_positions=4096),
    "llama3 8": RopeConfig(500_000.0, "llama3", 8.0, original_positions=8192),
    "llama3 32": RopeConfig(500_000.0, "llama3", 32.0, original_positions=8192),
    "yarn": RopeConfig(1_000_000.0, "yarn", 4.0, original_positions=32_768),
    "yarn, untruncated": RopeConfig(150_000.0, "yarn", 32.0, original_positions=4096, truncate=False),
    "yarn, mscale": RopeConfig(10_000.0, "yarn", 40.0, original_positions=4096, mscale=1.0, mscale_all_dim=0.707),
    "yarn, given factor": RopeConfig(10_000.0, "yarn", 4.0, original_positions=4096, attention_factor=1.5),
}


def angle_and_amplitude(rope: RopeConfig, i: int, position: int, context: int) -> tuple[float, float]:
    """Pair i of a head at a position, in Python floats, from the formulas of the papers."""
    theta, exponent = rope.theta, 2 * i / HEAD_DIM
    if rope.kind == "dynamic" and context > rope.original_positions:
        theta *= (rope.factor * context / rope.original_positions - rope.factor + 1) ** (HEAD_DIM / (HEAD_DIM - 2))
    f = theta**-exponent
    if rope.kind == "linear":
        f /= rope.factor
    if rope.kind == "llama3":
        wavelength = 2 * math.pi / f
        longest, shortest = rope.original_positions / rope.low_freq_factor, rope.original_positions / rope.high_freq_factor
        if wavelength > longest:
            f /= rope.factor
        elif wavelength >= shortest:
            smooth = rope.original_positions / wavelength - rope.low_freq_factor
            smooth /= rope.high_freq_factor - rope.low_freq_factor
            f = (1 - smooth) * f / rope.factor + smooth * f
    if rope.kind != "yarn":
        return position * f, 1.0

    def pair(turns: float) -> float:  # the pair that makes so many turns within the original context
        return HEAD_DIM * math.log(rope.original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, HEAD_DIM - 1.0)
    interpolated = min(max((i - low) / (high - low or 0.001), 0.0), 1.0)
    f = f / rope.factor * interpolated + f * (1 - interpolated)
    larger = max(math.log(rope.factor), 0)  # a factor below 1 changes no temperature
    amplitude = 0.1 * larger + 1
    if rope.mscale is not None and rope.mscale_all_dim is not None:
        amplitude = (0.1 * rope.mscale * larger + 1) / (0.1 * rope.mscale_all_dim * larger + 1)
    return position * f, rope.attention_factor or amplitude


FAR_RULES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32_768},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}


@pytest.mark.parametrize("kind", FAR_RULES)
def test_table_is_right_at_the_last_position_that_a_config_allows(kind: str):
    positions = 131_072 if kind == "llama3" else 32_768
    changes: dict[str, Any] = {
        "head_dim": HEAD_DIM,
        "max_position_embeddings": positions,
        "rope_scaling": {"type": kind, **FAR_RULES[kind]},
    }
    config = from_hf(checkpoints.hf_config(**changes))
    assert config.max_positions == 131_072
    last = rotary.table(config.rope, HEAD_DIM, config.max_positions)[-1]
    for i in range(HEAD_DIM // 2):
        angle, amplitude = angle_and_amplitude(config.rope, i, 131_071, 131_072)
        np.testing.assert_allclose(last[:, i], (amplitude * math.cos(angle), amplitude * math.sin(angle)), atol=3e-7)


REAL = st.floats(0.1, 64)
ENTRY = st.fixed_dictionaries(
    {"type": st.sampled_from([*FAR_RULES]), "factor": REAL, "low_freq_factor": REAL, "high_freq_factor": REAL},
    optional={
        "original_max_position_embeddings": st.integers(1, 1 << 17),
        "rope_theta": st.floats(1.1, 1e9),
        "beta_fast": REAL,
        "beta_slow": REAL,
        "truncate": st.booleans(),
        "attention_factor": REAL,
        "mscale": REAL,
        "mscale_all_dim": REAL,
    },
)


@given(ENTRY, st.integers(1, 1 << 17))
@settings(max_examples=150, deadline=None)
def test_frequencies_of_any_config_are_those_of_the_papers(entry: dict[str, Any], positions: int):
    of = {key: value for key, value in entry.items() if key in TYPES[entry["type"]] | {"type", "rope_theta"}}
    config = checkpoints.hf_config(rope_theta=None, head_dim=HEAD_DIM, max_position_embeddings=positions, rope_parameters=of)
    try:
        model = from_hf(config)
    except UserError:
        return
    rope, context = model.rope, model.max_positions
    frequencies, scale = rotary.inverse_frequencies(rope, HEAD_DIM, context), rotary.amplitude(rope)
    for i in range(HEAD_DIM // 2):
        angle, amplitude = angle_and_amplitude(rope, i, 1, context)
        np.testing.assert_allclose([frequencies[i], scale], [angle, amplitude], rtol=1e-9)


@pytest.mark.parametrize("name", ROPES)
def test_table_is_right_near_and_far(name: str):
    rope = ROPES[name]
    table = rotary.table(rope, HEAD_DIM, FAR + 1)
    assert table.shape == (FAR + 1, 2, HEAD_DIM // 2) and table.dtype == np.float32
    for position in (0, 1, 5000, FAR):
        for i in range(HEAD_DIM // 2):
            angle, amplitude = angle_and_amplitude(rope, i, position, FAR + 1)
            expected = amplitude * math.cos(angle), amplitude * math.sin(angle)
            np.testing.assert_allclose(table[position, :, i], expected, atol=3e-7, err_msg=f"{position}, pair {i}")


def test_dynamic_is_plain_within_the_original_context():
    rope = ROPES["dynamic"]
    plain = rotary.table(RopeConfig(), HEAD_DIM, rope.original_positions)
    np.testing.assert_array_equal(rotary.table(rope, HEAD_DIM, rope.original_positions), plain)


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0, "beta_slow": 2.0},
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_every_spelling_of_the_keys_means_the_same(kind: str):
    new = {"rope_type": kind, **SCALINGS[kind]}
    old = {"type": kind, **SCALINGS[kind]}
    ropes = [
        from_hf(checkpoints.hf_config(rope_theta=5e5, rope_scaling=new)).rope,
        from_hf(checkpoints.hf_config(rope_theta=5e5, rope_scaling=old)).rope,
        from_hf(checkpoints.hf_config(rope_theta=None, rope_parameters={"rope_theta": 5e5, **new})).rope,
    ]
    assert ropes[0] == ropes[1] == ropes[2]
    assert (ropes[0].kind, ropes[0].theta, ropes[0].factor) == (kind, 5e5, SCALINGS[kind]["factor"])


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["default", *SCALINGS])
def test_frequencies_equal_transformers(kind: str):
    pytest.importorskip("torch", reason="needs the extra 'transformers'")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    utils = pytest.importorskip("transformers.modeling_rope_utils", reason="needs the extra 'transformers'")
    config = checkpoints.hf_config(
        rope_theta=None, rope_parameters={"rope_theta": 5e5, "rope_type": kind, **SCALINGS.get(kind, {})}
    )
    rope, length = from_hf(config).rope, 1024
    theirs = transformers.LlamaConfig(**{key: value for key, value in config.items() if key != "architectures"})
    if kind == "default":  # not in the table of functions
        frequencies, scale = 5e5 ** -(np.arange(0, 32, 2) / 32), 1.0
    else:
        tensor, scale = utils.ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
        frequencies = tensor.numpy()
    np.testing.assert_allclose(rotary.inverse_frequencies(rope, config["head_dim"], length), frequencies, rtol=2e-6)
    assert rotary.amplitude(rope) == pytest.approx(scale)
