"""docs/structure.md names every room, and the files that lie beside them. Oracle: the folders themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
FLOORS = ("models", "costmodel", "jaxserve")


@pytest.mark.parametrize("floor", FLOORS)
def test_every_room_has_a_line_and_every_line_a_room(floor: str):
    there = {f"{floor}/{path.parent.name}/" for path in (ROOT / floor).glob("*/__init__.py")}
    assert there and set(re.findall(rf"^\| `({floor}/\w+/)` \|", PAGE, re.MULTILINE)) == there


@pytest.mark.parametrize("floor", FLOORS)
def test_every_room_says_what_lives_there(floor: str):
    for path in (ROOT / floor).glob("*/__init__.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), path


def test_the_files_and_folders_that_it_names_exist():
    for name in re.findall(r"`((?:models|costmodel|jaxserve)/[\w/.]*)`", PAGE):
        assert (ROOT / name).exists(), name


def test_the_glossary_is_short_and_in_order():
    words = re.findall(r"^\| ([^|]+) \|", PAGE.split("## Glossary")[1], re.MULTILINE)[2:]
    assert len(words) <= 40 and words == sorted(words, key=str.lower)
