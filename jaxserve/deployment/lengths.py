"""How many requests a simulated load has, and how long they are: what its deployment must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from costmodel.cli.choices import ModelChoice
from jaxserve.load.source import Traced
from jaxserve.load.spec import LoadSpec
from jaxserve.simulator.faults import Burst, Fault, Leave
from models.errors import UserError


class Lengths(NamedTuple):
    """Of all requests, those of bursts included.

    Attributes:
      requests: how many.
      longest: tokens of the longest sequence that enter the cache; shortest: tokens of the shortest prompt.
    """

    requests: int
    longest: int
    shortest: int

    @classmethod
    def of(cls, load: LoadSpec, faults: Sequence[Fault], chosen: ModelChoice) -> Lengths:
        """Look at all of them.

        Raises:
          UserError: the model takes no sequence so long; of a trace it is named by its line. A client that leaves and never comes.
        """
        most = chosen.architecture.max_positions
        if isinstance(load.source, Traced):
            load.source.check(most, chosen.name)
        bursts = [fault for fault in faults if isinstance(fault, Burst)]
        asked = [(len(request.prompt), request.limit) for request in load.drawn(0)[1]]
        count = len(asked) + sum(burst.requests for burst in bursts)
        _check_leaves(faults, count)
        for lengths, which in (
            (asked, "--prompt or --output"),
            ([(burst.prompt, burst.output) for burst in bursts], "the lengths of --fault burst"),
        ):
            prompt, output = max(lengths, key=sum, default=(1, 1))
            if (life := prompt + output - 1) > most:
                raise UserError(
                    f"a prompt of {prompt} tokens with {output} to follow needs a context of {life}, but {chosen.name} takes {most}; "
                    f"lower {which}"
                )
        every = [*asked, *((burst.prompt, burst.output) for burst in bursts)]
        return cls(count, max(map(sum, every)) - 1, min(prompt for prompt, _ in every))


def _check_leaves(faults: Sequence[Fault], asked: int) -> None:
    for fault in faults:
        if isinstance(fault, Leave) and fault.id >= asked:
            raise UserError(f"--fault leave: the client of request {fault.id} leaves, and there are {asked}, counted from 0")
