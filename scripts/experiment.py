"""What the experiments share: a page of Markdown with the command, the date and the versions that made it."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from costmodel.hardware.host import host_key, today
from jaxserve.version import version
from models.files.reading import check_new, write_file


class Experiment:
    """The output of one command.

    Args:
      title: of the page.
      out: file to write; None for standard output.

    Attributes:
      facts: date, machine and versions.

    Raises:
      UserError: there is no folder for the file.
    """

    def __init__(self, title: str, out: Path | None):
        if out is not None:
            check_new(out, name=f"--out {out}")
        self._title, self._out = title, out
        self.facts: dict[str, Any] = {
            "date": today(),
            "machine": host_key(),
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
            "jaxserve": version(),
        }

    @property
    def command(self) -> str:
        """As it was typed, but for where Python is and in which folder files are."""
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        typed = [Path(each).name if Path(each).is_absolute() else each for each in sys.argv[1:]]
        return shlex.join(["python", *(["-m", spec.name] if spec else sys.argv[:1]), *typed])

    def write(self, *paragraphs: str) -> None:
        """The page: its title, the command, then the paragraphs.

        Raises:
          UserError: the file can't be written.
        """
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        text = "\n\n".join([f"# {self._title}", f"    {self.command}", facts + ".", *paragraphs]) + "\n"
        if self._out is None:
            print(text, end="")
            return
        write_file(self._out, text, name=f"--out {self._out}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
