"""Test sets translated by a run, and their scores."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser, Namespace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.runs import evaluations, set_to_score, sets_by_name, sets_of_run
from flaxformer_mt.bulk.stream import NOTES
from flaxformer_mt.bulk.translating import SHORT, TranslationCounts
from flaxformer_mt.cli.actions.scoring import given_text, scoring
from flaxformer_mt.cli.arguments import as_asked, print_json, say_if_untagged
from flaxformer_mt.cli.scoring import languages_of
from flaxformer_mt.config import CorpusConfig
from flaxformer_mt.config.languages import base_language, languages_of_tag, tag_of_each_pair
from flaxformer_mt.config.tokenizers import for_corpus
from flaxformer_mt.evaluation import VALID
from flaxformer_mt.evaluation.scoring import scoring_of
from flaxformer_mt.parallel.compile_cache import watch_compilations
from flaxformer_mt.rundir.checkpoint_choice import Chosen, chosen_weights
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.wording import about_lines

if TYPE_CHECKING:
    from flaxformer_mt.api.runs import Sets
    from flaxformer_mt.config import DataConfig
    from flaxformer_mt.evaluation.evaluate import Evaluation
    from flaxformer_mt.parallel.processes import Processes


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
        how = scoring(options, scoring_of(settings))
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
