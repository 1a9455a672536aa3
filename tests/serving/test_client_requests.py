"""What programs send to a LibreTranslate server, and what they read of the answer.

The forms of their requests, as their sources build them; the PHP client's also as it sent them.
"""

import dataclasses
import urllib.parse

import pytest

from tests.serving.stand_in import MODEL, StandIn, running

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
DIRECTIONS = {("en", "de"): "", ("en", "he"): "", ("de", "en"): ""}


@pytest.fixture(scope="module")
def server():
    with running(StandIn(), model=dataclasses.replace(MODEL, directions=DIRECTIONS)) as server:
        yield server


def sent_form(server, path, **fields):
    """Status and answer of a form of the browser's usual kind."""
    return server.ask("POST", path, urllib.parse.urlencode(fields), FORM)[:2]


def test_mastodon(server):
    """4.2 and later: a post's parts as a list, `auto` for an unknown language, a key or null."""
    status, languages, _ = server.get("/languages", JSON)
    assert status == 200
    targets = {each["code"]: {*each["targets"]} - {each["code"]} for each in languages}
    assert targets == {"en": {"de", "he"}, "de": {"en"}, "he": set()}

    texts = ["Hello there", "", "One. Two."]
    body = {"q": texts, "target": "de", "format": "html", "api_key": None}
    for source in ("en", "auto"):
        status, answer = server.post("/translate", {**body, "source": source})
        assert status == 200
        assert answer["translatedText"] == ["THERE HELLO", "", "ONE. TWO."]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en"] * 3


def test_mastodon_before_4_2(server):
    body = {"q": "Hello there", "source": "en", "target": "de", "format": "html", "api_key": ""}
    assert server.post("/translate", body) == (200, {"translatedText": "THERE HELLO"})


def test_mastodon_says_that_the_quota_is_used_up():
    """It has messages for 403 and 429, and one for all other errors."""
    body = {"q": ["a"], "source": "en", "target": "de", "format": "html", "api_key": "wrong"}
    with running(StandIn(), keys=frozenset({"right"})) as server:
        assert server.post("/translate", body)[0] == 403
        assert server.post("/translate", {**body, "api_key": "right"})[0] == 200


def test_discourse(server):
    """A form with all fields, the key empty if none is set; `iw` for Hebrew."""
    assert server.get("/languages")[0] == 200
    status, detected = sent_form(server, "/detect", q="Hello there", api_key="")
    assert (status, detected[0]["language"]) == (200, "en")
    fields = {"q": "Hello\nthere", "source": "en", "format": "html", "api_key": ""}
    for target in ("de", "iw"):
        answer = sent_form(server, "/translate", **fields, target=target)
        assert answer == (200, {"translatedText": "HELLO\nTHERE"})
    # A key that isn't set is a name without a value.
    body = "q=Hello+there&source=en&target=de&format=html&api_key"
    answer = server.ask("POST", "/translate", body, FORM)[:2]
    assert answer == (200, {"translatedText": "THERE HELLO"})


def test_wagtail_localize(server):
    """A page's strings as a list, of which every one needs its translation; no region in codes."""
    strings = ["Hello there", "Contact", "One. Two."]
    body = {"q": strings, "source": "en", "target": "de", "api_key": "", "format": "html"}
    status, answer = server.post("/translate", body)
    assert status == 200 and len(answer["translatedText"]) == len(strings)
    # Its form for a site of many strings is refused whole, which it shows as an error.
    status, answer = server.post("/translate", {**body, "q": strings * 30})
    assert status == 400 and "at most 64 items" in answer["error"]


def multipart(fields):
    """The body that libcurl makes of PHP's arrays."""
    line = "------------------------511a4a3dd0b8e005"
    parts = [
        f'--{line}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    return "".join(parts) + f"--{line}--\r\n", {
        "content-type": f"multipart/form-data; boundary={line}"
    }


def test_php_client(server):
    """jefs42/libretranslate: requests without a body say that they are forms, GETs as well."""
    assert server.ask("POST", "/", b"", FORM)[0] == 405  # as LibreTranslate; it ignores that
    status, settings, _ = server.get("/frontend/settings", {**FORM, "content-length": "0"})
    assert (status, settings["suggestions"]) == (200, False)
    status, languages, _ = server.get("/languages", {**FORM, "content-length": "0"})
    assert status == 200 and {"en", "de"} <= {each["code"] for each in languages}

    fields = {"q": "Hello there", "format": "html", "source": "en", "target": "de", "api_key": ""}
    answer = server.ask("POST", "/translate", *multipart(fields))[:2]
    assert answer == (200, {"translatedText": "THERE HELLO"})
    status, detected, _ = server.ask("POST", "/detect?q=Hello+there&api_key=", b"", FORM)
    assert (status, detected[0]["language"]) == (200, "en")
    suggestion = {"q": "Hello", "s": "Hallo", "source": "en", "target": "de", "api_key": ""}
    status, answer = sent_form(server, "/suggest", **suggestion)
    assert status == 403 and "suggestions are disabled" in answer["error"]
    status, answer, _ = server.ask("POST", "/translate_file", *multipart({"file": "Hello"}))
    assert status == 400 and "file" in answer["error"]
