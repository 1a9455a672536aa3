"""The example's page in a browser, with a stand-in for its engine: what can go wrong around it."""

import shutil

import pytest

from tests.conftest import ROOT
from tests.interop.pages import served

pytestmark = pytest.mark.browser
ENGINE = "node_modules/@browsermt/bergamot-translator/translator.js"
# Answers with what it was given, in capitals; like the real one, it reads the folder's model.
STAND_IN = """
export class SupersededError extends Error {}
export class TranslatorBacking {
  constructor(options) { this.registry = this.loadModelRegistery(); }
}
export class LatencyOptimisedTranslator {
  constructor(options, backing) { this.backing = backing; this.worker = Promise.resolve({}); }
  async translate({ from, to, text }) {
    await this.backing.loadTranslationModel({ from, to });
    return { target: { text: text.toUpperCase() } };
  }
}
"""
SETTINGS = '{"from": "en", "to": "de", "model": "model.bin", "vocabs": ["v.spm"], "config": {}}'
STATUS = "document.getElementById('status').textContent"
READY = f"{STATUS}.includes('in this browser')"
TARGET = "document.getElementById('target').value"


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    shutil.copytree(ROOT / "docs" / "examples" / "browser", folder)
    (folder / ENGINE).parent.mkdir(parents=True)
    (folder / ENGINE).write_text(STAND_IN)
    (folder / "model").mkdir()
    (folder / "model" / "settings.json").write_text(SETTINGS)
    for name in ("model.bin", "v.spm"):
        (folder / "model" / name).write_bytes(b"x")
    return folder


@pytest.fixture
def page(browser):
    with browser.new_context() as context:
        yield context.new_page()


def translates(page, text):
    page.wait_for_function(READY, timeout=10_000)
    page.fill("#source", text)
    page.wait_for_function(f"{TARGET} === '{text.upper()}'", timeout=10_000)
    return True


def test_after_one_visit_it_works_without_its_server(page, site):
    with served(site) as server:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert translates(page, "one")
    page.reload()
    assert translates(page, "two")


def test_a_forced_reload_passes_by_the_service_worker(page, site):
    with served(site) as server:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert translates(page, "one")
        page.context.new_cdp_session(page).send("Page.reload", {"ignoreCache": True})
        page.wait_for_function("navigator.serviceWorker.controller === null", timeout=10_000)
        assert translates(page, "two")


@pytest.mark.parametrize("missing", ["offline.js", None])
def test_without_a_service_worker_it_still_translates(missing, page, site):
    """Such as in some browsers' private windows, or where the worker can't be installed."""
    if missing:
        (site / missing).unlink()
    else:
        worker = site / "offline.js"
        worker.write_text(worker.read_text().replace('["./"', '["missing.html"'))
    with served(site) as server:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert translates(page, "one")
        assert "not kept for use without a network" in page.evaluate(STATUS)


def test_a_full_disk_costs_the_copies_alone(page, site):
    full = "Cache.prototype.put = async () => { throw new DOMException('full', 'QuotaExceeded'); };"
    worker = site / "offline.js"
    worker.write_text(f"{full}\n{worker.read_text()}")
    with served(site) as server:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert translates(page, "one")


@pytest.mark.parametrize(
    ("missing", "said"),
    [(ENGINE, "npm install @browsermt/bergamot-translator"), ("model/v.spm", "model/v.spm: 404")],
)
def test_a_missing_file_is_named(missing, said, page, site):
    (site / missing).unlink()
    with served(site) as server:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function(f"{STATUS}.includes('{said}')", timeout=10_000)
