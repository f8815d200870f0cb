"""A scanner of HLO text: balanced brackets, quoted strings, comments, `, key=value` lists, and errors with line numbers."""

from __future__ import annotations

import re

from models.errors import UserError

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
NAME = r'%?([^\s=%(){}\[\],"]+)'
WHOLE = "pass the whole, unaltered text of Compiled.as_text(), from jax 0.9 or 0.10"
_STOP = re.compile(STRING + r'|[()\[\]{}",\n]')
_BRACKET = re.compile(STRING + r'|[()\[\]{}"]')
_COMMENT = re.compile(r"/\*.*?\*/")
_GAP = re.compile(rf"(?:\s|{_COMMENT.pattern})*")
_KEY = re.compile(r"\s*,\s*([\w.\-]+)=")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 100  # brackets within brackets; programs have about ten


class Scanner:
    """Methods take a position in `text` and give the position behind what they read, so scanning is linear in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.wrapped: int | None = (
            None  # the first bracket that is closed on a later line: allowed, but suspect if something fails
        )

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def fail(self, at: int, what: str, fix: str = WHOLE) -> UserError:
        """The error for what stands at `at`, with its line number."""
        if self.wrapped is not None and self.wrapped < at:
            what += f" (the bracket {self.text[self.wrapped]!r} on line {self.line(self.wrapped)} is not closed on that line)"
        return UserError(f"HLO text, line {self.line(at)}: {what}; {fix}")

    def expect(self, pattern: str, at: int, what: str) -> re.Match[str]:
        """Match a regular expression at `at`; `what` names the thing that must stand there."""
        if found := re.compile(pattern).match(self.text, at):
            return found
        line = self.text[at : at + 200].strip().split("\n")[0][:60]
        raise self.fail(at, f"expected {what}, found {line!r}" if line else f"expected {what}, but the text ends")

    def gap(self, at: int) -> int:
        """The position behind white space and comments."""
        found = _GAP.match(self.text, at)
        return found.end() if found else at

    def close(self, at: int) -> int:
        """The position behind the bracket that closes the one at `at`."""
        stack: list[str] = []
        for token in _BRACKET.finditer(self.text, at):
            sign = token[0]
            if sign in _CLOSING:
                stack.append(_CLOSING[sign])
            elif sign == '"':
                raise self.fail(token.start(), "a string is never closed: the text is cut off or damaged")
            elif not sign.startswith('"') and stack.pop() != sign:
                break
            if not stack:
                if self.wrapped is None and self.text.find("\n", at, token.end()) >= 0:
                    self.wrapped = at
                return token.end()
            if len(stack) > _DEEPEST:
                raise self.fail(at, f"brackets are nested more than {_DEEPEST} deep")
        raise self.fail(at, f"the bracket {self.text[at]!r} is never closed: the text is cut off or damaged")

    def split(self, start: int, end: int) -> list[str]:
        """The pieces between `start` and `end`, at the commas that stand in no bracket, without comments; [] when blank."""
        pieces, depth, begin = [], 0, start
        for token in _STOP.finditer(self.text, start, end):
            sign = token[0]
            if sign in _CLOSING:
                depth += 1
            elif sign in (")", "]", "}"):
                depth -= 1
            elif sign == "," and depth == 0:
                pieces.append(self.text[begin : token.start()])
                begin = token.end()
        pieces.append(self.text[begin:end])
        pieces = [_COMMENT.sub("", piece).strip() for piece in pieces]
        return pieces if any(pieces) else []

    def attributes(self, at: int) -> tuple[dict[str, str], int]:
        """Read `, key=value, key=value` up to the end of the line; values are text: a word, a string or something in brackets."""
        found = {}
        while key := _KEY.match(self.text, at):
            at = self._value(key.end())
            found[key[1]] = self.text[key.end() : at].strip()
        return found, at

    def _value(self, at: int) -> int:
        while token := _STOP.search(self.text, at):
            sign = token[0]
            if sign in (",", "\n"):
                return token.start()
            if sign in _CLOSING:
                at = self.close(token.start())
            elif len(sign) > 1:
                at = token.end()
            else:
                raise self.fail(token.start(), f"{sign!r} without its partner: the text is cut off or damaged")
        raise self.fail(at, "an attribute has no end: the text is cut off")
