"""Rotary embedding and the context that it allows, from either spelling of a Hugging Face ``config.json``.

transformers 4 writes ``rope_theta`` and ``rope_scaling``, transformers 5 one object ``rope_parameters``, for Gemma 3 with an entry for
each kind of layer. The context is the one that vLLM derives (its `_get_and_verify_max_len`).
"""

from __future__ import annotations

import dataclasses

from models.config.model_config import RopeConfig
from models.errors import UserError, short
from models.files.json_keys import MAX_SIZE, JsonKeys

_LOCAL, _FULL = "sliding_attention", "full_attention"
_ALWAYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
_YARN = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim")
_ORIGINAL = "original_max_position_embeddings"
TYPES = {  # the keys that each type takes, besides _ALWAYS
    "default": frozenset[str](),
    "linear": frozenset({"factor", _ORIGINAL}),
    "dynamic": frozenset({"factor", _ORIGINAL}),
    "llama3": frozenset({"factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"}),
    "yarn": frozenset({"factor", _ORIGINAL, "truncate", "finetuned", *_YARN}),
}
_NEUTRAL = {"factor", "extrapolation_factor", "attn_factor"}  # keys that a type does not take may still be 1


@dataclasses.dataclass(frozen=True)
class Ropes:
    """`full` of layers without a window, `local` of the others where it differs, and the longest context in tokens."""

    full: RopeConfig
    local: RopeConfig | None
    context: int


def read_ropes(keys: JsonKeys, *, gemma: bool = False) -> Ropes:
    """Read RoPE.

    Args:
      keys: of the whole config; max_position_embeddings must be right.
      gemma: whether layers with a window have a RoPE of their own, as in Gemma 3.

    Raises:
      UserError: a type that is not run, a key that is missing, does not belong to its type or contradicts another.
    """
    scaling, given = keys.entry("rope_scaling"), keys.entry("rope_parameters")
    if scaling and given and scaling.values and given.values and dict(scaling.values) != dict(given.values):
        raise keys.refused("rope_scaling", "rope_parameters is given too and says something else; keep one of them")
    one = scaling if scaling and scaling.values else given or JsonKeys({}, keys.origin, "RoPE", within="rope_parameters.")
    nested = given and (_FULL in given.values or _LOCAL in given.values)
    if not gemma:
        if nested:
            raise keys.refused("rope_parameters", "only Gemma 3 has a RoPE for each kind of layer; give one for all")
        rope, context = _rope(one, keys, "rope_theta", 10_000.0, keys)
        return Ropes(rope, None, context)
    full: JsonKeys | None = one
    local: JsonKeys | None = None
    if given and given.values:
        if not nested:
            raise keys.refused("rope_parameters", f"for Gemma 3 it must hold {_FULL} and {_LOCAL}")
        full, local = given.entry(_FULL), given.entry(_LOCAL)
    empty = JsonKeys({}, keys.origin, "RoPE", within="rope_parameters.")
    top, _ = _rope(full or empty, keys, "rope_theta", 1_000_000.0)
    low, _ = _rope(local or empty, keys, "rope_local_base_freq", 10_000.0)
    return Ropes(top, low, keys.size("max_position_embeddings"))  # Gemma 3 states its context with the scaling already in it


def _rope(
    entry: JsonKeys, keys: JsonKeys, theta_key: str, theta: float, outer: JsonKeys | None = None
) -> tuple[RopeConfig, int]:
    """(RoPE, context) of one entry, which may be empty; an original context in `outer` wins over the entry's."""
    kind, positions = _type(entry), keys.size("max_position_embeddings")
    for of in (keys, entry):
        part = of.values.get("partial_rotary_factor")
        if part not in (None, 1) or isinstance(part, bool):
            raise of.refused("partial_rotary_factor", "only 1 is supported: the whole head is rotated")
    base = _theta(entry, keys, theta_key, theta)
    if kind == "default":
        return RopeConfig(theta=base, original_positions=positions), positions
    if not entry.given("factor"):
        raise UserError(f"{entry.origin}: RoPE type {kind!r} needs the key 'factor'")
    factor = entry.real("factor", most=MAX_SIZE)
    where = outer if outer is not None and outer.given(_ORIGINAL) else entry
    original = where.size(_ORIGINAL) if where.given(_ORIGINAL) else None
    if kind == "llama3":
        for key, there in (
            (_ORIGINAL, original is not None),
            ("low_freq_factor", entry.given("low_freq_factor")),
            ("high_freq_factor", entry.given("high_freq_factor")),
        ):
            if not there:
                raise UserError(f"{entry.origin}: RoPE type 'llama3' needs the key {key!r}")
        low, high = entry.real("low_freq_factor", most=1e6), entry.real("high_freq_factor", most=1e6)
        if high <= low:
            raise entry.refused("high_freq_factor", f"it must be above low_freq_factor, {low:g}")
        rope = RopeConfig(base, kind, factor, original or positions, low_freq_factor=low, high_freq_factor=high)
        return rope, positions  # written with the scaling already in it
    context = int((original or positions) * factor)
    if not 1 <= context <= MAX_SIZE:
        raise entry.refused("factor", f"the context, {original or positions} times it, must be from 1 to {MAX_SIZE} tokens")
    if kind != "yarn":  # dynamic is stretched from max_position_embeddings, whatever the original is said to be
        return RopeConfig(base, kind, factor, positions if kind == "dynamic" else original or positions), context
    fast, slow = entry.real("beta_fast", 32.0, most=1e6), entry.real("beta_slow", 1.0, most=1e6)
    if fast < slow:
        raise entry.refused("beta_fast", f"it must not be below beta_slow, {slow:g}")
    optional = {key: entry.real(key, most=1e6) for key in ("attention_factor", "mscale", "mscale_all_dim") if entry.given(key)}
    if entry.values.get("truncate", True) is None:  # transformers would take it for false
        raise entry.refused("truncate", "it must be true or false")
    truncate = entry.flag("truncate", True)
    rope = RopeConfig(base, kind, factor, original or positions, beta_fast=fast, beta_slow=slow, truncate=truncate, **optional)
    return rope, context


def _type(entry: JsonKeys) -> str:
    """The type of an entry, once every key in it is known to belong to that type."""
    key = "rope_type" if entry.given("rope_type") else "type"
    present = [name for name in entry.values if entry.given(name)]
    kind = entry.values.get(key)
    if kind is None:
        others = [name for name in present if name not in ("rope_theta", "partial_rotary_factor")]
        if others:
            raise entry.refused("rope_type", f"beside {short(others[0])} it must be one of {', '.join(TYPES)}")
        return "default"
    if not isinstance(kind, str) or kind not in TYPES:
        raise UserError(f"{entry.origin}: RoPE type {short(kind)} is not supported; supported are {', '.join(TYPES)}")
    for name in present:
        if name not in _ALWAYS | TYPES[kind] and not (name in _NEUTRAL and entry.values[name] == 1):
            raise entry.refused(name, f"RoPE type {kind!r} takes no such key")
    return kind


def _theta(entry: JsonKeys, keys: JsonKeys, key: str, default: float) -> float:
    """From the entry, or from the config itself; not two different ones."""
    outside = keys.real(key, default)
    inside = entry.real("rope_theta", outside)
    where, name = (entry, "rope_theta") if entry.given("rope_theta") else (keys, key)
    if keys.given(key) and inside != outside:
        raise entry.refused("rope_theta", f"{key} beside it is {outside:g}; keep one of them")
    if inside <= 1:
        raise where.refused(name, "it must be above 1")
    return inside
