"""All that the cost of a step depends on, as one value: sizes, and every weight with its shape and its component.

For a model that the engine runs the weights are read from the abstract state of its Flax module, so the two cannot drift; for others
(experts, a latent cache, PaLM) they are worked out from the config. `source` says which.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping

from costmodel.arch.weights import Weight, module_weights
from costmodel.hardware.chip import Quantity
from models.config.model_config import ModelConfig
from models.errors import UserError

FLAX, CONFIG = "flax module", "config"


@dataclasses.dataclass(frozen=True)
class Experts:
    """A mixture of experts (Shazeer et al. 2017) in place of the MLP, in all layers but the first `dense_layers`.

    `ffn` is the width of one routed expert, `shared_ffn` that of all shared experts together, which every token meets.
    """

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0

    def distinct(self, tokens: Quantity) -> Quantity:
        """Routed experts of one layer that at least one of `tokens` picks, expected when each picks top_k evenly: E (1 - (1 - k/E)^T).

        A real router prefers some experts and so meets fewer.
        """
        return self.count * (1.0 - (1.0 - self.top_k / self.count) ** tokens)


@dataclasses.dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): the cache of a token and layer is kv_rank + rope_dim numbers.

    A query head has nope_dim + rope_dim dimensions, a value head value_dim. Queries pass through q_rank, or directly where None.
    """

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_rank: int | None = None


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes count elements; `windows[i]` is the window of layer i in tokens, None for all.

    Attributes:
      head_dim: of queries and keys; under `latent` nope_dim + rope_dim.
      ffn: width of the plain MLP; of the dense layers where there are experts.
      gated: the MLP has gate and up matrices; plain has up alone.
      parallel: attention and MLP of a layer read one norm and are added together (PaLM), so a layer reduces once.
      weights: every weight of the model, each once; a tied head is the embedding and not listed again.
      source: `FLAX` or `CONFIG`, where the weights come from.
    """

    name: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    max_positions: int
    windows: tuple[int | None, ...]
    tied_head: bool
    weights: tuple[Weight, ...]
    source: str
    gated: bool = True
    parallel: bool = False
    experts: Experts | None = None
    latent: Latent | None = None

    def __post_init__(self) -> None:
        for field in ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "max_positions"):
            if getattr(self, field) < 1:
                raise UserError(f"{self.name}: {field} is {getattr(self, field)}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise UserError(f"{self.name}: {self.heads} attention heads do not divide into {self.kv_heads} KV heads")
        if len(self.windows) != self.layers:
            raise UserError(f"{self.name}: {len(self.windows)} layer windows for {self.layers} layers")
        if self.experts and not 1 <= self.experts.top_k <= self.experts.count:
            raise UserError(f"{self.name}: top_k is {self.experts.top_k}; it must be from 1 to {self.experts.count} experts")

    @staticmethod
    def of(config: ModelConfig, name: str | None = None) -> Architecture:
        """The architecture of a model that the engine runs, its weights read from the module's abstract state. No memory is taken."""
        return _of(config, name or config.architecture)

    @property
    def parameters(self) -> Mapping[str, int]:
        """Weights by component. They add up to all weights of the model."""
        counts: collections.Counter[str] = collections.Counter()
        for weight in self.weights:
            counts[weight.component] += weight.elements
        return dict(counts)

    @property
    def parameter_count(self) -> int:
        return sum(weight.elements for weight in self.weights)

    @property
    def multiplied(self) -> int:
        """Weights of matrices that stand in a matmul when all experts are met: all but the embedding, which is the head where tied."""
        matrices = sum(w.elements for w in self.weights if len(w.shape) == 2 and w.component != "embed")
        return matrices + (self.vocab * self.hidden if self.tied_head else 0)

    @property
    def head(self) -> Weight:
        """The matrix that turns hidden states into logits: the embedding where tied."""
        component = "embed" if self.tied_head else "head"
        return next(w for w in self.weights if w.component == component)

    def kv_vectors(self, degree: int = 1) -> tuple[int, int]:
        """(vectors, numbers in each) that a token adds to the cache of a layer on each of `degree` chips that share the heads.

        Where there are fewer KV heads than chips each chip holds one of them, so some are held several times. A latent cache belongs to no
        head, and every chip holds all of it.
        """
        if self.latent:
            return 1, self.latent.kv_rank + self.latent.rope_dim
        return 2 * max(self.kv_heads // degree, 1), self.head_dim

    def shard(self, weight: Weight, degree: int) -> tuple[int, ...]:
        """The shape of one chip's part of a weight. A vocabulary that does not divide is padded."""
        shape, i = list(weight.shape), weight.axis
        if weight.split == "kv_heads":
            shape[i] = shape[i] // self.kv_heads * max(self.kv_heads // degree, 1)
        elif weight.split:
            shape[i] = -(-shape[i] // degree)
        return tuple(shape)

    def check_degree(self, degree: int) -> None:
        """Refuse a tensor-parallel degree that does not divide what it has to.

        Raises:
          UserError: names the size that does not divide.
        """
        if degree < 1:
            raise UserError(f"tensor_parallel is {degree}; it must be at least 1")
        widths = {"attention heads": self.heads}
        if self.experts is None or self.experts.dense_layers:
            widths["ffn width"] = self.ffn
        if self.experts:
            widths |= {"expert width": self.experts.ffn, "shared expert width": self.experts.shared_ffn}
        for what, size in widths.items():
            if size % degree:
                raise UserError(f"{self.name}: {what} {size} does not divide by tensor_parallel {degree}; give a divisor of it")
        if not self.latent and self.kv_heads % degree and degree % self.kv_heads:
            raise UserError(
                f"{self.name}: {self.kv_heads} KV heads neither divide by tensor_parallel {degree} nor into it; "
                f"give a divisor or a multiple of {self.kv_heads}"
            )


@functools.cache  # describing a module takes a while
def _of(config: ModelConfig, name: str) -> Architecture:
    return Architecture(
        name=name,
        vocab=config.vocab_size,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        ffn=config.ffn,
        max_positions=config.max_positions,
        windows=config.windows,
        tied_head=config.tied_head,
        weights=module_weights(config),
        source=FLAX,
    )
