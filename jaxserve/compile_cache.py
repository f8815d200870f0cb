"""The folder in which compiled programs are kept for the next start (JAX's persistent compilation cache)."""

from __future__ import annotations

import os
from pathlib import Path

from models.errors import UserError


def check_cache(folder: Path, name: str) -> None:
    """Whether compiled programs could be kept there: JAX would only warn, once a program, and keep none. Nothing is made.

    Raises:
      UserError: under the option's `name`; something else lies there or above it, or it may not be written to.
    """
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:  # a name that is too long, say
        raise _unfit(folder, name, error) from None
    above = "" if there == folder else f", because of {there}"
    if not there.is_dir():
        raise UserError(f"{name} {folder} is not a folder{above}; give one, or a name that is not taken")
    if not os.access(there, os.W_OK):
        raise UserError(f"{name} {folder} cannot be written to{above}; give a folder of your own")


def use_cache(folder: Path, name: str) -> None:
    """Make the folder if it isn't there, and let JAX keep every program in it, however small.

    Raises:
      UserError: it can't be made after all; before weights are read, if it is called first.
    """
    import jax  # here, so that settings can be checked without an accelerator library

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unfit(folder, name, error) from None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _unfit(folder: Path, name: str, error: OSError) -> UserError:
    return UserError(f"{name} {folder} can't be made: {error.strerror}; give a folder that can be")
