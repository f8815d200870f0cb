"""XLA itself on HLO text: its parser and its HloCostAnalysis, through jaxlib. Private to JAX, so tests skip where it has moved."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from costmodel.hlo.cost import Cost
from models.errors import UserError
from scripts.make_hlo_fixtures import generic_count


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
    """XLA's total for a module, however strange: what the kept programs were counted with."""
    try:
        found = generic_count(text)
    except UserError as error:
        pytest.skip(str(error))
    return Cost(found["flops"], found["bytes accessed"], found["transcendentals"])
