"""jaxserve: a JAX decode engine whose compiled programs carry their cost.

    from jaxserve import LLM, Engine, SamplingParams

They are imported when they are asked for, so that commands answer --help without JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxserve.engine.engine import Engine
    from jaxserve.llm import LLM
    from jaxserve.sampling_params import SamplingParams

__all__ = ["LLM", "Engine", "SamplingParams"]

_HOMES = {"LLM": "llm", "Engine": "engine.engine", "SamplingParams": "sampling_params"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
