"""A picture of the page that translates offline, for the documentation.

python -m benchmarks.browser_picture --workdir RUN --engine FOLDER --text TEXT

RUN's model has `model.positions=tensor2tensor`. FOLDER is where `npm install --prefix FOLDER
@browsermt/bergamot-translator@0.4.9` was run. Needs a Chromium and writes docs/page-offline.png, of
the page's second visit, without its server.
"""

import argparse
import contextlib
import functools
import http.server
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks.serving.browser import chromium

DOCS = Path(__file__).parent.parent / "docs"
READY = "document.getElementById('status').textContent.includes('in this browser')"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.browser_picture")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a trained run directory")
    parser.add_argument("--engine", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--text", required=True, help="what is typed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        site = Path(scratch) / "site"
        shutil.copytree(DOCS / "examples" / "browser", site)
        fm.export(options.workdir, site / "model", format="bergamot", quantization="int8")
        shutil.copytree(options.engine / "node_modules", site / "node_modules")
        context = browser.new_context(viewport={"width": 900, "height": 420}, color_scheme="light")
        page = context.new_page()
        with served(site) as port:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_function(READY, timeout=60_000)
        page.reload()  # from the browser's own copy
        page.wait_for_function(READY, timeout=60_000)
        page.fill("#source", options.text)
        page.wait_for_function("document.getElementById('target').value.length > 0", timeout=60_000)
        page.wait_for_timeout(2000)
        page.screenshot(path=DOCS / "page-offline.png")
    return 0


@contextlib.contextmanager
def served(folder: Path) -> Iterator[int]:
    """A web server for a folder, at this port."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
