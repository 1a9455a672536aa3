"""Pictures of the page for the documentation, with the model that comes with the package.

python -m benchmarks.serving.pictures

Needs a Chromium (`apt-get install chromium`) and writes docs/page-*.png.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flaxformer_mt as fm
from benchmarks.serving.browser import chromium
from benchmarks.serving.process import serving

TEXT = (
    "Where can I buy a ticket for the train to Berlin? If it rains tomorrow, we will stay at home."
)
DOCS = Path(__file__).parent.parent.parent / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.pictures")
    parser.add_argument("--workdir", metavar="RUN", help="another model (default: the demo's)")
    parser.add_argument("--text", default=TEXT, help="what is typed")
    parser.add_argument("--word", type=int, default=4, help="the word that is pointed at, from 0")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(
            Path(options.workdir or fm.demo_run(f"{folder}/demo").path), ["--warm-up", "0"]
        ) as server,
        chromium() as browser,
    ):
        page = typed(browser, server.url, options.text, width=1120, height=700)
        page.locator("#target .word").nth(options.word).hover()
        picture(page, "page-desktop")
        page.locator("#kinds input").nth(1).check()
        page.locator("#heads input").nth(4).check()
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
