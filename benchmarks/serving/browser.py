"""A Chromium that is on this machine, driven without a window."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowser(Exception):
    """A missing browser or driver; the message says what to install."""


def find_chromium() -> str:
    """The path of the system's Chromium, or FLAXFORMER_CHROMIUM. Raises NoBrowser."""
    named = os.environ.get("FLAXFORMER_CHROMIUM")
    if named:
        return named
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise NoBrowser("needs a Chromium: apt-get install chromium, or set FLAXFORMER_CHROMIUM")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser (playwright's `Browser`). Raises NoBrowser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("needs playwright: pip install -e '.[dev]'") from error
    path = find_chromium()
    with sync_playwright() as playwright:
        # Chromium's sandbox doesn't work for root, the user in most containers.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
