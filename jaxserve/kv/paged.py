"""Paged memory: rows grow page by page, share pages of which they know the same tokens, and copy one before they write to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxserve.kv.block_allocator import BlockAllocator
from jaxserve.kv.memory import Grant, Growth, News, Table, Want
from jaxserve.kv.prefix_cache import ROOT, Edge, PrefixCache


class Paged(NamedTuple):
    """A pool of pages, with a prefix tree over them or without.

    What a row may waste is the empty part of its last page. Of shared pages only full ones are ever found by other requests, so a
    page is copied on write only between the samples of one request.
    """

    page: int  # tokens
    pages: BlockAllocator
    prefix: PrefixCache | None

    @classmethod
    def of(cls, pages: int, page: int, *, prefix: bool = False) -> Paged:
        return cls(page, BlockAllocator.of(pages), PrefixCache.of(page, pages) if prefix else None)

    @property
    def capacity(self) -> int:
        return self.pages.total * self.page

    @property
    def remembers(self) -> bool:
        return self.prefix is not None

    @property
    def in_use(self) -> int:
        return self.pages.total - self.pages.free - (self.prefix.idle if self.prefix else 0)

    @property
    def found(self) -> int:
        return self.prefix.hit if self.prefix else 0

    def admit(self, tokens: Sequence[int], room: int) -> Grant | None:
        found = self.prefix.match(tokens) if self.prefix else ()
        memory = self._hold(found) if found else self  # first, so that making room can't evict them
        taken = memory._take(-(-room // self.page) - len(found))
        if taken is None:
            return None
        memory, ids = taken
        cached = len(found) * self.page
        if memory.prefix:
            memory = memory._replace(prefix=memory.prefix.counted(len(tokens), cached))
        table = (*found, *ids)
        return Grant(memory, table, len(table) * self.page, cached)

    def grow(self, wants: Sequence[Want]) -> Growth | None:
        page, memory = self.page, self
        tables, kept, copies = [], [], []
        for table, start, stop in wants:
            kept.append(len(table))
            for i in range(start // page, min(-(-stop // page), len(table))):
                if memory._foreign(table[i]):
                    taken = memory._take(1)
                    if taken is None:
                        return None
                    memory, (own,) = taken
                    copies.append((table[i], own))
                    memory = memory._drop((table[i],))
                    table, kept[-1] = (*table[:i], own, *table[i + 1 :]), min(kept[-1], i)
            tables.append(table)
        missing = [max(-(-want.stop // page) - len(table), 0) for want, table in zip(wants, tables, strict=True)]
        taken = memory._take(sum(missing))
        if taken is None:
            return None
        memory, ids = taken
        at = [0, *itertools.accumulate(missing)]
        tables = [table + ids[i:j] for table, (i, j) in zip(tables, itertools.pairwise(at), strict=True)]
        return Growth(memory, tables, [page * len(table) for table in tables], kept, tuple(copies))

    def share(self, table: Table, tokens: int) -> Grant | None:
        table = table[: -(-tokens // self.page)]
        return Grant(self._hold(table), table, tokens)

    def announce(self, new: News) -> Paged:
        """Up to the first page whose content another page has: from there on the row has a copy, which nobody else needs."""
        assert self.prefix is not None
        edges: dict[Edge, int] = {}
        for at in range(0, len(new.tokens), self.page):
            i = (new.start + at) // self.page
            parent = new.table[i - 1] if i else ROOT
            edge = (parent, tuple(new.tokens[at : at + self.page]))
            known = parent == ROOT or parent in self.prefix.nodes or at > 0
            if not known or self.prefix.find(edge) is not None:
                break
            edges[edge] = new.table[i]
        return self._replace(prefix=self.prefix.insert(edges)) if edges else self

    def publish(self, news: Sequence[News]) -> tuple[Paged, list[Table]]:
        """Where a page with the same content is known already, the row takes that one and gives its own back."""
        assert self.prefix is not None
        page, memory, tables, new = self.page, self, [], dict[Edge, int]()
        for table, start, tokens in news:
            for at in range(0, len(tokens), page):
                i = (start + at) // page
                edge = (table[i - 1] if i else ROOT, tuple(tokens[at : at + page]))
                known = new.get(edge, self.prefix.find(edge))
                if known is None:
                    new[edge] = table[i]
                elif known != table[i]:
                    memory = memory._hold((known,))._drop((table[i],))
                    table = (*table[:i], known, *table[i + 1 :])
            tables.append(table)
        assert memory.prefix is not None
        return memory._replace(prefix=memory.prefix.insert(new)), tables

    def release(self, table: Table) -> Paged:
        return self._drop(table)

    def check(self, tables: Iterable[Table]) -> None:
        tables = list(tables)
        self.pages.check(tables, self.prefix.nodes if self.prefix else ())
        if self.prefix:
            held = {page for table in tables for page in table}
            self.prefix.check({page for page, _ in self.prefix.nodes.items() if page not in held})
            for table in tables:
                known = [page in self.prefix.nodes for page in table]
                if known != sorted(known, reverse=True):
                    raise RuntimeError(f"the table {table} goes on after a page that the prefix tree does not know: {known}")

    def _foreign(self, page: int) -> bool:
        """Whether writing to it would change what others read."""
        return self.pages.shared(page) or (self.prefix is not None and page in self.prefix.nodes)

    def _take(self, count: int) -> tuple[Paged, Table] | None:
        """`count` pages for one table, evicted from the prefix tree where too few are free."""
        taken, prefix = self.pages.take(count), self.prefix
        if taken is None:
            missing = count - self.pages.free
            if prefix is None or missing > prefix.idle:
                return None
            prefix, forgotten = prefix.evict(missing)
            taken = self.pages.forget(forgotten).take(count)
            assert taken is not None
        return Paged(self.page, taken[0], prefix), taken[1]

    def _hold(self, table: Table) -> Paged:
        return Paged(self.page, self.pages.hold(table), self.prefix and self.prefix.wake(self._known(table)))

    def _drop(self, table: Table) -> Paged:
        if self.prefix is None:
            return Paged(self.page, self.pages.drop(table)[0], None)
        pages, kept = self.pages.drop(table, self.prefix.nodes)
        return Paged(self.page, pages, self.prefix.rest(kept))

    def _known(self, table: Table) -> Table:
        return tuple(page for page in table if self.prefix and page in self.prefix.nodes)
