"""What steps take in a simulation: by the roofline, or by kernels that were measured on one GPU and carried over, with an interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from costmodel.calibration.shipped import choose
from costmodel.calibration.transfer import transfer
from costmodel.cli.choices import ModelChoice, choose_chip
from costmodel.compile.program import StepProgram
from costmodel.sizing import Placement
from jaxserve.calibration.machine import Machine
from jaxserve.load.measure import Bar
from jaxserve.predict.analytical import Analytical
from jaxserve.predict.calibrated import Calibrated, KernelCalibrated
from jaxserve.predict.compiled import Compiled, Size, compile_sizes
from jaxserve.scheduling.plan import Plan
from models.errors import UserError

LEVEL = 0.9  # of steps whose time lies within the interval
FORMATS = ("bfloat16", "float16")  # in which the kernels were measured

KERNELS = (
    "the sum of a step's kernels, each with the fraction of its roof that it reached where it was measured; nothing of the host"
)

Seconds = Callable[[Plan], float]


class StepTimes(NamedTuple):
    """Where step times come from.

    Attributes:
      witness: of each.
      source: for people.
      seconds: what a plan takes.
      quick, slow: what it takes at the ends of its interval, as if the errors of all kernels went the same way; None of a roofline.
      of: what a calibrated step is made of, for people.
      host: the host's part is in it.
      piece: tokens that programs fill a part of a prompt up to.
    """

    witness: Literal["analytical", "compiled", "calibrated"]
    source: str
    seconds: Seconds
    quick: Seconds | None = None
    slow: Seconds | None = None
    of: str = KERNELS
    host: bool = False
    piece: int = 1


def analytical(placement: Placement) -> StepTimes:
    """The full roofline, without padding."""
    return StepTimes("analytical", f"the roofline of the data sheet of {placement.chip.name}", roofline(placement))


def roofline(placement: Placement) -> Analytical:
    """What its steps take at the data sheet's roof."""
    return Analytical(
        placement.model, placement.chip, dtype=placement.dtype, kv_dtype=placement.kv_dtype, tensor_parallel=placement.degree
    )


def calibrated(placement: Placement, silicon: str | None) -> StepTimes:
    """The sum of a step's kernels, with the fractions of a roof that they reached on the GPU that they were measured on.

    Args:
      silicon: see `costmodel.calibration.shipped.choose`.

    Raises:
      UserError: several chips, or a format other than 16 bit, for neither was measured; as `choose`, `transfer` and `KernelStep`.
    """
    if placement.degree > 1:
        raise UserError(
            f"--step-times calibrated knows kernels of one GPU and none of its links, and {placement.degree} chips were asked for; give "
            "--tensor-parallel 1, or --step-times analytical"
        )
    for what, name in (("--dtype", placement.dtype), ("--kv-dtype", placement.kv.name)):
        if name not in FORMATS:
            raise UserError(f"{what} is {name}; kernels were measured in {' and '.join(FORMATS)}; give --step-times analytical")
    kernels = choose(silicon)
    if kernels is None:
        raise UserError(f"--silicon is {silicon} and calibrated steps are made of kernels; leave it out, or the --step-times")
    moved = transfer(kernels.silicon, placement.chip)
    predictor = KernelCalibrated(placement.model, moved)
    where = f"kernels of {kernels.silicon.device.name} ({kernels.source})"
    if moved.device != kernels.silicon.device:
        where += f", carried over to the data sheet of {placement.chip.name}"
    quick, slow = ([math.exp(each.band(LEVEL)[end]) for each in moved] for end in (0, 1))
    return StepTimes("calibrated", where, predictor, _scaled(predictor, quick), _scaled(predictor, slow))


def step_times(placement: Placement, witness: str, silicon: str | None) -> StepTimes:
    """Those of a placement by this witness. Raises UserError as `calibrated`."""
    return calibrated(placement, silicon) if witness == "calibrated" else analytical(placement)


def check_sources(witness: str, silicon: str | None, machine: Path | None) -> None:
    """Raises UserError for the source of calibrated step times where none are asked for, or for two of them."""
    if silicon is not None and witness != "calibrated":
        raise UserError("--silicon names the kernels of calibrated step times; add --step-times calibrated, or leave it out")
    if machine is not None and (witness != "calibrated" or silicon is not None):
        raise UserError(
            "--machine holds calibrated step times of an engine; give it with --step-times calibrated and without --silicon"
        )


def decode_plan(batch: int, context: int) -> Plan:
    """A step of so many rows that all hold `context` tokens when it ends."""
    return Plan(0, ids=tuple(range(batch)), starts=(context - 1,) * batch, counts=(1,) * batch, draws=(1,) * batch)


def _scaled(predictor: KernelCalibrated, factors: list[float]) -> Seconds:
    """The same kernels, each kind so many times as slow: what `KernelCalibrated.interval` says, quick enough for a simulation."""
    gemm, decode, prefill = factors

    def seconds(plan: Plan) -> float:
        shares = predictor.shares(plan)
        return sum([gemm * (s.matmuls + s.small) + decode * s.decode + prefill * s.prefill for s in shares]) + predictor.gap

    return seconds


# What steps take on the machine that `python -m jaxserve.calibrate` measured: programs of its engine, with what they pad, and
# the host.

CALIBRATE = "python -m jaxserve.calibrate"
_OF = "programs of this machine's engine, with what they pad, fitted to its measured steps; the host's gap between two steps is in it"


def machine_caps(machine: Machine) -> tuple[int, ...]:
    """Caps to look at where none were asked for: all rows that the engine was measured with, half and a quarter of them."""
    rows = machine.ladder.batches[-1]
    return tuple(sorted({max(rows // part, 1) for part in (1, 2, 4)}))


def machine_steps(
    placement: Placement, file: Path, machine: Machine, *, page: int, caps: Sequence[int], context: int
) -> StepTimes:
    """Steps of the engine's programs.

    Args:
      file: that the machine was read from, for messages.
      page: tokens of a KV page; caps: that are to be simulated; context: tokens of the longest sequence.

    Raises:
      UserError: a deployment of which the calibration says nothing: another chip, several, other numbers, longer sequences, more rows.
    """
    ladder, device = machine.ladder, machine.calibration.device.name
    said = f"--machine {file} was measured"
    if placement.chip.name != device or placement.degree > 1:
        raise UserError(
            f"{said} on one {device}, and the study is of {placement.degree} x {placement.chip.name}; give --chip host on that machine, "
            "or leave --machine out"
        )
    for option, asked, has in (
        ("--dtype", placement.dtype, machine.dtype),
        ("--kv-dtype", placement.kv.name, machine.kv_dtype),
        ("--page-size", page, ladder.page),
    ):
        if asked != has:
            raise UserError(f"{said} with {option} {has}, and {asked} is asked for; give {option} {has}, or calibrate again")
    for what, most, has, option in (
        ("sequences at once", max(caps), ladder.batches[-1], "--rows"),
        ("tokens a sequence", context, ladder.context, "--context"),
    ):
        if most > has:
            raise UserError(
                f"{said} with at most {has} {what}, and {most} are asked for; ask for fewer, or {CALIBRATE} {option} {most}"
            )
    predictor = machine.predictor(placement.model)
    quick, slow = (_end(predictor, end) for end in (0, 1))
    source = f"this machine's engine ({machine.calibration.source})"
    return StepTimes("calibrated", source, predictor, quick, slow, of=_OF, host=True, piece=ladder.chunk[1])


def _end(predictor: Calibrated, end: int) -> Callable[[Plan], float]:
    """What a plan takes at one end of the interval of a step."""
    low_or_high = predictor.calibration.interval(1.0, LEVEL)[end]
    return lambda plan: predictor.device(plan) * low_or_high + predictor.gap


# Step times from programs that are compiled for the chip: their ledgers' traffic and FLOPs on its data sheet.

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
