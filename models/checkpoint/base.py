"""What every stored checkpoint offers, whatever its file format."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from models.config.model_config import ModelConfig
from models.files.provenance import Provenance
from models.text.tokenizer import Tokenizer


class Checkpoint(Protocol):
    """Named tensors of a model, read from disk one at a time.

    Names and layouts are those of Hugging Face checkpoints (``model.layers.0.self_attn.q_proj.weight``, matrices [out, in],
    rotary pairs in halves), so `models.checkpoint.load` knows one spelling only.
    """

    @property
    def config(self) -> ModelConfig: ...

    @property
    def origin(self) -> str:
        """What the user gave, for messages: a file, a folder, a name."""
        ...

    def names(self) -> list[str]:
        """All tensor names, sorted."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape that `read` will return, without reading the data."""
        ...

    def read(self, name: str) -> np.ndarray:
        """The tensor in its stored dtype (float32, float16 or bfloat16), or in float32 where it is stored quantised.

        The result may be a view of the mapped file: copy it before writing to it.
        """
        ...

    @property
    def provenance(self) -> Provenance:
        """Which files gave config and weights, and what of them was ignored; `Tokenizer.provenance` has the rest."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Raises UserError where the checkpoint has none that is supported."""
        ...
