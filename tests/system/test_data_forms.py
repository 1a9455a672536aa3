"""A mixture, packed rows, sampled segmentations and a worker process: one run of `train`."""

from __future__ import annotations

from pathlib import Path

from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.cli.conftest import Run, run
from tests.system.conftest import SMALL

__all__ = ["run"]


def test_all_forms_together_train_stop_and_go_on(run: Run, corpus: Path, tmp_path: Path) -> None:
    """In one go with a thread, and in two with a worker process: the same numbers."""
    settings = SMALL | {
        "data.train.grammar.weight": 3.0,
        "data.train.files.weight": 1.0,
        "data.train.files.src": corpus / "train.en",
        "data.train.files.tgt": corpus / "train.de",
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
    arguments = ["--config", "quickstart", *(f"--config.{k}={v}" for k, v in settings.items())]
    shown = run("prepare", *arguments, "--workdir", tmp_path / "whole", "--inspect")
    assert shown.status == 0, shown.errors
    assert "batch 10: " in shown.output and " ‖ " in shown.output
    assert run("train", *arguments, "--workdir", tmp_path / "whole").status == 0
    parts = [*arguments, "--config.data.workers=1", "--workdir", tmp_path / "parts"]
    assert run("train", *parts, "--config.training.steps=3").status == 0
    done = run("train", *parts)
    assert done.status == 0 and "resuming after step 3" in done.errors
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
