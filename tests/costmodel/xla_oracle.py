"""XLA itself on HLO text: its parser and its HloCostAnalysis, through jaxlib. Private to JAX, so tests skip where it has moved."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import pytest

from costmodel.cost import Cost


def xla_module(text: str) -> Any:
    """The module as XLA's parser reads it."""
    try:
        read = importlib.import_module("jaxlib._hlo").hlo_module_from_text
    except (ImportError, AttributeError):
        pytest.skip("this jaxlib has no public way to XLA's parser of HLO text")
    return read(text)


def xla_print(text: str, **options: bool) -> str:
    """The module printed by XLA in another form; `options` are those of its HloPrintOptions."""
    module = xla_module(text)
    chosen = importlib.import_module("jaxlib._hlo").HloPrintOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    return str(module.to_string(chosen))


def xla_count(text: str) -> Cost:
    """XLA's total for a module, however strange: what the programs in `programs` were counted with."""
    module = xla_module(text)
    try:
        analyse = importlib.import_module("jax._src.lib").xla_client._xla.hlo_module_cost_analysis
    except (ImportError, AttributeError):
        pytest.skip("this jaxlib has no way to XLA's HloCostAnalysis of a text")
    found = analyse(jax.local_devices(backend="cpu")[0].client, module)
    return Cost(found.get("flops", 0), found.get("bytes accessed", 0), found.get("transcendentals", 0))
