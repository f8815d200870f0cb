"""Contiguous memory: every row gets one slot as long as the longest sequence may become, and keeps it to its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxserve.kv.memory import Grant, Growth, News, Table, Want


class Slots(NamedTuple):
    """A pool of equal slots. What is reserved and never written is waste that pages avoid (Kwon et al. 2023, figure 2)."""

    total: int
    size: int  # tokens of a slot
    free: Table  # the next at the end

    @classmethod
    def of(cls, total: int, size: int) -> Slots:
        return cls(total, size, tuple(reversed(range(total))))

    @property
    def page(self) -> int:
        return self.size

    @property
    def capacity(self) -> int:
        return self.size

    @property
    def in_use(self) -> int:
        return self.total - len(self.free)

    @property
    def found(self) -> int:
        return 0

    @property
    def remembers(self) -> bool:
        return False

    def admit(self, tokens: Sequence[int], room: int) -> Grant | None:
        if not self.free or room > self.size:
            return None
        return Grant(self._replace(free=self.free[:-1]), self.free[-1:], self.size)

    def grow(self, wants: Sequence[Want]) -> Growth | None:
        if any(want.stop > self.size for want in wants):
            return None
        return Growth(self, [want.table for want in wants], [self.size] * len(wants), [1] * len(wants), ())

    def share(self, table: Table, tokens: int) -> Grant | None:
        """A slot can't be shared: it is copied."""
        grant = self.admit((), tokens)
        return grant and grant._replace(copies=((table[0], grant.table[0]),))

    def announce(self, new: News) -> Slots:
        return self

    def publish(self, news: Sequence[News]) -> tuple[Slots, list[Table]]:
        return self, [new.table for new in news]

    def release(self, table: Table) -> Slots:
        return self._replace(free=self.free + table)

    def check(self, tables: Iterable[Table]) -> None:
        slots = sorted([*self.free, *(slot for table in tables for slot in table)])
        if slots != list(range(self.total)):
            raise RuntimeError(f"free and owned slots are {slots}, not each of {self.total} once")
