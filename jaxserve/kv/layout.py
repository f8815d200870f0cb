"""Where KV lives, as an engine is told: in pages or in slots, how many, and whether known beginnings are found again. Plain Python."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxserve.kv.paged import Paged
from jaxserve.kv.slots import Slots
from jaxserve.values import DTYPES, boolean, integer, settle, shown
from models.errors import UserError

KINDS = ("paged", "contiguous")


@dataclasses.dataclass(frozen=True)
class KVLayout:
    """The KV memory of one worker.

    Attributes:
      units: pages, or slots.
      unit: tokens of each.
      dtype: what K and V are stored in, float32 or bfloat16.
      kind: "paged" (Kwon et al. 2023), or "contiguous": a slot of the longest length for every row, as engines had before.
      prefix: keep the pages of what was run, and start prompts that begin alike after them (Zheng et al. 2024). Paged only.
    """

    units: int
    unit: int
    dtype: str = "float32"
    kind: Literal["paged", "contiguous"] = "paged"
    prefix: bool = False

    def __post_init__(self) -> None:
        settle(
            self,
            units=integer("a KV pool's units", self.units, 1),
            unit=integer("a KV pool's unit, in tokens,", self.unit, 1),
            prefix=boolean("a KV pool's prefix", self.prefix),
        )
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            raise UserError(f"KV can't be stored as {shown(self.dtype)}; choose {' or '.join(DTYPES)}")
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise UserError(f"KV memory {shown(self.kind)} is unknown; choose {' or '.join(KINDS)}")
        if self.prefix and self.kind != "paged":
            raise UserError(
                "a prefix cache needs pages: contiguous slots can't be shared; use paged KV, or leave the prefix cache out"
            )

    def memory(self) -> Paged | Slots:
        """What the scheduler lends out, all of it free."""
        if self.kind == "contiguous":
            return Slots.of(self.units, self.unit)
        return Paged.of(self.units, self.unit, prefix=self.prefix)

    @property
    def tokens(self) -> int:
        """That all of it holds."""
        return self.units * self.unit
