"""Pictures of the page for the documentation, over a trained run.

python -m benchmarks.serving.pictures --workdir RUN --text "A sentence. And another."

Needs a Chromium (`apt-get install chromium`) and writes docs/page-*.png.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.serving.browser import chromium
from benchmarks.serving.process import serving

DOCS = Path(__file__).parent.parent.parent / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.pictures")
    parser.add_argument("--workdir", required=True, type=Path, metavar="RUN")
    parser.add_argument("--text", required=True, help="what is typed")
    parser.add_argument("--word", type=int, default=2, help="the word that is pointed at, from 0")
    options = parser.parse_args(arguments)
    with serving(options.workdir, ["--warm-up", "0"]) as server, chromium() as browser:
        page = typed(browser, server.url, options.text, width=1120, height=700)
        page.locator("#target .word").nth(options.word).hover()
        picture(page, "page-desktop")
        page.locator("#kinds input").nth(1).check()
        page.locator("#heads input").nth(1).check()
        page.wait_for_timeout(500)
        page.locator("#map canvas").hover(position={"x": 45, "y": 15})
        page.locator("#attention").scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        page.locator("#attention").screenshot(path=DOCS / "page-attention.png")
        page = typed(browser, server.url, options.text, width=390, height=760, phone=True)
        page.locator("#target .word").nth(options.word).tap()
        picture(page, "page-phone")
    return 0


def typed(
    browser: Any, url: str, text: str, *, width: int, height: int, phone: bool = False
) -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        is_mobile=phone,
        has_touch=phone,
        color_scheme="light",
    )
    page = context.new_page()
    page.goto(url)
    page.fill("#source", text)
    page.wait_for_selector("#map canvas", timeout=120_000)
    return page


def picture(page: Any, name: str) -> None:
    page.wait_for_timeout(400)  # colours fade in
    page.screenshot(path=DOCS / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
