"""The page as a file: everything in it, nothing fetched, nothing that a stranger's text could break."""

from __future__ import annotations

import importlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from jaxserve.load.result import Run
from jaxserve.reporting.report import check_path, write_report
from models.errors import UserError
from tests.jaxserve.reporting.made import made

LARGEST = 10e6  # B


class Page(HTMLParser):
    """What a page refers to, its text outside of scripts, and the elements that have an id."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.scripts = 0
        self.text = ""
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.scripts += tag == "script"
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "out.html"
    write_report(path, [made("a"), made("b", inside=False, complete=False)], title="A title", command="python -m jaxserve.load")
    return path.read_text(encoding="utf-8")


def test_it_is_one_file(written: str):
    page = Page(written)
    assert all(link.startswith(("#", "data:")) for link in page.links), page.links
    assert {"default-src 'none'"} <= set(re.findall(r"default-src [^;]+", written))
    assert len(written.encode()) < LARGEST


def test_every_figure_is_there_once(written: str):
    page = Page(written)
    assert len(set(page.ids)) == len(page.ids)
    figures = {"cdf-ttft", "cdf-itl", "cdf-tpot", "cdf-e2e", "concurrency", "pages", "predicted", "programs-0"}
    figures |= {f"{name}-{run}" for name in ("first-token", "rows", "tokens") for run in (0, 1)}
    wanted = figures | {"roofline-0", "roofline-missing", "headline", "definitions", "settings"}
    assert wanted <= set(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_what_a_reader_has_to_know_first(written: str):
    text = Page(written).text
    assert "b: this run is not complete (interrupted)" in text
    assert "6 of 300 requests were not answered" in text and "whether the server's prefix cache was warm is not known" in text
    assert "nearest rank" in text and "python -m jaxserve.load" in text and text.count("Witness: ") >= 10


def test_axes_name_units(written: str):
    """Every axis has a title, which ends in a unit or counts things; but for categories, which name themselves."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', written, re.S)
    assert found
    layouts = {id: chart["layout"] for id, chart in json.loads(found[1])["charts"].items()}
    titles = {
        (id, axis): layout[axis]["title"].get("text", "") for id, layout in layouts.items() for axis in ("xaxis", "yaxis")
    }
    assert len(titles) >= 22
    for (id, axis), title in titles.items():
        if layouts[id][axis].get("type") != "category":
            assert re.search(r", (ms|s|%|FLOP/B|FLOP/s)$|^requests|pages|^rows|^tokens", title), (id, axis, title)


def test_a_name_is_text(tmp_path: Path):
    """Whatever a server, a path or a user calls itself: it ends no script and begins none."""
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    plain, odd = tmp_path / "plain.html", tmp_path / "odd.html"
    write_report(plain, [made("a")])
    write_report(odd, [made(evil)], title=evil, command=evil)
    pages = [Page(path.read_text(encoding="utf-8")) for path in (plain, odd)]
    assert pages[0].scripts == pages[1].scripts and pages[1].text.count(evil) >= 3


def test_long_runs_stay_small(tmp_path: Path):
    path = tmp_path / "long.html"
    write_report(path, [made("a", count=1500)])
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST and "evenly spaced ranks" in Page(text).text


def test_nothing_at_all_is_shown_too(tmp_path: Path):
    """A run that was broken off at once, and one in which everything failed: every figure says that there is nothing."""
    failed = [record._replace(tokens=(), output=0, reason="failed") for record in made("b", count=5, inside=False).records]
    empty = Run.of([], witness="measured", settings={}, complete=False, why="interrupted")
    path = tmp_path / "out.html"
    write_report(path, [empty, Run.of(failed, witness="measured", settings={})], names=["empty", "failed"])
    text = Page(path.read_text(encoding="utf-8")).text
    assert "0 of 5" in text and text.count("Nothing to show.") >= 10 and "empty: no request came in." in text


def test_what_was_kept_as_json_is_the_same_page(tmp_path: Path):
    run, kept = tmp_path / "run.html", tmp_path / "kept.html"
    one = made("a", count=40)
    write_report(run, [one])
    write_report(kept, [Run.from_json(json.loads(json.dumps(one.to_json())))])
    assert run.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")


def test_names_tell_runs_apart(tmp_path: Path):
    runs: list[Run] = [made("same", count=20), made("same", count=20, seed=1)]
    path = tmp_path / "out.html"
    write_report(path, runs)
    assert "same (1)" in path.read_text(encoding="utf-8")
    for names in (["a", "a"], ["a"]):
        with pytest.raises(UserError, match="one of its own"):
            write_report(path, runs, names=names)
    with pytest.raises(UserError, match="a report of no run"):
        write_report(path, [])


def test_bad_paths_are_refused_before_the_work(tmp_path: Path):
    with pytest.raises(UserError, match=r"ends in \.html"):
        check_path(tmp_path / "out.pdf")
    with pytest.raises(UserError, match="there is no folder"):
        check_path(tmp_path / "nowhere" / "out.html")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(UserError, match="is a folder; give a file in it"):
        write_report(tmp_path / "taken.html", [made("a", count=20)])


def test_without_plotly_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UserError, match=r"jaxserve\[report\]"):
        check_path(tmp_path / "out.html")
