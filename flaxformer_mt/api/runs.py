"""Working with a trained run: scores on test sets, averaging, export to other programs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flaxformer_mt.api import config_of, say
from flaxformer_mt.config import CorpusConfig, DataConfig, freeze
from flaxformer_mt.config.tokenizers import for_corpus
from flaxformer_mt.data.corpus import CorpusError, read_pairs
from flaxformer_mt.data.prepare.manifest import VALID_TEXT
from flaxformer_mt.evaluation import SHOWN, VALID, evaluate as one_set, is_validation
from flaxformer_mt.evaluation.evaluate import Evaluation, kept_scores
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.references import Given
from flaxformer_mt.evaluation.scoring import Scoring, scoring_of
from flaxformer_mt.files import hub
from flaxformer_mt.interop import ExportError
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record
from flaxformer_mt.rundir.paths import as_path, exists

if TYPE_CHECKING:
    from flaxformer_mt.decoding.translator import Translator
    from flaxformer_mt.interop.huggingface import Card
    from flaxformer_mt.interop.parity import Parity
    from flaxformer_mt.parallel.processes import Processes
    from flaxformer_mt.rundir.checkpoint_choice import Which

# By name, the sentences to translate and their references.
Sets = Mapping[str, tuple[Sequence[str], Given]]


def evaluate(
    run: str | os.PathLike[str],
    test: str | Sets | None = None,
    *,
    translator: Translator | None = None,
    scoring: Scoring | None = None,
    examples: int = SHOWN,
    folder: str | None = None,
) -> dict[str, Evaluation]:
    """Translates test sets and scores them, by name: `evaluate("runs/mine")["test"].scores.bleu`.

    `test` is one of the run's `data.test`, "valid", or "valid.NAME" of several validation sets;
    text of your own, `{"name": (sources, references)}`; or None for all of `data.test`. Instead of
    one sequence of references there may be several, `[references, others]`, in which None is a
    missing one.
    `translator` replaces `Translator.load(run)`: with other weights or settings, or several runs.
    `folder` has the run's test files, if they aren't in its `data.folder` any more. By default
    `scoring` is BLEU, chrF, TER and, if it has rules for the language, the paper's BLEU.

    Scores and translations are saved in the run's evaluation folder, where `compare` finds them,
    with a page of `examples` of the worst and best. Raises ScoringError, CorpusError,
    RunDirectoryError, and what `Translator` raises.
    """
    opened = RunDirectory(as_path(run))
    data = config_of(opened).data
    if isinstance(test, Mapping):
        # One set's scores must not replace another's.
        clashes = test.keys() & {VALID, *sets_by_name(data)}
        if clashes:
            raise ScoringError(
                f"{clashes.pop()!r} is already a set of this run: choose another name"
            )
    else:
        test = sets_of_run(opened, data, test, folder=folder)
    corpora = sets_by_name(data)
    sets = {}
    own_text = CorpusConfig()
    if translator is not None:
        own_text = CorpusConfig(src_lang=translator.src_lang, tgt_lang=translator.tgt_lang)
    for name, text in test.items():
        settings = for_corpus(data, corpora.get(name, own_text))
        how = scoring_of(settings) if scoring is None else scoring
        sets[name] = set_to_score(text, how, settings, corpora.get(name))

    def load() -> Translator:
        from flaxformer_mt.decoding.translator import Translator

        return translator or Translator.load(opened)

    scored = evaluations(sets, load, opened.evaluation, examples=examples)
    return {evaluation.name: evaluation for evaluation in scored}


def sets_of_run(
    run: RunDirectory, data: DataConfig, name: str | None = None, *, folder: str | None = None
) -> Sets:
    """The text of one of the run's test sets, or of all; `data` are its settings.

    Raises ScoringError, CorpusError.
    """
    if is_validation(name):
        sets = _valid_sets(run)
        if name == VALID:
            return sets
        if name in sets:
            return {name: sets[name]}

    corpora = {corpus.name: corpus for corpus in data.test}
    if name is not None and name not in corpora:
        names = ", ".join(sets_by_name(data))
        raise ScoringError(f"{run}: has no test set {name!r}; it has {names}")
    if not corpora:
        raise ScoringError(f"{run}: has no data.test: evaluate '{VALID}', or give --src and --ref")
    folder = data.folder if folder is None else folder
    return {
        corpus.name: _test_set(corpus, folder)
        for corpus in (corpora.values() if name is None else [corpora[name]])
    }


def sets_by_name(data: DataConfig) -> dict[str, CorpusConfig]:
    """The sets that a run can be evaluated on: tests, and "valid", or "valid.NAME" of several."""
    tests = {corpus.name: corpus for corpus in data.test}
    return tests | {
        _validation_name(key.rpartition(".")[2]): corpus for key, corpus in data.validation.items()
    }


def _validation_name(name: str) -> str:
    """How commands call a validation set, so that no test set has its name."""
    return name if name == VALID else f"{VALID}.{name}"


def _valid_sets(run: RunDirectory) -> Sets:
    if not all(exists(run.data / file_name) for file_name in VALID_TEXT):
        raise ScoringError(f"{run}: has no validation text: give files by --src and --ref")
    from flaxformer_mt.data.prepare.make import valid_sets  # for the sake of a fast start

    return {_validation_name(name): text for name, text in valid_sets(run.data).items()}


def _test_set(corpus: CorpusConfig, folder: str) -> tuple[Sequence[str], Sequence[str]]:
    key = f"data.test.{corpus.name}"
    pairs = list(read_pairs(corpus, folder, key=key))
    if not pairs:
        raise CorpusError(f"{key}: has no sentence to score")
    return [pair.src for pair in pairs], [pair.tgt for pair in pairs]


@dataclasses.dataclass(frozen=True)
class SetToScore:
    """A set to translate and score."""

    sources: Sequence[str]
    references: Given
    scoring: Scoring
    languages: tuple[str, str] = ("", "")  # of both sides, as codes; empty: the translator's
    tag: str | None = None  # before each source; None: the translator's


def set_to_score(
    text: tuple[Sequence[str], Given],
    scoring: Scoring,
    settings: DataConfig,
    corpus: CorpusConfig | None,
) -> SetToScore:
    """A set of a run, or with no `corpus` text of the user's own, by the settings in its languages.

    A run's text has its tag before each source. It's no part of the text, whose words are counted
    and which metrics such as COMET read.
    """
    if corpus is None:
        return SetToScore(*text, scoring=scoring)
    sources, references = text
    lead = f"{corpus.tag} " if corpus.tag else ""
    return SetToScore(
        [source.removeprefix(lead) for source in sources],
        references,
        scoring=scoring,
        languages=(settings.src_lang, settings.tgt_lang),
        tag=corpus.tag,
    )


def evaluations(
    sets: Mapping[str, SetToScore],
    load: Callable[[], Translator],
    directory: Path,
    *,
    examples: int,
    processes: Processes | None = None,
) -> Iterator[Evaluation]:
    """Each set's translations and scores, saved in `directory`.

    Several processes share a set's sentences; the first one scores. All sets are checked first.
    """
    for name, scored in sets.items():
        one_set.check(name, scored.sources, scored.references, directory)
        # Before the work, metrics refuse what they can't score.
        scored.scoring.metrics(scored.references, scored.sources)
    from flaxformer_mt.api.validation import translate_together
    from flaxformer_mt.parallel.compile_cache import working_time
    from flaxformer_mt.parallel.processes import ALONE

    translator = load()
    for name, scored in sets.items():
        start = working_time()
        of_set = translator if scored.tag is None else translator.with_tag(scored.tag)
        of_set = of_set.in_languages(*scored.languages)
        translations = translate_together(of_set, scored.sources, processes or ALONE)
        if processes is None or processes.is_first:
            yield one_set.evaluate(
                of_set,
                scored.sources,
                scored.references,
                translated=(translations, working_time() - start),
                name=name,
                directory=directory,
                scoring=scored.scoring,
                examples=examples,
            )


def average(
    run: str | os.PathLike[str], *, last: int | None = None, best: int | None = None
) -> list[int]:
    """Averages checkpoints of a run, which `Translator.load` then uses; returns their steps.

    They are the `last` regular ones (default: `training.keep_for_average`), or the `best` by
    validation. Raises RunDirectoryError, CheckpointError, and ValueError for both.
    """
    import flaxformer_mt.parallel  # noqa: F401 (it leaves an absent TPU out)
    from flaxformer_mt.api.length import choose_length
    from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average

    if last is not None and best is not None:
        raise ValueError("give either `last` or `best`, not both")
    opened = open_run(run)
    if best is not None:
        params, steps = average_checkpoints(opened, best, "best")
    else:
        if last is None:
            # At least the newest, for a run that keeps none.
            last = max(1, config_of(opened).training.keep_for_average)
        params, steps = average_checkpoints(opened, last)
    write_average(opened, params, steps)
    averaged = ", ".join(f"{step:,}" for step in steps)
    say(f"averaged steps {averaged}; translate and evaluate now use the average")
    choose_length(opened, config_of(opened))
    return steps


def export(
    run: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str,
    which: Which = "auto",
    quantization: str = "float32",
    sample: str | os.PathLike[str] | None = None,
    bound: float | None = None,
    checked: bool = True,
    push: str | None = None,
    license: str = "",
) -> Parity | None:
    """Writes a run's model into the new folder `output`, for another program.

    `format` is "ctranslate2", "argos", "huggingface", "stablehlo", "marian", "bergamot" or "onnx";
    `quantization` is CTranslate2's and Argos's, and Bergamot's if it is "int8". The folder appears
    once both programs' outputs have been compared on `sample`, a file of source lines (default: the
    run's validation text); the result says how far they agree. `bound` is the largest accepted
    difference of a token's log-probability. `checked=False` skips the comparison, and the other
    program isn't needed.

    A folder for Hugging Face has a model card with the run's data, commands, and scores of these
    weights; `license` is the hub's name of one. `push`, "ORG/NAME", uploads the folder to that
    model on the hub.

    Raises ExportError, HubError, RunDirectoryError, and what `Translator.load` raises.
    """
    if format != "huggingface" and (push is not None or license):
        raise ExportError(f"a folder for {format} has no model card and isn't pushed")
    if push is not None:
        hub.check_push(push)
    from flaxformer_mt.decoding.translator import Translator
    from flaxformer_mt.interop import export as interop
    from flaxformer_mt.interop.parity import sample_lines

    opened = RunDirectory(as_path(run))
    translator = Translator.load(opened, which=which)
    data = _local_data(opened)
    compared = sample_lines(translator.vocabularies, data, sample) if checked else None
    parity = interop.export(
        translator,
        output,
        form=format,
        quantization=quantization,
        card=_card(opened, translator.name, license=license, hub_name=push or ""),
        sample=compared,
        bound=bound,
    )
    say(f"compared with {parity}" if parity else "outputs not compared (--unchecked)")
    say(f"{output}: weights '{translator.name}'; README.md explains how to translate")
    if push is not None:
        say(f"{hub.push(output, push)}: uploaded")
    return parity


def _card(run: RunDirectory, weights: str, *, license: str, hub_name: str) -> Card:
    """What a model card says about the run, with the scores of these weights."""
    from flaxformer_mt.interop.huggingface import Card

    record = read_record(run)
    return Card(
        data=freeze(record.config, str(run.config_file)).data,
        commands=[start.command_line for start in record.starts],
        evaluations=kept_scores(run.evaluation, weights),
        license=license,
        hub_name=hub_name,
    )


def _local_data(run: RunDirectory) -> Path | None:
    """A run's `data` on this machine; None for a run without its text."""
    try:
        return local_copy(run.data)
    except RunDirectoryError:
        return None
