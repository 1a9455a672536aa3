"""Flags of metrics and test sets, and the text that they name."""

from __future__ import annotations

import functools
import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag, count, flags, samples, utf8_text
from flaxformer_mt.config.languages import base_language, language_pair, target_language_of
from flaxformer_mt.evaluation.comet import MODEL, require_comet
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.evaluation.metrics import TOKENIZERS, ScoringError
from flaxformer_mt.evaluation.paper_protocol import LANGUAGES
from flaxformer_mt.evaluation.scoring import CHRF_WORD_ORDERS, TER_OPTIONS, Scoring
from flaxformer_mt.evaluation.significance import RESAMPLES, SEED
from flaxformer_mt.evaluation.testsets import load_testset

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
        "sacreBLEU's tokenisation; none: the text is already tokenised (default: the run's, else "
        "by target language: sacreBLEU's choice, or char for other text without blanks between "
        "words)",
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
    if options.comet:
        require_comet()


def check_testset_options(options: Namespace, parser: ArgumentParser) -> None:
    if (options.testset is None) != (options.langpair is None):
        parser.error("--testset and --langpair go together")


def language_of(options: Namespace) -> str:
    """The target language from `--langpair`, or from the name of `--ref` or else of a file of
    hypotheses: `test.de`, `ref.de_AT.xz`, `zho_Hans.devtest`."""
    if options.langpair is not None:
        return languages_of(options.langpair)[1]
    files = [options.ref, getattr(options, "hypotheses", None)]
    files += [system.rpartition("=")[2] for system in getattr(options, "systems", [])]
    for file in files:
        if file is not None and (language := target_language_of(file, options.src or "")):
            return language
    return ""


def languages_of(langpair: str) -> tuple[str, str]:
    """Both codes of `--langpair`, which may name regions: `en-pt-BR`."""
    src, _, tgt = langpair.partition("-")
    return language_pair(langpair) or (src, tgt)


def require_aligned(
    hypotheses: tuple[str, Sequence[str]], references: tuple[str, Sequence[str]]
) -> None:
    """Raises ScoringError, naming both, if two texts, each with its name, differ in length."""
    (name, lines), (other_name, other_lines) = hypotheses, references
    if len(lines) != len(other_lines):
        raise ScoringError(
            f"{name} has {len(lines):,} lines, {other_name} has {len(other_lines):,}: "
            "they must match line by line"
        )


def given_text(
    options: Namespace, processes: Processes | None = None
) -> tuple[list[str] | None, list[str] | None]:
    """Sources and references from `--testset`, or `--src` and `--ref`. Raises ScoringError."""
    if options.testset is None:
        sources = None if options.src is None else read_segments(options.src)
        references = None if options.ref is None else read_segments(options.ref)
        if sources is not None and references is not None:
            require_aligned((options.src, sources), (options.ref, references))
        return sources, references

    load = functools.cache(lambda: load_testset(options.testset, options.langpair))
    if processes is not None:
        # The first process fetches it, so that others find it on a shared disk.
        processes.first(lambda: load() and None)
    sources, references, further = load()
    if further:
        say(f"{options.testset}: {further} more references not used")
    return sources, references
