"""What a user may say of an engine, and what is refused at once. Oracles: the policies' own values, and the list of refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine.config import EngineConfig
from jaxserve.scheduling.chunked import Chunked
from jaxserve.scheduling.continuous import Continuous
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.dynamic import Dynamic
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.static import Static
from jaxserve.scheduling.transfer import Link
from jaxserve.speculative.ngram import NGram
from models.errors import UserError

AHEAD = Limits(8, ahead=1)


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"policy": "static"}, Static(AHEAD)),
        ({"policy": "static", "multi_step": 4}, Static(AHEAD, 4)),
        ({"policy": "dynamic"}, Dynamic(AHEAD)),
        ({"policy": "dynamic", "delay": 0.5, "preferred": [2, 4]}, Dynamic(AHEAD, (2, 4), 0.5)),
        ({}, Continuous(AHEAD)),
        ({"prefill_tokens": 32}, Continuous(Limits(8, 32, ahead=1))),
        ({"queue_size": 3, "queue_timeout": 1.5}, Continuous(Limits(8, queue=QueueRule(3, 1.5), ahead=1))),
        ({"speculate": "ngram"}, Continuous(Limits(8))),
        ({"policy": "chunked"}, Chunked(AHEAD, 100)),
        ({"policy": "chunked", "budget": 9}, Chunked(AHEAD, 9)),
        ({"policy": "disaggregated"}, Disaggregated(Link(7, 10e9), Limits(8), 1, 100)),
        (
            {"policy": "disaggregated", "link": 2.5, "prefill_workers": 2, "budget": 5},
            Disaggregated(Link(7, 2.5e9), Limits(8), 2, 5),
        ),
    ],
)
def test_policies(given: dict[str, Any], policy: Policy):
    """A step is planned ahead, but where drafts or the choice of a worker need the last one's outcome."""
    assert EngineConfig(rows=8, **given).scheduling(8, token_bytes=7, budget=100) == policy


def test_what_follows_from_the_rest():
    plain = EngineConfig()
    assert (plain.most_rows, plain.workers, plain.drafter, plain.remembers) == (64, 1, None, True)
    assert EngineConfig(kv="contiguous").remembers is False and EngineConfig(prefix_cache=False).remembers is False
    assert EngineConfig(speculate="ngram").drafter == NGram(4)
    assert EngineConfig(speculate="ngram", drafts=2).drafter == NGram(2)
    assert EngineConfig(policy="disaggregated", decode_workers=3).workers == 4
    assert EngineConfig(policy="chunked", budget=16).most_rows == 16  # every row must be able to go on
    assert EngineConfig(policy="dynamic", preferred=(8, 100)).most_rows == 100


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 0}, "rows is 0; it must be a whole number of at least 1"),
        ({"rows": 1.5}, "rows is 1.5; it must be a whole"),
        ({"context": -1}, "context is -1; it must be"),
        ({"pages": 0}, "pages is 0; it must be"),
        ({"page_size": 0}, "page_size is 0; it must be"),
        ({"multi_step": 0}, "multi_step is 0; it must be"),
        ({"queue_size": 0}, "queue_size is 0; it must be"),
        ({"dtype": "int3"}, "dtype 'int3' is unknown; give auto, float32, bfloat16"),
        ({"kv_dtype": "auto"}, "kv_dtype 'auto' is unknown; give float32, bfloat16"),
        ({"layers": "rolled"}, "layers 'rolled' is unknown; give auto"),
        ({"kv": "heap"}, "kv 'heap' is unknown; give paged, contiguous"),
        ({"policy": "fair"}, "policy 'fair' is unknown; give static, dynamic, continuous, chunked, disaggregated"),
        ({"speculate": "eagle"}, "speculate 'eagle' is unknown; give ngram"),
        ({"delay": 0.1}, "delay is given, but a continuous policy has none; leave it out, or take dynamic"),
        ({"budget": 64}, "budget is given, but a continuous policy has none; leave it out, or take chunked or disaggregated"),
        ({"policy": "static", "link": 1.0}, "link is given, but a static policy has none"),
        ({"policy": "chunked", "rows": 8, "budget": 4}, "a budget of 4 tokens a step is too small for 8 rows"),
        ({"policy": "dynamic", "delay": -1.0}, "delay is -1.0; it must be at least 0 and at most"),
        ({"policy": "dynamic", "delay": math.nan}, "delay is nan"),
        ({"policy": "dynamic", "delay": math.inf}, "delay is inf s; the last requests, .* would wait for ever; give a finite"),
        ({"policy": "dynamic", "delay": "1"}, "delay is '1'; it must be at least 0 and at most"),
        ({"queue_timeout": "1"}, "queue_timeout is '1'; it must be above 0 and at most"),
        ({"policy": "disaggregated", "link": "1"}, "link is '1'; it must be above 0, in GB/s"),
        ({"policy": "dynamic", "preferred": 4}, "preferred is 4; give whole numbers, in a list"),
        (
            {"policy": "dynamic", "preferred": (2.5,)},
            r"a size of preferred is 2.5; give whole numbers of at least 1, in a list",
        ),
        ({"policy": "dynamic", "rows": 4, "preferred": (8,)}, r"preferred batch sizes are \[8\]; they must lie between 1"),
        ({"policy": "disaggregated", "link": 0.0}, "link is 0.0; it must be above 0, in GB/s"),
        ({"queue_timeout": 0.0}, "queue_timeout is 0.0; it must be above 0 and at most"),
        ({"rows": 2**31}, "rows is 2147483648; it must be at most 2147483647"),
        ({"policy": "disaggregated", "decode_workers": 1025}, "decode_workers is 1025; it must be at most 1024"),
        ({"policy": "dynamic", "delay": 1e10}, r"delay is 10000000000.0; it must be at least 0 and at most 1e\+09 s"),
        ({"queue_timeout": 1e10}, r"queue_timeout is 10000000000.0; it must be above 0 and at most 1e\+09 s"),
        ({"drafts": 4}, "drafts is given, but nothing drafts; leave it out, or speculate with ngram"),
        ({"batch_invariant": 2}, "batch_invariant is 2"),
        (
            {"batch_invariant": True, "speculate": "ngram"},
            "speculate brings programs of other shapes, and batch_invariant runs every",
        ),
        ({"batch_invariant": True, "multi_step": 2}, "multi_step brings programs of other shapes"),
        ({"batch_invariant": True, "ladder": "l.json"}, "ladder brings programs of other shapes"),
        ({"kv": "contiguous", "page_size": 16}, "page_size is given, but contiguous KV has no pages"),
        ({"kv": "contiguous", "prefix_cache": True}, "prefix_cache needs pages, for slots can't be shared"),
    ],
)
def test_refused(given: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as caught:
        EngineConfig(**given)
    assert "\n" not in str(caught.value)


def test_compile_cache_must_be_a_folder(tmp_path: Path):
    EngineConfig(compile_cache=tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is not a folder; give one, or a name that is not taken"):
        EngineConfig(compile_cache=tmp_path / "file")
    with pytest.raises(UserError, match=r"compile_cache \S+/file/new is not a folder, because of \S+/file; give"):
        EngineConfig(compile_cache=tmp_path / "file" / "new")
