"""Where prompts come from: 64 built-in ones, or a file of the user's own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from models.errors import UserError
from models.files.json_text import parse_json
from models.files.reading import read_text


def builtin_prompts() -> tuple[str, ...]:
    """64 different short tasks, always in the same order."""
    return tuple(resources.files(__package__).joinpath("prompts.txt").read_text(encoding="utf-8").splitlines())


def read_prompts(path: Path) -> tuple[str, ...]:
    """Read prompts from a UTF-8 file, in order.

    A file named ``*.jsonl`` has one object a line, ``{"prompt": "..."}``, whose prompt may span lines and whose other keys are
    ignored. Any other file is plain text with one prompt a line. Blank lines are skipped in both.

    Raises:
      UserError: the file is missing, a folder, not readable, not UTF-8 or without a prompt; in JSONL also a line that is not
        JSON, not such an object, or whose prompt is empty. The message carries the line's number.
    """
    lines = _lines(path)
    if path.suffix.lower() == ".jsonl":
        prompts = tuple(_from_json(line, f"{path}, line {number}") for number, line in lines)
    else:
        prompts = tuple(line.strip() for _, line in lines)
    if not prompts:
        raise UserError(f"{path}: the file holds no prompt; write at least one, one a line")
    return prompts


def _lines(path: Path) -> list[tuple[int, str]]:
    """(number from 1, text) of each line that is not blank."""
    text = read_text(path, fix="give a UTF-8 text file with one prompt a line, or JSONL")
    # Only line feeds end a line: str.splitlines would also cut at U+2028 and others, which may stand inside a JSON string.
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _from_json(line: str, origin: str) -> str:
    try:
        entry = parse_json(line, strict=False)
    except UserError as error:
        raise UserError(f"{origin}: {error}; write one object a line") from None
    prompt = entry.get("prompt") if isinstance(entry, dict) else None
    if not isinstance(prompt, str):
        raise UserError(f'{origin}: no prompt; write an object such as {{"prompt": "Why is the sky blue?"}}')
    if not prompt.strip():
        raise UserError(f"{origin}: the prompt is empty; write at least one character that is not a space, or drop the line")
    return prompt
