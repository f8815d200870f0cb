"""Which jaxserve this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """Of the installed package; a checkout that runs without having been installed says so."""
    try:
        return importlib.metadata.version("jaxserve")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
