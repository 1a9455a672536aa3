"""Settings: one place for limits, whose errors speak of flags."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flaxformer_mt.cli.serve import _parser
from flaxformer_mt.serving.access import Keys, Refusal
from flaxformer_mt.serving.openapi import openapi
from flaxformer_mt.serving.requests import Reader
from flaxformer_mt.serving.settings import ServerSettings, SettingsError, flags, read_keys
from tests.serving.stand_in import MODEL

GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"


def test_the_command_line_has_them_as_they_are() -> None:
    options = _parser("serve", "").parse_args(["--workdir", "x"])
    plain = ServerSettings()
    for name in flags():
        assert getattr(options, name) == getattr(plain, name), name
    assert options.log == plain.log
    values = {name: getattr(plain, name) + 1 for name in flags()}
    words = [word for name, flag in flags().items() for word in (flag.flag, str(values[name]))]
    changed = _parser("serve", "").parse_args(["--workdir", "x", *words])
    assert {name: getattr(changed, name) for name in flags()} == values


def test_the_guide_names_every_flag_and_default() -> None:
    guide = GUIDE.read_text()
    for name, flag in flags().items():
        assert f"`{flag.flag}" in guide, name
        value = getattr(ServerSettings, name)
        shown = "256 KiB" if name == "max_body_bytes" else f"{value:,g}"
        row = next(line for line in guide.splitlines() if f"`{flag.flag}" in line)
        if row.startswith("| "):
            assert re.search(rf"(?<!\d)(?<!\d,){shown}(?!\d|,\d)", row), (name, row)


@pytest.mark.parametrize("name", flags())
def test_an_error_names_the_flag(name: str) -> None:
    wrong = -0.5 if isinstance(getattr(ServerSettings, name), float) else flags()[name].least - 1
    with pytest.raises(SettingsError, match=re.escape(f"{flags()[name].flag} {wrong} must be")):
        ServerSettings(**{name: wrong})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_sentences": 11, "waiting_sentences": 10}, "raise --queue, or lower --max-sentences"),
        ({"cors_origins": ("https://a.example/",)}, "--cors 'https://a.example/' is no origin"),
        ({"cors_origins": ("a.example",)}, "--cors 'a.example' is no origin"),
        ({"cors_origins": ("https://A.example",)}, "is no origin: write it as browsers do"),
        ({"allowed_hosts": ("https://a.example",)}, "--allowed-host 'https://a.example' is no"),
        ({"allowed_hosts": ("",)}, "--allowed-host '' is no name"),
        ({"keys": frozenset({""})}, "an empty API key"),
    ],
)
def test_what_would_never_hold_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        ServerSettings(**changes)  # type: ignore[arg-type]
    for origin in ("*", "null", "http://localhost:3000", "moz-extension://0b-1"):
        ServerSettings(cors_origins=(origin,), allowed_hosts=("a.example", "b:8000"))


def test_the_document_has_the_limits() -> None:
    settings = ServerSettings(max_characters=123, max_texts=7, max_n_best=3)
    schemas = openapi(Reader(MODEL, settings))["components"]["schemas"]
    properties = schemas["TranslateRequest"]["properties"]
    assert properties["n_best"]["maximum"] == 3
    assert '"maxLength": 123' in json.dumps(properties["text"])
    assert '"maxItems": 7' in json.dumps(properties["text"])


# --- files of API keys ----------------------------------------------------------------------------


def test_a_key_a_line() -> None:
    text = "# ours\r\n\none\n  two words \n#three\n~!@$%\n"
    assert read_keys(text, "keys") == {"one", "two words", "~!@$%"}


@pytest.mark.parametrize("key", ["ключ", "schlüssel", "a\x07b", "a\u2028b", "a\x85b", "\ufeffa"])
def test_a_key_that_no_header_carries_is_refused_with_its_line(key: str) -> None:
    with pytest.raises(SettingsError, match="keys:4: .*beyond printable ASCII") as refused:
        read_keys(f"one\n\n# ключ\n{key}\ntwo\n", "keys")
    assert key not in str(refused.value)


def test_whatever_a_client_sends_is_compared() -> None:
    keys = Keys(["one", "two"])
    keys.admit("one")
    keys.admit("two")
    for wrong in ("", "on", "one ", "ключ", "\ud800", 1, ["one"]):
        with pytest.raises(Refusal, match="not valid"):
            keys.admit(wrong)
