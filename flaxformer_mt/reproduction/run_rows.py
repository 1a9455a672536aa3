"""Runs rows one after the other, train and measure; finished rows are skipped."""

import dataclasses
import gc
import hashlib
import itertools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax

from flaxformer_mt import __version__
from flaxformer_mt.config import CorpusConfig, differences, freeze, to_dict
from flaxformer_mt.config.digest_keys import decides, may_change
from flaxformer_mt.config.kinds import GrammarText, TfdsSet
from flaxformer_mt.config.tokenizers import with_tokenizer
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, open_source, paths, read_pairs
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.evaluate import Evaluation, evaluate
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.parsing import evalb, linearization
from flaxformer_mt.parsing.evalb import describe_left_out, trees_of_parses
from flaxformer_mt.parsing.linearization import rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.measuring import ScoredSet, TrainingLog, write_measurement
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.rate import TrainingRate
from flaxformer_mt.reproduction.records import (
    FULL,
    REDUCED,
    experiment_state,
    remove_failure,
    write_failure,
)
from flaxformer_mt.reproduction.result_file import Result, trained_by
from flaxformer_mt.reproduction.scoring import row_scoring
from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average
from flaxformer_mt.rundir.layout import RunDirectory, create, has_record, read_record
from flaxformer_mt.rundir.metrics_log import progress
from flaxformer_mt.rundir.paths import explained, read_json, writing
from flaxformer_mt.text_table import aligned

Ending = Literal["finished", "stopped"]
Say = Callable[[str], None]
# Trains or continues a run, with settings (`a.b=value`) that a run may change.
Train = Callable[[RunDirectory, Sequence[str]], Ending]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """How one experiment ended. `kept`: it was done before."""

    experiment: Experiment
    kind: Literal["kept", "measured", "stopped", "failed"]
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowRunner:
    """Runs below `workdir`, results in `results`. `explain` gives the message of an error that
    isn't a bug, else None. Runs record `command`."""

    workdir: Path
    results: Path
    train: Train
    explain: Callable[[Exception], str | None]
    say: Say
    command: Sequence[str]

    def run_of(self, experiment: Experiment) -> RunDirectory:
        """The run's directory; experiments that are trained differently have different ones."""
        return RunDirectory(self.workdir / "runs" / experiment.run_name)

    def run(self, experiments: Iterable[Experiment]) -> list[RunOutcome]:
        """Runs experiments that aren't done yet. Failures are recorded; a stop ends the loop."""
        outcomes: list[RunOutcome] = []
        for experiment in experiments:
            self.say(f"\n== {experiment.row.label}, seed {experiment.seed}")
            outcome = self._run_experiment(experiment)
            outcomes.append(outcome)
            self.say(f"{experiment.name}: {outcome.kind} {outcome.message}".rstrip())
            if outcome.kind == "stopped":
                break
        return outcomes

    def _run_experiment(self, experiment: Experiment) -> RunOutcome:
        recorded = experiment_state(experiment, self.results)
        if recorded.state == "done":
            return RunOutcome(experiment=experiment, kind="kept")
        if recorded.state == "stale":
            self.say(f"stale: {recorded.note}; measuring it again")

        try:
            ending = self._train_and_measure(experiment)
        except Exception as error:
            message = self.explain(error)
            if message is None:
                # A bug keeps its trace; other rows may not meet it.
                traceback.print_exc(file=sys.stderr)
                message = f"{type(error).__name__}: {error}"
            message = message.split("\n")[0]
            write_failure(experiment, message, self.results)
            return RunOutcome(experiment=experiment, kind="failed", message=message)
        finally:
            # Don't hold the programs of twenty models in memory.
            jax.clear_caches()
            gc.collect()

        if ending == "stopped":
            return RunOutcome(experiment=experiment, kind="stopped")
        remove_failure(experiment, self.results)
        return RunOutcome(experiment=experiment, kind="measured")

    def _train_and_measure(self, experiment: Experiment) -> Ending:
        test = read_test(experiment, say=self.say)
        run = self.run_of(experiment)
        changes: list[str] = []
        if has_record(run):
            changes = _allowed_changes(experiment, run)
        else:
            self._create_run(experiment, run)

        ending = self.train(run, changes)
        if ending == "finished":
            measure_row(experiment, run, test, results=self.results)
        return ending

    def _create_run(self, experiment: Experiment, run: RunDirectory) -> None:
        data = experiment.config.data
        pairs = experiment.pairs
        if pairs is not None:
            folder = self.workdir / "extracts"
            extracts = (
                first_pairs(corpus, pairs.get(corpus.name), data.folder, folder, self.say)
                for corpus in data.train
            )
            data = dataclasses.replace(data, train=tuple(extracts))
        config = dataclasses.replace(experiment.config, data=with_tokenizer(data))
        create(run.path, to_dict(config), self.command)


def _allowed_changes(experiment: Experiment, run: RunDirectory) -> list[str]:
    """Settings, as `a.b=value`, that the experiment changes of an existing run: only those that a
    run may change and that decide no numbers."""
    recorded = freeze(read_record(run).config, str(run.config_file))
    changes: list[str] = []
    for key, (old, new) in differences(recorded, experiment.config).items():
        if decides(key) == "nothing" and may_change(key) and None not in (old, new):
            text = ",".join(map(str, new)) if isinstance(new, list | tuple) else new
            changes.append(f"{key}={text}")
    return changes


def first_left(experiments: Iterable[Experiment], results: Path) -> Experiment | None:
    """The first experiment that is still to do. Raises ResultError."""
    return next(
        (each for each in experiments if experiment_state(each, results).state != "done"), None
    )


def listing(
    experiments: Iterable[Experiment], results: Path, *, rate: TrainingRate | None = None
) -> str:
    """A table of experiments, their state and their likely cost, with a `rate` also in hours on
    this machine. Raises ResultError."""
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    total, remaining, seconds_left = 0.0, 0.0, 0.0
    for experiment in experiments:
        recorded = experiment_state(experiment, results)
        flops = planned_flops(experiment.config)
        seconds = None if rate is None else rate.seconds(experiment.config)
        total += flops
        if recorded.state != "done":
            remaining += flops
            seconds_left += seconds or 0.0
        rows.append(_listing_line(experiment, recorded.state, flops, seconds))
        if recorded.note:
            notes.append(f"{experiment.row.name}: {recorded.state}: {recorded.note}")

    header = ["row", "config", "seed", "state", "steps", "pairs", "averaged", "M params", "FLOPs"]
    costs = [f"all: {total:.1e} FLOPs, {remaining:.1e} still to do (by formula, without padding)"]
    if rate is not None:
        header.append("hours here")
        costs.append(
            f"an estimate for this machine: {_hours(seconds_left)} hours still to do, at "
            f"{rate.flops / 1e9:,.0f} GFLOP/s (a few steps of {rate.row}, measured now in "
            f"{rate.spent:.0f} s); validation, averaging and scoring not included"
        )
    return "\n".join([aligned(header, rows, left={0, 1, 3}), *costs, *notes])


def _listing_line(
    experiment: Experiment, state: str, flops: float, seconds: float | None
) -> list[str]:
    row, training = experiment.row, experiment.config.training
    pairs = f"{sum((experiment.pairs or row.pairs).values()):,}"
    return [
        row.name,
        row.spec,
        str(experiment.seed),
        state,
        f"{training.steps:,}",
        # The user's own corpus may have fewer pairs than the paper's.
        pairs if experiment.settings.corpus is None else f"<= {pairs}",
        str(training.keep_for_average or "last only"),
        f"{planned_parameters(experiment.config) / 1e6:.2f}",
        f"{flops:.1e}",
        *([] if seconds is None else [_hours(seconds)]),
    ]


def _hours(seconds: float) -> str:
    """To two digits, since it is an estimate: "0.35", "4.2", "1,300"."""
    hours = float(f"{seconds / 3600:.2g}")
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def first_pairs(
    corpus: CorpusConfig, count: int | None, source: str, folder: Path, say: Say
) -> CorpusConfig:
    """A training corpus with at most the first `count` of its sound pairs, written below `folder`
    once per set of files. Raises CorpusError, RunDirectoryError."""
    if count is None:
        return corpus
    if isinstance(corpus.source, GrammarText):
        return dataclasses.replace(corpus, size=min(corpus.size, count))

    key = f"data.train.{corpus.name}"
    files = open_source(corpus, source, key).files
    stamps = {name: [str(path), *paths.stamp(path)] for name, path in files.items()}
    content = json.dumps([dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count])
    extract = (folder / hashlib.sha256(content.encode()).hexdigest()[:16]).absolute()
    if not extract.exists():
        drops = Drops()
        pairs = itertools.islice(read_pairs(corpus, source, drops=drops, key=key), count)
        written = _write_pairs(pairs, extract)
        say(f"{key}: using the first {written:,} pairs ({count:,} wanted)")
        for example in drops.examples:
            say(f"  left out: {example}")
    src, tgt = (str(extract / side) for side in ("src", "tgt"))
    return CorpusConfig(name=corpus.name, src=src, tgt=tgt, weight=corpus.weight)


def _write_pairs(pairs: Iterable[Pair], folder: Path) -> int:
    """Writes `folder` as a whole, with a file for each side; how many pairs there were."""
    written = 0
    with explained(folder, "written"), replacing(folder) as partial:
        partial.mkdir(parents=True)
        with writing(partial / "src") as src_file, writing(partial / "tgt") as tgt_file:
            for pair in pairs:
                written += 1
                src_file.write(f"{pair.src}\n")
                tgt_file.write(f"{pair.tgt}\n")
    return written


# The paper's counts are rounded, and those of the corpora at hand differ a little.
_ENOUGH = 0.9
PARSE_SIGNATURE = "EVALB, COLLINS.prm; malformed outputs repaired, none left out"


class TestSet(NamedTuple):
    """The test set of a row. It is read before training, so that a wrong name doesn't cost days."""

    pairs: Sequence[Pair]
    gold: Sequence[Tree] = ()  # where the target is trees


def read_test(experiment: Experiment, *, say: Say) -> TestSet:
    """The row's test set; `say` gets gold trees left out. Raises CorpusError and TreeError."""
    data, name = experiment.config.data, experiment.test
    corpus = {corpus.name: corpus for corpus in data.test}.get(name, data.valid)
    key = "data.valid" if corpus is data.valid else f"data.test.{name}"

    pairs = list(read_pairs(corpus, data.folder, key=key))
    if not pairs:
        raise CorpusError(f"{key}: has no sentence to score")
    if "f1" not in experiment.row.values:
        return TestSet(pairs)

    files = open_source(corpus, data.folder, key).files
    if "tgt" not in files:
        raise CorpusError(f"{key}: gold trees are expected next to two files: kind 'files'")
    return TestSet(pairs, gold_trees(Path(str(files["tgt"])), len(pairs), say=say))


def measure_row(
    experiment: Experiment, run: RunDirectory, test: TestSet, *, results: Path
) -> Result:
    """Scores a finished run and writes `results/NAME.json`. Raises ResultError."""
    translator = _translator(experiment, run)
    sources = [pair.src for pair in test.pairs]
    evaluation = evaluate(
        translator,
        sources,
        [pair.tgt for pair in test.pairs],
        name=experiment.kept_as,
        directory=run.evaluation,
        scoring=row_scoring(experiment),
    )
    outputs = [translation.text for translation in evaluation.translations]

    metrics = _scores(evaluation)
    signatures = dict(evaluation.scores.signatures)
    if test.gold:
        f1, malformed = parse_f1(sources, outputs, test.gold)
        metrics = {"f1": f1, "malformed": malformed, **metrics}
        signatures = {"f1": PARSE_SIGNATURE, **signatures}
    cost = _cost(run)
    counts = _counts(experiment, run)

    return write_measurement(
        results / f"{experiment.name}.json",
        [
            ScoredSet(
                name=experiment.test, metrics=metrics, signatures=signatures, hypotheses=outputs
            )
        ],
        command=experiment.command,
        config=experiment.row.spec,
        seconds=cost.wall_seconds + evaluation.seconds,
        metrics={
            **counts,
            "devices": cost.devices,
            "device_hours": cost.device_hours,
            "averaged_checkpoints": experiment.config.training.keep_for_average,
        },
        details={
            **experiment.details(),
            **trained_by(read_record(run)),
            "device_hours": str(cost),
            "status": _status(experiment, counts["pairs"]),
            "data": f"{_corpora(experiment)}: {counts['pairs']:,.0f} training pairs",
            "test": f"{experiment.test}, {len(sources):,} sentences",
        },
        release=__version__,
    )


def _translator(experiment: Experiment, run: RunDirectory) -> Translator:
    """With the mean of the checkpoints that the paper averages, else the last."""
    averaged = experiment.config.training.keep_for_average
    if averaged:
        params, steps = average_checkpoints(run, averaged, "latest")
        write_average(run, params, steps)
    translator = Translator.load(run.path, which="average" if averaged else "latest")
    # The run's record may have another experiment's search.
    return translator.with_config(**dataclasses.asdict(experiment.config.decoding))


def _scores(evaluation: Evaluation) -> dict[str, float]:
    """Each metric, followed by its interval if it has one; the paper's BLEU comes first."""
    scores = evaluation.scores.metrics
    metrics: dict[str, float] = {}
    for name in sorted(scores, key=lambda name: name != "bleu_paper"):
        metrics[name] = scores[name]
        interval = evaluation.assessment.intervals.get(name)
        if interval is not None:
            metrics |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cost:
    """The time of all starts of a run, and the devices of this process."""

    wall_seconds: float
    starts: int
    devices: int

    @property
    def device_hours(self) -> float:
        return self.wall_seconds * self.devices / 3600

    def __str__(self) -> str:
        starts = f"{self.starts} start{'' if self.starts == 1 else 's'}"
        return (
            f"wall time of {starts}, times the devices of the process that measured: {self.devices}"
        )


def _cost(run: RunDirectory) -> _Cost:
    goodput = read_json(run.goodput)
    return _Cost(
        wall_seconds=goodput["wall_seconds"],
        starts=goodput["starts"],
        devices=jax.device_count(),
    )


def _status(experiment: Experiment, pairs: float) -> str:
    """A key of MEANING; `pairs` were trained on."""
    has_enough = pairs >= _ENOUGH * sum(experiment.row.pairs.values())
    return FULL if experiment.is_the_paper_s and has_enough else REDUCED


def _corpora(experiment: Experiment) -> str:
    return ", ".join(
        corpus.path if isinstance(corpus.source, TfdsSet) else corpus.name
        for corpus in experiment.config.data.train
    )


def _counts(experiment: Experiment, run: RunDirectory) -> dict[str, float]:
    """Metrics of the training: its size, its data, its cost and its speed."""
    model = experiment.config.model
    manifest = read_manifest(run.data)
    sizes = manifest["vocabulary"]["sizes"]
    lengths = manifest["lengths"]["train"]

    log = TrainingLog.read(run)
    # The last step, as in the paper's table, not the best one.
    last = log.validations[-1]
    trained = progress(log.reports)
    src_tokens = float(trained.src_tokens[-1])
    tgt_tokens = float(trained.tgt_tokens[-1])

    flops = training_flops(  # without padding
        model,
        sizes["tgt"],
        src_tokens=src_tokens,
        tgt_tokens=tgt_tokens,
        src_keys=lengths["src"]["mean"],
        tgt_keys=lengths["tgt"]["mean"],
    )
    corpora = [corpus for corpus in manifest["corpora"] if corpus["split"] == "train"]
    return {
        "perplexity": last["perplexity"],
        "steps": last["step"],
        "pairs": sum(corpus["kept"] for corpus in corpora),
        "scale": experiment.settings.scale,
        "seed": experiment.seed,
        "parameters": sum(count_by_formula(model, sizes["src"], sizes["tgt"]).values()),
        "source_tokens": round(src_tokens),
        "target_tokens": round(tgt_tokens),
        "training_flops": flops,
        "target_tokens_per_second": log.target_tokens_per_second,
    }


def gold_trees(target: Path, count: int, *, say: Say) -> tuple[Tree, ...]:
    """The bracketed trees that `target` linearises, from NAME.trees beside it: EVALB needs their
    tags. Raises CorpusError and TreeError."""
    path = target.with_suffix(".trees")
    try:
        with open(path, encoding="utf-8") as lines:
            trees = tuple(tree for _, tree in read(lines, str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: cannot read {target.name}'s gold trees: {error}") from error
    try:
        line_trees = trees_of_parses(trees, count)
    except TreeError as error:
        raise CorpusError(f"{path} has {error} and {target} has {count:,} lines") from error
    left_out = describe_left_out(trees, line_trees)
    if left_out:
        say(f"{path}: {left_out}")
    return line_trees


def parse_f1(
    sources: Sequence[str], outputs: Sequence[str], gold: Sequence[Tree]
) -> tuple[float, int]:
    """F1 in percent and the number of malformed outputs. Raises CorpusError for wrong gold."""
    scores, malformed = [], 0
    for number, (source, output, tree) in enumerate(zip(sources, outputs, gold, strict=True), 1):
        rebuilt = rebuild(linearization.tokens_of(source), linearization.tokens_of(output))
        malformed += bool(rebuilt.repairs)
        score = evalb.score_sentence(tree, rebuilt.tree)
        if score.errors:
            raise CorpusError(f"sentence {number:,}: its gold tree has different words: {source}")
        scores.append(score)
    return 100 * evalb.total(scores).f1, malformed
