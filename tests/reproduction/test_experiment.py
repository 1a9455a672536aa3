"""The paper's rows, and a row with settings: what is trained, and what is another experiment."""

import dataclasses
import json
import re

import pytest

from flaxformer_mt.config import ConfigError, flatten, read_config
from flaxformer_mt.reproduction.experiment import again, resolve
from flaxformer_mt.reproduction.paper import ROWS, RowError, row_of, rows_of
from flaxformer_mt.reproduction.settings import ReproductionSettings
from tests.reproduction.made_up import TOY, experiment


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_each_row_has_a_config_that_averages_and_tests_as_the_paper_did(row):
    config = read_config(row.spec)
    assert config.training.keep_for_average == row.average
    assert {corpus.name for corpus in config.data.train} == set(row.pairs)
    assert row.test == "valid" or row.test in {corpus.name for corpus in config.data.test}
    read_config(row.base)


def test_every_variant_is_a_row_in_the_paper_s_order_and_unknown_ones_are_named():
    listed = {}
    for name in ("table3", "wmt14_en_de", "wmt14_en_fr", "parsing"):
        with pytest.raises(ValueError, match="valid variants") as error:
            read_config(f"{name}:?")
        variants = str(error.value).rpartition("variants: ")[2].split(", ")
        listed[name] = {f"{name}:{v}" for v in variants if "tfds" not in v and v != "craft"}
    assert set().union(*listed.values()) == {row.spec for row in ROWS}
    assert [row.name for row in rows_of("table3", ["big", "a_h1"])] == ["a_h1", "big"]
    assert len(rows_of("table3")) == 20 and len(rows_of("table2")) == 4
    with pytest.raises(RowError, match="table3 has no row 'c_n2'; did you mean 'c_N2'?"):
        rows_of("table3", ["c_n2"])
    with pytest.raises(RowError, match="valid names: wsj_only, semi_supervised"):
        rows_of("table4", ["???"])


SIZES = "encoder_layers decoder_layers d_model d_ff num_heads d_k d_v".split()
TINY = tuple(
    f"model.{name}={value}" for name, value in zip(SIZES, (3, 3, 32, 64, 8, 4, 4), strict=True)
)


@pytest.mark.parametrize(
    ("row", "text"),
    [*((row, "files") for row in ROWS), *((row, "tfds") for row in rows_of("table2"))],
)
def test_at_full_scale_a_row_is_its_config(row, text):
    resolved = resolve(row, ReproductionSettings(text=text))
    spec = f"{row.spec}_tfds" if text == "tfds" else row.spec
    ours, theirs = flatten(resolved.config), flatten(read_config(spec))
    differing = {key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)}
    assert differing <= {"name", "training.validate_every"}
    assert resolved.is_the_paper_s and resolved.pairs is None


@pytest.mark.parametrize("row", rows_of("table3"), ids=lambda row: row.name)
def test_on_another_base_a_row_keeps_its_ratios_and_its_rates(row):
    base, toy = (
        read_config("table3:base").model,
        resolve(row, ReproductionSettings(overrides=TINY)).config,
    )
    theirs = read_config(row.spec)
    tiny = resolve(row_of("table3/base"), ReproductionSettings(overrides=TINY)).config.model
    for name in SIZES:
        ours, ratio = getattr(toy.model, name), getattr(theirs.model, name) / getattr(base, name)
        assert ours == getattr(tiny, name) * ratio
    assert toy.model.dropout == theirs.model.dropout
    assert toy.model.positions == theirs.model.positions
    assert toy.training.label_smoothing == theirs.training.label_smoothing
    assert toy.training.steps == theirs.training.steps


@pytest.mark.parametrize(
    ("label", "override", "message"),
    [
        ("table3/a_h1", "model.num_heads=4", "choose a multiple of 8"),
        ("table3/c_N2", "model.encoder_layers=4", "choose a multiple of 3"),
        ("table3/d_dropout02", "model.dropout=0.3", "leave out --config"),
        ("table3/d_dropout0", "model.dropout=0.0", "leave out --config"),
        ("table3/e_learned_positions", "model.positions=learned", "leave out --config"),
        ("table3/e_learned_positions", "data.batch.form=pack", "needs 'model.positions'"),
        ("table3/c_d256", "model.d_model=0", "must be"),
    ],
)
def test_a_row_that_makes_no_sense_on_a_base_is_refused(label, override, message):
    with pytest.raises((RowError, ConfigError), match=message):
        resolve(row_of(label), ReproductionSettings(overrides=(override,)))


NOTHING = ["mesh.fsdp=2", "training.log_every=7", "decoding.batch_tokens=99", "model.remat=true"]
TRAINING = [
    *("model.dropout=0.05", "data.batch.tokens=4096", "model.dtype=float32"),
    *("data.valid.src=other.en", "training.keep_for_average=3", "training.steps=90000"),
    *("data.vocabulary.size=32000", "data.train.wmt14.src=other.en"),
]
SCORING = ["decoding.beam_size=5", "data.tokenized=true", "data.test.newstest2013.src=other.en"]


@pytest.mark.parametrize("override", [*NOTHING, *TRAINING, *SCORING])
def test_what_decides_the_numbers_makes_another_experiment(override):
    """Not where and how it is computed; another search has the same training."""
    plain, changed = experiment(), experiment(overrides=(override,))
    assert (plain.digest == changed.digest) == (plain.name == changed.name) == (override in NOTHING)
    assert (plain.run_name == changed.run_name) == (override not in TRAINING)
    # In a run that both share each has its translations under a name of its own.
    assert plain.kept_as == "valid" and (changed.kept_as == "valid") == (override in NOTHING)
    recipe = resolve(plain.row, ReproductionSettings(overrides=(override,))).is_the_paper_s
    assert recipe == (override in (*NOTHING, "model.dtype=float32"))


def test_scale_seed_and_text_decide_digests():
    other_text = dataclasses.replace(TOY, train=("other.en", "other.de"))
    changes = ({}, {"scale": 0.02}, {"seed": 2}, {"corpus": TOY}, {"corpus": other_text})
    assert len({experiment(**settings).digest for settings in changes}) == len(changes)
    assert experiment(folder="here").digest == experiment(folder="there").digest


def test_digests_are_what_they_were():
    """People have runs and results with these names: only a change of the row may change them."""
    full = experiment("table3/c_N2", scale=1.0)
    assert full.run_name == "table3_c_n2_paper_full_seed_1-e5c08bc9"
    assert full.digest[:8] == "e7fffd0c"


def test_only_the_paper_s_recipe_counts_as_full_scale():
    row = row_of("table3/base")
    assert resolve(row, ReproductionSettings(seed=3, folder="F")).is_the_paper_s
    second_corpus = ("data.train.more.src=more.en", "data.train.more.tgt=more.de")
    for changes in ({"scale": 0.99}, {"corpus": TOY}, {"overrides": second_corpus}):
        assert not resolve(row, ReproductionSettings(**changes)).is_the_paper_s


def test_steps_keep_their_ratio_to_those_of_the_base():
    big = experiment("table2/en_de_big", scale=1, overrides=("training.steps=1000",))
    assert big.config.training.steps == 3000 and not big.is_the_paper_s


def test_a_result_s_details_make_the_experiment_again():
    tested = dataclasses.replace(TOY, test=("a.en", "a.de"))
    for settings in (
        {"scale": 1.0, "seed": 4},
        {"corpus": TOY, "overrides": TINY, "folder": "F"},
        {"corpus": tested},
    ):
        measured = experiment(**settings)
        remade = again(json.loads(json.dumps(measured.details())))
        for name in ("digest", "name", "run_name"):
            assert getattr(remade, name) == getattr(measured, name)
    base = {"row": "table3/base"}
    scale = '{"scale": 2, "seed": 1, "corpus": null, "overrides": []}'
    for details in (
        {},
        base | {"settings": "["},
        base | {"settings": scale},
        {"row": "table9/x", "settings": "{}"},
    ):
        with pytest.raises(RowError):
            again(details)


def test_a_name_tells_of_overrides_only_what_they_decide():
    assert experiment().name == "table3_base_paper_scale_0_01_seed_1"
    # Written otherwise, told twice, without effect, or of no matter for any number.
    equivalent = [
        ("model.dropout=0.05",),
        ("model.dropout=5e-2",),
        ("model.dropout=0.3", "model.dropout=0.05"),
        ("model.d_ff=2048", "model.dropout=0.05", "mesh.fsdp=2"),
    ]
    (name,) = {experiment(overrides=overrides).name for overrides in equivalent}
    assert re.fullmatch(r"table3_base_paper_scale_0_01_with_[0-9a-f]{8}_seed_1", name)
    assert experiment(overrides=("model.d_ff=2048", "model.remat=true")).name == experiment().name


def test_shapes_left_to_the_length_of_the_training_are_those_of_the_scaled_base():
    left = ("model.d_model=128", "model.d_ff=512", "data.batch.tokens=4096")
    short = {"scale": 0.002, "overrides": (*left, "data.batch.max_shapes=0")}
    rows = [experiment(f"table3/{name}", **short) for name in ("base", "c_d1024", "big")]
    shapes = {row.config.data.batch.max_shapes for row in rows}
    (number,) = shapes  # batches of another size would be another experiment
    assert 2 <= number < 16
    given = experiment(scale=0.002, overrides=(*left, f"data.batch.max_shapes={number}"))
    assert given.name == rows[0].name and given.digest == rows[0].digest  # it is in the record
    as_the_paper_s = experiment(scale=0.002, overrides=left)
    assert as_the_paper_s.config.data.batch.max_shapes == 16
    assert as_the_paper_s.name != rows[0].name
    full = experiment(scale=1.0, overrides=("data.batch.max_shapes=0",))
    assert full.config == experiment(scale=1.0).config


def test_all_rows_of_a_ladder_and_its_orderings_have_one_variant():
    overrides = ("model.dropout=0.05",)
    row = experiment("table3/c_N2", overrides=overrides)
    assert row.variant == experiment(overrides=overrides).variant
    assert row.stem("orderings") == f"table3_orderings_paper_scale_0_01_{row.variant}"


def test_other_text_takes_the_place_of_the_paper_s():
    corpus = dataclasses.replace(TOY, test=("t.en", "t.de"))
    on_toy = experiment("table2/en_de_base", corpus=corpus)
    data = on_toy.config.data
    assert [(corpus.name, corpus.src) for corpus in data.train] == [("toy", "train.en")]
    assert data.valid.src == "valid.en"
    assert [corpus.name for corpus in data.test] == [on_toy.test] == ["toy"]
    assert on_toy.pairs == {"toy": 45_000}
    assert experiment("table3/base", corpus=TOY).test == "valid"
    with pytest.raises(RowError, match="give --test SRC TGT"):
        experiment("table2/en_de_base", corpus=TOY)
