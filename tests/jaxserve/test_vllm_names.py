"""vLLM's names: what works does so with the same meaning, everything else is answered, and the page says the same as the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jaxserve.engine.config import EngineConfig
from jaxserve.sampling_params import SamplingParams
from jaxserve.vllm_names import CHAT, ENGINE, GENERATE, SAMPLING, Names, Otherwise, Same, translated
from models.errors import UserError
from tests.jaxserve.shared_programs import shared

__all__ = ["shared"]

PAGE = (Path(__file__).parents[2] / "docs" / "from-vllm.md").read_text(encoding="utf-8")
TABLES = {"LLM": ENGINE, "SamplingParams": SAMPLING, "llm.generate": GENERATE, "llm.chat": CHAT}
ENGINE_FIELDS = list(EngineConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"max_model_len": 64, "max_num_seqs": 3, "block_size": 8}, {"context": 64, "rows": 3, "page_size": 8}),
        ({"num_gpu_blocks_override": 5}, {"pages": 5}),
        ({"kv_cache_dtype": "auto"}, {"kv_dtype": None}),
        ({"kv_cache_dtype": "bfloat16"}, {"kv_dtype": "bfloat16"}),
        ({"enable_prefix_caching": False}, {"prefix_cache": False}),
        ({"enable_chunked_prefill": True}, {"policy": "chunked"}),
        ({"enable_chunked_prefill": False}, {"policy": "continuous"}),
        ({"max_num_batched_tokens": 128}, {"budget": 128, "policy": "chunked"}),
        ({"max_num_batched_tokens": 128, "policy": "disaggregated"}, {"budget": 128, "policy": "disaggregated"}),
        ({"max_num_batched_tokens": 128, "enable_chunked_prefill": True}, {"budget": 128, "policy": "chunked"}),
    ],
)
def test_settings_of_the_same_meaning(theirs: dict[str, Any], ours: dict[str, Any]):
    """What comes out are settings of ours."""
    found = translated("LLM", theirs, ENGINE_FIELDS, ENGINE)
    assert found == ours
    EngineConfig("random:tiny", **found)


def test_params_of_the_same_meaning():
    given: dict[str, Any] = {"stop_token_ids": [5], "include_stop_str_in_output": True, "top_k": -1, "seed": 3, "stop": "x"}
    assert SamplingParams(**given) == SamplingParams(stop_ids=[5], include_stop=True, top_k=0, seed=3, stop="x")
    assert SamplingParams(0.5, **given).temperature == 0.5


@pytest.mark.parametrize(("call", "names"), TABLES.items())
def test_every_other_name_is_answered_in_one_line_and_what_asks_for_nothing_is_passed_over(call: str, names: Names):
    for name, there in names.items():
        if isinstance(there, Otherwise):
            for idle in (None, *there.idle):
                assert translated(call, {name: idle}, (), names) == {}
            with pytest.raises(UserError, match=f"^{re.escape(call)} has no {name} ") as error:
                translated(call, {name: object()}, (), names)
            assert str(error.value).endswith(there.says) and "\n" not in str(error.value)


def test_one_is_not_true():
    """1 asks for one device; True would be a slip."""
    assert translated("LLM", {"tensor_parallel_size": 1}, (), ENGINE) == {}
    with pytest.raises(UserError, match="tensor_parallel_size"):
        translated("LLM", {"tensor_parallel_size": True}, (), ENGINE)


def test_what_they_are_called_here_exists():
    for names, known in ((ENGINE, ENGINE_FIELDS), (SAMPLING, list(SamplingParams.__dataclass_fields__))):
        for name, there in names.items():
            assert name not in known
            if isinstance(there, Same):
                assert there.ours in known


@pytest.mark.parametrize(("call", "names"), TABLES.items())
def test_the_page_has_every_name_and_what_is_said_of_it(call: str, names: Names):
    """Under a heading for each call, a row for each name."""
    section = PAGE.split(f"## `{call}`\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))
    wanted = {name: f"`{there.ours}`" if isinstance(there, Same) else there.says for name, there in names.items()}
    assert set(rows) >= set(wanted), set(wanted) - set(rows)
    for name, says in wanted.items():
        assert says in rows[name], (name, rows[name])
    assert set(rows) - set(wanted) <= {"seed", "dtype", "model", "temperature", "max_tokens", "top_k"}


def test_the_script_on_the_page_runs(shared: Path, capsys: pytest.CaptureFixture[str]):
    """As it stands there: two prompts, the second of which was given as ids."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "docs/from-vllm.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"Hello, my name is \[[\d, ]+\] (length|stop)$", lines[0]) and lines[1].startswith("[72, 105] [")
