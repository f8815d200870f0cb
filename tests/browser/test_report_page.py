"""The report in a real browser: what a person would see on a screen, on a phone and on paper, and what would go over a network.

Oracle: the browser itself, its console, its network log and the boxes that it laid out.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="plotly draws the report; pip install 'jaxserve[report]'")

from jaxserve.reporting.report import write_report
from tests.browser.driven import PHONE, check_charts, complaints, open_page, overflows, requested, resize
from tests.jaxserve.reporting.made import made

PAPER = 696  # px; A4 less two margins of 13 mm
CHARTS = (
    "cdf-ttft",
    "cdf-itl",
    "cdf-tpot",
    "cdf-e2e",
    "first-token-0",
    "concurrency",
    "pages",
    "rows-0",
    "tokens-0",
    "predicted",
    "roofline-0",
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two runs, one of which has no steps, as of a server elsewhere."""
    path = tmp_path_factory.mktemp("report") / "out.html"
    write_report(
        path, [made("chunked"), made("a server", inside=False, seed=1)], title="Two runs", command="python -m jaxserve.load ..."
    )
    return path


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    """The browser with the page, as large as a desktop."""
    return open_page(browser, page)


def test_everything_is_there_and_named(opened: Any):
    """Every chart is drawn, in SVG, and both of its axes say what they count and in which unit."""
    check_charts(opened, CHARTS)
    assert "no records of steps" in opened.find_element("css selector", "#pages").text
    assert not opened.find_elements("css selector", "canvas"), "SVG prints, a canvas does not"


def test_the_console_is_silent(opened: Any):
    assert complaints(opened) == []


def test_nothing_goes_over_a_network(opened: Any, page: Path):
    """The page is one file: the browser asked for it and for nothing else."""
    asked = requested(opened)
    assert page.as_uri() in asked
    assert [url for url in asked if url != page.as_uri() and not url.startswith("data:")] == []


@pytest.mark.parametrize("width", [PHONE, 800, 1280])
def test_nothingoverflows(opened: Any, width: int):
    """On a phone, in a narrow window and on a desktop nothing is wider than the page but what scrolls by itself, and charts fill theirs."""
    resize(opened, width)
    opened.get(opened.current_url)
    assert overflows(opened) == []
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('.chart .main-svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert min(drawn) > min(width * 0.85, 500)


def test_it_prints(opened: Any):
    """A4 less its margins, from a page that was drawn for a desktop: nothing is cut off, and charts are lines that stay sharp."""
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    resize(opened, PAPER)
    assert overflows(opened) == []
    clipped = opened.execute_script(
        "return [...document.querySelectorAll('.chart')].filter(c => [...c.querySelectorAll('.main-svg')].some("
        "s => s.getBoundingClientRect().right > c.closest('figure').getBoundingClientRect().right)).map(c => c.id)"
    )
    assert clipped == []
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF") and 3 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 8 and len(pdf) < 3e6


def test_light_and_dark_can_be_read(opened: Any):
    """WCAG 2's contrast, from the colours that the browser computed: 4.5 to 1 for text, on paper and within charts."""
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
        ground = _colour(opened.execute_script("return getComputedStyle(document.querySelector('figure')).backgroundColor"))
        for selector, style in (("figure p", "color"), ("figure li", "color"), (".xtitle", "fill"), (".legendtext", "fill")):
            ink = _colour(opened.execute_script(f"return getComputedStyle(document.querySelector('{selector}')).{style}"))
            light, dark = sorted((_luminance(ink), _luminance(ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{selector} in {scheme}"


def _colour(text: str) -> list[float]:
    return [float(part) / 255 for part in text.partition("(")[2].rstrip(")").split(",")[:3]]


def _luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
