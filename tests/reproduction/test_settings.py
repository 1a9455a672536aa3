"""What a call asks for: as results, commands and configs name it, and how `--scale` shortens it."""

import dataclasses
import json
import shlex

import numpy as np
import pytest

from flaxformer_mt.cli.arguments import take_overrides
from flaxformer_mt.config import flatten, read_config
from flaxformer_mt.data.corpus.tfds_sets import data_dir_of
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.reproduction.experiment import again, resolve
from flaxformer_mt.reproduction.paper import ROWS, RowError, row_of, rows_of
from flaxformer_mt.reproduction.planned import (
    planned_flops,
)
from flaxformer_mt.reproduction.settings import (
    ReproductionSettings,
    scaled,
    scaled_schedule,
    validating_at_checkpoints,
)
from flaxformer_mt.training.optimizer import learning_rate
from tests.reproduction.made_up import TOY, experiment, result

TFDS = ReproductionSettings(text="tfds")


def test_flops_count_a_batch_s_tokens_and_not_its_padding():
    """The tokens that 25,000 + 25,000 positions hold on Europarl's lengths."""
    tokens = {"bucket": (20_640, 21_320), "pack": (23_380, 24_140)}
    for form, (src, tgt) in tokens.items():
        config = read_config("wmt14_en_de:base", {"data.batch.form": form})
        expected = config.training.steps * training_flops(
            config.model, 37_000, src_tokens=src, tgt_tokens=tgt, src_keys=25, tgt_keys=25
        )
        assert planned_flops(config) == pytest.approx(expected, rel=1e-3)


def test_what_cannot_stand_in_a_result_is_refused():
    for settings, message in (
        ({"scale": 0.0}, "must be above 0"),
        ({"scale": 1.5}, "and at most 1"),
        ({"overrides": ("data.folder=x",)}, "use --folder"),
        ({"overrides": ("training.seed=2",)}, "use --seeds"),
        ({"overrides": ("data.valid.src=/srv/valid.en",)}, "this machine's paths"),
        ({"corpus": {"train": ("/srv/train.en", "train.de")}}, "this machine's paths"),
        ({"corpus": {"name": "Multi30k"}}, "must match"),
        ({"corpus": {"name": "paper"}}, "--corpus paper: .* is reserved: choose"),
        ({"corpus": {"name": "paper_full"}}, "--corpus paper_full: .* is reserved"),
        ({"text": "tfds", "corpus": {}}, "is the paper's text"),
    ):
        with pytest.raises(RowError, match=message):
            if "corpus" in settings:
                settings = settings | {"corpus": dataclasses.replace(TOY, **settings["corpus"])}
            experiment(**settings)
    assert dataclasses.replace(TOY, name="papers").name == "papers"
    details = result(experiment())["details"]
    with pytest.raises(RowError, match="no text 'tar'"):
        again({**details, "settings": details["settings"].replace("}", ', "text": "tar"}')})


def test_a_command_names_rows_seeds_and_settings():
    settings = ReproductionSettings(
        scale=0.5,
        seed=2,
        folder="here",
        corpus=dataclasses.replace(TOY, test=("t.en", "t.de")),
        overrides=("name=--only base --seeds 2",),
    )
    words = shlex.split(settings.command("table3", only=["base", "c_N2"]))
    assert words == [
        *("flaxformer-mt", "reproduce", "table3", "--only", "base", "c_N2"),
        *("--scale", "0.5", "--seeds", "2", "--folder", "FOLDER"),
        *("--corpus", "toy", "--train", "train.en", "train.de"),
        *("--valid", "valid.en", "valid.de", "--test", "t.en", "t.de"),
        "--config.name=--only base --seeds 2",
    ]

    # Of a whole table: the overrides are what they were, whatever they look like.
    words = shlex.split(settings.command("table3", seeds=[1, 2]))
    assert words[3:9] == ["--scale", "0.5", "--seeds", "1", "2", "--folder"]
    assert take_overrides(words)[1] == ["name=--only base --seeds 2"]


@pytest.mark.parametrize("row", rows_of("table3", ["base", "big"]), ids=lambda row: row.name)
def test_table_3_reads_the_same_set_and_is_the_paper_s(row):
    tfds, files = resolve(row, TFDS), resolve(row, ReproductionSettings())
    data = tfds.config.data
    assert [corpus.path for corpus in data.train] == ["wmt_t2t_translate/de-en"]
    assert (data.valid.kind, data.valid.split) == ("tfds", "validation")
    assert data.test[0].split == "validation"
    assert tfds.config.model == files.config.model
    assert tfds.config.training == files.config.training
    assert tfds.is_the_paper_s and tfds.variant == ""
    assert tfds.name != files.name and tfds.digest != files.digest
    assert tfds.run_name != files.run_name


def test_a_result_tells_in_which_form_the_text_was():
    resolved = resolve(
        row_of("table3/a_h1"), ReproductionSettings(text="tfds", scale=0.1, folder="gs://b/sets")
    )
    assert again(resolved.details()).digest == resolved.digest
    assert "--scale 0.1 --seeds 1 --text tfds --folder FOLDER" in resolved.command
    assert "text" not in json.loads(
        ReproductionSettings().to_json()
    )  # as before there was the setting
    newer = json.loads(ReproductionSettings().to_json()) | {"newer": 1}
    assert ReproductionSettings.from_json(json.dumps(newer)) == ReproductionSettings(
        folder="FOLDER"
    )
    # It has no trees.
    with pytest.raises(RowError, match="lacks its data.train.*leave out --text"):
        resolve(row_of("table4/wsj_only"), TFDS)


@pytest.mark.parametrize(
    ("folder", "place"),
    [("sets", "HERE/sets"), ("gs://b/sets", "gs://b/sets"), ("/srv/sets", "/srv/sets")],
)
def test_a_folder_is_that_of_the_prepared_sets(folder, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resolved = resolve(row_of("table2/en_fr_big"), ReproductionSettings(text="tfds", folder=folder))
    data = resolved.config.data
    corpora = (*data.train, data.valid, *data.test)
    places = {str(data_dir_of(corpus.source, data.folder)) for corpus in corpora}
    assert places == {place.replace("HERE", str(tmp_path))}
    assert resolved.digest == resolve(row_of("table2/en_fr_big"), TFDS).digest


SCALES = [0.5, 0.1, 0.025, 0.01]


@pytest.mark.parametrize("spec", ["table3:base", "wmt14_en_de:big", "multi30k:tiny"])
def test_the_learning_rate_is_the_same_at_the_same_share_of_training(spec):
    config = read_config(spec)
    for scale in SCALES:
        in_full, part = config.training, scaled(config, scale).training
        full = learning_rate(in_full.schedule, config.model.d_model)
        short = learning_rate(part.schedule, config.model.d_model)
        # The schedule counts updates already made: step n is asked for by n - 1.
        steps = np.round(np.linspace(0.01, 1, 25) * part.steps)
        steps_in_full = in_full.steps * steps / part.steps
        np.testing.assert_allclose(short(steps - 1), full(steps_in_full - 1), rtol=1e-5)


def test_the_highest_rate_is_kept_even_where_steps_cannot_be_shared():
    schedule = read_config("table3:base").training.schedule
    highest = float(learning_rate(schedule, 512)(3999))
    for scale in (*SCALES, 1e-4, 1e-6):
        short = scaled_schedule(schedule, scale)
        ours = float(learning_rate(short, 512)(short.warmup_steps - 1))
        assert ours == pytest.approx(highest, rel=1e-5)


@pytest.mark.parametrize("row", [row for row in ROWS if row.average], ids=lambda row: row.label)
def test_averaging_covers_the_same_last_part_of_training(row):
    def window(config):
        training = config.training
        return training.keep_for_average * training.save_every / training.steps

    config = read_config(row.spec)
    for scale in SCALES:  # steps are whole: a few in a hundred more or less
        assert window(scaled(config, scale)) == pytest.approx(window(config), rel=0.04)


@pytest.mark.parametrize(
    ("scale", "warmup"), [(0.02, 80), (0.01, 40), (0.005, 40), (0.002, 25), (0.001, 12), (1e-5, 1)]
)
def test_the_warm_up_keeps_some_steps_with_the_same_peak(scale, warmup):
    """8 steps would be left of 4,000 at 0.002, and Adam's second moment is an average of 50."""
    config = read_config("table3:base")
    highest = float(learning_rate(config.training.schedule, 512)(3999))
    short = scaled(config, scale).training.schedule
    assert short.warmup_steps == warmup
    assert float(learning_rate(short, 512)(warmup - 1)) == pytest.approx(highest, rel=1e-5)


def test_a_short_warm_up_is_not_lengthened():
    config = read_config("table3:base")
    schedule = dataclasses.replace(config.training.schedule, warmup_steps=3)
    training = dataclasses.replace(config.training, schedule=schedule)
    short = scaled(dataclasses.replace(config, training=training), 0.5).training
    assert short.schedule.warmup_steps == 3


@pytest.mark.parametrize(("scale", "fewest"), [(0.01, 10), (0.002, 10), (0.001, 10), (0.0005, 5)])
def test_reports_checkpoints_and_validations_cost_less_than_the_steps_between(scale, fewest):
    training = validating_at_checkpoints(scaled(read_config("wmt14_en_de:base"), scale)).training
    intervals = training.log_every, training.save_every, training.validate_every
    assert min(intervals) >= fewest and max(intervals) <= training.steps
    assert training.validate_every >= training.steps / 10 - training.save_every


def test_averaging_still_covers_the_last_part_where_checkpoints_are_fewer():
    """Of 3 steps between checkpoints 10 are left, and of 5 averaged ones 2."""
    training = scaled(read_config("wmt14_en_de:base"), 0.002).training
    assert (training.steps, training.save_every, training.keep_for_average) == (200, 10, 2)
    none = read_config("table3:base")
    assert scaled(none, 0.002).training.keep_for_average == none.training.keep_for_average == 0


@pytest.mark.parametrize("scale", [0.1, 1e-6])
def test_nothing_else_changes(scale):
    before = read_config("wmt14_en_de:base")
    after = flatten(scaled(before, scale))
    changed = {key for key, value in flatten(before).items() if after[key] != value}
    training = "steps save_every keep_for_average log_every validate_every validate_bleu"
    allowed = {f"training.{name}" for name in [*training.split(), "best_metric"]}
    allowed |= {"training.schedule.warmup_steps", "training.schedule.factor"}
    assert changed <= allowed
    assert after["training.steps"] == max(1, 100_000 * scale)
    # However short: as many checkpoints as there can be.
    assert after["training.keep_for_average"] <= max(1, after["training.steps"])


@pytest.mark.parametrize(
    ("validate", "save"), [(1000, 1500), (1000, 600), (10, 15), (0, 7), (5, 1)]
)
def test_validation_makes_no_checkpoint_of_its_own(validate, save):
    config = read_config("table3:base")
    training = dataclasses.replace(config.training, validate_every=validate, save_every=save)
    adapted = validating_at_checkpoints(dataclasses.replace(config, training=training)).training
    assert adapted.validate_every % save == 0
    assert (adapted.validate_every == 0) == (validate == 0)
    assert abs(adapted.validate_every - validate) < save
