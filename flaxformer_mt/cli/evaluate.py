"""`evaluate`: translates and scores test sets, or scores another system's output."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence, Set
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.runs import (
    VALID,
    evaluations,
    is_validation,
    set_to_score,
    sets_by_name,
    sets_of_run,
)
from flaxformer_mt.bulk.stream import NOTES
from flaxformer_mt.cli.arguments import (
    NO_SPLIT,
    TAG,
    WORKDIR,
    Flag,
    add_decoding,
    add_processes,
    add_search,
    as_asked,
    cluster,
    count,
    flags,
    given_settings,
    make_parser,
    patience,
    print_json,
    say_if_untagged,
    utf8_text,
)
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.cli.scoring import (
    BLANK_REFERENCES,
    TESTSET,
    add_scoring,
    check_testset_options,
    given_text,
    language_of,
    languages_of,
    name_of_references,
    require_aligned,
    scoring,
)
from flaxformer_mt.config import CorpusConfig
from flaxformer_mt.config.languages import base_language, languages_of_tag, tag_of_each_pair
from flaxformer_mt.config.tokenizers import for_corpus
from flaxformer_mt.evaluation.evaluate import check_place, keep, read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.n_best import CHOICES, lists_in, remarks
from flaxformer_mt.evaluation.page import SHOWN
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.evaluation.scoring import Scoring, assess, scoring_of
from flaxformer_mt.rundir.checkpoint_choice import Chosen, chosen_weights
from flaxformer_mt.rundir.layout import RunDirectory, open_run
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.wording import about_lines, counted

if TYPE_CHECKING:
    from flaxformer_mt.api.runs import Sets
    from flaxformer_mt.config import DataConfig
    from flaxformer_mt.evaluation.evaluate import Evaluation
    from flaxformer_mt.parallel.processes import Processes

_WHAT = {
    **WORKDIR,
    "--set": Flag(
        "one of the run's test sets (data.test; default: all), `valid`, or `valid.NAME` of several "
        "validation sets",
        takes="NAME",
        read=utf8_text,
    ),
    "--src": Flag("a source file instead; needs --ref", takes="FILE"),
    "--ref": Flag(
        "its reference translation, or several of them, one per file",
        takes="FILE",
        several=True,
    ),
    **BLANK_REFERENCES,
    **TESTSET,
    "--hypotheses": Flag(
        "score this file instead of a run's translations: one per line, or n-best lists as Moses "
        "and Marian write them; needs --ref; --src is optional",
        takes="FILE",
    ),
    "--from-n-best": Flag(
        "which translation to score if --hypotheses has n-best lists: each sentence's first, the "
        "one with the highest score in the file, or, as an oracle, the one with the highest chrF "
        "(default: first)",
        choices=(*CHOICES, "oracle"),
    ),
    "--output": Flag(
        "where to save scores and translations (default: the run's evaluation folder; "
        "with --hypotheses: nowhere)",
        takes="DIR",
    ),
    "--name": Flag("name in the evaluation folder", takes="NAME", read=utf8_text),
    "--folder": Flag("folder of the test files, if not data.folder", takes="DIR"),
    "--json": Flag("print the scores as JSON"),
}
_OF_RUNS = set(
    "workdir weights set folder dtype tag coordinator num_processes process_id heartbeat".split()
)


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_decoding(parser)
    add_search(parser)
    flags(parser, _WHAT | NO_SPLIT | TAG)
    add_scoring(parser)
    examples = "how many of the worst and best translations to show on a page (0: none)"
    flags(parser, {"--examples": Flag(examples, takes="N", read=count)}, examples=SHOWN)
    add_processes(parser)
    options = parser.parse_args(arguments)
    check_testset_options(options, parser)
    given_flags = {name for name, value in vars(options).items() if value is not None}
    if options.testset is not None and given_flags & {"src", "ref", "set", "folder"}:
        parser.error("--testset can't be used with --set, --src, --ref or --folder")
    if options.hypotheses is not None:
        _check_scored_file(options, parser, given_flags)
        return score_file(options, parser)

    _check_run(options, parser, given_flags)
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    keep_programs()
    from flaxformer_mt.parallel.processes import joined

    with joined(cluster(options, parser), **patience(options)) as processes:
        return evaluate_run(options, parser, processes)


def _check_scored_file(options: Namespace, parser: ArgumentParser, given_flags: Set[str]) -> None:
    """Refuses flags that --hypotheses can't be used with."""
    if options.weights == "auto":  # the default
        given_flags = given_flags - {"weights"}
    for name in sorted(given_flags & _OF_RUNS | set(given_settings(options))):
        parser.error(f"--hypotheses can't be used with --{name.replace('_', '-')}")
    for name, is_given in (("shortlist", options.shortlist), ("no-split", options.no_split)):
        if is_given:
            parser.error(f"--hypotheses can't be used with --{name}")
    if (options.ref is None) == (options.testset is None):
        parser.error("--hypotheses needs --ref FILE, or --testset and --langpair")


def _check_run(options: Namespace, parser: ArgumentParser, given_flags: Set[str]) -> None:
    """Refuses flags that contradict each other where a run translates."""
    if options.workdir is None:
        parser.error("give --workdir DIR to translate with a run, or --hypotheses FILE")
    if options.from_n_best is not None:
        parser.error("--from-n-best is for a file of n-best lists: add --hypotheses FILE")
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref go together")
    if options.src is not None and given_flags & {"set", "folder"}:
        parser.error("--src and --ref already name the files: leave out --set and --folder")
    if is_validation(options.set) and options.folder is not None:
        parser.error("--folder is for test files, but the run itself holds the text of --set valid")
    if options.src is None and options.testset is None:
        _check_own_sets(options, parser)


def _check_own_sets(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that have no use for the run's own sets."""
    if options.tag is not None:
        parser.error("--tag is for --src with --ref, and --testset: the run's own sets have theirs")
    if options.name is not None:
        parser.error("--name is for --src with --ref, --testset and --hypotheses")


def evaluate_run(options: Namespace, parser: ArgumentParser, processes: Processes) -> int:
    """Several processes share each set's sentences; the first one scores and prints."""
    run = RunDirectory(as_path(options.workdir))
    config = config_of(run).data
    own_text = _own_text(options, parser, config)
    # Every file is read before anything is translated, so that a misspelt name costs no time.
    texts = _test_sets(options, parser, run, config, processes)
    corpora = sets_by_name(config)
    sets = {}
    for name, text in texts.items():
        settings = for_corpus(config, corpora.get(name, own_text))
        how = scoring(options, parser, scoring_of(settings))
        sets[name] = set_to_score(text, how, settings, corpora.get(name))
    directory = run.evaluation if options.output is None else as_path(options.output)
    # The first process chooses: a run in training may change a moment later.
    chosen = processes.first(lambda: dataclasses.asdict(chosen_weights(run, options.weights)))

    def load() -> fm.Translator:
        translator = fm.Translator.load(run, which=Chosen(**chosen), shortlist=options.shortlist)
        translator = as_asked(options, translator)
        if kept := _kept(translator):
            say(kept)
        if not texts.keys() <= corpora.keys():  # text of the user's own
            say_if_untagged(translator)
        return translator

    from flaxformer_mt.parallel.compile_cache import watch_compilations

    scores: dict[str, Any] = {}
    compile_seconds = watch_compilations().seconds
    for evaluation in evaluations(
        sets, load, directory, examples=options.examples, processes=processes
    ):
        before, compile_seconds = compile_seconds, watch_compilations().seconds
        _report(evaluation, compile_seconds - before)
        scores[evaluation.name] = json.loads(evaluation.files.scores.read_text("utf-8"))
        if not options.json:
            summary = evaluation.scores.one_line()
            print(f"{evaluation.name}: {summary}\n\n{evaluation.assessment.table()}\n")
    if options.json and processes.is_first:
        print_json(scores)
    return 0


def _own_text(options: Namespace, parser: ArgumentParser, config: DataConfig) -> CorpusConfig:
    """Languages and tag of text that isn't one of the run's sets; its tag becomes --tag. Refuses a
    test set of other languages than the run's."""
    if options.langpair is None:
        src_lang, tgt_lang = languages_of_tag(config.directions, options.tag or "")
        return CorpusConfig(src_lang=src_lang, tgt_lang=tgt_lang)

    languages = [base_language(code) for code in languages_of(options.langpair)]
    tags = tag_of_each_pair(config.directions)
    for (src_lang, tgt_lang), tag in tags.items():
        if languages == [base_language(src_lang), base_language(tgt_lang)]:
            if options.tag is None and len(tags) > 1:
                options.tag = tag
            return CorpusConfig(src_lang=src_lang, tgt_lang=tgt_lang)
    if options.tgt_lang is None:
        known = " and ".join(f"{src_lang} to {tgt_lang}" for src_lang, tgt_lang in tags)
        parser.error(
            f"--langpair {options.langpair}: this run translates {known}; to score this pair "
            "anyway, add its --tgt-lang"
        )
    return CorpusConfig()


def _test_sets(
    options: Namespace,
    parser: ArgumentParser,
    run: RunDirectory,
    config: DataConfig,
    processes: Processes,
) -> Sets:
    """Sources and references by the set's name."""
    if options.testset is None and options.src is None:
        return sets_of_run(run, config, options.set, folder=options.folder)

    name = _set_name(options)
    if name in {VALID, *sets_by_name(config)}:
        # One set's scores must not replace another's.
        parser.error(f"{name!r} is already a test set of this run: choose another --name")
    sources, references = given_text(options, processes)
    assert sources is not None and references is not None
    return {name: (sources, references)}


def _set_name(options: Namespace) -> str:
    if options.name:
        return str(options.name)
    if options.testset is not None:
        return f"{options.testset}.{options.langpair}".replace("/", "_")
    return PurePath(options.src).name.split(".")[0]


def _kept(translator: fm.Translator) -> str:
    """A remark on what the scored outputs copy from their sources; empty: nothing."""
    config = translator.config
    kept = ["URLs, addresses, placeholders and emoji (--keep)"] * config.keep
    kept += ["unknown words (--copy-unknown)"] * config.copy_unknown
    return f"kept as they are in the sources: {' and '.join(kept)}" if kept else ""


def _report(evaluation: Evaluation, compile_seconds: float) -> None:
    from flaxformer_mt.bulk.translating import SHORT, TranslationCounts

    name, seconds = evaluation.name, evaluation.seconds
    for line in evaluation.split_lines:
        say(f"{name}:{line}: too long for the model; translated in pieces and rejoined")
    by_sentence = sum(translation.by_sentence for translation in evaluation.translations)
    for sentence in TranslationCounts(by_sentence=by_sentence).describe():
        say(f"{name}: {sentence}")
    if short := evaluation.short_lines:
        say(f"{name}: {about_lines(SHORT, short[:NOTES], len(short))}")
    for note in evaluation.scores.notes:
        say(f"{name}: {note}")
    lines = len(evaluation.translations)
    say(
        f"{name}: {lines:,} lines in {seconds:.1f} s ({lines / max(seconds, 1e-9):,.0f}/s) plus "
        f"{compile_seconds:.1f} s compiling; {evaluation.files.scores}"
    )


def score_file(options: Namespace, parser: ArgumentParser) -> int:
    """Scores a file of --hypotheses; returns the exit status."""
    how = scoring(options, parser, Scoring(language=language_of(options)))
    name = options.name or PurePath(options.hypotheses).name.split(".")[0]
    directory = None if options.output is None else as_path(options.output)
    if directory is not None:
        check_place(name, directory)
    sources, references = given_text(options)
    assert references is not None  # since `main` has checked --ref and --testset
    hypotheses, settings = _hypotheses(options, references)
    assessment = assess(hypotheses, references, sources=sources, scoring=how)
    for note in assessment.scores.notes:
        say(f"{name}: {note}")

    if directory is not None:
        files = keep(
            assessment,
            name=name,
            directory=directory,
            settings=settings,
            examples=options.examples,
            origin=f"Hypotheses: {options.hypotheses}",
        )
        say(f"{name}: {files.scores}")
    if options.json:
        print_json({name: {"name": name, **settings, **assessment.to_json()}})
    else:
        print(f"{name}: {assessment.scores.one_line()}\n\n{assessment.table()}")
    return 0


def _hypotheses(options: Namespace, references: References) -> tuple[list[str], dict[str, str]]:
    """The text that a file of --hypotheses stands for, and how NAME.json describes it. Raises
    ScoringError."""
    path, choice = options.hypotheses, options.from_n_best
    hypotheses = read_segments(path)
    settings = {"hypotheses": path}
    lists = lists_in(path, hypotheses)
    if lists is None and choice is not None:
        raise ScoringError(
            f"{path}: has no n-best lists, whose lines look like '0 ||| translation ||| name= "
            "value ||| score': leave out --from-n-best"
        )
    if lists is None:
        require_aligned((path, hypotheses), (name_of_references(options), references))
        return hypotheses, settings

    sentences = len(lists.candidates)
    if sentences != len(references):
        raise ScoringError(
            f"{path} has n-best lists of {counted(sentences, 'sentence')}, "
            f"{name_of_references(options)} has {counted(len(references), 'line')}: they must match"
        )
    for sentence in remarks(lists, choice):
        say(f"{path}: {sentence}")
    settings["from_n_best"] = choice or "first"
    if choice == "oracle":
        return lists.oracle(references, lowercase=options.lowercase), settings
    return lists.chosen(choice or "first"), settings
