"""Training with `files` and averaging choose how outputs' lengths are normalised."""

import dataclasses
import json

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api.length import _assessed
from flaxformer_mt.config import CorpusConfig
from flaxformer_mt.grammar.text import pairs
from tests.data.prepare.corpora import write


def settings(folder, valid_pairs):
    write(folder, "train", pairs("train", 300))
    write(folder, "valid", pairs("valid", valid_pairs))
    files = {
        f"data.{split}.{side}": str(folder / f"{name}.{language}")
        for split, name in (("train.mine", "train"), ("valid", "valid"))
        for side, language in (("src", "en"), ("tgt", "de"))
    }
    small = {
        **{"model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_model": 16},
        **{"model.d_ff": 16, "model.num_heads": 2, "model.d_k": 8, "model.d_v": 8},
        **{"data.vocabulary.size": 150, "decoding.beam_size": 2, "decoding.max_extra_tokens": 4},
        **{"training.steps": 2, "training.save_every": 1, "training.validate_every": 2},
    }
    return fm.load_config("files:tiny", {**files, **small})


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_training_and_averaging_choose(tmp_path, run, capsys):
    config = settings(tmp_path, 200)
    fm.train(config, run, command=["test"])
    assert "search: on 200 validation pairs, length_norm" in capsys.readouterr().err
    recorded = json.loads((run / "length.json").read_text())
    assert recorded["weights"] == "best, step 2" and len(recorded["tried"]) == 4
    chosen = fm.Translator.load(run).config
    assert chosen.length_norm == recorded["length_norm"]
    assert chosen.length_penalty == recorded["length_penalty"]

    (run / "length.json").unlink()  # as if the call had been killed before the choice
    fm.train(config, run, command=["test"])
    assert json.loads((run / "length.json").read_text()) == recorded

    (run / "length.json").write_text("{")
    fm.average(run, last=2)
    recorded = json.loads((run / "length.json").read_text())
    assert recorded["weights"].startswith("average")


def test_little_validation_text_leaves_the_papers(tmp_path, run, capsys):
    fm.train(settings(tmp_path, 199), run, command=["test"])
    assert "choosing needs 200 validation pairs, and there are 199" in capsys.readouterr().err
    assert not (run / "length.json").exists()


def test_several_validation_sets_leave_the_papers(tmp_path, run, capsys):
    config = settings(tmp_path, 200)
    valid = dataclasses.replace(config.data.valid, name="one")
    sets = (valid, dataclasses.replace(valid, name="two"))
    data = dataclasses.replace(config.data, valid=CorpusConfig(name="valid"), valid_sets=sets)
    fm.train(dataclasses.replace(config, data=data), run, command=["test"])
    assert "chosen on one validation set, and there are 2" in capsys.readouterr().err
    assert not (run / "length.json").exists()


def test_a_training_that_diverged_ends_without_a_choice(tmp_path, run, capsys):
    config = settings(tmp_path, 200)
    schedule = dataclasses.replace(config.training.schedule, peak=1e30, warmup_steps=1)
    training = dataclasses.replace(config.training, schedule=schedule, steps=4)
    fm.train(dataclasses.replace(config, training=training), run, command=["test"])
    said = capsys.readouterr().err
    assert "training has diverged" in said
    assert "search: keeps length_norm gnmt, length_penalty 0.6: with " in said
    assert not (run / "length.json").exists()


def test_a_candidate_is_better_by_the_share_of_resampled_texts():
    references = [f"the {number} old dogs sleep in the house" for number in range(40)]
    cut = [line.removesuffix(" in the house") for line in references]
    one_longer = [references[0], *cut[1:]]
    papers, same, whole, by_chance = _assessed(
        [cut, cut, references, one_longer], references, tokenizer="13a"
    )
    assert papers == same and papers.better == 0
    assert whole.bleu == pytest.approx(100) and whole.better == 1
    # A resample lacks one of 40 lines with a probability of (39 / 40) ** 40.
    assert by_chance.better == pytest.approx(1 - (39 / 40) ** 40, abs=0.05)
