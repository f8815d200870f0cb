"""What a policy asks of memory: the one interface behind which KV lies in pages or in slots.

Who runs and where KV lives vary independently: every policy works with either memory. A memory is a value. What it lends is a table,
which the row keeps: page ids in order, or one slot. Whatever is refused leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

Table: TypeAlias = tuple[int, ...]
Copies: TypeAlias = tuple[tuple[int, int], ...]  # (from, to) pages or slots; all are read before any is written


class Grant(NamedTuple):
    """What a row was lent, and the memory as it is afterwards."""

    memory: Memory
    table: Table
    room: int  # tokens that the row may write without asking again
    cached: int = 0  # leading tokens whose KV is there already
    copies: Copies = ()  # to be done before the next step


class Want(NamedTuple):
    """A row that wants to write positions `start` to `stop`."""

    table: Table
    start: int
    stop: int


class News(NamedTuple):
    """A row has run `tokens`, whole pages of them, from position `start` on, a page's first."""

    table: Table
    start: int
    tokens: Sequence[int]


class Growth(NamedTuple):
    """What several rows were lent, in their order, and the memory as it is afterwards."""

    memory: Memory
    tables: Sequence[Table]
    rooms: Sequence[int]
    kept: Sequence[int]  # leading table entries that are as before
    copies: Copies


class Memory(Protocol):
    """Where the KV of one worker lives."""

    @property
    def capacity(self) -> int:
        """Tokens of the longest sequence that it can hold when it holds nothing else."""

    @property
    def remembers(self) -> bool:
        """Whether it looks at tokens to find KV that is there already. Where it does not, nothing need be told."""

    def admit(self, tokens: Sequence[int], room: int) -> Grant | None:
        """A table with room for `room` tokens, and of KV that is known already for these; None where there isn't as much room."""

    def grow(self, wants: Sequence[Want]) -> Growth | None:
        """Room for all of these rows, by more pages and by copies of those that others hold; None where there isn't enough for all."""

    def share(self, table: Table, tokens: int) -> Grant | None:
        """A second table for a row that goes on from the first `tokens` of this one. Both must ask to grow before they write again."""

    def announce(self, new: News) -> Self:
        """A plan that was just made will put the KV of these tokens into the table, so others may be admitted upon it at once.

        Whatever they run comes after it: plans run in their order, and within a step every layer writes before any row reads. No
        table changes by it; what holds the same twice is found out by `publish`, once the plan has run.
        """

    def publish(self, news: Sequence[News]) -> tuple[Self, Sequence[Table]]:
        """The KV of these tokens is now in its table and may be found by others.

        The tables that are given back, in the same order, may name other pages, which hold the same.
        """

    def release(self, table: Table) -> Self:
        """The row needs its table no more."""

    def check(self, tables: Iterable[Table]) -> None:
        """Raise RuntimeError where its books do not agree with the tables that all rows hold."""

    @property
    def page(self) -> int:
        """Tokens of a page; of a slot."""

    @property
    def in_use(self) -> int:
        """Pages (slots) that tables hold."""

    @property
    def found(self) -> int:
        """Tokens of admitted prompts, so far, whose KV was there already."""
