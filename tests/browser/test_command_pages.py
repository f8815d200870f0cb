"""Pages that `--report` of other commands than load writes, in a real browser. Oracle: the browser, as in `test_report.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from jaxserve.main_job.page import write_page
from jaxserve.simulate import main as simulate
from jaxserve.size import main
from tests.browser.driven import PHONE, check_charts, complaints, open_page, overflows, requested, resize
from tests.jaxserve.main_job.test_page import batch, outcome
from tests.jaxserve.sizing.studies import FACTS, SHORT

COMMON = ("cdf-ttft", "cdf-itl", "cdf-tpot", "cdf-e2e", "first-token-0", "concurrency", "pages", "rows-0", "tokens-0", "predicted",
          "roofline-0")  # fmt: skip
SEARCHED = ("--search", *FACTS[2:], "--answer", "16", "--requests", "30", "--chip", "h100", "--chip", "l40s", "--tensor-parallel", "1",
            "--batch", "8,16,32,64")  # fmt: skip
SIMULATED = ("--rate", "20/s", "--policy", "chunked", "--fault", "stall 1s for 1s", "--fault", "burst 2s 20 of 300+30")
PAGES = {"size": COMMON, "calibrated": COMMON, "search": ("frontier-points", *COMMON), "decode": COMMON, "simulated": COMMON}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=list(PAGES))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(which, where) of a page."""
    which, path = request.param, tmp_path_factory.mktemp("report") / "out.html"
    options = {"size": SHORT, "calibrated": (*SHORT, "--step-times", "calibrated"), "search": SEARCHED}
    if which == "decode":
        write_page(path, outcome(batch(), batch()), "python -m jaxserve.decode --batch 2,2")
    elif which == "simulated":
        simulate.main([*SIMULATED, "--report", str(path)], prog_name="simulate", standalone_mode=False)
    else:
        main.main([*options[which], "--report", str(path)], prog_name="size", standalone_mode=False)
    return which, path


def test_a_person_sees_all_of_it(browser: Any, written: tuple[str, Path]):
    """Every chart is drawn and named, the console is silent, and nothing but the file was asked for."""
    which, path = written
    opened = open_page(browser, path)
    check_charts(opened, PAGES[which])
    assert complaints(opened) == []
    assert {url for url in requested(opened) if not url.startswith("data:")} == {path.as_uri()}
    assert "Nothing to show" not in opened.find_element("css selector", "main").text


@pytest.mark.parametrize("width", [PHONE, 800, 1280])
def test_nothing_overflows(browser: Any, written: tuple[str, Path], width: int):
    opened = open_page(browser, written[1])
    resize(opened, width)
    opened.get(opened.current_url)
    assert overflows(opened) == []
