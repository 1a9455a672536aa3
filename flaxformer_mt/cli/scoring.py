"""What commands that score take: metrics, confidence, test sets by name."""

from __future__ import annotations

import argparse
import re
from pathlib import PurePath

from flaxformer_mt.cli.arguments import count
from flaxformer_mt.evaluation.comet import MODEL, require_comet
from flaxformer_mt.evaluation.metrics import TOKENIZERS
from flaxformer_mt.evaluation.moses import LANGUAGES
from flaxformer_mt.evaluation.resampling import RESAMPLES, SEED
from flaxformer_mt.evaluation.scoring import Scoring
from flaxformer_mt.evaluation.testsets import check_testset


def add_scoring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("metrics")
    group.add_argument(
        "--tokenize",
        choices=TOKENIZERS,
        help="sacreBLEU's tokenisation; none: the text is tokenised already (default: 13a, or "
        "none where the run's config says data.tokenized)",
    )
    group.add_argument(
        "--tokenized",
        dest="tokenize",
        action="store_const",
        const="none",
        default=argparse.SUPPRESS,
        help="the same as --tokenize none",
    )
    group.add_argument("--lowercase", action="store_true", help="BLEU and chrF ignore case")
    group.add_argument(
        "--tgt-lang",
        metavar="CODE",
        help=f"target language, for the paper's BLEU, which has rules for {', '.join(LANGUAGES)} "
        "(default: the run's data.tgt_lang, --langpair's, or the reference's file name)",
    )
    group.add_argument("--no-ter", action="store_true", help="leave TER out, the slowest of them")
    group.add_argument(
        "--comet",
        nargs="?",
        const=MODEL,
        metavar="MODEL",
        help=f"COMET as well, by the package unbabel-comet ({MODEL}, another name, or a path)",
    )
    group.add_argument(
        "--comet-gpus", type=count, default=0, metavar="N", help="GPUs that COMET may use"
    )
    group.add_argument(
        "--resamples",
        type=count,
        default=RESAMPLES,
        metavar="N",
        help="bootstrap resamples for 95%% intervals (0: none)",
    )
    group.add_argument(
        "--seed", type=count, default=SEED, metavar="N", help="of all resampling; sacreBLEU's"
    )


def add_testset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--testset",
        metavar="NAME",
        help="one of sacreBLEU's test sets, such as wmt14/full, with --langpair",
    )
    parser.add_argument("--langpair", metavar="XX-YY", help="its languages, such as en-de")


def scoring(
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    *,
    language: str,
    tokenizer: str | None = None,
    lowercase: bool = False,
) -> Scoring:
    """What `add_scoring` was given; `language` and so on are what holds without its flags.

    Raises CometError where COMET is asked for and not there.
    """
    if options.tgt_lang is not None and not re.fullmatch(r"[a-z]{2,3}", options.tgt_lang):
        parser.error(f"--tgt-lang {options.tgt_lang}: write a code such as de")
    if options.comet_gpus and not options.comet:
        parser.error("--comet-gpus are for --comet")
    if options.comet:
        require_comet()
    return Scoring(
        tokenizer=options.tokenize or tokenizer or "13a",
        lowercase=options.lowercase or lowercase,
        language=options.tgt_lang or language,
        ter=not options.no_ter,
        comet=options.comet or "",
        comet_gpus=options.comet_gpus,
        resamples=options.resamples,
        seed=options.seed,
    )


def check_testset_options(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raises ScoringError for a test set that sacreBLEU does not know."""
    if (options.testset is None) != (options.langpair is None):
        parser.error("--testset and --langpair go together")
    if options.testset is not None:
        check_testset(options.testset, options.langpair)


def language_of(options: argparse.Namespace) -> str:
    """The target language by `--langpair`, or by `--ref`'s name: `test.de`, `ref.de.xz`."""
    if options.langpair is not None:
        return str(options.langpair).rpartition("-")[2]
    suffixes = [] if options.ref is None else PurePath(options.ref).suffixes
    return next((s[1:] for s in reversed(suffixes) if s[1:] in LANGUAGES), "")
