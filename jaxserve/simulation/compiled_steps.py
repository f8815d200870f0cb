"""Step times from programs that are compiled for the chip: their ledgers' traffic and FLOPs on its data sheet."""

from __future__ import annotations

from costmodel.commands.choices import ModelChoice
from costmodel.sizing import Placement
from jaxserve.setup import Bar
from jaxserve.sizing.step_times import StepTimes
from models.errors import UserError

FEWEST = 16  # tokens of the smallest prefill that is compiled


def compiled_steps(
    placement: Placement, chosen: ModelChoice, chip: str, *, rows: int, tokens: int, longest: int, bar: Bar
) -> StepTimes:
    """Decodes of one row and of all, prefills of a few tokens and of a step's most, each over two contexts; between them on a plane.

    Args:
      chip: as the user wrote it.
      rows, tokens: of a step at most.
      longest: tokens of the longest sequence.

    Raises:
      UserError: several chips or formats, for which nothing is compiled here; as `compile_sizes`.
    """
    raise UserError("not yet")
