"""Stop strings in a text that arrives in parts: found across parts, and never shown in part.

Which occurrence counts does not depend on how the text is cut: the one that is complete first and, of several that are complete with
the same character, the longest.
"""

from __future__ import annotations

import functools
from collections import deque

Stops = tuple[str, ...]


class Automaton:
    """The prefixes of some strings as nodes, and where to go on when the next character fits none (Aho and Corasick 1975).

    Node 0 is the empty prefix. Reading a text, the node is the longest prefix that the text ends with.

    Attributes:
      following: for each node, the node that each character leads to.
      otherwise: the node of the longest prefix that this one ends with, itself not counted.
      complete: length of the longest string that a text at this node ends with, or 0.
      begins: characters that a string begins with.
      open: characters at the end of such a text that may be the beginning of a string.
    """

    def __init__(self, stops: Stops):
        self.following: list[dict[str, int]] = [{}]
        self.complete = [0]
        for stop in stops:
            node = 0
            for character in stop:
                if character not in self.following[node]:
                    self.following[node][character] = len(self.following)
                    self.following.append({})
                    self.complete.append(0)
                node = self.following[node][character]
            self.complete[node] = len(stop)
        self.begins = frozenset(self.following[0])
        self.otherwise, self.open = [0] * len(self.following), [0] * len(self.following)
        queue = deque((child, 1, 0) for child in self.following[0].values())
        while queue:
            node, depth, other = queue.popleft()
            self.otherwise[node] = other
            self.complete[node] = self.complete[node] or self.complete[other]
            self.open[node] = depth if self.following[node] else self.open[other]
            queue += [(child, depth + 1, self.step(other, character)) for character, child in self.following[node].items()]

    def step(self, node: int, character: str) -> int:
        """The node after one more character. Over a whole text, at most two moves a character."""
        while node and character not in self.following[node]:
            node = self.otherwise[node]
        return self.following[node].get(character, 0)


@functools.lru_cache(maxsize=64)
def automaton(stops: Stops) -> Automaton:
    return Automaton(stops)


class StopMatcher:
    """Lets a text through up to the first stop string, holding back what may be the beginning of one."""

    def __init__(self, stops: Stops):
        self._automaton = automaton(stops)
        self._node, self._held = 0, ""

    def push(self, text: str, *, armed: bool = True) -> tuple[str, str | None]:
        """Take in the next part.

        Args:
          armed: whether a string that is complete within this part counts; if not, it is text like any other.

        Returns:
          What may be shown now, and the stop string that follows it if one was found: then the rest of the text is gone.
        """
        if not self._node and self._automaton.begins.isdisjoint(text):
            return text, None
        step, complete = self._automaton.step, self._automaton.complete
        for i, character in enumerate(text):
            self._node = step(self._node, character)
            if armed and complete[self._node]:
                whole = self._held + text[: i + 1]
                cut = len(whole) - complete[self._node]
                self._node, self._held = 0, ""
                return whole[:cut], whole[cut:]
        whole = self._held + text
        cut = len(whole) - self._automaton.open[self._node]
        self._held = whole[cut:]
        return whole[:cut], None

    def flush(self) -> str:
        """The text has ended: what was held back is no beginning of anything."""
        held, self._node, self._held = self._held, 0, ""
        return held
