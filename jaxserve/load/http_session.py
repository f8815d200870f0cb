"""A server somebody else runs, that is to be measured."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxserve.load.http_client import HttpClient
from jaxserve.load.measure import Bar, Server
from jaxserve.load.source import Alphabet
from models.errors import UserError

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(?<!\.gguf)")


@contextmanager
def http_session(
    bar: Bar,
    *,
    url: str,
    model: str | None,
    vocabulary: int,
    timeout: float,
    ignore_eos: bool,
    key: str | None,
    tokenizer: str | None,
) -> Iterator[Server]:
    """A server at a URL.

    Args:
      model: as it is called there; None for the first that is listed.
      vocabulary: token ids below this exist there.
      timeout: s without a byte after which a request has failed.
      ignore_eos, key: see `HttpClient`.
      tokenizer: what counts texts where the server doesn't say how many tokens they have; see `counter`. None for nothing.

    Raises:
      UserError: nobody answers there, or not as OpenAI's API does; or there is no such tokenizer.
    """
    count = None if tokenizer is None else counter(tokenizer)
    _as_many_files_as_may_be()
    with HttpClient(url, model, timeout=timeout, key=key, ignore_eos=ignore_eos, count=count) as client:
        yield Server(client, functools.partial(Alphabet, vocabulary), bar)


def _as_many_files_as_may_be() -> None:
    """Every request that is under way is an open file, and shells give 1,024 of them by default, often of many more that they could."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # elsewhere than on Unix there is no such limit
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def counter(name: str) -> Callable[[str], int]:
    """Counts the tokens of a text, without special ones, which have none.

    Args:
      name: a folder with tokenizer.json or that file, or a model that has its tokenizer with it: a .gguf file, smollm2, random:PRESET.

    Raises:
      UserError: there is none, or it can't be read.
    """
    from models.checkpoint.sources import open_checkpoint  # JAX comes with it, which nothing else here wants
    from models.text.hf_tokenizer import from_folder

    path = Path(name).expanduser()
    folder = path.parent if path.name == "tokenizer.json" else path
    if not folder.is_dir() and _HUB_NAME.fullmatch(name):
        raise UserError(f"--tokenizer {name} is no folder here; download its tokenizer.json and give the folder that holds it")
    tokenizer = from_folder(folder) if folder.is_dir() else open_checkpoint(name).tokenizer()

    def count(text: str) -> int:
        sound = text.encode("utf-8", "replace").decode()  # an answer may be cut within a character
        return len(tokenizer.backend.encode(sound, add_special_tokens=False).ids)

    return count
