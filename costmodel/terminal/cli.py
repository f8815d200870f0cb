"""What all commands share: how they end, how they show progress, and lists of numbers as an option. No JAX."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from costmodel import endings
from costmodel.hardware.host import spare_jax_the_search
from models.errors import UserError, check_count
from models.files.reading import shown

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
MANY = 1000  # numbers of an option that takes several
NOTHING = "nothing was kept"  # after what interrupted it
_ALL = ("jaxserve", "python -m jaxserve")  # programs whose first argument names the command


def run(command: click.Command, arguments: list[str] | None = None) -> None:
    """Run a command and leave the process: 0 done, 2 bad input or interrupted, 1 a fault of ours. One line, no traceback.

    Ctrl-C, SIGTERM and SIGHUP interrupt it alike; see `endings.heard`.

    Args:
      command: what to run. What it imports when it is called, within `importing`, may be interrupted in good order too.
      arguments: those of the process by default.

    Set JAXSERVE_TRACEBACK=1 to see where an error came from.
    """
    spare_jax_the_search()
    _write_any_text()
    try:
        # Not command.main(), which writes an empty line of its own when it is interrupted and leaves at a broken pipe.
        given = list(sys.argv[1:] if arguments is None else arguments)
        with _libraries_speak_in_lines(), endings.heard(), command.make_context(_program(), given) as context:
            command.invoke(context)
        _flush()  # so that a reader who has gone shows here
        code, line = 0, ""
    except BaseException as error:
        code, line = _verdict(error)
        if line and os.environ.get("JAXSERVE_TRACEBACK"):
            traceback.print_exc()
    if line and sys.stderr is not None:  # which `2>&-` leaves us without
        with contextlib.suppress(OSError):  # a full disk or a closed terminal takes no error either; the code still says it
            print(f"error: {line}", file=sys.stderr, flush=True)
    os._exit(code)  # compilations that still run in threads cannot be cancelled, and must not keep the user waiting


class _Lines(logging.Handler):
    """What a library has to say on standard error: a line each, an exception's own words in place of its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        words = [_line(record.getMessage())] + ([_line(str(error)) or type(error).__name__] if error else [])
        print(f"warning: {': '.join(words)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _libraries_speak_in_lines() -> Iterator[None]:
    """What JAX and jaxserve log is a line each on standard error.

    Of a plugin that cannot start, as where CUDA's libraries are missing, JAX would log a traceback or two before it goes on. Logging is
    left as it is where somebody has asked for more of it, by JAX_LOGGING_LEVEL or JAXSERVE_TRACEBACK.
    """
    if os.environ.get("JAX_LOGGING_LEVEL") or os.environ.get("JAXSERVE_TRACEBACK"):
        yield
        return
    loggers, lines = [logging.getLogger(name) for name in ("jax", "jaxserve")], _Lines(logging.WARNING)
    for logger in loggers:
        logger.addHandler(lines)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(lines)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While large modules are imported, Ctrl-C and the like end the process then and there.

    A KeyboardInterrupt would be raised within the initialisation of an extension, which aborts the process when an exception passes.
    """
    with endings.at_once(lambda why: f"error: {why}; {NOTHING}\n", 2):
        yield


def _verdict(error: BaseException) -> tuple[int, str]:
    """(exit code, line without the word error; empty for an end in good order)."""
    if isinstance(error, click.exceptions.Exit):  # after --help
        try:
            _flush()
        except BrokenPipeError:
            pass
        except OSError as failed:
            return _verdict(failed)
        return error.exit_code, ""
    if isinstance(error, click.ClickException):
        return 2, _in_one_line(error.format_message())
    if isinstance(error, UserError):
        return 2, _in_one_line(str(error))
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return 2, f"{endings.why(error)}; {NOTHING}"
    # The reader of a pipe, such as head, has seen enough. From that rich makes an exit; any other one is nobody's to take.
    if isinstance(error, BrokenPipeError) or (isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)):
        return 0, ""
    if (
        isinstance(error, OSError) and error.errno in _FULL
    ):  # of files of the user's the writer speaks; this is standard output, or JAX's
        return 2, f"output cannot be written: {error.strerror}{_of(error)}; make room, or write elsewhere"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return 2, f"too many files are open{_of(error)}; raise the limit with ulimit -n, or close other programs"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return (
            2,
            f"the device ran out of memory ({_line(str(error)) or 'no details'}); lower --batch or --rows, or take a smaller model",
        )
    if (asked := os.environ.get("JAX_PLATFORMS")) and _raised_in(error) == "xla_bridge.py":  # where JAX starts its backends
        reason = f" ({_line(str(error))})" if str(error) else ""
        return (
            2,
            f"JAX cannot start on JAX_PLATFORMS={asked}{reason}; unset it, or install what it needs, such as jaxserve[cuda]",
        )
    return 1, f"a fault of jaxserve, please report it: {type(error).__name__}: {_line(str(error)) or '(no message)'}"


def _raised_in(error: BaseException) -> str:
    """The name of the file whose code raised it; empty where that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).name if frames else ""


def _flush() -> None:
    """Write what is buffered; without a standard output (`>&-`) there is nothing to write to."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _write_any_text() -> None:
    """Half a character, or one that the encoding of standard output lacks, is written with a backslash, as on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _of(error: OSError) -> str:
    return f" ({shown(error.filename)})" if isinstance(error.filename, str) else ""


def _in_one_line(text: str) -> str:
    """A message of ours, of which both ends count, whatever a value within it holds."""
    line = " ".join(text.split("\n"))
    return line if len(line) <= 1000 else f"{line[:500]} ... {line[-400:]}"


def _line(text: str) -> str:
    """One line of a message that may have several: the first."""
    return text.strip().partition("\n")[0]


def _program() -> str:
    """How the command was started, for its usage line."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name


def command_line(module: str) -> str:
    """The line that started this process, for a shell: as a command of `jaxserve`, or else as a run of `module`."""
    name = _program()
    return shlex.join([*(name if name in _ALL else f"python -m {module}").split(), *sys.argv[1:]])


class _Note(ProgressColumn):
    """What stands behind a bar; cut off where there is no room for it."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"](), no_wrap=True, overflow="ellipsis")


class Bars:
    """Progress bars on standard error, so that standard output stays clean; none where it is not a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), _Note())
        console = Console(stderr=True)
        # Switched off, and not only transient: rich ends with an empty line where there is no terminal.
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def __enter__(self) -> Bars:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def bar(self, what: str, total: int, note: Callable[[], str] = str) -> Callable[[int], None]:
        """A bar of `total` units; call what is returned with each advance. `note` is asked what to write behind it at each picture."""
        task = self.progress.add_task(what, total=total, note=note)
        return lambda amount: self.progress.update(task, advance=amount)


class Numbers(click.ParamType):
    """An option that takes one whole number or several, 1 or 1,8,64: a tuple of at least one, each at least 1."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        option = f"--{param.opts[0].lstrip('-')}" if param is not None else "the option"
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            raise UserError(f"{option} is {value!r}; give a whole number or several, such as 1,8,64") from None
        if min(numbers) < 1:
            raise UserError(f"{option} is {min(numbers)}; it must be at least 1")
        check_count(option, max(numbers))
        if len(numbers) > MANY:
            raise UserError(f"{option} has {len(numbers)} numbers; give at most {MANY}")
        return numbers
