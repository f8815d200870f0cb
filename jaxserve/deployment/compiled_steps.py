"""Step times from programs that are compiled for the chip: their ledgers' traffic and FLOPs on its data sheet."""

from __future__ import annotations

import itertools

from costmodel.cli.choices import ModelChoice, choose_chip
from costmodel.compile.program import StepProgram
from costmodel.sizing import Placement
from jaxserve.deployment.step_times import StepTimes
from jaxserve.load.session import Bar
from jaxserve.predict.compiled import Compiled, Size, compile_sizes
from models.errors import UserError

SHORT = 16  # tokens: the smallest prefill and the shortest context that are compiled


def compiled_steps(
    placement: Placement, chosen: ModelChoice, chip: str, *, rows: int, piece: int, longest: int, bar: Bar
) -> StepTimes:
    """Decodes of one row and of all, prefills of a few tokens and of a piece, each with two contexts, and on a plane between them.

    Args:
      chip: as the user wrote it.
      rows: of a step at most; piece: tokens of a prompt that it runs at most.
      longest: tokens of the longest sequence.

    Raises:
      UserError: a model or a format of which nothing is compiled here, or several chips; as `compile_sizes`.
    """
    where, config = placement.chip.name, chosen.config
    if config is None:
        raise UserError(f"--step-times compiled: the engine has no program of {chosen.name}; take --step-times analytical")
    if placement.degree > 1:
        raise UserError(f"--step-times compiled is of one chip, and --tensor-parallel is {placement.degree}; leave it out")
    program = StepProgram.on(choose_chip(chip).platform, config, ((1, 1),), 1)
    for option, asked, held in (
        ("--dtype", placement.dtype, program.dtype),
        ("--kv-dtype", placement.kv.name, program.kv_dtype),
    ):
        if asked != held:
            raise UserError(f"--step-times compiled: programs for {where} hold {held}, and {option} is {asked}; give {held}")
    sizes = grid(rows, piece, longest, config.max_positions)
    found = compile_sizes(config, chip, sizes, bar("compiling programs", len(sizes)))
    return StepTimes("compiled", f"{len(found)} programs compiled for {where}, on its data sheet", Compiled(found))


def grid(rows: int, piece: int, longest: int, most: int) -> list[Size]:
    """Sizes to compile, none longer than `most` tokens: what lies between them is interpolated."""
    long = min(max(longest, 2 * SHORT), most)
    query = max(min(piece, long), SHORT + 1)
    beyond = long if long > query else min(2 * query, most)
    if beyond <= query:  # prompts as long as the model takes
        query = beyond // 2
    decodes = itertools.product((1, max(rows, 2)), (min(SHORT, long // 2), long))
    prefills = itertools.product((min(SHORT, query // 2), query), (query, beyond))
    return [
        *(Size(count, 1, context) for count, context in decodes),
        *(Size(1, tokens, context) for tokens, context in prefills),
    ]
