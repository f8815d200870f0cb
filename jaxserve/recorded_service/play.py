"""A recorded service is simulated: its requests, at their times, through our own scheduler at its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jaxserve.load.served import Served as Answer
from jaxserve.recorded_service.deployed import Deployed
from jaxserve.recorded_service.recorded import Served
from jaxserve.scheduling.observer import Observer
from jaxserve.scheduling.plan import Plan
from jaxserve.scheduling.request import Request
from jaxserve.simulator.run import simulate
from models.errors import UserError


def play(
    service: Deployed,
    requests: Sequence[Served],
    seconds: Callable[[Plan], float],
    *,
    watch: Observer | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[Served]:
    """What becomes of the requests in a simulation: the same prompts and answers, with simulated times.

    Args:
      requests: in the order in which they were queued; of their times only `queued` is looked at.
      seconds: what a plan takes.
      done: called after each answer, for a progress bar.

    Raises:
      UserError: a request that the service could not have served: longer than its pool.
    """
    found: dict[int, Served] = {}
    lost: list[Answer] = []

    def served(answer: Answer) -> None:
        asked = requests[answer.id]
        if answer.reason != "length":
            lost.append(answer)
        found[answer.id] = asked._replace(scheduled=answer.admitted, first=answer.first, last=answer.last)
        done()

    simulate(service.policy, service.state, _asked(requests), seconds, served=served, watch=watch)
    if lost:
        asked = requests[lost[0].id]
        raise UserError(
            f"request {asked.name} of {asked.prompt} and {asked.output} tokens is {lost[0].reason}: the pool holds "
            f"{service.pages * service.page} tokens; give --chip or --model where the recording is wrong"
        )
    return [found[i] for i in range(len(requests))]


def _asked(requests: Sequence[Served]) -> Iterator[Request]:
    for i, each in enumerate(requests):
        yield Request(i, range(each.prompt), each.output, each.queued)
