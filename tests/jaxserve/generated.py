"""`python -m jaxserve.generate` in this process, on a few prompts and programs that tests share, and what it must answer greedily."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxserve.generate import main
from tests.jaxserve.in_process import Ran, strict
from tests.jaxserve.shared_programs import expected

PROMPTS = ("hello", "a", "good morning", "abcabcabcabcabcabc")


class Generated(Ran):
    """What the command printed as JSON: a line for each answer, then the summary."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [strict(line) for line in self.out.splitlines()]

    @property
    def answers(self) -> dict[int, list[tuple[int, ...]]]:
        return {each["request"]: [tuple(a["tokens"]) for a in each["answers"]] for each in self.lines[:-1]}

    @property
    def summary(self) -> dict[str, Any]:
        return self.lines[-1]["summary"]


@pytest.fixture
def here(shared: Path, in_process: Callable[..., Ran], tmp_path: Path) -> Callable[..., Generated]:
    """Runs the command in a folder with prompts and a ladder; with `tiny` on them."""

    def run(*arguments: str, tiny: bool = True) -> Generated:
        options = ("--prompts", "prompts.txt", "--model", "random:tiny", "--dtype", "float32", "--ladder", "ladder.json")
        return Generated(*in_process(main, *(options if tiny else ()), *arguments))

    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    return run


def greedy(tokens: int, prompts: Sequence[str] = PROMPTS) -> dict[int, list[tuple[int, ...]]]:
    return {i: [expected(prompt, tokens)] for i, prompt in enumerate(prompts)}
