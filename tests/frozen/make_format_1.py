"""How `tests/frozen/format_1` was made. It is never made again: see `test_frozen_run.py`.

    python -m tests.frozen.make_format_1

A new format of the run directory gets a folder and a script of its own beside this one.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path

from flaxformer_mt.cli.main import main
from flaxformer_mt.decoding.translator import Translator

FOLDER = Path(__file__).parent / "format_1"
SENTENCES = ["We are going home.", "The old teacher has not bought the red car.", "", "Who sings?"]

# As small as a model can be that still has every part; it is not meant to translate well.
SETTINGS = {
    "data.train.grammar.size": 1000,
    "data.valid.size": 10,
    "data.test.grammar.size": 10,
    "data.vocabulary.size": 300,
    "data.batch.tokens": 1024,
    "data.batch.max_shapes": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "model.d_k": 16,
    "model.d_v": 16,
    "training.steps": 600,
    "training.schedule.peak": 0.01,
    "training.schedule.warmup_steps": 100,
    "training.log_every": 100,
    "training.validate_every": 600,
    "training.save_every": 600,
    "training.keep_latest": 1,
    "training.keep_for_average": 1,
}


def make() -> None:
    if FOLDER.exists():
        raise SystemExit(f"{FOLDER} is frozen: a later version must read it as it is")
    # A relative path, since the run directory records the command line.
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        run = Path("run")
        overrides = [f"--config.{key}={value}" for key, value in SETTINGS.items()]
        assert main(["train", "--config", "quickstart", *overrides, "--workdir", str(run)]) == 0
        for name in ("tensorboard", "lock", "samples"):
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        translations = Translator.load(run, which="latest").translate(SENTENCES, n_best=2)
        expected = [
            {
                "source": source,
                "hypotheses": [{"text": h.text, "score": h.score} for h in translation.hypotheses],
            }
            for source, translation in zip(SENTENCES, translations, strict=True)
        ]
        for note in run.rglob("commit_success.txt"):
            note.write_text(note.read_text().replace(f"{Path.cwd()}/", ""))
        shutil.copytree(run, FOLDER)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    make()
