"""The comparison of systems that `compare` prints."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.actions.scoring import (
    given_text,
    name_of_references,
    require_aligned,
    scoring,
)
from flaxformer_mt.cli.arguments import print_json
from flaxformer_mt.cli.scoring import language_of
from flaxformer_mt.evaluation import METHODS, TRIALS
from flaxformer_mt.evaluation.compare import (
    Comparison,
    System,
    common_scoring,
    compare,
    find_system,
)
from flaxformer_mt.rundir.paths import as_path, write_json


def compare_systems(options: Namespace, parser: ArgumentParser) -> int:
    """Compares the systems that the flags name; returns the exit status."""
    systems = [
        find_system(system, evaluation=options.set, from_n_best=options.from_n_best, note=say)
        for system in options.systems
    ]
    if options.set is not None and not any(system.evaluation for system in systems):
        parser.error("--set is for run directories, but these systems are files")
    if options.from_n_best is not None and not any(system.has_n_best for system in systems):
        parser.error("--from-n-best is for files of n-best lists, but these systems have none")
    sources, references = given_text(options)
    if references is not None:
        reference = name_of_references(options), references
        for system in systems:
            require_aligned((system.name, system.hypotheses), reference)

    known = common_scoring(
        systems,
        tokenizer=options.tokenize,
        lowercase=options.lowercase,
        language=_language(options, systems),
    )
    comparison = compare(
        systems,
        references,
        sources=sources,
        scoring=scoring(options, known),
        methods=METHODS if options.method == "both" else (options.method,),
        trials=options.trials or TRIALS,
        note=say,
    )
    _report(options, comparison)
    return 0


def _language(options: Namespace, systems: Sequence[System]) -> str:
    """The target language: by --langpair, else as an evaluation recorded it, else by the names of
    files and folders."""
    recorded = next((system.language for system in systems if system.language), "")
    if options.langpair is None and recorded:
        return recorded
    return language_of(options)


def _report(options: Namespace, comparison: Comparison) -> None:
    for system in comparison.systems:
        for note in system.assessment.scores.notes:
            say(f"{system.name}: {note}")
    if options.output is not None:
        write_json(as_path(options.output), comparison.to_json())
    if options.json:
        print_json(comparison.to_json())
    else:
        print(comparison.table())
