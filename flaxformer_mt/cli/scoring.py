"""Flags of metrics and test sets."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

from flaxformer_mt.cli.arguments import Flag, count, flags, samples, utf8_text
from flaxformer_mt.config.languages import language_pair, target_language_of
from flaxformer_mt.evaluation import (
    CHRF_WORD_ORDERS,
    COMET_MODEL,
    OF_PIECES,
    PAPER_LANGUAGES,
    RESAMPLES,
    SEED,
    TER_OPTIONS,
    TOKENIZERS,
)


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
        f"{', '.join(PAPER_LANGUAGES)} (default: from the run, --langpair or the names of files)",
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
        const=COMET_MODEL,
        metavar="MODEL",
        help=f"also compute COMET, with the package unbabel-comet ({COMET_MODEL}, another name, "
        "or a path)",
    )
    flags(group, _RESAMPLING, comet_gpus=0, resamples=RESAMPLES, seed=SEED)


def check_scoring(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags of metrics and test sets that don't go together."""
    _check_metrics(options, parser)
    if (options.testset is None) != (options.langpair is None):
        parser.error("--testset and --langpair go together")
    if options.blank_references is not None and len(options.ref or ()) < 2:
        parser.error("--blank-references is for several references: --ref FILE FILE")


def _check_metrics(options: Namespace, parser: ArgumentParser) -> None:
    if options.tgt_lang is not None and not _CODE.fullmatch(options.tgt_lang):
        parser.error(f"--tgt-lang {options.tgt_lang}: write a code such as de or de_AT")
    if options.comet_gpus and not options.comet:
        parser.error("--comet-gpus needs --comet")
    if options.ter_options and options.no_ter:
        parser.error("--ter-options has no use with --no-ter: leave out one of them")
    if options.comet and len(options.ref or ()) > 1:
        parser.error("--comet takes one reference per sentence: give one --ref, or leave it out")


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
