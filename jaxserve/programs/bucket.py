"""The static shape of one compiled program."""

from __future__ import annotations

import dataclasses

from models.errors import UserError

Shape = tuple[tuple[int, int], ...]  # (rows, query) of each segment


@dataclasses.dataclass(frozen=True, order=True)
class Bucket:
    """What is fixed of a step when it is compiled.

    Attributes:
      shape: (rows, query) of each segment.
      width: pages of a row's table.
      verify: the first segment draws a token after each of its own, to verify drafts; others only after each row's last.
      steps: more than 1 for a decode that runs up to so many times without asking the host, see `jaxserve/programs/multi_step.py`.
    """

    shape: Shape
    width: int
    verify: bool = False
    steps: int = 1

    def __post_init__(self) -> None:
        """Raises UserError for a shape that no step has."""
        if not self.shape or min(min(rows, query) for rows, query in self.shape) < 1:
            raise UserError(f"bucket: its segments are {list(self.shape)}; give at least one, rows and query at least 1 each")
        if self.width < 1 or self.steps < 1:
            raise UserError(f"bucket: width is {self.width} and steps {self.steps}; both must be at least 1")
        if self.verify and self.shape[0][1] < 2:
            raise UserError("bucket: it verifies rows of one token; give the first segment a query of at least 2, one draft")
        if self.steps > 1 and (self.verify or len(self.shape) > 1 or self.shape[0][1] > 1):
            raise UserError(f"bucket: {self.name}; only a decode by itself is repeated, leave out steps or the rest")

    @property
    def tokens(self) -> int:
        """Tokens with padding of the step, or of each of its steps."""
        return sum(rows * query for rows, query in self.shape)

    @property
    def name(self) -> str:
        """decode 64, prefill 4x64, verify 64x5; several joined by +; decode 64, up to 8 times."""
        names = [f"decode {rows}" if query == 1 else f"prefill {rows}x{query}" for rows, query in self.shape]
        if self.verify:
            names[0] = "verify {}x{}".format(*self.shape[0])
        return " + ".join(names) + (f", up to {self.steps} times" if self.steps > 1 else "")
