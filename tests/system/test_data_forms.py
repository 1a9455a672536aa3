"""A mixture, packed rows, sampled segmentations and a worker process: one run of `train`."""

from __future__ import annotations

from pathlib import Path

from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.system.conftest import SMALL, Run

FORMS = {
    **SMALL,
    "data.train.grammar.weight": 3.0,
    "data.train.files.weight": 1.0,
    "data.epoch_pairs": 300,
    "data.batch.form": "pack",
    "data.batch.window": 100,
    "data.batch.tokens": 2048,
    "data.vocabulary.sampling": 0.1,
    "data.train.grammar.size": 300,
    "data.valid.size": 20,
    "training.steps": 6,
    "training.log_every": 2,
    "training.validate_every": 6,
}


def arguments(corpus: Path, **changes: object) -> list[str]:
    settings = {
        **FORMS,
        "data.train.files.src": corpus / "train.en",
        "data.train.files.tgt": corpus / "train.de",
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return [
        *("--config", "quickstart"),
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def test_all_forms_together_train_stop_and_go_on(
    command: Run, corpus: Path, tmp_path: Path
) -> None:
    """In one go with a thread, and in two with a worker process: the same numbers."""
    shown = command("prepare", *arguments(corpus), "--workdir", tmp_path / "whole", "--inspect")
    assert shown.returncode == 0, shown.stderr
    assert "batch 10: " in shown.stdout and " ‖ " in shown.stdout
    whole = command("train", *arguments(corpus), "--workdir", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    parts = ["--workdir", tmp_path / "parts"]
    first = command("train", *arguments(corpus, training__steps=3, data__workers=1), *parts)
    assert first.returncode == 0, first.stderr
    second = command("train", *arguments(corpus, data__workers=1), *parts)
    assert second.returncode == 0, second.stderr
    assert "resuming after step 3" in second.stderr
    ends = [
        [
            (line["loss"], line["epoch"], line["padding"])
            for line in read_metrics(tmp_path / name / "metrics.jsonl")
            if line["kind"] == "train" and line["step"] == 6
        ]
        for name in ("whole", "parts")
    ]
    assert ends[0] == ends[1] and len(ends[0]) == 1
    assert ends[0][0][2] < 0.2  # packed, of some 20 rows
