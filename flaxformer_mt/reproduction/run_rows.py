"""Runs rows one after the other, train and measure; finished rows are skipped."""

import dataclasses
import gc
import hashlib
import itertools
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax

from flaxformer_mt import __version__
from flaxformer_mt.config import CorpusConfig, differences, freeze, to_dict
from flaxformer_mt.config.digest_keys import decides, may_change
from flaxformer_mt.config.tokenizers import with_tokenizer
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, open_source, paths, read_pairs
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.evaluate import evaluate
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.parsing import evalb, linearization
from flaxformer_mt.parsing.evalb import describe_left_out, trees_of_parses
from flaxformer_mt.parsing.linearization import rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.records import FULL, REDUCED, known, remove_failure, write_failure
from flaxformer_mt.reproduction.result_file import Result, trained_by, write_result
from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average
from flaxformer_mt.rundir.layout import RunDirectory, create, has_record, read_record
from flaxformer_mt.rundir.metrics_log import progress, read_metrics
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
        """Runs what isn't done yet. Failures are recorded; a stop ends the loop."""
        outcomes: list[RunOutcome] = []
        for experiment in experiments:
            self.say(f"\n== {experiment.row.label}, seed {experiment.seed}")
            outcomes.append(self._one(experiment))
            self.say(f"{experiment.name}: {outcomes[-1].kind} {outcomes[-1].message}".rstrip())
            if outcomes[-1].kind == "stopped":
                break
        return outcomes

    def _one(self, experiment: Experiment) -> RunOutcome:
        before = known(experiment, self.results)
        if before.state == "done":
            return RunOutcome(experiment=experiment, kind="kept")
        if before.state == "stale":
            self.say(f"stale: {before.note}; measuring it again")
        try:
            ending = self._trained_and_measured(experiment)
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

    def _trained_and_measured(self, experiment: Experiment) -> Ending:
        test = read_test(experiment, say=self.say)
        run = self.run_of(experiment)
        changes: list[str] = []
        if has_record(run):
            recorded = freeze(read_record(run).config, str(run.config_file))
            changes = [
                f"{key}={','.join(map(str, new)) if isinstance(new, list | tuple) else new}"
                for key, (old, new) in differences(recorded, experiment.config).items()
                if decides(key) == "nothing" and may_change(key) and None not in (old, new)
            ]
        else:
            data = experiment.config.data
            pairs = experiment.pairs
            folder = self.workdir / "extracts"
            if pairs is not None:
                train = (
                    first_pairs(corpus, pairs.get(corpus.name), data.folder, folder, self.say)
                    for corpus in data.train
                )
                data = dataclasses.replace(data, train=tuple(train))
            config = dataclasses.replace(experiment.config, data=with_tokenizer(data))
            create(run.path, to_dict(config), self.command)
        ending = self.train(run, changes)
        if ending == "finished":
            measure(experiment, run, test, results=self.results)
        return ending


def listing(experiments: Iterable[Experiment], results: Path) -> str:
    """A table of experiments, their state and their likely cost. Raises ResultError."""
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    total, left = 0.0, 0.0
    for experiment in experiments:
        found = known(experiment, results)
        config = experiment.config
        row = experiment.row
        flops = planned_flops(config)
        total += flops
        left += flops if found.state != "done" else 0
        pairs = f"{sum((experiment.pairs or row.pairs).values()):,}"
        pairs = pairs if experiment.settings.corpus is None else f"<= {pairs}"
        averaged = str(config.training.keep_for_average or "last only")
        parameters = f"{planned_parameters(config) / 1e6:.2f}"
        rows.append(
            [
                *(row.name, row.spec, str(experiment.seed), found.state),
                *(f"{config.training.steps:,}", pairs, averaged, parameters, f"{flops:.1e}"),
            ]
        )
        if found.note:
            notes.append(f"{row.name}: {found.state}: {found.note}")
    header = ["row", "config", "seed", "state", "steps", "pairs", "averaged", "M params", "FLOPs"]
    costs = f"all: {total:.1e} FLOPs, {left:.1e} still to do (by formula, without padding)"
    return "\n".join([aligned(header, rows, left={0, 1, 3}), costs, *notes])


def first_pairs(
    corpus: CorpusConfig, count: int | None, source: str, folder: Path, say: Say
) -> CorpusConfig:
    """A training corpus with at most the first `count` of its sound pairs, written below `folder`
    once per set of files. Raises CorpusError, RunDirectoryError."""
    if count is None:
        return corpus
    if corpus.kind == "synthetic":
        return dataclasses.replace(corpus, size=min(corpus.size, count))
    key = f"data.train.{corpus.name}"
    files = open_source(corpus, source, key).files
    stamps = {name: [str(path), *paths.stamp(path)] for name, path in files.items()}
    content = json.dumps([dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count])
    place = (folder / hashlib.sha256(content.encode()).hexdigest()[:16]).absolute()
    if not place.exists():
        drops, written = Drops(), 0
        with explained(place, "written"), replacing(place) as aside:
            aside.mkdir(parents=True)
            with writing(aside / "src") as src_file, writing(aside / "tgt") as tgt_file:
                read = read_pairs(corpus, source, drops=drops, key=key)
                for pair in itertools.islice(read, count):
                    written += 1
                    src_file.write(f"{pair.src}\n")
                    tgt_file.write(f"{pair.tgt}\n")
        say(f"{key}: using the first {written:,} pairs ({count:,} wanted)")
        for example in drops.examples:
            say(f"  left out: {example}")
    src, tgt = (str(place / side) for side in ("src", "tgt"))
    return CorpusConfig(name=corpus.name, src=src, tgt=tgt, weight=corpus.weight)


# The paper's counts are rounded, and those of the corpora at hand differ a little.
_ENOUGH = 0.9
PARSE_SIGNATURE = "EVALB, COLLINS.prm; malformed outputs repaired, none left out"


class TestSet(NamedTuple):
    """What a row is scored on. Read before training, so that a wrong name doesn't cost days."""

    pairs: Sequence[Pair]
    gold: Sequence[Tree] = ()  # where the target is trees


def read_test(experiment: Experiment, *, say: Say) -> TestSet:
    """The row's test set; `say` gets gold trees left out. Raises CorpusError and TreeError."""
    data, name = experiment.config.data, experiment.test
    corpus = {corpus.name: corpus for corpus in data.test}.get(name, data.valid)
    key = f"data.test.{name}" if corpus is not data.valid else "data.valid"
    pairs = list(read_pairs(corpus, data.folder, key=key))
    if not pairs:
        raise CorpusError(f"{key}: has no sentence to score")
    if "f1" not in experiment.row.values:
        return TestSet(pairs)
    files = open_source(corpus, data.folder, key).files
    if "tgt" not in files:
        raise CorpusError(f"{key}: gold trees are expected next to two files: kind 'files'")
    return TestSet(pairs, gold_trees(Path(str(files["tgt"])), len(pairs), say=say))


def measure(experiment: Experiment, run: RunDirectory, test: TestSet, *, results: Path) -> Result:
    """Scores a finished run and writes `results/NAME.json`. Raises ResultError."""
    averaged = experiment.config.training.keep_for_average
    if averaged:
        params, steps = average_checkpoints(run, averaged, "latest")
        write_average(run, params, steps)
    translator = Translator.load(run.path, which="average" if averaged else "latest").with_config(
        # The run's record may have another experiment's search.
        **dataclasses.asdict(experiment.config.decoding)
    )
    sources = [pair.src for pair in test.pairs]
    found = evaluate(
        translator,
        sources,
        [pair.tgt for pair in test.pairs],
        name=experiment.kept_as,
        directory=run.evaluation,
        scoring=experiment.scoring,
    )
    metrics: dict[str, float] = {}
    for name in sorted(found.scores.metrics, key=lambda name: name != "bleu_paper"):
        metrics[name] = found.scores.metrics[name]
        if spread := found.assessment.intervals.get(name):
            metrics |= {f"{name}_low": spread.low, f"{name}_high": spread.high}
    signatures = dict(found.scores.signatures)
    outputs = [item.text for item in found.translations]
    if test.gold:
        f1, malformed = parse_f1(sources, outputs, test.gold)
        metrics = {"f1": f1, "malformed": malformed, **metrics}
        signatures = {"f1": PARSE_SIGNATURE, **signatures}
    goodput, devices = read_json(run.goodput), jax.device_count()
    wall, starts = goodput["wall_seconds"], goodput["starts"]
    counted = _counts(experiment, run)
    hours = wall * devices / 3600
    metrics |= {**counted, "devices": devices, "device_hours": hours}
    train = experiment.config.data.train
    wanted = sum(experiment.row.pairs.values())
    names = [corpus.path if corpus.kind == "tfds" else corpus.name for corpus in train]
    enough = counted["pairs"] >= _ENOUGH * wanted
    return write_result(
        results / f"{experiment.name}.json",
        command=experiment.command,
        config=experiment.row.spec,
        seconds=wall + found.seconds,
        metrics=metrics | {"averaged_checkpoints": averaged},
        signatures=signatures,
        details={
            **experiment.details(),
            **trained_by(read_record(run)),
            "device_hours": f"wall time of {starts} start{'' if starts == 1 else 's'}, times the "
            f"devices of the process that measured: {devices}",
            "status": FULL if experiment.is_the_paper_s and enough else REDUCED,
            "data": f"{', '.join(names)}: {counted['pairs']:,.0f} training pairs",
            "test": f"{experiment.test}, {len(sources):,} sentences",
        },
        hypotheses={experiment.test: outputs},
        release=__version__,
    )


def _counts(experiment: Experiment, run: RunDirectory) -> dict[str, float]:
    model = experiment.config.model
    manifest = read_manifest(run.data)
    reports = read_metrics(run.metrics)
    sizes = manifest["vocabulary"]["sizes"]
    lengths = manifest["lengths"]["train"]
    done = progress(reports)
    src_tokens = float(done.src_tokens[-1])
    tgt_tokens = float(done.tgt_tokens[-1])
    # The last step, as in the paper's table, not the best one.
    last = [report for report in reports if report["kind"] == "valid"][-1]
    train = [report for report in reports if report["kind"] == "train"]
    flops = training_flops(  # without padding
        model,
        sizes["tgt"],
        src_tokens=src_tokens,
        tgt_tokens=tgt_tokens,
        src_keys=lengths["src"]["mean"],
        tgt_keys=lengths["tgt"]["mean"],
    )
    return {
        "perplexity": last["perplexity"],
        "steps": last["step"],
        "pairs": sum(one["kept"] for one in manifest["corpora"] if one["split"] == "train"),
        "scale": experiment.settings.scale,
        "seed": experiment.seed,
        "parameters": sum(count_by_formula(model, sizes["src"], sizes["tgt"]).values()),
        "source_tokens": round(src_tokens),
        "target_tokens": round(tgt_tokens),
        "training_flops": flops,
        "target_tokens_per_second": statistics.median(
            report["tgt_tokens_per_second"] for report in train
        ),
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
        of_lines = trees_of_parses(trees, count)
    except TreeError as error:
        raise CorpusError(f"{path} has {error} and {target} has {count:,} lines") from error
    if told := describe_left_out(trees, of_lines):
        say(f"{path}: {told}")
    return of_lines


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
