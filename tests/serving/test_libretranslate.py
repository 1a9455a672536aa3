"""Our answers beside LibreTranslate's (recorded by `record_libretranslate.py`)."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.serving.stand_in import MODEL, StandIn, running

RECORDED = json.loads(Path(__file__).with_name("libretranslate.json").read_text())
EXCHANGES = RECORDED["exchanges"]
DIRECTIONS = {("en", "de"): "", ("en", "fr"): "", ("de", "en"): ""}
DIRECTED = dataclasses.replace(MODEL, directions=DIRECTIONS)
TRANSLATED = {"translatedText": "THERE HELLO"}
# What we answer otherwise: docs/serving.md says why.
OTHER_ANSWERS = {
    "empty text": (200, {"translatedText": ""}),
    "null alternatives": (200, TRANSLATED),
    "form without alternatives": (200, {"translatedText": "HELLO"}),
    "region": (200, TRANSLATED),
    "three letters": (200, TRANSLATED),
}
OTHER_STATUSES = {
    "detect nothing": 200,
    "alternatives in words": 400,
    "a number for a text": 400,
    "no key": 401,
    "plain text": 415,
    "file": 415,  # recorded from a server without files; ours takes them, but in no other form
}
# How sure the detection is, and which other languages it lists, is the detector's.
GUESSES = [name for name in EXCHANGES if "detect" in name and EXCHANGES[name]["status"] == 200]
SETTINGS = ["settings", "settings with keys"]
SAME = {*EXCHANGES} - {*OTHER_ANSWERS, *OTHER_STATUSES, *GUESSES, *SETTINGS}


@pytest.fixture(scope="module")
def servers():
    with (
        running(StandIn(), model=DIRECTED) as plain,
        running(StandIn(), model=DIRECTED, keys=frozenset({"right"})) as keys,
        running(StandIn(), model=DIRECTED, max_characters=40, max_texts=2) as limits,
    ):
        yield {"plain": plain, "keys": keys, "limits": limits}


def asked(servers, name):
    exchange = EXCHANGES[name]
    method, path, kind, body = exchange["request"]
    headers = {"content-type": kind} if kind else {}
    return servers[exchange["server"]].ask(method, path, body.encode() or None, headers)[:2]


@pytest.mark.parametrize("name", sorted(SAME))
def test_the_answer_is_libretranslate_s(servers, name):
    status, answer = asked(servers, name)
    assert status == EXCHANGES[name]["status"], answer
    if status == 200:
        assert answer == EXCHANGES[name]["answer"]
    else:
        assert {*answer} == {"error"} and isinstance(answer["error"], str)


@pytest.mark.parametrize("name", sorted(OTHER_ANSWERS))
def test_what_libretranslate_refuses_is_answered(servers, name):
    assert EXCHANGES[name]["status"] >= 400
    assert asked(servers, name) == OTHER_ANSWERS[name]


@pytest.mark.parametrize("name", sorted(OTHER_STATUSES))
def test_a_wrong_request_has_the_status_that_says_what_is_wrong(servers, name):
    assert EXCHANGES[name]["status"] >= 400
    assert asked(servers, name)[0] == OTHER_STATUSES[name]


@pytest.mark.parametrize("name", GUESSES)
def test_detected_languages_have_the_same_form(servers, name):
    status, answer = asked(servers, name)
    assert status == 200
    assert _without_guess(answer) == _without_guess(EXCHANGES[name]["answer"])


def _without_guess(answer):
    """The likeliest language without the confidence, and all else."""
    if isinstance(answer, list):
        first, *_ = answer
        assert {*first} == {"language", "confidence"} and isinstance(first["confidence"], float)
        return first["language"]
    detected = answer["detectedLanguage"]
    guesses = detected if isinstance(detected, list) else [detected]
    languages = [_without_guess([guess]) for guess in guesses]
    return {**answer, "detectedLanguage": languages, "several": isinstance(detected, list)}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_have_all_of_libretranslate_s_keys(servers, name):
    status, answer = asked(servers, name)
    theirs = EXCHANGES[name]["answer"]
    assert status == 200 and {*theirs} <= {*answer}
    assert all(type(answer[limit]) is int for limit in ("charLimit", "frontendTimeout"))
    assert answer["filesTranslation"] and {".txt", ".docx"} <= {*answer["supportedFilesFormat"]}
    # The recorded server had none of these files.
    other = {"charLimit", "frontendTimeout", "filesTranslation", "supportedFilesFormat"}
    assert {key: answer[key] for key in theirs.keys() - other} == {
        key: theirs[key] for key in theirs.keys() - other
    }


def test_spec_describes_what_is_offered(servers):
    status, document, _ = servers["plain"].get("/spec")
    assert (status, document) == servers["plain"].get("/openapi.json")[:2]
    theirs = {path: methods for path, methods in RECORDED["spec"].items() if path != "/suggest"}
    ours = {path: [*methods] for path, methods in document["paths"].items()}
    assert theirs.items() <= ours.items()
    assert {*RECORDED["spec keys"]} - {*document} == {"swagger", "basePath", "definitions"}


def test_what_is_disabled_is_refused_and_counted(servers):
    status, answer = servers["plain"].post("/suggest", {})
    assert status == 403 and "on this server" in answer["error"]
    assert servers["plain"].refused("disabled") >= 1


def test_a_language_that_is_no_source_is_only_its_own_target(servers):
    request = {"q": "a", "source": "fr", "target": "de"}
    answer = servers["plain"].post("/translate", request)
    assert answer == (400, {"error": "'source' should be 'en', 'de' or 'auto'"})
    single = {"q": "a", "source": "auto", "target": "en"}
    with running(StandIn()) as server:
        answer = server.post("/translate", single)
        assert answer == (400, {"error": "'target' should be 'de' for the source 'auto'"})
        assert server.post("/translate", {**single, "source": "en"})[1] == {"translatedText": "a"}


def test_a_text_that_stays_in_its_language_stays_as_it_is(servers):
    text = "One.  Two?\r\n\tthree <b>&amp; "
    for q in (text, [text, ""]):
        request = {"q": q, "source": "en-GB", "target": "EN", "alternatives": 1}
        none = [] if isinstance(q, str) else [[], []]
        expected = {"translatedText": q, "alternatives": none}
        assert servers["plain"].post("/translate", request) == (200, expected)
