"""The study of one's own data: what trains when, what a trial has spent, and what is counted.

Generated text and made-up scores; nothing is trained here.
"""

import dataclasses
import json
import os
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks.own_data import __main__ as command, timed as timing, trial as trials
from benchmarks.own_data.corpora import CORPORA, Corpus, written
from benchmarks.own_data.peers import PEERS
from benchmarks.own_data.queue_of_trials import Stage, Trial, eliminated, pending, plan
from benchmarks.own_data.record import CELLS, Cell, bootstrap, chosen, judged, metrics
from benchmarks.own_data.scoring import scores
from benchmarks.own_data.settings import SETTINGS, halved
from benchmarks.own_data.timed import Course, Spent, timed
from benchmarks.own_data.trial import Interrupted, Study, run_trial
from benchmarks.peer_environments import EnvironmentMissing, Environments
from flaxformer_mt.config import read_config
from flaxformer_mt.reproduction.result_file import read_hypotheses, read_result

SMALL, FIRST = "multi30k_3000", "multi30k_10000"
NAMES = list(SETTINGS)


def test_there_are_26_cells_and_16_settings_that_the_config_takes():
    assert len(CELLS) == 26
    assert len({setting for setting in SETTINGS.values()}) == 16
    for setting in SETTINGS.values():
        read_config("files:tiny", setting.overrides())


def test_halving_keeps_the_best_by_dev_and_of_equals_the_first():
    dev = dict.fromkeys(NAMES, 1.0) | {NAMES[9]: 3.0, NAMES[4]: 2.0}
    assert halved(dev, 20) == (NAMES[9], NAMES[4], NAMES[0], NAMES[1])
    assert halved({NAMES[0]: 5.0, NAMES[3]: 5.5, NAMES[2]: 5.0}, 60) == (NAMES[3], NAMES[0])


def test_a_longer_time_waits_for_all_settings_of_the_time_before():
    dev = {Trial(SMALL, name, 5): float(number) for number, name in enumerate(NAMES)}
    last = dev.pop(Trial(SMALL, NAMES[0], 5))
    assert Stage(SMALL, "search", 20).trials(dev) is None
    assert list(eliminated(dev)) == []

    dev[Trial(SMALL, NAMES[0], 5)] = last
    entered = [Trial(SMALL, name, 20) for name in NAMES[:-5:-1]]
    assert Stage(SMALL, "search", 20).trials(dev) == entered
    assert [trial.contestant for trial in eliminated(dev)] == NAMES[:-4]


def test_the_queue_begins_with_a_whole_cell_then_searches_and_leaves_out_what_has_ended():
    first = [Trial(FIRST, name, 5) for name in ("ours", NAMES[0], NAMES[1], PEERS[0].name)]
    queue = list(pending({}))
    assert queue[:4] == first
    assert queue[4:20] == [Trial(SMALL, name, 5) for name in NAMES]
    assert len(queue) == len(set(queue))
    assert list(pending(dict.fromkeys(first, 1.0))) == [trial for trial in queue[4:]]


def test_the_plan_adds_hours_up_and_counts_each_trial_once():
    lines = list(plan({}))
    assert "multi30k_10000, 5 minutes: ours, 1 trial" in lines[0]
    assert [line.split()[0] for line in lines[:4]] == ["0.1", "0.2", "0.3", "1.7"]
    once = list(plan({Trial(FIRST, "ours", 5): 3.0}))
    assert len(once) == len(lines) - 1


def test_a_subset_is_the_same_each_time_and_has_no_line_that_others_would_split(tmp_path):
    data, corpus = _made_up(tmp_path, pairs=40)
    first = written(corpus, data, tmp_path / "first")
    again = written(corpus, data, tmp_path / "again")
    assert first.digest == again.digest
    pairs = list(zip(first.lines("train", 0), first.lines("train", 1), strict=True))
    assert len(pairs) == 40
    assert all(src.removeprefix("one ") == tgt.removeprefix("ein ") for src, tgt in pairs)
    assert not any("\x85" in src for src, _ in pairs)
    numbers = [int(src.split()[-1]) for src, _ in pairs]
    assert numbers == sorted(numbers)


def test_an_interrupted_trial_goes_on_with_the_time_that_its_checkpoint_left(tmp_path, monkeypatch):
    study, clock = _study(tmp_path, monkeypatch), []

    def course(argv, *, seconds, **_):
        clock.append(seconds)
        is_first = len(clock) == 1
        spent = min(seconds, 100.0)
        samples = (Spent(), Spent(spent, 1.5 * spent))
        return Course(begin=1000.0, samples=samples, status=0, interrupted=is_first)

    monkeypatch.setattr(trials, "timed", course)
    # The newest checkpoint is 90 seconds after each start: the 10 after it are done again.
    contestant = _Pretended(saved_at=1090.0)
    monkeypatch.setattr(trials, "contestant_of", lambda trial, study: contestant)
    trial = Trial("made_up", "search_01", 5)
    with pytest.raises(Interrupted):
        run_trial(study, trial)
    assert not study.record_file(trial).exists()

    record = run_trial(study, trial)
    assert clock == [295.0, 205.0]
    assert record["seconds"] == 180.0
    assert record["cpu_seconds"] == 300.0
    assert json.loads(study.record_file(trial).read_text())["dev"]["bleu"] == pytest.approx(100)


def test_the_queue_does_what_fits_and_not_again_what_has_ended(tmp_path, monkeypatch, capsys):
    study, begun = _study(tmp_path, monkeypatch), []

    def pretend(study, trial):
        begun.append(trial)
        record = _record(trial, dev=1.0)
        study.record_file(trial).parent.mkdir(parents=True, exist_ok=True)
        study.record_file(trial).write_text(json.dumps(record))
        return record

    monkeypatch.setattr(command, "run_trial", pretend)
    clock = SimpleNamespace(monotonic=lambda: 400.0 * len(begun), strftime=time.strftime)
    monkeypatch.setattr(command, "time", clock)
    assert command.work(study, hours=0.3) == 0
    assert len(begun) == 2
    assert command.work(study, hours=0.3) == 0
    assert begun == list(pending({}))[:4]
    assert "nothing more fits" in capsys.readouterr().err


def test_the_last_line_says_why_trials_are_left(tmp_path, monkeypatch, capsys):
    study = _study(tmp_path, monkeypatch)

    def lacks_environment(study, trial):
        raise EnvironmentMissing("no environment")

    monkeypatch.setattr(command, "run_trial", lacks_environment)
    assert command.work(study, hours=1000.0) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"whose environment is missing: {len(list(pending({})))}")

    monkeypatch.setattr(command, "pending", lambda dev: [Trial(FIRST, PEERS[0].name, 5)])
    assert command.work(study, hours=1000.0, parts=("ours", "search")) == 0
    assert capsys.readouterr().err.endswith("no trials are left of: ours, search\n")


def test_beside_other_work_only_the_search_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "work", lambda study, *, hours, parts: parts)
    study = ["--data", str(tmp_path), "--workdir", str(tmp_path), "--next", "1"]
    assert command.main(study) == ("ours", "search", "peers")
    assert command.main([*study, "--only", "ours"]) == ["ours"]
    assert command.main([*study, "--idle"]) == ("search",)
    with pytest.raises(SystemExit):
        command.main([*study, "--idle", "--only", "ours"])
    assert "need the machine for themselves" in capsys.readouterr().err


def test_a_training_that_fails_before_its_config_is_written_is_a_failure(tmp_path, monkeypatch):
    study, trial = _study(tmp_path, monkeypatch), Trial("made_up", "ours", 5)
    course = Course(begin=0.0, samples=(Spent(), Spent(1.0, 1.0)), status=1)
    monkeypatch.setattr(trials, "timed", lambda argv, **_: course)
    record = run_trial(study, trial)
    assert record["failure"] == "no checkpoint"
    assert record["config"] is None
    assert json.loads(study.record_file(trial).read_text())["dev"] is None


_UNTIL_ASKED = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
    "print('ready', flush=True)\n"
    "while True: pass\n"
)


def _timed(folder, *, seconds, is_done=lambda: False):
    return timed(
        [sys.executable, "-c", _UNTIL_ASKED],
        seconds=seconds,
        clock="wall",
        stop=trials.signal.SIGTERM,
        log=folder / "log",
        folder=folder,
        environment={},
        is_done=is_done,
    )


def test_an_interrupt_while_cpu_is_measured_asks_the_process_to_stop(tmp_path, monkeypatch):
    def interrupted(session):
        if "ready" not in (tmp_path / "log").read_text():
            return 0.0
        raise KeyboardInterrupt

    monkeypatch.setattr(timing, "_cpu_seconds", interrupted)
    course = _timed(tmp_path, seconds=100.0)
    assert course.interrupted
    assert course.status == 75


def test_no_process_outlives_an_error(tmp_path, monkeypatch):
    sessions = []
    monkeypatch.setattr(timing, "_cpu_seconds", lambda session: sessions.append(session) or 0.0)

    def fails():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        _timed(tmp_path, seconds=0.0, is_done=fails)
    with pytest.raises(ProcessLookupError):
        os.kill(sessions[0], 0)


def test_a_process_is_asked_to_stop_at_its_time_and_its_cpu_is_measured(tmp_path):
    course = _timed(tmp_path, seconds=1.0)
    assert course.status == 75
    assert 1.0 <= course.end.seconds < 30
    assert 0 < course.end.cpu_seconds <= 1.1 * course.end.seconds
    assert course.at(course.begin + 0.5).seconds == pytest.approx(0.5)


def test_short_outputs_are_those_of_long_sources_only():
    sources = ["a b c d e f", "a b c d e f", "a b c d e"]
    scored = scores(sources, ["x", "x y", "x"], ["x", "x y", "x"])
    assert (scored.short, scored.long_sources, scored.short_share) == (1, 2, 0.5)


REFERENCES = [
    f"the {word} dog number {n} sleeps here" for n in range(60) for word in ("old", "red")
]
WORSE = [line.replace("sleeps", "runs") if n % 2 else line for n, line in enumerate(REFERENCES)]
SOURCES = ["a b c d e f g"] * len(REFERENCES)


def test_the_bootstrap_tells_a_difference_from_none_and_only_the_better_one_is_ahead():
    assert bootstrap(WORSE, REFERENCES, REFERENCES, resamples=200) < 0.05
    # Sentences of both kinds changed alike differ by chance.
    shifted = WORSE[1:2] + WORSE[:1] + WORSE[2:]
    assert bootstrap(WORSE, shifted, REFERENCES, resamples=200) > 0.05

    cell = Cell(SMALL, 5)
    who = chosen(cell, _records(SMALL, 5))
    alike = {who.ours: shifted, who.own_best: shifted, who.best_peer: WORSE}
    assert judged(cell, who, alike, SOURCES, REFERENCES).p_value > 0.05
    ahead = {who.ours: REFERENCES, who.own_best: REFERENCES, who.best_peer: WORSE}
    behind = {who.ours: WORSE, who.own_best: REFERENCES, who.best_peer: REFERENCES}
    won = judged(cell, who, ahead, SOURCES, REFERENCES)
    assert won.is_ahead_of_peers
    lost = judged(cell, who, behind, SOURCES, REFERENCES)
    assert lost.p_value < 0.05
    assert not (lost.is_ahead_of_peers or lost.is_near_own_best)
    assert not dataclasses.replace(won, p_value=0.2).is_ahead_of_peers


def test_the_counts_are_of_cells_that_can_be_compared_and_the_rest_is_missing():
    records = _records(SMALL, 5) | _records(FIRST, 5, epochs=0.5)
    del records[Trial(SMALL, NAMES[3], 5)]
    cells = []
    for cell in (Cell(SMALL, 5), Cell(FIRST, 5), Cell("php_18291", 60)):
        who = chosen(cell, records)
        trials = (who.ours, who.own_best, who.best_peer)
        outputs = {trial: REFERENCES for trial in trials if trial}
        if who.best_peer:
            outputs[who.best_peer] = WORSE
        cells.append(judged(cell, who, outputs, SOURCES, REFERENCES))

    counts = metrics(cells)
    assert counts["cells"] == 26
    assert counts["cells_whole"] == 1
    assert (counts["cells_within_1_of_own_best"], counts["cells_compared_with_own_best"]) == (1, 1)
    assert (counts["cells_2_ahead_of_best_peer"], counts["cells_compared_with_a_peer"]) == (1, 1)
    assert cells[0].chosen.missing == ("search (15 of 16 trials)",)
    assert len(cells[1].chosen.apart) == len(PEERS)
    assert f"{FIRST}_5_minutes_best_peer_bleu" not in counts


def test_the_contestants_of_a_cell_are_the_best_by_dev():
    records = _records(SMALL, 5)
    records[Trial(SMALL, NAMES[7], 5)] = _record(Trial(SMALL, NAMES[7], 5), dev=9.0)
    records[Trial(SMALL, PEERS[2].name, 5)] = _record(Trial(SMALL, PEERS[2].name, 5), dev=8.0)
    who = chosen(Cell(SMALL, 5), records)
    assert who.own_best == Trial(SMALL, NAMES[7], 5)
    assert who.best_peer == Trial(SMALL, PEERS[2].name, 5)


@dataclasses.dataclass
class _Pretended:
    """A contestant whose outputs are the references of `_made_up`."""

    saved_at: float
    stop: int = 15

    def command(self, text, folder, start):
        return []

    def is_done(self, folder):
        return False

    def saved(self, folder):
        return self.saved_at

    def described(self, folder):
        return {"steps": 1, "epochs": None, "settings": {}}

    def translate(self, text, folder, outputs):
        (outputs / "dev.hyp").write_text(text.path("dev", 1).read_text("utf-8"), "utf-8")


def _study(folder, monkeypatch):
    data, corpus = _made_up(folder, pairs=20)
    monkeypatch.setitem(CORPORA, corpus.name, corpus)
    environments = Environments(folder / "environments", install=False)
    return Study(data=data, workdir=folder / "work", environments=environments, clock="wall")


def _made_up(folder, *, pairs):
    """100 numbered pairs, of which ten hold U+0085, and a corpus of some of them."""
    data = folder / "data"
    data.mkdir()
    numbers = [f"of the words that follow {n}" for n in range(100)]
    sources = [
        f"one {text}" + ("\x85 more" if n % 10 == 0 else "") for n, text in enumerate(numbers)
    ]
    for split in ("train", "dev", "test"):
        for code, lines in (("en", sources), ("de", [f"ein {text}" for text in numbers])):
            (data / f"{split}.{code}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = {split: split for split in ("train", "dev", "test")}
    return data, Corpus(name="made_up", pairs=pairs, languages=("en", "de"), files=files)


def _records(corpus, minutes, *, epochs=2.0):
    names = ["ours", *NAMES, *(peer.name for peer in PEERS)]
    trials = [Trial(corpus, name, minutes) for name in names]
    return {trial: _record(trial, dev=1.0, epochs=epochs) for trial in trials}


def _record(trial, *, dev, epochs=2.0):
    return {
        **dataclasses.asdict(trial),
        "dev": {"bleu": dev},
        "epochs": epochs,
        "failure": None,
        "steps": 1,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
    }


def test_the_record_has_what_was_measured_and_names_what_is_missing(tmp_path, monkeypatch):
    raw = tmp_path / "data" / "multi30k" / "raw"
    raw.mkdir(parents=True)
    for name, lines in (("train", 3000), ("val", 10), ("test_2016_flickr", len(REFERENCES))):
        references = (REFERENCES * 30)[:lines]
        for code in ("en", "de"):
            (raw / f"{name}.{code}").write_text("".join(f"{line}\n" for line in references))
    environments = Environments(tmp_path / "environments", install=False)
    study = Study(data=tmp_path / "data", workdir=tmp_path, environments=environments, clock="cpu")
    for trial, content in _records(SMALL, 5).items():
        study.outputs(trial).mkdir(parents=True)
        lines = REFERENCES if trial.part == "ours" else WORSE
        (study.outputs(trial) / "test.hyp").write_text("".join(f"{line}\n" for line in lines))
        study.record_file(trial).write_text(json.dumps({**content, "limited_by": "cpu"}))

    assert command.record(study, tmp_path, tmp_path / "chart.svg") == 0
    result = read_result(tmp_path / "own_data.json")
    cell = f"{SMALL}_5_minutes"
    assert result.metrics[f"{cell}_ours_bleu"] == pytest.approx(100)
    assert result.metrics["cells_2_ahead_of_best_peer"] == 1
    assert cell not in result.details["missing"]
    assert f"{SMALL}_20_minutes: ours (0 of 1 trials)" in result.details["missing"]
    assert read_hypotheses(result, f"{cell}.best_peer", tmp_path) == WORSE
    assert len((tmp_path / "own_data.trials.jsonl").read_text().splitlines()) == 21
    assert "3,000 pairs" in (tmp_path / "chart.svg").read_text()
