"""Traces. Oracles: lines in the formats that Azure and Mooncake publish, read by hand; a list of tokens made block by block."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.prefix_cache import PrefixCache
from jaxserve.load.trace import BLOCK, Blocks, Entry, read_trace, requests
from models.errors import UserError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:15:46.6805900,374,44\r
2023-11-16 18:15:50.9951690,396,109\r
2023-11-17 00:15:46.6805901,879,55"""
AZURE_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,7,0\n"
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3052, "input_length": 1024, "output_length": 3, "hash_ids": [0, 7]}
{"timestamp": 3052.5, "input_length": 1, "output_length": 0, "hash_ids": [9]}

"""


def read(tmp_path: Path, text: str) -> list[Entry]:
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    return list(read_trace(path))


def test_azure(tmp_path: Path):
    """Seven digits after the point; CRLF; no newline at the end; over midnight."""
    found = read(tmp_path, AZURE)
    assert [entry[1:] for entry in found] == [(374, 44, ()), (396, 109, ()), (879, 55, ())]
    assert [entry.arrival for entry in found] == pytest.approx([0.0, 4.3145790, 6 * 3600 + 1e-7], abs=2e-7)


def test_azure_of_2024(tmp_path: Path):
    """A time zone, and a time without a fraction; an answer of no token is kept as recorded and served as one."""
    found = read(tmp_path, AZURE_2024)
    assert [entry[1:3] for entry in found] == [(2162, 5), (7, 0)]
    assert found[1].arrival == pytest.approx(0.99007, abs=1e-6)
    assert [(len(request.prompt), request.limit) for request in requests(found)] == [(2162, 5), (7, 1)]


def test_columns_may_stand_in_any_order_and_others_beside(tmp_path: Path):
    found = read(tmp_path, "\ufeffx,GeneratedTokens,TIMESTAMP,ContextTokens\n,3,2023-11-16 18:15:46,4\n")
    assert found == [Entry(0.0, 4, 3)]


def test_mooncake(tmp_path: Path):
    """Milliseconds; empty lines at the end are passed over."""
    found = read(tmp_path, MOONCAKE)
    assert found == [Entry(0.0, 1100, 500, (0, 1, 2)), Entry(3.052, 1024, 3, (0, 7)), Entry(3.0525, 1, 0, (9,))]


def test_equal_blocks_are_equal_tokens(tmp_path: Path):
    first, second, third = requests(read(tmp_path, MOONCAKE))
    assert [len(request.prompt) for request in (first, second, third)] == [1100, 1024, 1]
    assert tuple(first.prompt[:512]) == tuple(second.prompt[:512])
    assert not set(first.prompt[512:]) & set(second.prompt[512:])
    assert len(set(first.prompt)) == 1100
    assert (third.limit, third.arrival, third.id) == (1, 3.0525, 2)


def test_the_prefix_tree_finds_the_shared_block(tmp_path: Path):
    """512 tokens are 32 pages of 16."""
    first, second, _ = requests(read(tmp_path, MOONCAKE))
    tree, before, edges = PrefixCache.of(16, 1000), -1, {}
    for i in range(len(first.prompt) // 16):
        edges[before, tuple(first.prompt[16 * i : 16 * i + 16])] = before = i
    assert len(tree.insert(edges).match(second.prompt)) == 32


@given(ids=st.lists(st.integers(0, 50), min_size=1, max_size=5), size=st.integers(1, 7), data=st.data())
def test_a_prompt_is_the_list_of_its_tokens(ids: list[int], size: int, data: st.DataObject):
    """Oracle: the list itself, for lengths, indices and slices of any kind."""
    length = data.draw(st.integers(1, len(ids) * size))
    tokens = [id * size + at for id in ids for at in range(size)][:length]
    prompt = Blocks(tuple(ids), length, size)
    assert list(prompt) == tokens and len(prompt) == length and prompt == tokens and prompt != tokens[:-1]
    at = data.draw(st.integers(-length, length - 1))
    assert prompt[at] == tokens[at]
    some = data.draw(st.slices(length))
    assert list(prompt[some]) == tokens[some]
    with pytest.raises(IndexError):
        prompt[length]


def test_scales(tmp_path: Path):
    """Half the time, an eighth of the length: blocks of 64; 1100 = 2 blocks and 76 tokens -> 128 and 9.5, rounded to the even 10."""
    first, second, third = requests(read(tmp_path, MOONCAKE), time=0.5, length=1 / 8, first=5)
    assert (first.id, second.arrival, first.limit, second.limit, third.limit) == (5, 1.526, 62, 1, 1)
    assert [len(request.prompt) for request in (first, second, third)] == [138, 128, 1]
    assert tuple(first.prompt[:64]) == tuple(second.prompt[:64]) and not set(first.prompt[64:]) & set(second.prompt[64:])


def test_times_are_not_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A night in which clocks are put back in New York: an hour from 1:30 to 2:30, as in the file."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        found = read(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-05 01:30:00,3,3\n2023-11-05 02:30:00,3,3\n")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found[1].arrival == 3600


def test_prompts_without_blocks_share_nothing(tmp_path: Path):
    found = list(requests(read(tmp_path, AZURE), length=0.5))
    assert [(len(r.prompt), r.limit) for r in found] == [(187, 22), (198, 54), (440, 28)]
    tokens = [token for request in found for token in request.prompt]
    assert len(set(tokens)) == len(tokens)


MOON = '{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: it is empty; Azure's begins with TIMESTAMP,"),
        ("\n" + AZURE, "line 1: it is empty, with more lines below"),
        (AZURE + "\r\n \r\n\r\n2023-11-17 00:15:47,3,5", "line 5: it is empty, with more lines below; delete it if no"),
        (MOON + "\n" + MOON, "line 2: it is empty, with more lines below; delete it if no request is missing"),
        ("a,b\n1,2\n", "line 1: it begins with 'a,b', which is of no kind"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
        (AZURE + "\r\n2023-11-17 00:15:47,many,5", "line 5: ContextTokens is 'many', not a number from 1 to"),
        (AZURE + "\r\n2023-11-17 00:15:47,0,5", "line 5: ContextTokens is '0', not a number from 1 to"),
        (AZURE + "\r\n2023-11-17 00:15:47,3,-1", "line 5: GeneratedTokens is '-1', not a number from 0 to"),
        (AZURE + "\r\n2023-11-17 00:15:47,3", "line 5: GeneratedTokens is '', not a number"),
        (AZURE + "\r\nyesterday,3,3", "line 5: Invalid isoformat string: 'yesterday'"),
        (AZURE + "\r\n2022-11-17 00:15:47,3,3", "line 5: it is 3.1536e.07 s before the line above; sort by time"),
        (MOON + "{\n", r"line 2: not valid JSON \(Expecting property name enclosed in double quotes at character [23]\); give"),
        (MOON + MOON[:-2] + "\n", r"line 2: not valid JSON \(Expecting ',' delimiter at character \d+\); give lines"),
        (MOON + "[1]\n", "line 2: it holds a JSON list, not an object"),
        (MOON + '{"timestamp": 1}\n', "line 2: 'hash_ids' is missing"),
        (MOON.replace("1,", '"x",', 1), "line 1: timestamp is 'x', not milliseconds"),
        (MOON.replace("1,", "NaN,", 1), r"line 1: not valid JSON \(NaN is no number"),
        (MOON.replace("[1]", "[1, 2]"), "line 1: 2 hash_ids for 5 tokens in blocks of 512"),
        (MOON.replace("[1]", "[-1]"), "line 1: hash_ids are no list of whole numbers"),
        (MOON.replace("5,", "true,"), "line 1: input_length is True, not a number"),
        (MOON + MOON.replace("1,", "0,", 1), r"line 2: it is 0\.001 s before the line above"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str):
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path):
    with pytest.raises(UserError, match="no such file"):
        next(read_trace(tmp_path / "missing.csv"))
    (tmp_path / "zip").write_bytes(b"PK\x03\x04\xff\xfe\x00")
    with pytest.raises(UserError, match="is no text"):
        next(read_trace(tmp_path / "zip"))


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ({"time": 0.0}, r"time scale is 0\.0; it must be above 0"),
        ({"length": -1.0}, r"length scale is -1\.0"),
        ({"length": 0.4 / BLOCK}, "leaves nothing of a block"),
        ({"time": float("nan")}, "time scale is nan"),
    ],
)
def test_a_bad_scale_is_refused(scale: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        next(requests([Entry(0.0, 1, 1)], **scale))
