"""Coordinated omission, as cases.md has it. Oracle: hand arithmetic. With 0.5 s a request and 10 requests/s, request i (from 0) is due
at 0.1 i and over at 0.5 (i + 1): it waits 0.5 + 0.4 i s.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxserve.load.client import Item
from scripts.coordinated_omission import main, measured, views
from scripts.one_at_a_time import OneAtATime


def test_the_case():
    """Eight requests: P99 is 3.3 s for whoever counts from when they were due, and 0.5 s for whoever waits."""
    due, sent, closed = views(8, 10.0, 0.5)
    assert [record.e2e for record in due.run.records] == pytest.approx([0.5 + 0.4 * i for i in range(8)])
    assert due.run.summary.e2e.p99 == pytest.approx(3.3)
    for view in (sent, closed):
        assert [record.e2e for record in view.run.records] == pytest.approx([0.5] * 8)
    assert [record.intended for record in closed.run.records] == pytest.approx([0.5 * i for i in range(8)])


def test_the_harness_sees_it_too():
    """On a real clock, with a server twenty-five times as fast: no request is served sooner than it can be, and the closed loop sees no
    queue. How late a sleep wakes up depends on the machine, so there is no limit from above but that the order of things is kept.
    """
    due, closed = measured(8, 250.0, 0.02)
    for record in due.run.records:
        assert record.e2e >= 0.02 + 0.016 * record.id - 1e-6
    assert all(record.tokens[0] - record.started >= 0.02 - 1e-6 for record in closed.run.records)
    assert max(record.e2e for record in due.run.records) > 0.02 * 6
    starts = [record.started for record in closed.run.records]
    assert all(start >= before.tokens[0] for start, before in zip(starts[1:], closed.run.records, strict=False))


def test_a_server_that_is_stopped_tells_of_everyone():
    with OneAtATime(10.0) as client:
        client.begin()
        for id in range(2):
            client.send(Item(id, (id,), 1), 0.0)
        assert not client.idle and client.wait(client.clock() + 0.01) == []
        assert [(record.id, record.reason, record.tokens) for record in client.stop()] == [
            (0, "unfinished", ()),
            (1, "unfinished", ()),
        ]
        assert client.idle


def test_the_page_is_written(tmp_path: Path):
    pytest.importorskip("matplotlib", reason="matplotlib draws the figure")
    out = tmp_path / "page.md"
    result = CliRunner().invoke(main, ["--out", str(out)], catch_exceptions=False)
    text = out.read_text(encoding="utf-8")
    assert result.exit_code == 0 and "| open loop, from when it was due | simulated | 8 | 1.90 | 1.70 | 3.30† |" in text
    assert (
        "![Latency of each request](page.svg)" in text
        and (tmp_path / "page.svg").read_text(encoding="utf-8").count("<svg") == 1
    )
    assert "date 20" in text and str(tmp_path) not in text
