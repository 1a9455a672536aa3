"""Flags of metrics and test sets, and the text that they name."""

from __future__ import annotations

import functools
import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sized
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.bulk.stream import NOTES
from flaxformer_mt.cli.arguments import Flag, count, flags, samples, utf8_text
from flaxformer_mt.config.languages import base_language, language_pair, target_language_of
from flaxformer_mt.evaluation.bleu_tokenizers import OF_PIECES, TOKENIZERS
from flaxformer_mt.evaluation.comet import MODEL, require_comet
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.paper_protocol import LANGUAGES
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.evaluation.scoring import CHRF_WORD_ORDERS, TER_OPTIONS, Scoring
from flaxformer_mt.evaluation.significance import RESAMPLES, SEED
from flaxformer_mt.evaluation.testsets import load_testset
from flaxformer_mt.wording import about_lines, counted

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes


def _word_order(text: str) -> int:
    order = count(text)
    if order not in CHRF_WORD_ORDERS:
        raise ArgumentTypeError(f"{text!r}: write 1 or, for chrF++, 2")
    return order


_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
_METRICS = {
    "--tokenize": Flag(
        "sacreBLEU's tokenisation; none: the text is already tokenised; "
        f"{', '.join(OF_PIECES)}: spBLEU, with a model that sacreBLEU downloads (default: the "
        "run's, else by target language: sacreBLEU's choice, or char for other text without blanks "
        "between words)",
        choices=TOKENIZERS,
    ),
    "--lowercase": Flag("BLEU and chrF ignore case"),
    "--tgt-lang": Flag(
        "target language, which decides the tokenisation; the paper's BLEU has rules for "
        f"{', '.join(LANGUAGES)} (default: from the run, --langpair or the names of files)",
        takes="CODE",
        read=utf8_text,
    ),
    "--chrf-word-order": Flag(
        "also compute chrF with n-grams of up to so many words; 2 is chrF++",
        takes="N",
        read=_word_order,
    ),
    "--no-ter": Flag("skip TER, the slowest metric"),
    "--ter-options": Flag(
        f"sacreBLEU's: {', '.join(TER_OPTIONS)} (with normalized or no_punct)",
        takes="NAME",
        choices=TER_OPTIONS,
        several=True,
    ),
}
_RESAMPLING = {
    "--comet-gpus": Flag("GPUs for COMET", takes="N", read=count),
    "--resamples": Flag(
        "bootstrap resamples for 95%% intervals (0: none)", takes="N", read=samples
    ),
    "--seed": Flag("seed for all resampling, sacreBLEU's by default", takes="N", read=count),
}
TESTSET = {
    "--testset": Flag(
        "a sacreBLEU test set, such as wmt14/full; needs --langpair", takes="NAME", read=utf8_text
    ),
    "--langpair": Flag("the test set's languages, such as en-de", takes="XX-YY"),
}


BLANK_REFERENCES = {
    "--blank-references": Flag(
        "how to read a blank line with several --ref: as a reference without words, like "
        "sacreBLEU's command, or as no reference (signature nrefs:var) (default: empty)",
        choices=("empty", "missing"),
    ),
}


def add_scoring(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("metrics")
    flags(group, _METRICS, chrf_word_order=0)
    group.add_argument(
        "--tokenized",
        dest="tokenize",
        action="store_const",
        const="none",
        default=SUPPRESS,
        help="same as --tokenize none",
    )
    group.add_argument(
        "--comet",
        nargs="?",
        const=MODEL,
        metavar="MODEL",
        help=f"also compute COMET, with the package unbabel-comet ({MODEL}, another name, or a "
        "path)",
    )
    flags(group, _RESAMPLING, comet_gpus=0, resamples=RESAMPLES, seed=SEED)


def scoring(options: Namespace, parser: ArgumentParser, usual: Scoring) -> Scoring:
    """The scoring that the flags of `add_scoring` ask for; `usual` has the defaults.

    Raises CometError.
    """
    _check_metrics(options, parser)
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


def _check_metrics(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that don't go together. Raises CometError."""
    if options.tgt_lang is not None and not _CODE.fullmatch(options.tgt_lang):
        parser.error(f"--tgt-lang {options.tgt_lang}: write a code such as de or de_AT")
    if options.comet_gpus and not options.comet:
        parser.error("--comet-gpus needs --comet")
    if options.ter_options and options.no_ter:
        parser.error("--ter-options has no use with --no-ter: leave out one of them")
    if options.comet and len(options.ref or ()) > 1:
        parser.error("--comet takes one reference per sentence: give one --ref, or leave it out")
    if options.comet:
        require_comet()


def check_testset_options(options: Namespace, parser: ArgumentParser) -> None:
    if (options.testset is None) != (options.langpair is None):
        parser.error("--testset and --langpair go together")
    if options.blank_references is not None and len(options.ref or ()) < 2:
        parser.error("--blank-references is for several references: --ref FILE FILE")


def language_of(options: Namespace) -> str:
    """The target language from `--langpair`, or from the name of `--ref` or else of a file of
    hypotheses: `test.de`, `ref.de_AT.xz`, `zho_Hans.devtest`."""
    if options.langpair is not None:
        return languages_of(options.langpair)[1]
    files = [*(options.ref or ()), getattr(options, "hypotheses", None)]
    files += [system.rpartition("=")[2] for system in getattr(options, "systems", [])]
    for file in files:
        if file is not None and (language := target_language_of(file, options.src or "")):
            return language
    return ""


def languages_of(langpair: str) -> tuple[str, str]:
    """Both codes of `--langpair`, which may name regions: `en-pt-BR`."""
    src, _, tgt = langpair.partition("-")
    return language_pair(langpair) or (src, tgt)


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
