"""Records LibreTranslate's answers, which ours are compared with, in `libretranslate.json`.

LibreTranslate needs an environment of its own, but no models: languages and a translation that
reverses words, as the stand-in's does, take their place.

    python -m venv /tmp/libretranslate
    /tmp/libretranslate/bin/pip install libretranslate
    /tmp/libretranslate/bin/python tests/serving/record_libretranslate.py
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile

TARGET = pathlib.Path(__file__).with_name("libretranslate.json")
FORM = "application/x-www-form-urlencoded"
PAIR = {"source": "en", "target": "de"}
ONE = {"q": "HELLO THERE", **PAIR}
SUGGESTION = {"q": "HELLO", "s": "HALLO", **PAIR}
JSON_REQUESTS = {
    "one text": ("/translate", ONE),
    "a list": ("/translate", {**ONE, "q": ["HELLO THERE", "ONE TWO"]}),
    "text format": ("/translate", {**ONE, "format": "text"}),
    "empty format": ("/translate", {**ONE, "format": ""}),
    "null format": ("/translate", {**ONE, "format": None}),
    "unknown format": ("/translate", {**ONE, "format": "pdf"}),
    "alternatives": ("/translate", {**ONE, "alternatives": 2}),
    "alternatives as text": ("/translate", {**ONE, "alternatives": "2"}),
    "alternatives of a list": ("/translate", {**ONE, "q": ["A B", "C D"], "alternatives": 1}),
    "negative alternatives": ("/translate", {**ONE, "alternatives": -1}),
    "null alternatives": ("/translate", {**ONE, "alternatives": None}),
    "alternatives in words": ("/translate", {**ONE, "alternatives": "two"}),
    "detected": ("/translate", {**ONE, "source": "auto"}),
    "detected of a list": ("/translate", {**ONE, "q": ["A B", "C D"], "source": "auto"}),
    "null key": ("/translate", {**ONE, "api_key": None}),
    "empty key": ("/translate", {**ONE, "api_key": ""}),
    "unknown field": ("/translate", {**ONE, "secret": "?"}),
    "upper-case codes": ("/translate", {**ONE, "source": "EN", "target": "DE"}),
    "region": ("/translate", {**ONE, "source": "en-US"}),
    "three letters": ("/translate", {**ONE, "source": "eng"}),
    "second target": ("/translate", {**ONE, "target": "fr"}),
    "other direction": ("/translate", {**ONE, "source": "de", "target": "en"}),
    "same language": ("/translate", {**ONE, "target": "en"}),
    "same language, a list": ("/translate", {**ONE, "q": ["HELLO"], "target": "en"}),
    "same language, alternatives": ("/translate", {**ONE, "target": "en", "alternatives": 2}),
    "same language, only a target": ("/translate", {**ONE, "source": "fr", "target": "fr"}),
    "no such pair": ("/translate", {**ONE, "source": "de", "target": "fr"}),
    "unknown source": ("/translate", {**ONE, "source": "xx"}),
    "unknown target": ("/translate", {**ONE, "target": "xx"}),
    "target to be detected": ("/translate", {**ONE, "target": "auto"}),
    "no text": ("/translate", PAIR),
    "null text": ("/translate", {**ONE, "q": None}),
    "empty text": ("/translate", {**ONE, "q": ""}),
    "empty list": ("/translate", {**ONE, "q": []}),
    "a number for a text": ("/translate", {**ONE, "q": 5}),
    "no source": ("/translate", {"q": "HELLO", "target": "de"}),
    "no target": ("/translate", {"q": "HELLO", "source": "en"}),
    "an array": ("/translate", [ONE]),
    "detect": ("/detect", {"q": "HELLO THERE"}),
    "detect a list": ("/detect", {"q": ["HELLO", "THERE"]}),
    "detect an empty list": ("/detect", {"q": []}),
    "detect nothing": ("/detect", {"q": ""}),
    "detect without a text": ("/detect", {}),
    "suggest": ("/suggest", SUGGESTION),
    "suggest nothing": ("/suggest", {}),
}
FORM_REQUESTS = {
    "form": ("/translate", "q=HELLO+THERE&source=en&target=de"),
    "form with line breaks": ("/translate", "q=HELLO%0D%0ATHERE&source=en&target=de"),
    "form with alternatives": ("/translate", "q=HELLO+THERE&source=en&target=de&alternatives=1"),
    "form with empty fields": (
        "/translate",
        "q=HELLO+THERE&source=en&target=de&alternatives=0&format=&api_key=",
    ),
    "form without alternatives": ("/translate", "q=HELLO&source=en&target=de&alternatives="),
    "form without a text": ("/translate", "source=en&target=de"),
    "empty form": ("/translate", ""),
    "form, detect": ("/detect", "q=HELLO+THERE"),
    "form, suggest": ("/suggest", "q=HELLO&s=HALLO&source=en&target=de"),
}
OTHER_REQUESTS = {
    "languages": ("GET", "/languages", "", ""),
    "settings": ("GET", "/frontend/settings", "", ""),
    "health": ("GET", "/health", "", ""),
    "address": ("POST", "/translate?q=HELLO+THERE&source=en&target=de", "", ""),
    "address, detect": ("POST", "/detect?q=HELLO+THERE", "", ""),
    "broken JSON": ("POST", "/translate", "application/json", '{"q": "HELLO"'),
    "plain text": ("POST", "/translate", "text/plain", "HELLO"),
    "GET": ("GET", "/translate", "", ""),
    "POST of the page": ("POST", "/", "", ""),
    "POST of languages": ("POST", "/languages", "", ""),
    "nowhere": ("GET", "/nowhere", "", ""),
    "file": ("POST", "/translate_file", FORM, "source=en&target=de"),
}
KEYED_REQUESTS = {
    "no key": ("/translate", ONE),
    "wrong key": ("/translate", {**ONE, "api_key": "wrong"}),
    "right key": ("/translate", {**ONE, "api_key": "right"}),
    "wrong key, detect": ("/detect", {"q": "HELLO", "api_key": "wrong"}),
}
LIMITED_REQUESTS = {
    "too long": ("/translate", {**ONE, "q": "HELLO " * 10}),
    "too many": ("/translate", {**ONE, "q": ["A", "B", "C"]}),
}


def requests():
    """Name: (server, method, path, content type, body)."""
    json_groups = {"plain": JSON_REQUESTS, "keys": KEYED_REQUESTS, "limits": LIMITED_REQUESTS}
    for server, group in json_groups.items():
        for name, (path, payload) in group.items():
            yield name, (server, "POST", path, "application/json", json.dumps(payload))
    for name, (path, body) in FORM_REQUESTS.items():
        yield name, ("plain", "POST", path, FORM, body)
    for name, request in OTHER_REQUESTS.items():
        yield name, ("plain", *request)
    yield "settings with keys", ("keys", "GET", "/frontend/settings", "", "")


def languages():
    """English to German and French, and German to English."""
    from argostranslate import translate

    class Reversed(translate.ITranslation):
        def __init__(self, source, target):
            self.from_lang, self.to_lang = source, target

        def hypotheses(self, input_text, num_hypotheses=1):
            lines = [" ".join(reversed(line.split())) for line in input_text.split("\n")]
            text = "\n".join(lines)
            ranked = [text, *(f"{text} {rank}" for rank in range(1, num_hypotheses))]
            return [translate.Hypothesis(each, 0.0) for each in ranked]

    en, de, fr = (
        translate.Language(code, name)
        for code, name in (("en", "English"), ("de", "German"), ("fr", "French"))
    )
    for source, target in ((en, de), (en, fr), (de, en)):
        source.translations_from.append(Reversed(source, target))
    for language in (en, de, fr):  # as argostranslate does
        language.translations_from.append(translate.IdentityTranslation(language))
    return [en, de, fr]


def clients():
    """A client of a server of each kind, by kind."""
    from argostranslate import translate

    installed = languages()
    translate.get_installed_languages = lambda: installed
    from libretranslate import app, init
    from libretranslate.api_keys import Database
    from libretranslate.main import get_args

    init.boot = lambda *_: None  # it would fetch models
    made = {}
    for kind, options in {
        "plain": [],
        "keys": ["--api-keys", "--require-api-key-origin", "https://only.example"],
        "limits": ["--char-limit", "40", "--batch-limit", "2"],
    }.items():
        sys.argv = ["libretranslate", "--disable-files-translation", *options]
        sys.argv += ["--frontend-language-source", "en", "--frontend-language-target", "de"]
        made[kind] = app.create_app(get_args()).test_client()
    Database().add(100, "right")
    return made


def record():
    exchanges = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CACHE_HOME"] = folder
        served = clients()
        for name, (server, method, path, kind, body) in requests():
            answer = served[server].open(path, method=method, content_type=kind or None, data=body)
            is_json = answer.mimetype == "application/json"
            exchanges[name] = {
                "server": server,
                "request": [method, path, kind, body],
                "status": answer.status_code,
                "answer": answer.get_json() if is_json else None,
            }
        spec = served["plain"].get("/spec").get_json()
    document = {
        "program": f"libretranslate {importlib.metadata.version('libretranslate')}",
        "date": datetime.date.today().isoformat(),
        "exchanges": exchanges,
        "spec": {path: sorted(methods) for path, methods in spec["paths"].items()},
        "spec keys": sorted(spec),
    }
    TARGET.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    record()
