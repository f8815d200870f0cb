"""The mapping that is a value. Oracle: a plain dictionary, copied before every change."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.kv.persistent import Map


def empty(expected: int) -> Map[Any, Any]:
    return Map.sized(expected)


keys = st.integers(-3, 40) | st.tuples(st.integers(-1, 3), st.tuples(st.integers(0, 2)))


@given(
    expected=st.integers(0, 5000), changes=st.lists(st.tuples(st.dictionaries(keys, st.integers()), st.sets(keys)), max_size=12)
)
def test_every_version_is_a_dictionary_of_its_own(expected: int, changes: list[tuple[dict, set]]):
    mapping: Map[Any, Any] = empty(expected)
    versions: list[tuple[Map[Any, Any], dict]] = [(mapping, {})]
    for put, drop in changes:
        plain = versions[-1][1]
        known = {key for key in drop if key in plain}
        mapping = mapping.change(put, known)
        versions.append((mapping, {key: value for key, value in plain.items() if key not in known} | put))
    for mapping, plain in versions:
        assert dict(mapping.items()) == plain and len(mapping) == len(plain)
        for key in [*plain, -3, (0, (0,)), 77]:
            assert (key in mapping) == (key in plain) and mapping.get(key, None) == plain.get(key)
        assert all(mapping[key] == value for key, value in plain.items())
        assert pickle.loads(pickle.dumps(mapping)) == mapping
        assert mapping == empty(7).change(plain)


def test_it_compares_by_content_and_only_with_its_kind():
    assert empty(9).change({1: 2}) != empty(9).change({1: 3})
    assert empty(9) != {}
    with pytest.raises(TypeError):
        hash(empty(1))
    assert repr(empty(4).change({1: "a"})) == "Map({1: 'a'})"


def test_a_key_that_is_not_there():
    with pytest.raises(KeyError):
        empty(4).change({}, [1])
    with pytest.raises(KeyError):
        empty(4)[1]
