"""What settings decide, and that what digests are made of outlives releases."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flaxformer_mt.config import ExperimentConfig, corpus, default_config, flatten, freeze
from flaxformer_mt.config.decisive import FIRST, decides, deciding, first_default
from flaxformer_mt.config.freeze import fields_along
from flaxformer_mt.config.load import apply_override
from flaxformer_mt.config.resume import may_change

FIRST_DEFAULTS = Path(__file__).parent / "first_defaults.json"
UPDATE = "FLAXFORMER_UPDATE_GOLDEN"


def changed(*overrides: str) -> ExperimentConfig:
    """The defaults with a corpus of each kind of use, and some settings changed."""
    config = default_config()
    config.data.train.news = corpus(src="train.en", tgt="train.de")
    config.data.valid = corpus(src="valid.en", tgt="valid.de")
    config.data.test.news = corpus(src="test.en", tgt="test.de")
    for override in overrides:
        apply_override(config, override)
    return freeze(config, "test")


KEYS = tuple(flatten(changed()))


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("model.d_model=64", "training"),
        ("model.dtype=bfloat16", "training"),
        ("data.train.news.src=x", "training"),
        ("data.valid.src=x", "training"),
        ("data.vocabulary.size=9", "training"),
        ("training.seed=2", "training"),
        ("training.keep_for_average=2", "training"),
        ("decoding.beam_size=5", "scoring"),
        ("data.tokenized=true", "scoring"),
        ("data.test.news.src=x", "scoring"),
        ("data.train.news.data_dir=x", "nothing"),
        ("data.test.news.data_dir=x", "nothing"),
        ("data.folder=x", "nothing"),
        ("decoding.batch_tokens=9", "nothing"),
        ("model.remat=true", "nothing"),
        ("mesh.fsdp=2", "nothing"),
        ("training.log_every=7", "nothing"),
        ("name=x", "nothing"),
    ],
)
def test_what_a_setting_decides(override, what):
    key = override.partition("=")[0]
    assert decides(key) == what
    for kind in ("training", "scoring", "nothing"):
        differs = deciding(changed(override), kind) != deciding(changed(), kind)
        assert differs == (kind == what)


def test_how_a_trained_model_is_scored_may_change():
    """Runs that differ in it alone are one run."""
    assert [key for key in KEYS if decides(key) == "scoring" and not may_change(key)] == []


def test_a_setting_at_its_default_is_in_no_digest():
    """So a release that has one more leaves all digests what they are."""
    assert deciding(freeze({}, "test"), "training", "scoring", "nothing") == {}
    assert deciding(changed("model.dropout=0.1"), "training") == deciding(changed(), "training")


@pytest.mark.parametrize("key", ["training.label_smoothing", "data.train.kind"])
def test_a_default_that_changes_is_in_digests_from_then_on(monkeypatch, key):
    before = deciding(changed(), "training")
    monkeypatch.setitem(FIRST, key, "what it was")
    after = deciding(changed(), "training")
    place = {"data.train.kind": "data.train.news.kind"}.get(key, key)
    assert after == before | {place: flatten(changed())[place]}


def test_first_defaults_are_what_was_recorded():
    found = {}
    for key in KEYS:
        if decides(key) != "nothing":
            found[".".join(field.name for field in fields_along(key))] = first_default(key)
    recorded = json.loads(FIRST_DEFAULTS.read_text()) if FIRST_DEFAULTS.exists() else {}
    if os.environ.get(UPDATE):
        # What was recorded stays: it is what digests were made with.
        recorded = found | recorded
        FIRST_DEFAULTS.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    new = sorted(found.keys() - recorded.keys())
    assert not new, f"{new}: run this test with {UPDATE}=1 and commit {FIRST_DEFAULTS.name}"
    for key, value in found.items():
        assert value == recorded[key], (
            f"the default of {key} has changed: note {recorded[key]!r} in FIRST of "
            "flaxformer_mt/config/decisive.py, or digests of before mean something else now"
        )
