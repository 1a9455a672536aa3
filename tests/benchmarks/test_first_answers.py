"""What is timed of the first answers, on the demo's model and a few lines."""

import json

import pytest

import flaxformer_mt as fm
from benchmarks import first_answers
from benchmarks.first_answers import (
    CommandFailed,
    Shell,
    all_commands,
    main,
    mistakes,
    write_scored,
)
from flaxformer_mt.cli.main import COMMANDS

NAMES = (
    "one_sentence_cold",
    "one_sentence_warm",
    "quickstart_3_lines_cold",
    "quickstart_3_lines_warm",
    "evaluate_hypotheses",
    "slowest_wrong_flag",
)


def test_every_answer_is_timed(tmp_path):
    fm.demo_run(tmp_path / "run")
    sizes = ["--rounds", "1", "--commands", "config", "--scored", "20", "--lines", "3"]
    folders = ["--workdir", tmp_path / "new", "--run", tmp_path / "run", "--result", tmp_path]
    assert main([*map(str, folders), *sizes]) == 0
    result = json.loads((tmp_path / "first_answers.json").read_text())
    kinds = ("seconds", "processor_seconds")
    assert [*result["metrics"]] == [f"{name}_{kind}" for kind in kinds for name in NAMES]
    assert all(seconds > 0 for seconds in result["metrics"].values())
    assert result["details"]["slowest_wrong_flag"] in ("config --help", "config --no-such-flag")


def test_the_commands_are_all_that_there_are(tmp_path):
    assert all_commands() == [*COMMANDS]
    arguments = [words for words, _ in mistakes(all_commands(), tmp_path)]
    assert {words[0] for words in arguments} == {*COMMANDS}
    assert len(arguments) == 2 * len(COMMANDS) + 5


def test_hypotheses_are_lines_made_worse(tmp_path):
    hypotheses, references = (
        file.read_text().splitlines() for file in write_scored(tmp_path, lines=200)
    )
    assert len(hypotheses) == len(references) == 200
    same = sum(map(str.__eq__, hypotheses, references))
    assert 0 < same < 60


def test_a_command_that_fails_is_named(tmp_path):
    with pytest.raises(CommandFailed, match=r"config --no: exit status 2: .*unrecognized arg"):
        Shell(tmp_path, 1).timed("config", "--no")


def test_a_run_that_is_there_is_not_written_over(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    with pytest.raises(SystemExit):
        main(["--workdir", str(tmp_path)])
    assert "run exists: name it with --run" in capsys.readouterr().err


def test_the_whole_quickstart_is_timed_with_nothing_compiled(tmp_path, monkeypatch):
    calls = []

    def timed(self, *words, text="", status=0):
        calls.append((words[0], self.cache.exists()))
        self.cache.mkdir(exist_ok=True)
        return first_answers.Timing(1.0, 2.0)

    monkeypatch.setattr(Shell, "timed", timed)
    times = first_answers.measured(tmp_path, None, rounds=3, commands=["config"], scored=5, lines=5)
    assert ("quickstart", False) in calls
    assert times.metrics()["quickstart_whole_seconds"] == 1.0
    assert calls.count(("translate", False)) == 2
