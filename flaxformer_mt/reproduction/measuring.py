"""Measures a trained run: averages, translates, scores, counts, and writes the result."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from flaxformer_mt import __version__
from flaxformer_mt.data.corpus import CorpusError, open_source, read_pairs
from flaxformer_mt.data.prepare import read_manifest
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.evaluate import Evaluation, evaluate
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.parsing import evalb, linearization
from flaxformer_mt.parsing.evalb import describe_left_out, trees_of_parses
from flaxformer_mt.parsing.repair import rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.records import FULL, REDUCED
from flaxformer_mt.reproduction.result_file import Result, trained_by, write_result
from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.metrics_log import progress, read_metrics
from flaxformer_mt.rundir.paths import read_json

# The paper's counts are rounded, and those of the corpora at hand differ a little.
_ENOUGH = 0.9
PARSE_SIGNATURE = "EVALB, COLLINS.prm; malformed outputs repaired, none left out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TestSet:
    """What a row is scored on. Read before training, so that a wrong name doesn't cost days."""

    name: str
    sources: tuple[str, ...]
    references: tuple[str, ...]
    gold: tuple[Tree, ...] = ()  # where the target is trees


def read_test(experiment: Experiment, *, say: Callable[[str], None]) -> TestSet:
    """The row's test set; `say` gets gold trees left out. Raises CorpusError and TreeError."""
    data, name = experiment.config.data, experiment.test
    corpus = {corpus.name: corpus for corpus in data.test}.get(name, data.valid)
    key = f"data.test.{name}" if corpus is not data.valid else "data.valid"
    pairs = list(read_pairs(corpus, data.folder, key=key))
    if not pairs:
        raise CorpusError(f"{key}: has no sentence to score")
    gold: tuple[Tree, ...] = ()
    if "f1" in experiment.row.values:
        files = open_source(corpus, data.folder, key).files
        if "tgt" not in files:
            raise CorpusError(f"{key}: gold trees are expected next to two files: kind 'files'")
        gold = gold_trees(Path(str(files["tgt"])), len(pairs), say=say)
    sources, references = tuple(pair.src for pair in pairs), tuple(pair.tgt for pair in pairs)
    return TestSet(name=name, sources=sources, references=references, gold=gold)


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
    found = evaluate(
        translator,
        test.sources,
        test.references,
        name=experiment.kept_as,
        directory=run.evaluation,
        scoring=experiment.scoring,
    )
    metrics, signatures = _scores(found), dict(found.scores.signatures)
    outputs = [item.text for item in found.translations]
    if test.gold:
        f1, malformed = parse_f1(test.sources, outputs, test.gold)
        metrics = {"f1": f1, "malformed": malformed, **metrics}
        signatures = {"f1": PARSE_SIGNATURE, **signatures}
    goodput, devices = read_json(run.goodput), jax.device_count()
    wall, starts = goodput["wall_seconds"], goodput["starts"]
    counted = _counts(experiment, run)
    hours = wall * devices / 3600
    metrics |= {**counted, "devices": devices, "device_hours": hours}
    train, wanted = experiment.config.data.train, sum(experiment.row.pairs.values())
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
            "test": f"{test.name}, {len(test.sources):,} sentences",
        },
        hypotheses={test.name: outputs},
        release=__version__,
    )


def _scores(found: Evaluation) -> dict[str, float]:
    """Scores with their intervals, the paper's BLEU first."""
    metrics: dict[str, float] = {}
    for name in sorted(found.scores.metrics, key=lambda name: name != "bleu_paper"):
        metrics[name] = found.scores.metrics[name]
        if spread := found.assessment.intervals.get(name):
            metrics |= {f"{name}_low": spread.low, f"{name}_high": spread.high}
    return metrics


def _counts(experiment: Experiment, run: RunDirectory) -> dict[str, float]:
    """The run's size and cost, from its records."""
    model = experiment.config.model
    manifest, reports = read_manifest(run.data), read_metrics(run.metrics)
    sizes, lengths = manifest["vocabulary"]["sizes"], manifest["lengths"]["train"]
    done = progress(reports)
    src_tokens, tgt_tokens = float(done.src_tokens[-1]), float(done.tgt_tokens[-1])
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


def gold_trees(target: Path, count: int, *, say: Callable[[str], None]) -> tuple[Tree, ...]:
    """The bracketed trees that `target` linearises, from NAME.trees beside it.

    EVALB needs their part-of-speech tags to leave out punctuation. `say` gets a line about trees
    without words. Raises CorpusError and TreeError.
    """
    path = target.with_suffix(".trees")
    try:
        with open(path, encoding="utf-8") as lines:
            trees = tuple(tree for _, tree in read(lines, str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{path}: cannot read the gold trees that {target.name} was made from: {error}"
        ) from error
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
