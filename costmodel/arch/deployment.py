"""How a model is held: in which formats, and over how many chips."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.arch.architecture import Architecture
from costmodel.arch.formats import FORMATS, Format, find_format
from costmodel.arch.weights import Weight
from costmodel.hardware.chip import peak_name
from models.errors import UserError

COMPONENTS = ("embed", "norm", "qkv", "out", "gate_up", "down", "router", "experts", "head")  # that have weights
_KEYS = ("default", "vectors", *COMPONENTS)


@dataclasses.dataclass(frozen=True)
class Storage:
    """Formats of weights, cache and activations.

    Attributes:
      weights: format by component; "vectors" of norms and biases, "default" of what is not named.
      kv: of the cache.
      activation: of what flows between matmuls.
      compute: what weights in the default format are multiplied in, where that is not what the format says.
    """

    weights: Mapping[str, Format]
    kv: Format
    activation: Format
    compute: str | None = None

    @staticmethod
    def of(
        dtype: str | Format | Mapping[str, str | Format],
        kv_dtype: str | Format | None = None,
        activation_dtype: str | None = None,
        compute: str | None = None,
    ) -> Storage:
        """The formats by name.

        Args:
          dtype: one for all matrices, or a mapping by component with a "default". Norms and biases are f32, as in the engine, unless the
            mapping says otherwise under "vectors".
          kv_dtype: of the cache; that of the activations if None.
          activation_dtype: what the default format is multiplied in if None, and bfloat16 where that is no 16 or 32-bit float.
          compute: for weights that are multiplied in another dtype than their format says: "int8" where activations are int8 too.

        Raises:
          UserError: an unknown format or component, or a mapping without "default".
        """
        named = dtype if isinstance(dtype, Mapping) else {"default": dtype}
        unknown = [key for key in named if key not in _KEYS]
        if unknown or "default" not in named:
            what = f"has the key {unknown[0]!r}" if unknown else "has no key 'default'"
            raise UserError(f"dtype mapping {what}; its keys are {', '.join(_KEYS)}")
        weights = {"vectors": FORMATS["float32"], **{key: find_format(value) for key, value in named.items()}}
        used = compute or weights["default"].compute
        activation = find_format(activation_dtype or (used if used in ("float32", "float16", "bfloat16") else "bfloat16"))
        kv = activation if kv_dtype is None else find_format(kv_dtype)
        return Storage(weights, kv, activation, None if compute is None else peak_name(compute))

    def weight(self, weight: Weight) -> Format:
        """The format of a weight."""
        if len(weight.shape) == 1:
            return self.weights["vectors"]
        return self.weights.get(weight.component, self.weights["default"])

    def multiplied_in(self, stored: Format) -> str:
        """The dtype whose peak a matmul with weights in this format runs at."""
        return self.compute if self.compute and stored == self.weights["default"] else stored.compute

    @property
    def activation_bytes(self) -> float:
        """B of one activation."""
        return self.activation.bits / 8


@dataclasses.dataclass(frozen=True)
class Deployment:
    """An architecture in its formats over `degree` chips that share each layer (tensor parallelism, Shoeybi et al. 2019).

    Raises:
      UserError: a degree that does not divide the heads or the width of the MLP.
    """

    architecture: Architecture
    storage: Storage
    degree: int = 1

    def __post_init__(self) -> None:
        self.architecture.check_degree(self.degree)

    @property
    def heads(self) -> int:
        """Query heads of one chip."""
        return self.architecture.heads // self.degree

    def shape(self, weight: Weight) -> tuple[int, ...]:
        """One chip's part of a weight."""
        return self.architecture.shard(weight, self.degree)

    def weight_bytes(self, weight: Weight) -> float:
        """B of one chip's part of one weight of this shape; times `weight.count` for all."""
        shape, stored = self.shape(weight), self.storage.weight(weight)
        return stored.row_bytes(shape[0]) if len(shape) == 1 else stored.bytes(*shape)

    @property
    def all_weight_bytes(self) -> float:
        """B of all weights of one chip, as they lie in its memory."""
        return sum(weight.count * self.weight_bytes(weight) for weight in self.architecture.weights)

    @property
    def kv_bytes_per_token(self) -> float:
        """B that one token takes in one chip's cache over all layers, with scales of its own where there are such.

        A scale that several tokens share is left out: it is a page's or a tensor's.
        """
        vectors, width = self.architecture.kv_vectors(self.degree)
        kv = self.storage.kv
        each = kv.row_bytes(width) if kv.block[0] == 1 else width * kv.bits / 8
        return self.architecture.layers * vectors * each
