"""The metrics that flags ask for, and the text that they name."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Sized
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.bulk.stream import NOTES
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.evaluation.comet import require_comet
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.evaluation.references import References, ScoringError
from flaxformer_mt.evaluation.scoring import Scoring
from flaxformer_mt.evaluation.testsets import load_testset
from flaxformer_mt.wording import about_lines, counted

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes


def scoring(options: Namespace, usual: Scoring) -> Scoring:
    """The scoring that the flags of `add_scoring` ask for; `usual` has the defaults.

    Raises CometError.
    """
    if options.comet:
        require_comet()
    language = options.tgt_lang or usual.language
    tokenizer = usual.tokenizer
    if tokenizer != "none" and base_language(language) != base_language(usual.language):
        tokenizer = "auto"
    return Scoring(
        tokenizer=options.tokenize or tokenizer,
        lowercase=options.lowercase or usual.lowercase,
        language=language,
        chrf_word_order=options.chrf_word_order,
        ter=not options.no_ter,
        ter_options=tuple(options.ter_options or ()),
        comet=options.comet or "",
        comet_gpus=options.comet_gpus,
        resamples=options.resamples,
        seed=options.seed,
    )


def require_aligned(hypotheses: tuple[str, Sized], references: tuple[str, Sized]) -> None:
    """Raises ScoringError, naming both, if two texts, each with its name, differ in length."""
    (name, lines), (other_name, other_lines) = hypotheses, references
    if len(lines) != len(other_lines):
        raise ScoringError(
            f"{name} has {len(lines):,} lines, {other_name} has {len(other_lines):,}: "
            "they must match line by line"
        )


def name_of_references(options: Namespace) -> str:
    """What messages call the references: the first file, or the test set."""
    return str(options.ref[0] if options.ref else options.testset)


def given_text(
    options: Namespace, processes: Processes | None = None
) -> tuple[list[str] | None, References | None]:
    """Sources and references from `--testset`, or `--src` and `--ref`. Raises ScoringError."""
    if options.testset is None:
        references = None if options.ref is None else _read_references(options)
        sources = None if options.src is None else read_segments(options.src)
        if sources is not None and references is not None:
            require_aligned((options.src, sources), (name_of_references(options), references))
        return sources, references

    load = functools.cache(lambda: load_testset(options.testset, options.langpair))
    if processes is not None:
        # The first process fetches it, so that others find it on a shared disk.
        processes.first(lambda: load() and None)
    sources, given, unused = load()
    if unused:
        say(f"{options.testset}: {counted(unused, 'more reference')} not used")
    return sources, References.of(given)


def _read_references(options: Namespace) -> References:
    """The files of --ref. Raises ScoringError."""
    first, *others = options.ref
    columns = [read_segments(first)]
    for path in others:
        columns.append(read_segments(path))
        require_aligned((path, columns[-1]), (first, columns[0]))
    references = References.of(columns)
    if not others:
        return references

    if options.blank_references == "missing":
        return references.without_blanks()
    blank = references.blank_lines()
    if blank and options.blank_references is None:
        remark = (
            "with a blank reference: compared as text without words, as by sacreBLEU's command; if "
            "the reference is missing there, add --blank-references missing"
        )
        say(f"{first}: {about_lines(remark, blank[:NOTES], len(blank))}")
    return references
