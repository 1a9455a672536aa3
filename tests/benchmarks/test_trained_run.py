"""What a result says of the training behind it, which may be older than what scored it."""

import dataclasses
import json
import lzma
import signal
import time

import pytest

from benchmarks import craft, europarl, tatoeba, trained_run
from benchmarks.readme_tables import render_section
from flaxformer_mt.config import load_config
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.reproduction.result_file import read_result
from flaxformer_mt.rundir.layout import FORMAT_VERSION, RunDirectory, RunRecord, Start
from flaxformer_mt.training.signals import StopRequest

TRAINED, SCORED = "1" * 40, "2" * 40


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that other code trained, in two starts, than there is now to score it."""
    found = RunDirectory(tmp_path / "run")
    found.evaluation.mkdir(parents=True)
    code = {"command_line": ("train",), "python": "3.12.0", "packages": {}, "git_commit": TRAINED}
    starts = tuple(Start(time=f"2026-01-0{day}T00:00:00", **code) for day in (1, 2))
    record = RunRecord(format_version=FORMAT_VERSION, config={}, starts=starts)
    found.config_file.write_text(json.dumps(dataclasses.asdict(record)))
    reports = [
        {"kind": "train", "step": step, "tgt_tokens_per_second": rate, "data_wait": wait}
        for step, rate, wait in ((1, 10.0, 0.5), (2, 30.0, 0.1), (3, 20.0, 0.2))
    ]
    reports += [
        {"kind": "valid", "step": step, "perplexity": perplexity, "training_seconds": 2.5 * step}
        for step, perplexity in ((2, 4.0), (3, 4.5))
    ]
    found.metrics.write_text("".join(json.dumps(line) + "\n" for line in reports))
    for name in ("test", "valid"):
        scores = {"metrics": {"chrf": 50.0}, "signatures": {"chrf": "nc:6"}}
        (found.evaluation / f"{name}.json").write_text(json.dumps(scores))
        (found.evaluation / f"{name}.hyp.txt").write_text(f"scored on {name}\n")
    monkeypatch.setattr("flaxformer_mt.reproduction.result_file.git_commit", lambda: SCORED)
    monkeypatch.setattr("flaxformer_mt.reproduction.result_file.package_versions", dict)
    for module in (trained_run, craft):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    return found


def test_a_result_names_the_code_that_trained_its_run(run):
    path = run.path.parent / "some.json"
    trained_run.record(run, path, command="python", config="quickstart", test="test")
    result = read_result(path)
    assert result.commit == SCORED
    assert json.loads(result.details["trained_by"]) == [{"commit": TRAINED, "packages": {}}]
    assert (
        "\nTrained by 1111111111; measured by 2222222222. Training: 2 starts, 2026-01-01T00:00:00 "
        "to 2026-01-02T00:00:00; the machine is that of the process that scored.\n"
    ) in render_section(result)
    for name in ("test", "valid"):
        kept = lzma.decompress((run.path.parent / f"some.{name}.hyp.xz").read_bytes())
        assert kept.decode() == f"scored on {name}\n"
    numbers = {"valid_perplexity": 4.0, "steps": 3, "target_tokens_per_second": 20.0}
    assert result.metrics.items() >= (numbers | {"data_wait": 0.2}).items()
    assert result.seconds == 7.5
    # Code of several runs is named once.
    found = trained_run.training_details(run, run)
    assert len(json.loads(found["trained_by"])) == 1
    assert found["training"].startswith("4 starts, 2026-01-01T00:00:00 to 2026-01-02T00:00:00; ")


def test_a_parsers_result_does_as_well(run, monkeypatch):
    monkeypatch.setattr(craft, "linearized", lambda *_: None)
    monkeypatch.setattr(craft, "trained", lambda *_, **__: run)
    monkeypatch.setattr(craft, "parsed", lambda *_: {"f1": 90.0})
    text = run.path.parent / "text"
    text.mkdir()
    (text / "test.out").write_text("(S XX )S\n")
    assert craft.main(["--treebank", "FOLDER", "--workdir", str(text.parent)]) == 0
    assert (text.parent / "craft.test.hyp.xz").exists()
    result = read_result(run.path.parent / "craft.json")
    assert json.loads(result.details["trained_by"]) == [{"commit": TRAINED, "packages": {}}]


EUROPARL = {"europarl": "europarl", "europarl_newstest2014": "newstest2014"}


@pytest.mark.parametrize(
    ("benchmark", "spec", "names", "more"),
    [
        (tatoeba, "tatoeba", {"tatoeba": "tatoeba_test_v2021_08_07"}, ""),
        (europarl, "europarl", EUROPARL, " --seconds 9 --config.training.steps=7"),
    ],
)
def test_a_corpus_is_trained_and_scored_on_its_test_sets(
    run, monkeypatch, benchmark, spec, names, more
):
    scored: list[str] = []

    def trains(workdir, asked, overrides, *, seconds, **_):
        changed = ["training.steps=7"] if more else []
        assert (workdir, asked, overrides) == ("DIR", spec, ["data.folder=FOLDER", *changed])
        assert seconds == (9.0 if more else None)
        return run

    def evaluates(arguments, *_):
        said = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert said["--workdir"] == str(run)
        assert said["--set"] == "valid" or said["--folder"] == "FOLDER"
        bleu = {"sacrebleu_13a": 30.0, "bleu_paper": 31.0}
        scores = {"metrics": {"chrf": 50.0 + len(scored), **bleu}, "signatures": {}}
        scored.append(said["--set"])
        (run.evaluation / f"{said['--set']}.json").write_text(json.dumps(scores))
        (run.evaluation / f"{said['--set']}.hyp.txt").write_text("a\n")

    monkeypatch.setattr(trained_run, "read_pairs", lambda *_, **__: iter(()))
    monkeypatch.setattr(trained_run, "trained", trains)
    monkeypatch.setattr(trained_run.evaluate, "main", evaluates)
    assert benchmark.main(["--data", "FOLDER", "--workdir", "DIR", *more.split()]) == 0
    assert scored == ["valid", *names.values()]
    tests = [test.name for test in load_config(spec).data.test]
    for place, (name, test) in enumerate(names.items(), start=1):
        result = read_result(run.path.parent / f"{name}.json")
        assert test in tests
        assert result.metrics["chrf"] == 50 + place and result.metrics["valid_chrf"] == 50
        command = f"python -m {benchmark.__name__} --data FOLDER --workdir DIR{more}"
        assert result.command == command


def test_training_is_stopped_after_its_seconds_and_what_comes_before_is_not():
    before = signal.getsignal(signal.SIGTERM)
    with trained_run.stopped_after(0.05):
        time.sleep(0.2)  # prepares
        with StopRequest() as stop:
            while stop.received is None:
                time.sleep(0.01)
        time.sleep(0.2)  # saves
    assert stop.received == "SIGTERM" and signal.getsignal(signal.SIGTERM) is before


def test_a_test_set_that_is_not_there_is_named_before_training(tmp_path, monkeypatch):
    for side in ("en", "fr"):
        with lzma.open(tmp_path / f"test.{side}.xz", "wt") as file:
            file.write("a\n")
    monkeypatch.setattr(trained_run, "trained", lambda *_, **__: pytest.fail("it trains"))
    with pytest.raises(CorpusError, match=r"newstest2014\.en-fr\.en\.xz"):
        europarl.main(["--data", str(tmp_path), "--workdir", "DIR"])
