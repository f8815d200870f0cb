"""A headless browser for all pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser with a fresh profile."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser; pip install 'jaxserve[test]'")
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    driver = shutil.which("chromedriver")
    if not any(found) or not driver:
        pytest.skip(
            "there is no chromium with a chromedriver on this machine; on Debian: apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, found))
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--window-size=1280,900",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driving = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield driving
    driving.quit()
