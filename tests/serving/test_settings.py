"""Settings: one place for limits, whose errors speak of flags."""

import json
import re
from pathlib import Path

import pytest

from flaxformer_mt.cli.serve import _parser
from flaxformer_mt.serving.answers import openapi
from flaxformer_mt.serving.requests import Reader
from flaxformer_mt.serving.settings import ServerSettings, SettingsError, flags, read_keys
from tests.serving.stand_in import MODEL

GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"


def test_command_line_guide_and_errors_have_every_flag(capsys):
    guide = GUIDE.read_text()
    options = _parser("serve", "").parse_args(["--workdir", "x"])
    for name, option in flags().items():
        value = getattr(ServerSettings, name)
        assert getattr(options, name) == value, name
        parsed = _parser("", "").parse_args(["--workdir", "x", option.flag, str(value + 1)])
        assert getattr(parsed, name) == value + 1
        sizes = {"max_body_bytes": "256 KiB", "max_file_bytes": "2 MiB"}
        default = sizes.get(name, f"{value:,g}")
        row = next(line for line in guide.splitlines() if f"`{option.flag}" in line)
        if row.startswith("| "):
            assert re.search(rf"(?<!\d)(?<!\d,){default}(?!\d|,\d)", row), (name, row)
        wrong = -0.5 if isinstance(value, float) else option.least - 1
        with pytest.raises(SystemExit):
            _parser("", "").parse_args(["--workdir", "x", f"{option.flag}={wrong}"])
        assert f"{option.flag}: '{wrong}' must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_sentences": 11, "waiting_sentences": 10}, "raise --queue"),
        ({"cors_origins": ("https://a.example/",)}, "--cors 'https://a.example/' is not a lower-"),
        ({"cors_origins": ("a.example",)}, "--cors 'a.example' is not a lower-case origin"),
        ({"cors_origins": ("https://A.example",)}, "is not a lower-case origin"),
        ({"allowed_hosts": ("https://a.example",)}, "--allowed-host 'https://a.example' is no"),
        ({"allowed_hosts": ("",)}, "--allowed-host '' is not a lower-case host name"),
        ({"keys": frozenset({""})}, "an API key must not be empty"),
    ],
)
def test_what_would_never_hold_is_refused(changes, message):
    with pytest.raises(SettingsError, match=re.escape(message)):
        ServerSettings(**changes)
    for origin in ("*", "null", "http://localhost:3000", "moz-extension://0b-1"):
        ServerSettings(cors_origins=(origin,), allowed_hosts=("a.example", "b:8000"))


def test_the_document_has_the_limits_and_a_file_of_keys_one_a_line():
    settings = ServerSettings(max_characters=123, max_texts=7, max_n_best=3)
    schemas = openapi(Reader(MODEL, settings))["components"]["schemas"]
    properties = schemas["TranslateRequest"]["properties"]
    assert properties["n_best"]["maximum"] == 3
    assert '"maxLength": 123' in json.dumps(properties["text"])
    assert '"maxItems": 7' in json.dumps(properties["text"])
    text = "# ours\r\n\none\n  two words \n#three\n~!@$%\n"
    assert read_keys(text, "keys") == {"one", "two words", "~!@$%"}
    for key in ("schlüssel", "a\x07b", "a\u2028b", "a\x85b", "\ufeffa"):
        with pytest.raises(SettingsError, match="keys:4: .*must be printable ASCII") as refused:
            read_keys(f"one\n\n# ключ\n{key}\ntwo\n", "keys")
        assert key not in str(refused.value)
