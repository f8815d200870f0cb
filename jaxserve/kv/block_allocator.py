"""Which KV pages are free, and how many page tables hold each of the others: a reference-counted allocator that is a value.

A page is in exactly one of three places. Free: no table holds it and its content means nothing. Owned: one table holds it, or
several where rows share a prefix. Cached: no table holds it, but the prefix tree remembers what is in it (`jaxserve/kv/prefix_cache.py`).
Paged memory is of Kwon et al. 2023 (PagedAttention), section 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from jaxserve.kv.persistent import Map

CHUNK = 128


class Stack(NamedTuple):
    """Page ids, last in, first out. In chunks, so that taking a few copies a few hundred at most."""

    full: tuple[tuple[int, ...], ...] = ()  # each of CHUNK ids
    top: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return CHUNK * len(self.full) + len(self.top)

    def push(self, ids: tuple[int, ...]) -> Stack:
        full, top = self.full, self.top + ids
        while len(top) >= 2 * CHUNK:
            full, top = (*full, top[:CHUNK]), top[CHUNK:]
        return Stack(full, top)

    def pop(self, count: int) -> tuple[tuple[int, ...], Stack]:
        """The last `count` ids, which must be there, and the rest."""
        full, top = self.full, self.top
        while len(top) < count:
            full, top = full[:-1], full[-1] + top
        at = len(top) - count
        return top[at:], Stack(full, top[:at])


class BlockAllocator(NamedTuple):
    """The allocator of a pool. Every method gives the pages as they are afterwards."""

    total: int
    unused: int  # pages from this id on were never taken; they go out in order once `returned` is empty
    returned: Stack
    holders: Map[int, int]  # tables that hold a page, where that is not one: several, or 0 for a cached page

    @classmethod
    def of(cls, total: int) -> BlockAllocator:
        return cls(total, 0, Stack(), Map.sized(total))

    @property
    def free(self) -> int:
        return self.total - self.unused + self.returned.size

    def take(self, count: int) -> tuple[BlockAllocator, tuple[int, ...]] | None:
        """`count` free pages for one table; None, and nothing has changed, where there are fewer."""
        total, unused, returned, holders = self
        new = max(count - returned.size, 0)
        if new > total - unused:
            return None
        ids, returned = returned.pop(count - new)
        return BlockAllocator(total, unused + new, returned, holders), (*ids, *range(unused, unused + new))

    def shared(self, page: int) -> bool:
        """Whether several tables hold it."""
        return self.holders.get(page, 1) > 1

    def hold(self, ids: Iterable[int]) -> BlockAllocator:
        """One more table holds each of these owned or cached pages."""
        more, single = {}, []
        for page in ids:
            count = self.holders.get(page, 1) + 1
            if count == 1:
                single.append(page)
            else:
                more[page] = count
        return self._replace(holders=self.holders.change(more, single)) if more or single else self

    def drop(self, ids: Iterable[int], cached: Container[int] = ()) -> tuple[BlockAllocator, tuple[int, ...]]:
        """One table less holds each of these pages. A page that none holds any longer is freed, or kept if it is in `cached`.

        Returns:
          The pages, and those that are kept without a holder, in the order given.
        """
        fewer: dict[int, int] = {}
        single, freed, kept = [], [], []
        for page in ids:
            count = self.holders.get(page, 1) - 1
            if count > 1:
                fewer[page] = count
            elif count == 1:
                single.append(page)
            elif page in cached:
                fewer[page] = 0
                kept.append(page)
            else:
                freed.append(page)
        holders = self.holders.change(fewer, single) if fewer or single else self.holders
        return BlockAllocator(self.total, self.unused, self.returned.push(tuple(freed)), holders), tuple(kept)

    def forget(self, ids: tuple[int, ...]) -> BlockAllocator:
        """Free these pages, which no table holds and whose content is no longer remembered."""
        return self._replace(returned=self.returned.push(ids), holders=self.holders.change({}, ids))

    def check(self, tables: Iterable[tuple[int, ...]], cached: Container[int] = ()) -> None:
        """Free + owned + cached = all, and every count of holders is right.

        Args:
          tables: those of all rows.
          cached: pages of which the prefix tree remembers the content, held or not.

        Raises:
          RuntimeError: a law is broken; the message says which and where.
        """
        held: Counter[int] = Counter()
        for table in tables:
            if len(set(table)) < len(table):
                raise RuntimeError(f"a page stands twice in the table {table}")
            held.update(table)
        free = [*range(self.unused, self.total), *self.returned.top, *(page for chunk in self.returned.full for page in chunk)]
        idle = {page for page, count in self.holders.items() if count == 0}
        if len(free) != len(set(free)) or not set(free) <= set(range(self.total)):
            raise RuntimeError(f"the free pages are not {len(free)} different ones of {self.total}: {sorted(free)}")
        if len(free) + len(held) + len(idle) != self.total or set(free) & set(held) or idle & (set(held) | set(free)):
            raise RuntimeError(f"{len(free)} free + {len(held)} owned + {len(idle)} cached pages are not all {self.total}")
        for page in idle:
            if page not in cached:
                raise RuntimeError(f"no table holds page {page} and nothing remembers its content, but it is not free")
        for page in set(held) | {page for page, _ in self.holders.items()}:
            if held[page] != self.holders.get(page, 1):
                raise RuntimeError(f"{held[page]} tables hold page {page}, but {self.holders.get(page, 1)} are counted")
