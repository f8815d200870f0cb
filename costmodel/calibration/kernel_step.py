"""The time of a model's step as the sum of its kernels, each priced by a calibration: matmuls, attention, and the small ones between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from costmodel.arch.architecture import Architecture
from costmodel.calibration.kernels import KernelCalibration
from costmodel.calibration.prefill_attention import pieces as prefill_features
from models.errors import UserError

# Kernels of a layer that are no matmul and no attention, as serving engines fuse them: two of (addition, norm), rotary positions, the new
# K and V into the cache, the activation function.
SMALL = 5
ITEM, LOGIT = 2, 4  # B of an activation, and of a logit


class Matmul(NamedTuple):
    """n outputs of k inputs, `times` times in a step."""

    n: int
    k: int
    times: int


class Share(NamedTuple):
    """s of a step, by what they go to. The small kernels are launch cost and memory traffic alone."""

    matmuls: float
    decode: float
    prefill: float
    small: float

    @property
    def seconds(self) -> float:
        return self.matmuls + self.decode + self.prefill + self.small


class KernelStep:
    """Steps of a model in 16 bit on one GPU (witness: calibrated). Kernels run one after the other, as on one stream.

    Raises:
      UserError: a mixture of experts, a latent cache or windows, whose kernels were not measured.
    """

    def __init__(self, architecture: Architecture, silicon: KernelCalibration):
        a = architecture
        if a.experts or a.latent or any(a.windows):
            what = "experts" if a.experts else "a latent cache" if a.latent else "windows"
            raise UserError(f"{a.name} has {what}, whose kernels are not calibrated; take a dense model without windows")
        self.architecture, self.silicon = a, silicon
        outputs, inputs = a.head.shape
        self.layer, self.head = matmuls(a), Matmul(outputs, inputs, 1)
        self._linear: dict[int, float] = {}
        self._logits: dict[int, float] = {}
        self._shape = {"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim}

    def share(self, tokens: int, samples: int, decodes: Sequence[int], prompts: Sequence[tuple[int, int]]) -> Share:
        """Of one step.

        Args:
          tokens: that are multiplied.
          samples: tokens after which logits are computed.
          decodes: tokens that each row that decodes attends to.
          prompts: pieces, as (tokens in the cache before, tokens to run).
        """
        a, decode, prefill = self.architecture, 0.0, 0.0
        if decodes:
            mean = {"batch": len(decodes), "context": sum(decodes) / len(decodes), "cold": 1.0}
            decode = a.layers * self.silicon.decode.second({**self._shape, **mean})
        if prompts:
            prefill = a.layers * self.silicon.prefill.second({**self._shape, **prefill_features(prompts)})
        return Share(self._matmuls(tokens, samples), decode, prefill, self._small(tokens, samples))

    def band(self, share: Share, level: float) -> tuple[float, float]:
        """(low, high) of the logarithm of measured over predicted: as if the errors of all kernels went the same way."""
        seconds = (share.matmuls + share.small, share.decode, share.prefill)
        bands = [each.band(level) for each in self.silicon]
        low, high = (sum(s * math.exp(band[i]) for s, band in zip(seconds, bands, strict=True)) for i in (0, 1))
        return math.log(low / share.seconds), math.log(high / share.seconds)

    def _matmuls(self, tokens: int, samples: int) -> float:
        if tokens not in self._linear:
            self._linear[tokens] = sum(m.times * self._gemm(tokens, m) for m in self.layer)
        if samples not in self._logits:
            self._logits[samples] = self._gemm(samples, self.head) if samples else 0.0
        return self._linear[tokens] + self._logits[samples]

    def _gemm(self, rows: int, of: Matmul) -> float:
        return float(self.silicon.gemm.seconds({"m": rows, "n": of.n, "k": of.k}))

    def _small(self, tokens: int, samples: int) -> float:
        """Launches; activations in and out of norms (4), rotary positions (2) and the activation function (3); the choice of a token."""
        a, values, device = self.architecture, self.silicon.gemm.values, self.silicon.device
        wide = 4 * 2 * a.hidden + 2 * (a.heads + 2 * a.kv_heads) * a.head_dim + 3 * a.ffn
        moved = ITEM * tokens * a.layers * wide + LOGIT * samples * a.vocab
        return (SMALL * a.layers + 2) * values["launch"] + moved / (values["bandwidth"] * device.bandwidth)


def matmuls(architecture: Architecture) -> tuple[Matmul, ...]:
    """Those of the layers, q, k and v as one."""
    found: dict[tuple[str, int], int] = {}
    for weight in architecture.weights:
        if len(weight.shape) == 2 and weight.component not in ("embed", "head"):
            outputs, inputs = weight.shape
            key = (weight.component, inputs)
            found[key] = found.get(key, 0) + outputs * (weight.count // architecture.layers)
    return tuple([Matmul(n, k, architecture.layers) for (_, k), n in found.items()])
