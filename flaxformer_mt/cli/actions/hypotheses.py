"""Scores of a file of hypotheses."""

from argparse import Namespace
from pathlib import PurePath

from flaxformer_mt.api import say
from flaxformer_mt.cli.actions.scoring import (
    given_text,
    name_of_references,
    require_aligned,
    scoring,
)
from flaxformer_mt.cli.arguments import print_json
from flaxformer_mt.cli.scoring import language_of
from flaxformer_mt.evaluation.evaluate import check_place, keep, read_segments
from flaxformer_mt.evaluation.n_best import lists_in, remarks
from flaxformer_mt.evaluation.references import References, ScoringError
from flaxformer_mt.evaluation.scoring import Scoring, assess
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.wording import counted


def score_file(options: Namespace) -> int:
    """Scores a file of --hypotheses; returns the exit status."""
    how = scoring(options, Scoring(language=language_of(options)))
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
