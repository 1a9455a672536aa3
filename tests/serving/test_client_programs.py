"""LibreTranslate's clients themselves, in Python and JavaScript, over our server."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest

from tests.serving.stand_in import MODEL, StandIn, running

pytestmark = pytest.mark.clients
DIRECTIONS = {("en", "de"): "", ("en", "fr"): "", ("de", "en"): ""}
BOTH = ["de", "en"]
HOW = "tests/serving/clients.json has them; see .ci/run"
# `translate` reads the text's languages by their names or ISO 639 codes, and sends two letters.
TRANSLATE = """
import translate from "translate";
const url = process.env.URL + "/translate";
const options = JSON.parse(process.env.OPTIONS);
const client = translate.Translate({engine: "libre", url, ...options});
const [text, languages] = JSON.parse(process.env.ASKED);
try { say(await client(text, languages)); } catch (error) { say({error: error.message}); }
function say(answer) { console.log(JSON.stringify(answer)); }
"""
TYPESCRIPT = """
import libretranslate from "libretranslate-ts";
const client = libretranslate.libreTranslate;
client.setApiEndpoint(process.env.URL);
const {key} = JSON.parse(process.env.OPTIONS);
if (key) client.setApiKey(key);
const [method, ...asked] = JSON.parse(process.env.ASKED);
console.log(JSON.stringify(await client[method](...asked)));
"""


@pytest.fixture(scope="module")
def server():
    with running(StandIn(), model=dataclasses.replace(MODEL, directions=DIRECTIONS)) as server:
        yield server


@pytest.fixture(scope="module")
def keyed():
    with running(StandIn(), keys=frozenset({"right"})) as server:
        yield server


@pytest.fixture(scope="module")
def python_client():
    reason = "needs libretranslatepy (tests/interop/peers.txt)"
    return pytest.importorskip("libretranslatepy", reason=reason).LibreTranslateAPI


def test_libretranslatepy(python_client, server):
    for url in (server.url, server.url + "/"):
        client = python_client(url)
        assert client.translate("Hello there", "en", "de") == "THERE HELLO"
        assert client.translate("Grün & 100 % =?", "en", "fr") == "=? % 100 & GRÜN"
        assert client.detect("Hello there")[0] == {"language": "en", "confidence": 100.0}
        assert client.languages()[1] == {"code": "de", "name": "German", "targets": BOTH}


def test_libretranslatepy_with_a_key(python_client, keyed):
    assert python_client(keyed.url, "right").translate("a b", "en", "de") == "B A"
    for key, status in (("wrong", 403), (None, 401)):
        with pytest.raises(urllib.error.HTTPError) as raised:
            python_client(keyed.url, key).translate("a b", "en", "de")
        assert raised.value.code == status and b"key" in raised.value.read()


def node(script, server, asked, **options):
    """What a script prints of what it is `asked`, with the packages of `clients.json`."""
    packages = Path(os.environ.get("FLAXFORMER_NODE_PACKAGES", sys.prefix))
    if shutil.which("node") is None:
        pytest.skip("needs Node.js, such as Debian's package nodejs")
    if not (packages / "node_modules" / "libretranslate-ts").is_dir():
        pytest.skip(f"{packages} has no node_modules with the clients: {HOW}")
    environment = {"URL": server.url, "ASKED": json.dumps(asked), "OPTIONS": json.dumps(options)}
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        cwd=packages,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_translate_of_npm(server):
    assert node(TRANSLATE, server, ["Hello there", {"from": "en", "to": "de"}]) == "THERE HELLO"
    assert node(TRANSLATE, server, ["Hello", {"from": "English", "to": "fra"}]) == {
        "error": 'The language "fra" is not part of the ISO 639-1'
    }
    assert node(TRANSLATE, server, ["Hello", {"from": "eng", "to": "fre"}]) == "HELLO"
    refused = node(TRANSLATE, server, ["Hello", {"from": "de", "to": "fr"}])
    assert refused == {"error": "'target' should be 'en' for the source 'de'"}


def test_translate_of_npm_with_a_key(keyed):
    asked = ["Hello there", {"from": "en", "to": "de"}]
    assert node(TRANSLATE, keyed, asked, key="right") == "THERE HELLO"
    assert "not valid" in node(TRANSLATE, keyed, asked, key="wrong")["error"]
    assert "an API key is needed" in node(TRANSLATE, keyed, asked)["error"]


def test_libretranslate_ts(server):
    asked = ["translate", "Hello there", "en", "de"]
    answer = {"status": 200, "translatedText": "THERE HELLO"}
    assert node(TYPESCRIPT, server, asked) == answer
    assert node(TYPESCRIPT, server, [*asked, 2]) == answer | {
        "alternatives": ["THERE HELLO 1", "THERE HELLO 2"]
    }
    detected = {"status": 200, "language": "en", "confidence": 100}
    assert node(TYPESCRIPT, server, ["detect", "Hello there"]) == detected
    (_, german, _) = node(TYPESCRIPT, server, ["listLanguages"])
    assert german == {"code": "de", "name": "German", "targets": BOTH}


def test_libretranslate_ts_with_a_key(keyed):
    asked = ["translate", "a b", "en", "de"]
    assert node(TYPESCRIPT, keyed, asked, key="right")["translatedText"] == "B A"
    # It says 500 whatever the status was.
    refused = node(TYPESCRIPT, keyed, asked, key="wrong")
    assert (refused["status"], refused["error"]) == (500, "the API key is not valid")
