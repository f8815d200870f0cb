"""What the user asks of the main job, checked as far as that goes without a model. Plain Python, so that a slip is told at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxserve.programs.compile_cache import Choice, check_cache
from jaxserve.values import DTYPES, LAYERS
from models.errors import UserError, check_count


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The options of `python -m jaxserve.decode`; see its --help.

    Raises:
      UserError: a value that no model could serve.
    """

    model: str
    batches: tuple[int, ...] = (64,)
    prompt_file: Path | None = None
    raw: bool = False
    max_new_tokens: int = 64
    context: int | None = None
    dtype: str = "auto"
    kv_dtype: str | None = None
    layers: str = "auto"
    page_size: int = 16
    temperature: float = 0.0
    seed: int = 0
    compile_cache: Choice = None

    def __post_init__(self) -> None:
        if not self.batches or min(self.batches) < 1:
            raise UserError(f"--batch is {min(self.batches, default='empty')}; it must be at least 1")
        for name, value in (("max-tokens", self.max_new_tokens), ("context", self.context), ("page-size", self.page_size)):
            if value is not None and value < 1:
                raise UserError(f"--{name} is {value}; it must be at least 1")
            if value is not None:
                check_count(f"--{name}", value)
        if self.dtype not in ("auto", *DTYPES):
            raise UserError(f"--dtype {self.dtype!r} is not supported; give auto, {' or '.join(DTYPES)}")
        if self.kv_dtype not in (None, *DTYPES):
            raise UserError(f"--kv-dtype {self.kv_dtype!r} is not supported; give {' or '.join(DTYPES)}")
        if self.layers not in LAYERS:
            raise UserError(f"--layers {self.layers!r} is unknown; give {', '.join(LAYERS)}")
        check_cache(self.compile_cache, "--compile-cache")

    @property
    def rows(self) -> int:
        """The largest batch."""
        return max(self.batches)
