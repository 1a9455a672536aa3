"""Which settings a resumed run may change, what each decides, and that digests outlive releases."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from flaxformer_mt.config import ConfigError, check_resume, default_config, flatten, freeze
from flaxformer_mt.config.digest_keys import FIRST, decides, deciding, first_default, may_change
from flaxformer_mt.config.freeze import fields_along
from flaxformer_mt.config.load import apply_overrides

USES = ("train.news", "valid", "test.news")


def changed(*overrides: str):
    """The defaults with a corpus of each kind of use, and some settings changed."""
    config = default_config()
    files = [f"data.{use}.{side}={use}.{side}" for use in USES for side in ("src", "tgt")]
    apply_overrides(config, [*files, *overrides])
    return freeze(config, "test")


BEFORE = changed()


@pytest.mark.parametrize(
    "override",
    [
        *("name=other", "model.dtype=bfloat16", "data.folder=elsewhere", "data.tgt_lang=fr"),
        *("data.train.news.data_dir=elsewhere", "data.test.news.src=new.en", "training.steps=9000"),
        *("training.save_every=7", "training.patience=3", "decoding.beam_size=2", "mesh.data=4"),
    ],
)
def test_may_change(override):
    after = changed(override)
    ((key, (old, new)),) = check_resume(BEFORE, after, "runs/a").items()
    assert key == override.partition("=")[0]
    assert flatten(BEFORE)[key] == old != new == flatten(after)[key]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.d_model=64", "'model.d_model' was 512, is now 64"),
        ("training.freeze=encoder/*", "'training.freeze' was [], is now ['encoder/*']"),
        ("data.train.news.src=new", "'data.train.news.src' was 'train.news.src', is now 'new'"),
        ("data.valid.src=new", "'data.valid.src' was 'valid.src', is now 'new'"),
    ],
)
def test_may_not_change(override, said):
    with pytest.raises(ConfigError) as error:
        check_resume(BEFORE, changed(override, "training.seed=2", "training.steps=5"), "runs/a")
    text = str(error.value)
    assert "'training.seed' was 1, is now 2" in text and "training.steps" not in text
    assert text.startswith("runs/a: this run was started with different settings: ")
    assert said in text
    assert "set them back, or start a new --workdir" in text


def test_corpora_are_fixed_and_a_language_where_its_script_is_filtered():
    two_corpora = changed("data.train.more.src=a", "data.train.more.tgt=b")
    german, french = (changed("data.filter.script=0.5", f"data.tgt_lang={x}") for x in ("de", "fr"))
    for before, after, said in (
        (BEFORE, two_corpora, "'data.train.more.src' was None, is now 'a'"),
        (two_corpora, BEFORE, "'data.train.more.src' was 'a', is now None"),
        (german, french, "'data.tgt_lang' was 'de', is now 'fr'"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_resume(before, after, "runs/a")


def test_what_gives_the_parameters_their_shapes_is_fixed():
    shaping = ("layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "positions", "tie", "norm")
    for field in dataclasses.fields(BEFORE.model):
        if any(word in field.name for word in shaping):
            assert not may_change(f"model.{field.name}")


FIRST_DEFAULTS = Path(__file__).parent / "first_defaults.json"
UPDATE = "FLAXFORMER_UPDATE_GOLDEN"
KEYS = tuple(flatten(BEFORE))


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("model.dtype=bfloat16", "training"),
        ("data.train.news.src=x", "training"),
        ("training.keep_for_average=2", "training"),
        ("decoding.beam_size=5", "scoring"),
        ("data.tokenized=true", "scoring"),
        ("data.test.news.src=x", "scoring"),
        ("data.train.news.data_dir=x", "nothing"),
        ("data.test.news.data_dir=x", "nothing"),
        ("decoding.batch_tokens=9", "nothing"),
        ("mesh.fsdp=2", "nothing"),
        ("training.log_every=7", "nothing"),
    ],
)
def test_what_a_setting_decides(override, what):
    assert decides(override.partition("=")[0]) == what
    for kind in ("training", "scoring", "nothing"):
        differs = deciding(changed(override), kind) != deciding(changed(), kind)
        assert differs == (kind == what)


def test_how_a_trained_model_is_scored_may_change():
    """Runs that differ in it alone are one run."""
    assert [key for key in KEYS if decides(key) == "scoring" and not may_change(key)] == []


def test_a_setting_at_its_default_is_in_no_digest():
    """So a release that has one more leaves all digests what they are."""
    assert deciding(freeze({}, "test"), "training", "scoring") == {}
    assert deciding(changed("model.dropout=0.1"), "training") == deciding(changed(), "training")


@pytest.mark.parametrize("key", ["training.label_smoothing", "data.train.kind"])
def test_a_default_that_changes_is_in_digests_from_then_on(monkeypatch, key):
    before = deciding(changed(), "training")
    monkeypatch.setitem(FIRST, key, "what it was")
    after = deciding(changed(), "training")
    place = {"data.train.kind": "data.train.news.kind"}.get(key, key)
    assert after == before | {place: flatten(changed())[place]}


def test_first_defaults_are_what_was_recorded():
    defaults = {}
    for key in KEYS:
        if decides(key) != "nothing":
            defaults[".".join(field.name for field in fields_along(key))] = first_default(key)
    recorded = json.loads(FIRST_DEFAULTS.read_text()) if FIRST_DEFAULTS.exists() else {}
    if os.environ.get(UPDATE):
        # What was recorded stays: it is what digests were made with.
        recorded = defaults | recorded
        FIRST_DEFAULTS.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    new = sorted(defaults.keys() - recorded.keys())
    assert not new, f"{new}: run this test with {UPDATE}=1 and commit {FIRST_DEFAULTS.name}"
    for key, value in defaults.items():
        assert value == recorded[key], (
            f"the default of {key} has changed: note {recorded[key]!r} in FIRST of "
            "flaxformer_mt/config/digest_keys.py, or digests of before mean something else now"
        )
