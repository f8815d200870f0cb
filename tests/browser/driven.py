"""What a driven browser says of a page: what was drawn, what was asked of a network, what reaches over an edge."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PHONE = 375  # px
UNITS = ("ms", "s", "%", "FLOP/B", "FLOP/s", "requests", "pages", "rows", "tokens")  # an axis names one of them


def open_page(browser: Any, page: Path) -> Any:
    """The browser with the page, as large as a desktop; what was before is forgotten."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(page.as_uri())
    return browser


def check_charts(browser: Any, charts: Iterable[str]) -> None:
    """Every chart is drawn, in SVG, and its axes say what they count and in which unit; but for categories, which name themselves."""
    for id in charts:
        drawn = browser.execute_script(
            "const svg = document.querySelectorAll(`#${arguments[0]} .chart svg.main-svg`);"
            "const text = name => [...document.querySelectorAll(`#${arguments[0]} .${name}`)].map(t => t.textContent).join(' ');"
            "return [svg.length, text('xtitle'), text('ytitle'), document.querySelectorAll(`#${arguments[0]} .chart .trace, "
            "#${arguments[0]} .chart .bars`).length]",
            id,
        )
        assert drawn[0] and drawn[3], f"{id}: {drawn}"
        units = [any(f" {unit}" in f" {title}".replace(",", " ") for unit in UNITS) for title in drawn[1:3] if title]
        assert len(units) == (1 if id.startswith("first-token") else 2) and all(units), f"{id}: {drawn}"


def complaints(browser: Any) -> list[Any]:
    """What stands in the console."""
    return [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"]


def requested(browser: Any) -> list[str]:
    """All addresses that were asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def resize(browser: Any, width: int) -> None:
    """To so many px, as of a phone where it is as narrow."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def overflows(browser: Any) -> list[str]:
    """What reaches beyond the right edge of the page."""
    return browser.execute_script(
        "const most = document.documentElement.clientWidth + 0.5;"
        "const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && !e.closest('.chart')"
        " && e.getBoundingClientRect().right > most).map(e => e.outerHTML.slice(0, 80));"
        "return document.documentElement.scrollWidth > most ? [`page: ${document.documentElement.scrollWidth}`, ...wide] : wide"
    )
