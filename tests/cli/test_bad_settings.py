"""Wrong settings and arguments: one line that names them, no trace, nothing begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run, settings


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed=99999999999999999999999", "must be at most 2,147,483,647"),
        ("data.vocabulary.size=3000000000", "must be at most 2,147,483,647"),
        ("data.train.mine.size=3000000000", "'data.train.mine.size' = 3000000000 must be at most"),
        ("data.vocabulary.size=4", "must be at least 5: four marks and a piece"),
        ("data.train.a/b.src=x", "'data.train.a/b': a corpus's name may have letters"),
        ("data.train..src=x", "'data.train.': a corpus's name may have letters"),
        ("model.dropout=inf", "must be a finite number"),
        ("training.schedule.factor=nan", "must be a finite number"),
        ("training.steps=-5", "must be at least 1"),
        ("training.steps=", "'' is not of type int"),
        ("training.validate_every=0", "'training.patience' = 10 counts validations, and there are"),
        ("model.d_model=33", "must be even"),
        ("model=3", "is a group of settings"),
    ],
)
def test_wrong_values_are_named(run: Run, corpus: Path, override: str, message: str) -> None:
    done = run("config", *settings(corpus), f"--config.{override}")
    assert done.status == 2 and message in done.last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "--config.mesh.fsdp=2"], "changes a setting of which config? Give --config"),
        (["config", "--explain", "--config.mesh.fsdp=2"], "leave --config out"),
        (["config", "--explain", "--config", "files"], "leave --config out"),
    ],
)
def test_settings_of_no_config_are_refused(run: Run, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.status == 2 and message in done.last


@pytest.mark.parametrize("content", [b"\0\1\2\xff", "def get_config(v): pass".encode("utf-16")])
def test_a_config_file_that_is_no_text_is_named(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.py").write_bytes(content)
    done = run("config", "--config", tmp_path / "odd.py")
    assert done.status == 2 and f"error: {tmp_path / 'odd.py'}" in done.last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam-size", "0"], "'0' must be an integer from 1"),
        (["--beam-size", "-3"], "'-3' must be an integer from 1"),
        (["--n-best", "0"], "'0' must be an integer from 1"),
        (["--length-penalty", "nan"], "'nan' is no finite number of at least 0"),
        (["--length-penalty", "inf"], "'inf' is no finite number of at least 0"),
        (["--length-penalty", "-5"], "'-5' is no finite number of at least 0"),
        (["--weights", "9" * 5000], "write average, best, latest, auto, or a step's number"),
        (["--weights", "²"], "write average, best, latest, auto, or a step's number"),
    ],
)
def test_wrong_arguments_are_named(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("translate", "--workdir", tmp_path, *arguments)
    assert done.status == 2 and message in done.last


@pytest.mark.parametrize("count", ["0", "-1", "x", "9" * 5000])
def test_a_number_of_checkpoints_is_a_number(run: Run, tmp_path: Path, count: str) -> None:
    done = run("average", "--workdir", tmp_path, "--last", count)
    assert done.status == 2 and "must be an integer from 1" in done.last
