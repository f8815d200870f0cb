"""What all commands share: how they end, and how they show progress."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from models.errors import UserError


def run(command: click.Command, arguments: list[str] | None = None) -> None:
    """Run a command and leave the process: 0 done, 2 bad input or interrupted, 1 a fault of ours. One line, no traceback.

    Set JAXSERVE_TRACEBACK=1 to see where an error came from.
    """
    try:
        command.main(args=arguments, standalone_mode=False)
        code, line = 0, ""
    except click.exceptions.Exit as stop:
        code, line = stop.exit_code, ""
    except click.ClickException as error:
        code, line = 2, error.format_message()
    except UserError as error:
        code, line = 2, str(error)
    except (KeyboardInterrupt, click.exceptions.Abort):
        code, line = 2, "interrupted; nothing was kept"
    except BrokenPipeError:
        code, line = 0, ""
        sys.stdout = open(os.devnull, "w")
    except Exception as error:  # whatever else it is, it is our fault
        code, line = 1, f"a fault of jaxserve, please report it: {type(error).__name__}: {_first_line(error)}"
    if line:
        if os.environ.get("JAXSERVE_TRACEBACK"):
            traceback.print_exc()
        print(f"error: {line}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # compilations that still run in threads cannot be cancelled, and must not keep the user waiting


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "(no message)").splitlines()[0]


class Bars:
    """Progress bars on standard error, so that standard output stays clean; none where it is not a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Bars:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def bar(self, what: str, total: int) -> Callable[[int], None]:
        """A bar of `total` units; call what is returned with each advance."""
        task = self.progress.add_task(what, total=total)
        return lambda amount: self.progress.update(task, advance=amount)
