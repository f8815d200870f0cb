"""A model with random weights: for tests, cost studies and load runs that need no download."""

from __future__ import annotations

import dataclasses

from models.config.model_config import ModelConfig
from models.files.provenance import Provenance
from models.text.tokenizer import Tokenizer, byte_tokenizer

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
