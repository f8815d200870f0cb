"""From a load to a run. Oracle: a server on a virtual clock."""

from __future__ import annotations

import functools
import signal
from typing import Any

import pytest

from jaxserve.load.measure import Server, check_clients, measure
from jaxserve.load.result import Pool
from jaxserve.load.session import Found, run_loads
from jaxserve.load.slo import SLO
from jaxserve.load.source import Alphabet
from jaxserve.load.spec import LoadSpec
from models.errors import UserError
from tests.jaxserve.load.virtual import Blocking


def letters(key: int) -> Alphabet:
    return Alphabet(1000, key)


def run_all(server: Blocking, asked: LoadSpec, **more: Any) -> Found:
    return run_loads(asked, functools.partial(measure, Server(server, letters, **more), asked))


def test_a_run_knows_what_was_asked():
    asked = LoadSpec(rates=(10.0,), arrivals="constant", requests=10, warmup=2, seed=5, slo=SLO(ttft={50: 1.0}))
    run = measure(Server(Blocking(0.05), letters, more=lambda: {"note": 1}), asked, asked.loads[0])
    assert (len(run.records), len(run.warmup), run.begin) == (8, 2, 0.1)
    assert (
        run.settings["seed"] == 5
        and run.settings["arrivals"] == {"kind": "constant", "rate": 10.0}
        and run.settings["note"] == 1
    )
    assert run.settings["source"] == {"kind": "drawn", "prompt": "128", "output": "64"} and run.settings["target"] == "virtual"
    assert run.complete and run.steady and run.summary.met and run.witness == "measured"
    assert run.warm is None  # this server doesn't say
    assert run.duration == pytest.approx(0.9 + 0.05 - 0.1)


def test_little_in_a_closed_loop():
    """Concurrency is clamped at N, whatever the server does: three clients at two places."""
    asked = LoadSpec(clients=(3,), requests=300, warmup=10)
    run = measure(Server(Blocking(1.0, 2), letters), asked, asked.loads[0])
    assert run.little.comparable and run.little.concurrency == pytest.approx(3.0, rel=0.02)
    assert run.little.product == pytest.approx(3.0, rel=0.02) and run.little.residence == pytest.approx(1.5, rel=0.02)


def test_coordinated_omission_as_the_command_measures_it():
    asked = LoadSpec(rates=(10.0,), arrivals="constant", requests=8)
    run = measure(Server(Blocking(0.5), letters), asked, asked.loads[0])
    assert run.summary.e2e.p99 == pytest.approx(3.3) and 99 in run.summary.e2e.few


def test_several_loads_and_one_that_is_cut_short():
    found = run_all(Blocking(0.1, 2), LoadSpec(clients=(1, 2, 4), requests=20))
    assert [run.settings["load"] for run in found.runs] == ["1 client", "2 clients", "4 clients"] and not found.why
    assert [run.summary.requests_per_s for run in found.runs] == pytest.approx([10.0, 20.0, 20.0])
    assert [run.settings["part"] for run in found.runs] == [0, 1, 2]
    server = Blocking(0.1, 2, interrupt=0.5)
    found = run_all(server, LoadSpec(clients=(1, 2), requests=20))
    assert len(found.runs) == 1 and not found.runs[0].complete and "Ctrl-C" in found.why
    assert len(found.runs[0].records) == 5


@pytest.mark.parametrize("saturate", [False, True])
def test_ctrl_c_between_two_runs(saturate: bool):
    """Hit while the second run is made ready: the first is kept, whole as it is, and what is missing is said. Hit before, nothing is."""

    def fresh() -> None:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(1)

    made: list[int] = []
    asked = LoadSpec(rates=(2.0,) if saturate else (2.0, 4.0), requests=20, saturate=saturate, slo=SLO(ttft={95: 1.0}))
    found = run_all(Blocking(0.1, 2), asked, fresh=fresh)
    assert (
        [run.complete for run in found.runs] == [True]
        and found.cut == found.why == "interrupted by Ctrl-C"
        and found.saturation is None
    )
    with pytest.raises(KeyboardInterrupt):
        run_all(Blocking(0.1, 2), asked, fresh=lambda: signal.raise_signal(signal.SIGINT))


def test_saturation_of_a_server():
    """Two places of 0.1 s: 20 a second."""
    asked = LoadSpec(rates=(2.0,), requests=400, saturate=True, slo=SLO(ttft={95: 1.0}))
    found = run_all(Blocking(0.1, 2), asked)
    assert found.saturation is not None and 15 < found.saturation.rate < 22
    assert len(found.runs) == len(found.saturation.probes) and {run.settings["part"] for run in found.runs} == set(
        range(len(found.runs))
    )
    cut = run_all(Blocking(0.1, 2, interrupt=1.0), asked)
    assert cut.saturation is None and cut.why and len(cut.runs) == 1


def test_more_clients_than_the_pool_can_ever_hold():
    """facts.md, section 4: pages of 16 tokens, requests of 1,024: 240 fit in a pool of 240 times 64 pages, 241 don't."""
    asked = LoadSpec(clients=(240, 241), prompt="1000", output="25", requests=241)
    few, many = asked.loads
    check_clients(few, asked, Pool(240 * 64, 16), prefix=False)
    with pytest.raises(
        UserError,
        match=r"241 clients with at least 64 pages of 16 tokens each would need 15424 at once, and the pool has 15360",
    ):
        check_clients(many, asked, Pool(240 * 64, 16), prefix=False)
    check_clients(many, asked, Pool(240 * 64, 16), prefix=True)  # prompts may share theirs
    with pytest.raises(UserError, match="at most 240 clients, or give --pages 15424"):
        check_clients(many, asked, Pool(240 * 64, 16), prefix=False)


def test_clients_without_a_request_need_nothing():
    """Two requests of one page each: whoever comes third has nothing to ask, so two pages hold them all."""
    asked = LoadSpec(clients=(3,), prompt="8", output="4", requests=2)
    check_clients(asked.loads[0], asked, Pool(2, 16), prefix=False)
    with pytest.raises(UserError, match="would need 2 at once, and the pool has 1"):
        check_clients(asked.loads[0], asked, Pool(1, 16), prefix=False)
