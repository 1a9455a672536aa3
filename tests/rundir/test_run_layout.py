"""The run directory's paths, its record and status, and what its errors say."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flaxformer_mt import versions
from flaxformer_mt.rundir import RunDirectoryError, WorkdirError
from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average
from flaxformer_mt.rundir.layout import (
    FORMAT_VERSION,
    RunDirectory,
    Status,
    create,
    open_run,
    read_record,
    read_status,
    record_start,
    write_status,
)
from flaxformer_mt.rundir.weights import load_params
from tests.rundir.snapshots import save, snapshot

CONFIG = {"name": "test", "model": {"d_model": 512, "dropout": 0.1}, "freeze": ["encoder/*"]}


def test_a_run_s_place_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(Path("run"))
    monkeypatch.chdir("/")
    assert run.path == tmp_path / "run"


@pytest.fixture
def new_run(tmp_path):
    return create(tmp_path / "new" / "run", CONFIG, ["flaxformer-mt", "train"])


def test_a_new_run_holds_its_record_alone(new_run):
    assert open_run(new_run.path) == new_run
    assert os.listdir(new_run.path) == ["config.json"]
    assert list(json.loads(new_run.config_file.read_text())) == [
        *("format_version", "config", "starts")
    ]


def test_the_record_has_the_config_and_how_the_run_was_started(new_run):
    record = read_record(new_run)
    assert record.config == CONFIG
    assert record.format_version == FORMAT_VERSION
    (start,) = record.starts
    assert start.command_line == ("flaxformer-mt", "train")
    assert start.packages["jax"] and start.packages["numpy"]
    assert start.python == ".".join(map(str, sys.version_info[:3]))


def test_a_later_start_is_added_with_its_config(new_run):
    record_start(new_run, CONFIG | {"name": "other"}, ["second"])
    record = read_record(new_run)
    assert [start.command_line[-1] for start in record.starts] == ["train", "second"]
    assert record.config["name"] == "other"


def test_a_status_is_read_back(new_run):
    assert read_status(new_run) is None
    failed = Status(state="failed", step=7, reason="loss was not finite")
    write_status(new_run, failed)
    assert read_status(new_run) == failed
    assert {*os.listdir(new_run.path)} == {"config.json", "status.json"}


REFUSED = ("lr[0.1]", "a[", "a*", "a?", "a\\b", "gs:", "logs:", os.fsdecode(b"\xff"))


@pytest.mark.parametrize("name", REFUSED)
def test_a_path_below_which_no_checkpoint_could_be_read_is_refused(tmp_path, saved, name):
    """Orbax merges a checkpoint's parts by a glob, and TensorStore reads another path."""
    with pytest.raises(WorkdirError, match="can't be stored below a .*rename that folder"):
        create(tmp_path / name / "run", CONFIG, [])
    assert not (tmp_path / name).exists()
    with pytest.raises(WorkdirError, match="can't be stored below"):
        save(RunDirectory(tmp_path / name / "run"), snapshot(1))

    # A run that was moved there is not taken for damaged.
    saved(snapshot(1))
    shutil.copytree(tmp_path / "run", tmp_path / name / "run")
    moved = RunDirectory(tmp_path / name / "run")
    if {*name} & {*"[*?"}:
        load_params(moved, 1)
    else:
        with pytest.raises(WorkdirError, match="can't be stored below"):
            load_params(moved, 1)


def test_below_any_other_path_a_checkpoint_can_be_read(tmp_path):
    characters = {chr(number) for number in range(1, 128)} - {*"/[*?\\"}
    name = "~" + "".join(sorted(characters)) + "é中\u2028😀%20#:&"
    run = create(tmp_path / name / " a " / "run", CONFIG, [])
    save(run, snapshot(1))
    write_average(run, *average_checkpoints(run, 1))
    assert load_params(run, 1).keys() == load_params(run, "average").keys()


def test_a_run_is_not_made_over_another_nor_of_what_is_no_json(tmp_path):
    run = create(tmp_path / "run", CONFIG, [])
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        create(run.path, CONFIG, [])
    run.checkpoints.mkdir()
    run.config_file.unlink()
    with pytest.raises(RunDirectoryError, match=r"checkpoints but no config\.json"):
        create(run.path, CONFIG, [])
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="is a file; choose"):
        create(tmp_path / "file", CONFIG, [])
    with pytest.raises(RunDirectoryError, match="Not a directory"):
        create(tmp_path / "file" / "run", CONFIG, [])


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "no such directory; check the path"),
        (lambda path: path.write_text("x"), "is a file, not a run directory"),
        (lambda path: path.mkdir(), r"not a run directory: config\.json is missing"),
    ],
)
def test_what_is_no_run_directory_cannot_be_opened(tmp_path, prepare, message):
    path = tmp_path / "run"
    prepare(path)
    with pytest.raises(RunDirectoryError, match=f"{path}: {message}"):
        open_run(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config", b'{"format_version": 99}', "format version 99: upgrade flaxformer-mt"),
        ("config", b"[]", r"config\.json: is not valid \(TypeError"),
        ("config", b'{"format_version": 1, "config": {}}', r"is not valid \(KeyError: 'starts'"),
        ("config", b'{\n"format_version": 1,\n', r"config\.json:3: is not JSON.*restore it from a"),
        ("status", b"{}", "is not valid.*delete it"),
        ("status", b"[]", "is not valid"),
        ("status", b'{"state"', r"status\.json:1: is not JSON.*; delete it"),
    ],
)
def test_a_bad_record_or_status_says_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / f"{name}.json").write_bytes(content)
    with pytest.raises(RunDirectoryError, match=message):
        (open_run if name == "config" else read_status)(RunDirectory(tmp_path))


def test_directories_without_rights_are_named():
    """Seen as another user where the tests are root's."""
    actions = {
        "is not writable; choose another directory": (0o555, ".", lambda p: create(p, {}, [])),
        "cannot create a run .*: Permission": (0o000, "run", lambda p: create(p, {}, [])),
        "cannot be read: Permission denied": (0o000, "run", open_run),
    }
    user = os.getuid()
    # Not below `tmp_path`, which no other user may enter.
    with tempfile.TemporaryDirectory() as folder:
        for message, (mode, name, action) in actions.items():
            os.chmod(folder, mode)
            os.setresuid(user or 65534, user or 65534, user)
            try:
                with pytest.raises(RunDirectoryError, match=message):
                    action(Path(folder, name))
            finally:
                os.setresuid(user, user, user)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, "-C", folder, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def checkout(tmp_path):
    """A committed package in a repository."""
    package = tmp_path / "flaxformer_mt"
    package.mkdir()
    (package / "code.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return package


@needs_git
def test_without_a_commit_there_is_none(tmp_path):
    assert versions.git_commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert versions.git_commit(tmp_path) is None, "no commit yet"


@needs_git
def test_the_commit_is_that_of_the_packages_own_checkout(checkout, monkeypatch):
    commit = git(checkout.parent, "rev-parse", "HEAD")
    assert versions.git_commit(checkout) == commit
    (checkout / "code.py").write_text("2")
    assert versions.git_commit(checkout) == f"{commit}-dirty"
    monkeypatch.setenv("FLAXFORMER_COMMIT", "1" * 40)
    assert versions.git_commit(checkout) == f"{commit}-dirty", "a checkout knows better"


@needs_git
def test_of_a_package_installed_in_somebody_s_checkout_the_commit_is_what_it_was_told(
    checkout, monkeypatch
):
    installed = checkout.parent / "venv" / "site-packages" / "flaxformer_mt"
    installed.mkdir(parents=True)
    assert versions.git_commit(installed) is None
    monkeypatch.setenv("FLAXFORMER_COMMIT", "1" * 40)
    assert versions.git_commit(installed) == "1" * 40, "a copy that was told what it is"


@needs_git
def test_without_git_there_is_no_commit(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versions.git_commit(checkout) is None
