"""A run directory of format version 1, as it was written once: it must load in every version.

If this fails, the code has lost the ability to read what users have on their disks. Mend the
code; the folders are never made again: `train --config quickstart`, with the settings in their
config.json, made them, and `Translator.translate` what is in expected.json. A new format gets a
folder of its own beside them.
"""

import json
import shutil
from pathlib import Path

import pytest

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.rundir.layout import open_run, read_record
from tests.conftest import ROOT

FROZEN = ROOT / "tests" / "frozen"


# The second was made before `model.position_scale`: its positions have no factor.
@pytest.fixture(params=["format_1", "format_1_learned_positions"])
def frozen(request, tmp_path) -> Path:
    return Path(shutil.copytree(FROZEN / request.param, tmp_path / "run"))


def test_it_translates_as_it_did(frozen):
    assert read_record(open_run(frozen)).format_version == 1
    expected = json.loads((frozen / "expected.json").read_text())
    translator = Translator.load(frozen, which="latest")
    translations = translator.translate([item["source"] for item in expected], n_best=2)
    for item, translation in zip(expected, translations, strict=True):
        assert [h.text for h in translation.hypotheses] == [h["text"] for h in item["hypotheses"]]
        scores = [h["score"] for h in item["hypotheses"]]
        # Another machine's or library's float32 sums differ in the last digits.
        assert [h.score for h in translation.hypotheses] == pytest.approx(scores, rel=1e-4)


def test_training_goes_on_from_it(frozen, run):
    finished = run("train", "--workdir", frozen)
    assert finished.status == 0 and "nothing to do" in finished.errors
    done = run("train", "--workdir", frozen, "--config.training.steps=602", status=0)
    assert "resuming after step 600" in done.errors and "finished at step 602" in done.errors
