"""Which pages hold the KV of which tokens: a radix tree whose edges are full pages, so that prompts share what they begin with.

A page is found by its parent page and its own tokens, so it is found only where all tokens before it are equal too. Pages that no
table holds stay until their memory is wanted; the least recently used goes first, and a page never before those that continue it.
The tree is of Zheng et al. 2024 (SGLang, RadixAttention), section 3; whole pages as its edges are vLLM's prefix cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxserve.kv.persistent import Map

ROOT = -1  # parent of a prompt's first page
Edge = tuple[int, tuple[int, ...]]  # parent page, tokens


class Node(NamedTuple):
    """A page whose content is known."""

    edge: Edge
    place: int = ROOT  # in the queue of pages that no table holds; ROOT while some table does


class PrefixCache(NamedTuple):
    """The tree. Every method gives the tree as it is afterwards."""

    page: int  # tokens
    nodes: Map[int, Node]  # by page
    children: Map[Edge, int]  # page
    queue: Map[int, int]  # page by place: pages that no table holds, the next to be evicted at the lowest place
    first: int = 0  # no place below this one is taken
    last: int = 0  # the next place
    asked: int = 0  # tokens of all prompts that were admitted
    hit: int = 0  # of them, found
    evicted: int = 0  # pages

    @classmethod
    def of(cls, page: int, pages: int) -> PrefixCache:
        """An empty tree over a pool of `pages` pages of `page` tokens."""
        return cls(page, Map.sized(pages), Map.sized(pages), Map.sized(pages))

    @property
    def idle(self) -> int:
        """Pages that no table holds, so that can be evicted."""
        return len(self.queue)

    def match(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The pages that hold the longest known beginning of `tokens`, always at least one token short of all of them.

        The last token has to be computed even if its KV is known, for its logits are not.
        """
        found: list[int] = []
        parent = ROOT
        for end in range(self.page, len(tokens), self.page):
            parent = self.children.get((parent, tuple(tokens[end - self.page : end])), ROOT)
            if parent == ROOT:
                break
            found.append(parent)
        return tuple(found)

    def counted(self, asked: int, hit: int) -> PrefixCache:
        """Statistics of one admission, in tokens."""
        return self._replace(asked=self.asked + asked, hit=self.hit + hit)

    def find(self, edge: Edge) -> int | None:
        """The page of these tokens after that parent."""
        page = self.children.get(edge, ROOT)
        return None if page == ROOT else page

    def insert(self, pages: Mapping[Edge, int]) -> PrefixCache:
        """Remember what is in these pages, which tables hold, each together with its parent."""
        nodes = {page: Node(edge) for edge, page in pages.items()}
        return self._replace(nodes=self.nodes.change(nodes), children=self.children.change(pages))

    def wake(self, pages: tuple[int, ...]) -> PrefixCache:
        """A table holds these pages again, those of them that none held."""
        nodes = {page: self.nodes[page] for page in pages}
        asleep = {page: node for page, node in nodes.items() if node.place != ROOT}
        if not asleep:
            return self
        return self._replace(
            nodes=self.nodes.change({page: Node(node.edge) for page, node in asleep.items()}),
            queue=self.queue.change({}, [node.place for node in asleep.values()]),
        )

    def rest(self, pages: tuple[int, ...]) -> PrefixCache:
        """No table holds these pages any longer; given from the root outwards.

        They queue the other way round. Whoever holds a page holds its parent, which therefore comes to rest later or in the same
        call: so no page is ever first in the queue while another continues it, and the first of the queue is always a leaf.
        """
        if not pages:
            return self
        places = dict(zip(range(self.last, self.last + len(pages)), reversed(pages), strict=True))
        return self._replace(
            nodes=self.nodes.change({page: Node(self.nodes[page].edge, place) for place, page in places.items()}),
            queue=self.queue.change(places),
            last=self.last + len(pages),
        )

    def evict(self, count: int) -> tuple[PrefixCache, tuple[int, ...]]:
        """Forget the `count` pages, at most `idle`, that were used least recently and that nothing continues."""
        places: list[int] = []
        pages: list[int] = []
        place = self.first
        while len(pages) < count:
            page = self.queue.get(place, ROOT)
            if page != ROOT:
                places.append(place)
                pages.append(page)
            place += 1
        tree = self._replace(
            nodes=self.nodes.change({}, pages),
            children=self.children.change({}, [self.nodes[page].edge for page in pages]),
            queue=self.queue.change({}, places),
            first=place,
            evicted=self.evicted + len(pages),
        )
        return tree, tuple(pages)

    def check(self, idle: set[int]) -> None:
        """The tree is one, and exactly the pages `idle` wait for eviction, each before its parent. Raises RuntimeError."""
        if {page for _, page in self.queue.items()} != idle:
            raise RuntimeError(f"pages without a holder are {sorted(idle)}, but {self.queue} wait for eviction")
        if {edge: page for page, (edge, _) in self.nodes.items()} != dict(self.children.items()):
            raise RuntimeError("pages and their edges differ in the prefix tree")
        for page, (edge, place) in self.nodes.items():
            parent, tokens = edge
            if len(tokens) != self.page or (parent != ROOT and parent not in self.nodes):
                raise RuntimeError(f"page {page} continues page {parent}, which is not in the prefix tree, or is not full")
            if place != ROOT and self.queue.get(place, ROOT) != page:
                raise RuntimeError(f"page {page} is not where it thinks it is in the queue for eviction")
            if parent != ROOT and (above := self.nodes[parent].place) != ROOT and not self.first <= place < above:
                raise RuntimeError(f"page {page} would outlive page {parent}, which it continues")
