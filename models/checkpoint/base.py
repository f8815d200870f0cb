"""What every stored checkpoint offers, whatever its file format."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from models.config.model_config import ModelConfig
from models.files.provenance import Provenance
from models.text.tokenizer import Tokenizer, byte_tokenizer


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


_END = 256  # of the byte tokenizer


class RandomCheckpoint:
    """Config, origin and tokenizer as of `models.checkpoint.base.Checkpoint`, but nothing on disk: `load` draws the weights.

    Args:
      name: for messages.
      shape: the architecture; its special tokens are replaced by those of the byte tokenizer.
      seed: two checkpoints of one shape and seed have the same weights.
    """

    def __init__(self, name: str, shape: ModelConfig, seed: int = 0):
        self.origin = f"random:{name}"
        self.seed = seed
        self.provenance = Provenance(weights=(f"drawn from seed {seed}",), config=(f"preset {name}",))
        self.config = dataclasses.replace(shape, eos_tokens=(_END,) if shape.vocab_size > _END else ())

    def tokenizer(self) -> Tokenizer:
        """One token a byte. Raises UserError where the vocabulary has fewer than 257 entries."""
        return byte_tokenizer(self.config.vocab_size)
