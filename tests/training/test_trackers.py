"""What TensorBoard, W&B and MLflow get of a run, and what becomes of one that fails."""

import functools
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

import flaxformer_mt as fm
from flaxformer_mt.config import ConfigError
from flaxformer_mt.data.corpus.shards import read_tfrecord
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training import trackers as tested
from flaxformer_mt.training.telemetry import TIMES
from flaxformer_mt.training.trackers import (
    Board,
    Mlflow,
    Sample,
    TrackerError,
    Trackers,
    _mlflow_name,
    as_text,
)
from tests.conftest import made_once
from tests.system.conftest import make

SAMPLES = [Sample("Who sings ?", "Wer singt ?", "Wer <b> singt ?")]


def events(folder: Path) -> Iterator[Event]:
    """In the order of the files' names."""
    for path in sorted(folder.iterdir()):
        yield from map(Event.FromString, read_tfrecord(path))


def seen(folder: Path) -> list[tuple[str, int, float]]:
    """What TensorBoard shows: the start of a session hides what earlier ones had from its step."""
    scalars: list[tuple[str, int, float]] = []
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            scalars = [value for value in scalars if value[1] < event.step]
        scalars += [
            (value.tag, event.step, value.simple_value)
            for value in event.summary.value
            if value.HasField("simple_value")
        ]
    return scalars


def test_a_report_is_in_the_file_once_it_is_shown(tmp_path: Path) -> None:
    """Read while the writer is open, as another machine would if this one were lost now."""
    board = Board(tmp_path / "board", "the = config")
    board.rewind(7)
    assert not (tmp_path / "board").exists(), "a run that reports nothing leaves nothing"
    for step in range(8, 58):
        board.show(step, {"loss": 0.5 * step, "skipped": 0})
        assert seen(tmp_path / "board")[-2:] == [("loss", step, 0.5 * step), ("skipped", step, 0.0)]
    board.close()
    version, start, config, *_ = events(tmp_path / "board")
    assert text_of(config) == ("config", "    the = config\n")
    assert version.file_version == "brain.Event:2" and version.wall_time > 1.6e9
    assert start.session_log.status == SessionLog.START and start.step == 8


@pytest.mark.parametrize("restarted", [False, True])
def test_steps_that_are_done_again_are_shown_once(tmp_path: Path, restarted: bool) -> None:
    board = Board(tmp_path, "")
    for step in (2, 4, 6):
        board.show(step, {"loss": float(step)})
    if restarted:
        board.close()
        board = Board(tmp_path, "")
    board.rewind(3)
    for step in (4, 6, 8):
        board.show(step, {"loss": 10.0 * step})
    board.close()
    by_step = {step: value for _, step, value in seen(tmp_path)}
    assert by_step == {2: 2.0, 4: 40.0, 6: 60.0, 8: 80.0} and len(seen(tmp_path)) == 4


def test_writers_of_one_second_empty_no_file_of_another(tmp_path: Path) -> None:
    for step in range(1, 13):
        board = Board(tmp_path, "")
        board.rewind(step - 1)
        board.show(step, {"loss": 1.0})
        board.close()
    assert [step for _, step, _ in seen(tmp_path)] == list(range(1, 13))


def text_of(event: Event) -> tuple[str, str]:
    """Name and content of a text, ("", "") of anything else."""
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "text":
            return value.tag.removesuffix("/text_summary"), value.tensor.string_val[0].decode()
    return "", ""


class Recorder:
    """A tracker that keeps what it gets, and takes nothing while it is `down`."""

    def __init__(self) -> None:
        self.down = False
        self.tries = 0
        self.got: list[tuple[Any, ...]] = []

    def _take(self, *call: Any) -> None:
        self.tries += 1
        if self.down:
            raise ConnectionError("no network")
        self.got.append(call)

    def __getattr__(self, name):
        return functools.partial(self._take, name)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that trackers see: its one item."""
    seconds = [1000.0]
    monkeypatch.setattr(tested.time, "monotonic", lambda: seconds[0])
    return seconds


def test_what_a_tracker_does_not_take_waits_in_order_and_the_others_go_on(clock):
    said: list[str] = []
    ill, well = Recorder(), Recorder()
    with Trackers(said.append) as trackers:
        trackers.add("ill", ill)
        trackers.add("well", well)
        trackers.show(1, {"a": 1})
        ill.down = True
        trackers.show(2, {"a": 2})
        trackers.samples(2, SAMPLES)
        assert said == ["ill: no network; it gets the missing reports later"]
        trackers.rewind(1)
        assert ill.tries == 2, "it is left alone for a minute"
        clock[0] += 60
        trackers.show(2, {"a": 3})
        clock[0] += 119  # the next pause is twice as long
        trackers.show(3, {"a": 4})
        assert ill.tries == 3 and len(said) == 1
        ill.down = False
        clock[0] += 1
        trackers.show(4, {"a": 5})
        assert said[1:] == ["ill: up to date again"]
        trackers.state = "finished"
    expected = [
        ("show", 1, {"a": 1}),
        ("show", 2, {"a": 2}),
        ("samples", 2, SAMPLES),
        ("rewind", 1),
        ("show", 2, {"a": 3}),
        ("show", 3, {"a": 4}),
        ("show", 4, {"a": 5}),
        ("close", "finished"),
    ]
    assert ill.got == well.got == expected and len(said) == 2


def test_what_never_arrived_is_counted_and_an_error_of_training_is_its_own(clock):
    said: list[str] = []
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), Trackers(said.append) as trackers:
        trackers.add("x", recorder)
        recorder.down = True
        for step in (1, 2, 3):
            trackers.show(step, {})
        raise ZeroDivisionError
    assert said[1:] == [
        "x: 3 reports never arrived; metrics.jsonl has their numbers",
        "x: can't be closed: no network",
    ]
    failed = Recorder()
    with pytest.raises(KeyboardInterrupt), Trackers(said.append) as trackers:
        trackers.add("x", failed)
        raise KeyboardInterrupt
    assert failed.got == [("close", "failed")]


def test_a_file_that_is_torn_is_left_for_a_new_one(tmp_path, monkeypatch):
    board = Board(tmp_path, "")
    board.show(8, {"loss": 1.0})
    full = mock.Mock(side_effect=OSError("no space left"))
    monkeypatch.setattr(board._writer, "flush", full)
    with pytest.raises(OSError, match="no space"):
        board.show(9, {"loss": 2.0})
    board.show(9, {"loss": 3.0})
    board.close()
    assert seen(tmp_path) == [("loss", 8, 1.0), ("loss", 9, 3.0)]


def test_a_misspelt_tracker_gets_a_hint():
    with pytest.raises(ConfigError, match="has 'tensorbord'; did you mean 'tensorboard'"):
        fm.load_config("quickstart", {"training.trackers": "mlflow,tensorbord"})


def test_no_metric_of_mlflow_s_is_below_another():
    """Its store of files has a file for each, by its name."""
    names = ["valid/bleu", "valid/bleu/en_de", "best/bleu/en_de", "learning_rate"]
    assert [*map(_mlflow_name, names)] == [
        "valid/bleu",
        "valid/bleu.en_de",
        "best/bleu.en_de",
        "learning_rate",
    ]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_an_error_before_there_is_a_run(name, tmp_path, monkeypatch):
    """Also where a folder of that name is found, as W&B leaves behind."""
    train, config = fm.train, fm.load_config("quickstart", {"training.trackers": name})
    (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("FLAXFORMER_PROGRAM", "launch/local.sh")
    message = f"{name}' is not installed: write FLAXFORMER_EXTRAS={name} before launch/local"
    with pytest.raises(TrackerError, match=message):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """A copy of a run of 20 steps, which TensorBoard alone has followed."""
    return RunDirectory(shutil.copytree(made_once("trained", make) / "run", tmp_path / "run"))


def test_no_tracker_leaves_what_there_was(run):
    before = sorted(run.tensorboard.iterdir())
    texts = [event for event in events(run.tensorboard) if text_of(event)[0] == "samples"]
    assert [event.step for event in texts] == [10, 20]
    lines = (run.samples / "step-20.txt").read_text().splitlines()
    assert text_of(texts[1])[1].splitlines() == [f"    {line}" for line in lines]
    config = fm.load_config(run.path, {"training.steps": 25, "training.trackers": ""})
    assert fm.train(config, run.path).state == "finished"
    assert sorted(run.tensorboard.iterdir()) == before and not (run.path / "wandb").exists()


def numbers(run: RunDirectory, first: int, last: int) -> dict[tuple[str, int], Any]:
    """By tag and step what `metrics.jsonl` has of these steps, but for times."""
    return {
        (f"{line['kind']}/{name}", line["step"]): pytest.approx(value, nan_ok=True)
        for line in read_metrics(run.metrics)
        if first <= line["step"] <= last
        for name, value in line.items()
        if name not in TIMES | {"kind", "step"}
    }


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline run's file: a log in LevelDB's form after seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left_in_block = 32768 - place % 32768
        if left_in_block < 7:
            place += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield Record.FromString(record)
            record = b""


@pytest.fixture(scope="module")
def tracked(tmp_path_factory) -> Iterator[RunDirectory]:
    """A run that failed after step 20, went on to 25 and 30, and from 25 once more, to 35.

    The packages themselves have followed it: offline W&B writes files, MLflow its local database.
    """
    for package in ("wandb", "mlflow"):
        pytest.importorskip(package, reason=f"needs the extra [{package}]")
    folder = tmp_path_factory.mktemp("tracked")
    run = RunDirectory(shutil.copytree(made_once("trained", make) / "run", folder / "en-de"))
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
            patch.delenv(variable)
        patch.setenv("WANDB_MODE", "offline")
        patch.chdir(folder)
        with pytest.raises(LookupError):
            go_on(run, 25, on_report=lambda report: {}[report["step"]])
        ids = run.trackers_file.read_text()
        go_on(run, 25)
        go_on(run, 30)
        shutil.rmtree(run.checkpoints / "30")
        go_on(run, 35)
        assert run.trackers_file.read_text() == ids
        yield run


def go_on(run: RunDirectory, steps: int, trackers: str = "wandb,mlflow", **others: Any) -> None:
    changes = {"training.steps": steps, "training.trackers": trackers}
    fm.train(fm.load_config(run.path, changes), run.path, **others)


def id_of(run: RunDirectory, tracker: str) -> str:
    return json.loads(run.trackers_file.read_text())[tracker]


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore")  # what the packages say of themselves is theirs to mend
def test_wandb_has_all_of_a_run_under_one_id(tracked):
    files = sorted((tracked.path / "wandb").glob("*-run-*/*.wandb"))
    records = [record for file in files for record in wandb_records(file)]
    starts = [record.run for record in records if record.HasField("run")]
    assert {start.run_id for start in starts} == {id_of(tracked, "wandb")}
    assert (starts[0].project, starts[0].display_name) == ("flaxformer-mt", "en-de")
    statuses = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert statuses == [1, 0, 0, 0]
    config = {item.key: json.loads(item.value_json) for item in starts[-1].config.update}
    assert config["training"]["steps"] == 35 and config["model"]["d_model"] == 32
    summary = {
        (item.key or "/".join(item.nested_key), record.history.step.num): json.loads(
            item.value_json
        )
        for record in records
        for item in record.history.item
    }
    expected = numbers(tracked, 21, 35)
    assert {step for _, step in expected} == {25, 30, 35}
    assert expected.items() <= summary.items()
    table = json.loads((files[-1].parent / "files" / summary["samples/path", 35]).read_text())
    assert table["columns"] == ["source", "reference", "hypothesis"]
    samples = (tracked.samples / "step-35.txt").read_text()
    assert as_text([Sample(*row) for row in table["data"]]) == samples


def client_of(run: RunDirectory) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{run.path / 'mlflow' / 'mlflow.db'}")


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_its_files_in_the_run_directory(tracked):
    """Wherever `train` is called."""
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["en-de"]
    assert {path.name for path in (tracked.path / "mlflow").iterdir()} == {"artifacts", "mlflow.db"}


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_copied_run_leaves_the_files_of_the_first_alone(tracked, tmp_path):
    copy = RunDirectory(shutil.copytree(tracked.path, tmp_path / "copy"))
    before = sorted(tracked.path.rglob("*"))
    with pytest.warns(UserWarning, match="mlflow: the run directory has moved from "):
        again = Mlflow(copy, fm.load_config(copy.path), id_of(copy, "mlflow"))
    again.samples(99, [Sample("a", "b", "c")])
    again.show(99, {"train/loss": 1.0})
    assert sorted(tracked.path.rglob("*")) == before
    history = client_of(copy).get_metric_history(id_of(copy, "mlflow"), "train/loss")
    assert 99 in {row.step for row in history}


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore")
def test_what_earlier_versions_left_in_the_current_folder_stays_in_use(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs the extra [mlflow]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = RunDirectory(tmp_path / "run")
    assert tested._mlflow_folder(run) == tmp_path / "run" / "mlflow"
    Path("mlflow.db").touch()
    assert tested._mlflow_folder(run) is None
    Path("mlflow.db").unlink()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    assert tested._mlflow_folder(run) is None


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_all_of_a_run_under_one_id(tracked):
    client, name = client_of(tracked), id_of(tracked, "mlflow")
    experiment = client.get_experiment_by_name("flaxformer-mt")
    (tracked_run,) = client.search_runs([experiment.experiment_id])
    assert (tracked_run.info.run_id, tracked_run.info.run_name) == (name, "en-de")
    assert tracked_run.info.status == "FINISHED"
    histories = [
        metric
        for tag in tracked_run.data.metrics
        for metric in client.get_metric_history(name, tag)
    ]
    by_step = {(metric.key, metric.step): metric.value for metric in histories}
    assert len(by_step) == len(histories), "no step twice"
    assert numbers(tracked, 21, 35).items() <= by_step.items()
    parameters = tracked_run.data.params
    assert parameters["training.steps"] == "25" and parameters["model.norm"] == "post"

    def content(file: str) -> str:
        return Path(client.download_artifacts(name, file)).read_text()

    assert json.loads(content("config.json"))["training"]["steps"] == 35
    samples = (tracked.samples / "step-35.txt").read_text()
    assert content("samples/step-35.txt") == samples
    again = Mlflow(tracked, fm.load_config(tracked.path), name)
    for state, status in (("stopped", "KILLED"), ("failed", "FAILED"), ("finished", "FINISHED")):
        again.close(state)
        assert client.get_run(name).info.status == status


@pytest.mark.parametrize("content", [[], "abc", 3, {"wandb": 3}, {"mlflow": None}], ids=str)
def test_a_file_of_ids_of_another_shape_is_named(tmp_path, content):
    run = RunDirectory(tmp_path)
    run.trackers_file.write_text(json.dumps(content))
    with Trackers(print) as trackers, pytest.raises(TrackerError, match="trackers.json: is not an"):
        trackers.open(run, tmp_path / "board", fm.load_config("quickstart"))


@pytest.mark.trackers
@pytest.mark.filterwarnings("ignore")
def test_a_run_that_a_tracker_has_lost_is_an_error_that_names_the_file(tracked):
    ids = tracked.trackers_file
    recorded = ids.read_text()
    ids.write_text(json.dumps({"mlflow": "0" * 32}))
    with pytest.raises(TrackerError, match=f"mlflow: the run can't be opened: .*{ids} has its id"):
        go_on(tracked, 40, "mlflow")
    ids.write_text(recorded)
