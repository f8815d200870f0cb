"""The prefix tree. Oracle: a dictionary from whole token prefixes to pages, and time stamps for who was used last."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxserve.kv.prefix_cache import ROOT, PrefixCache


def inserted(tree: PrefixCache, tokens: tuple[int, ...], pages: tuple[int, ...]) -> PrefixCache:
    """The tree with a table of pages that hold these tokens, from the root on."""
    contents = [tokens[i : i + tree.page] for i in range(0, len(tokens), tree.page)]
    return tree.insert(dict(zip(zip((ROOT, *pages), contents, strict=False), pages, strict=True)))


def test_whole_pages_but_never_the_whole_prompt():
    """Case: the same prompt of exactly two pages, twice: the second has at least its last token to compute."""
    tree = inserted(PrefixCache.of(2, 8), (1, 2, 3, 4), (7, 5))
    assert tree.match((1, 2, 3, 4)) == (7,)
    assert tree.match((1, 2, 3, 4, 9)) == (7, 5)
    assert tree.match((1, 2, 3)) == (7,)
    assert tree.match((1, 2)) == tree.match((1,)) == tree.match((2, 1, 3)) == ()
    assert tree.match((3, 4, 9)) == (), "equal tokens after other ones are another page"
    assert tree.match(range(1, 6)) == (7, 5), "any sequence will do"


def test_eviction_takes_the_least_recently_used_and_never_a_page_that_another_continues():
    tree = inserted(PrefixCache.of(1, 8), (1, 2, 3), (0, 1, 2))
    tree = tree.insert({(0, (9,)): 3})  # a second branch after page 0
    tree = tree.rest((3,))  # the branch is used by nobody first, then the trunk
    tree = tree.rest((0, 1, 2))
    assert tree.idle == 4
    for expected in (3, 2, 1, 0):
        tree, (page,) = tree.evict(1)
        assert page == expected
        tree.check({other for other in (0, 1, 2, 3) if other in tree.nodes})
    assert tree.evicted == 4 and tree.match((1, 2)) == ()


def test_a_page_that_is_used_again_is_the_last_to_go():
    tree = PrefixCache.of(1, 8).insert({(ROOT, (1,)): 0, (ROOT, (2,)): 1}).rest((0,)).rest((1,))
    tree = tree.wake((0,))
    assert tree.idle == 1
    tree = tree.wake((0,))  # of a page that is in use already nothing changes
    tree = tree.rest((0,))
    assert tree.evict(2)[1] == (1, 0)


def test_statistics():
    tree = PrefixCache.of(4, 8).counted(10, 8).counted(5, 0)
    assert (tree.asked, tree.hit) == (15, 8)


@settings(max_examples=300)
@given(page=st.integers(1, 3), data=st.data())
def test_random_life(page: int, data: st.DataObject):
    """Rows come, share what is known, publish the rest and go; pages are evicted. Compared with plain books after each move."""
    tree, rows, fresh = PrefixCache.of(page, 64), list[tuple[int, ...]](), 0
    content: dict[tuple[int, ...], int] = {}  # whole prefix -> page
    used: dict[int, int] = {}  # page -> time of last use
    for now in range(data.draw(st.integers(1, 25))):
        move = data.draw(st.sampled_from(["come", "come", "go", "evict"]))
        held = {p for table in rows for p in table}
        if move == "come":
            tokens = tuple(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=9)))
            full = [tokens[: i + page] for i in range(0, len(tokens) - page + 1, page)]
            found = tree.match(tokens)
            usable = [prefix for prefix in full if len(prefix) < len(tokens)]
            expected: list[int] = []
            for prefix in usable:
                if prefix not in content:
                    break
                expected.append(content[prefix])
            assert list(found) == expected
            tree = tree.wake(found)
            table = list(found)
            for prefix in full[len(found) :]:  # as a row does that has run its tokens
                if prefix in content:
                    assert tree.find((table[-1] if table else ROOT, prefix[-page:])) == content[prefix]
                    tree = tree.wake((content[prefix],))
                    table.append(content[prefix])
                    continue
                assert tree.find((table[-1] if table else ROOT, prefix[-page:])) is None
                tree = tree.insert({(table[-1] if table else ROOT, prefix[-page:]): fresh})
                content[prefix], fresh = fresh, fresh + 1
                table.append(content[prefix])
            rows.append(tuple(table))
        elif move == "go" and rows:
            gone_table = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
            still = {p for other in rows for p in other}
            gone = tuple(p for p in gone_table if p not in still)
            tree = tree.rest(gone)
            used.update(dict.fromkeys(gone, now))
        elif move == "evict" and tree.idle:
            count = data.draw(st.integers(1, tree.idle))
            tree, evicted = tree.evict(count)
            for p in evicted:
                prefix = next(prefix for prefix, q in content.items() if q == p)
                assert p not in held
                assert not any(len(other) > len(prefix) and other[: len(prefix)] == prefix for other in content), "not a leaf"
                leaves = [
                    q
                    for other, q in content.items()
                    if q not in held and not any(o != other and o[: len(other)] == other for o in content)
                ]
                assert used[p] == min(used[q] for q in leaves), "not the least recently used leaf"
                del content[prefix]
        held = {p for table in rows for p in table}
        tree.check({p for p in content.values() if p not in held})
        assert len(tree.nodes) == len(content)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda tree: tree.rest((0,)), "would outlive"),
        (lambda tree: tree._replace(children=tree.children.change({}, [(0, (2,))])), "differ"),
        (lambda tree: tree._replace(queue=tree.queue.change({9: 5})), "wait for eviction"),
        (lambda tree: tree.insert({(7, (1,)): 3}), "not in the prefix tree"),
        (lambda tree: tree.insert({(0, (1, 2)): 3}), "is not full"),
        (lambda tree: tree.rest((1,))._replace(queue=tree.queue.change({4: 1})), "not where it thinks"),
    ],
)
def test_the_check_sees(broken, message: str):
    tree = broken(inserted(PrefixCache.of(1, 8), (1, 2), (0, 1)))
    with pytest.raises(RuntimeError, match=message):
        tree.check({page for _, page in tree.queue.items() if page < 5})
