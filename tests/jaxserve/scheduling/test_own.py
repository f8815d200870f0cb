"""A policy of one's own wherever a built-in one goes. The policies: that of docs/policy.md, and others made here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jaxserve import LLM, generate, replay, simulate
from jaxserve.engine.config import EngineConfig
from jaxserve.load import __main__ as load
from jaxserve.scheduling import own
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits
from jaxserve.scheduling.transfer import Link
from models.errors import UserError

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
NAME = "shortest:ShortestFirst"
OTHERS = """
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.limits import Limits

NUMBER = 3

class Plain:
    multi_step = 1
    def __init__(self, limits):
        self.limits = limits
    def __call__(self, state, now):
        raise NotImplementedError

def made(limits, delay=0.0):
    return Continuous(limits)

def wrong(limits):
    return 7

def needs(limits, more):
    return Continuous(limits)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's policy in a module of the folder in which commands are started."""
    text = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    (tmp_path / "shortest.py").write_text(text[1])
    (tmp_path / "others.py").write_text(OTHERS)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "prompts.txt").write_text("a long question, which comes first\nshort\nmiddling, it is\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(command: object, *options: str) -> Result:
    return CliRunner().invoke(command, options)  # type: ignore[arg-type]


TINY = ("--model", "random:tiny", "--dtype", "float32", "--rows", "1")


def test_generate_and_the_log_of_it():
    """With one row the shortest prompt is served first; the log names the policy, and runs its code only where that is said."""
    ran = run(
        generate.main,
        "--prompts",
        "prompts.txt",
        *TINY,
        "--max-tokens",
        "3",
        "--policy",
        NAME,
        "--log",
        "steps.jsonl",
        "--json",
    )
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["prompt"] for line in lines[:-1]] == ["short", "middling, it is", "a long question, which comes first"]
    assert lines[-1]["summary"]["policy"]["name"] == NAME and lines[-1]["summary"]["policy"]["limits"]["rows"] == 1
    assert json.loads(Path("steps.jsonl").read_text().splitlines()[0])["policy"] == lines[-1]["summary"]["policy"]
    refused = run(replay.main, "steps.jsonl")
    assert isinstance(refused.exception, UserError) and f"say --policy {NAME} to run it" in str(refused.exception)
    for other in ("others:made", "shortest:Chunked", "continuous"):
        assert isinstance(run(replay.main, "steps.jsonl", "--policy", other).exception, UserError)
    again = run(replay.main, "steps.jsonl", "--policy", NAME)
    assert again.exit_code == 0 and "all hashes equal" in again.output
    simulated = run(simulate.main, "--log", "steps.jsonl", "--policy", NAME, "--json")
    assert simulated.exit_code == 0, simulated.output
    assert json.loads(simulated.stdout)["settings"]["policy"] == NAME


@pytest.mark.slow
def test_load():
    ran = run(
        load.main,
        *TINY[:-1],
        "2",
        "--policy",
        NAME,
        "--clients",
        "2",
        "--requests",
        "4",
        "--prompt",
        "8",
        "--output",
        "2",
        "--json",
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["settings"]["scheduling"]["name"] == NAME


@pytest.mark.parametrize(("name", "options"), [(NAME, ("--budget", "600")), ("others:made", ("--delay", "1"))])
def test_simulate(name: str, options: tuple[str, ...]):
    asked = ("--model", "llama-3-8b", "--chip", "h100", "--rate", "5/s", "--requests", "30", "--json")
    ran = run(simulate.main, *asked, "--policy", name, *options)
    assert ran.exit_code == 0, ran.output
    scheduling = json.loads(ran.stdout)["settings"]["scheduling"]
    assert scheduling["name"] == (NAME if name == NAME else "continuous") and scheduling.get("budget", 600) == 600


def test_a_policy_that_is_made_already():
    """Its rows and budget are the engine's; tests/jaxserve/scheduling/test_policy_page.py lets it serve."""
    from shortest import ShortestFirst  # type: ignore[import-not-found]

    llm = LLM("random:tiny", dtype="float32", context=48, policy=ShortestFirst(Limits(rows=2), budget=32))
    assert (llm.setup.rows, llm.setup.policy.budget) == (2, 32)  # type: ignore[attr-defined]
    assert llm.setup.ladder.mixed  # it has a budget, so its steps run decodes beside prompts


def test_workers_of_a_policy_that_is_made_already():
    link = Link(token_bytes=1, bandwidth=1e9, latency=0.0)
    assert EngineConfig(policy=Disaggregated(link, Limits(rows=3), prefill=2), decode_workers=3).workers == 5
    assert EngineConfig(policy=Disaggregated(link)).workers == 2
    assert not EngineConfig(policy=Disaggregated(link)).mixes and EngineConfig(policy=Chunked()).mixes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "shortest"}, "policy 'shortest' is unknown; give static, .*; a policy of your own is MODULE:NAME, such as"),
        (
            {"policy": "nowhere:X"},
            "policy 'nowhere:X': module 'nowhere' can't be imported .*No module named 'nowhere'.*; run where",
        ),
        ({"policy": "broken:X"}, r"can't be imported \(ZeroDivisionError: division by zero\)"),
        ({"policy": ":X"}, "can't be imported"),
        ({"policy": "others:Nothing"}, "module others has no class or function 'Nothing'"),
        ({"policy": "others:NUMBER"}, "module others has no class or function 'NUMBER'"),
        (
            {"policy": "others:wrong"},
            "policy others:wrong made 7, which is no policy: it must be a frozen dataclass with limits",
        ),
        ({"policy": "others:Plain"}, "it must be a frozen dataclass"),
        ({"policy": "others:needs"}, "policy others:needs can't be made of limits and nothing else: .*more"),
        ({"policy": NAME, "delay": 1.0}, "delay is given, but shortest:ShortestFirst takes none; leave it out"),
        ({"policy": "others:made", "multi_step": 2}, "multi_step is given, but others:made takes none"),
        ({"policy": Chunked(Limits(rows=4), 64), "rows": 8}, "rows is 8, but the policy is made already, with 4; leave it out"),
        (
            {"policy": Chunked(Limits(rows=4), 64, 2), "multi_step": 3},
            "multi_step is 3, but the policy is made already, with 2",
        ),
        ({"policy": Chunked(Limits(rows=4), 64), "budget": 64}, "budget is given, but the policy is made already"),
        ({"policy": Chunked(Limits(rows=4), 64), "queue_size": 4}, "queue_size is given, but the policy is made already"),
        ({"policy": Chunked}, "policy is <class .*; give static, .* or a policy as docs/policy.md has it"),
        ({"policy": 7}, "policy is 7; give static"),
        ({"policy": None}, "policy is None; give static"),
    ],
)
def test_what_is_no_policy(given: dict, message: str):
    with pytest.raises(UserError, match=message) as raised:
        EngineConfig(**given)
    assert "\n" not in str(raised.value)


def test_a_policy_of_an_unknown_make_is_not_logged(tmp_path: Path):
    from others import Plain  # type: ignore[import-not-found]

    plain = Plain(Limits(rows=2))
    assert own.is_policy(plain) and EngineConfig(policy=plain).most_rows == 2
    with pytest.raises(UserError, match=r"the policy others:Plain can't be written down, .*; make it a frozen dataclass"):
        EngineConfig(policy=plain, log=tmp_path / "steps.jsonl")
