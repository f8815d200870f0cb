"""A server somebody else runs, that is to be measured."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from jaxserve.load.asked import Asked
from jaxserve.load.http_client import HttpClient
from jaxserve.load.session import Bar, Session
from jaxserve.load.source import Alphabet


@contextmanager
def http_session(
    asked: Asked,
    bar: Bar,
    *,
    url: str,
    model: str | None,
    vocabulary: int,
    timeout: float,
    ignore_eos: bool,
    key: str | None,
) -> Iterator[Session]:
    """A server at a URL.

    Args:
      model: as it is called there; None for the first that is listed.
      vocabulary: token ids below this exist there.
      timeout: s without a byte after which a request has failed.
      ignore_eos, key: see `HttpClient`.

    Raises:
      UserError: nobody answers there, or not as OpenAI's API does.
    """
    with HttpClient(url, model, timeout=timeout, key=key, ignore_eos=ignore_eos) as client:
        yield Session(client, asked, functools.partial(Alphabet, vocabulary), bar)
