"""How to search, on the command line: the run's decoding settings, and what goes beyond them."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from flaxformer_mt.cli.arguments import count, not_negative, positive
from flaxformer_mt.config import ConfigError, DecodingConfig
from flaxformer_mt.decoding.sampling import Sampling
from flaxformer_mt.decoding.settings import with_search
from flaxformer_mt.decoding.translator import Translator

# Flags that stand for the setting of the same name.
_SETTINGS = (
    "length_norm",
    "coverage_penalty",
    "diverse_groups",
    "diversity",
    "ends_among",
    "max_ratio",
    "max_extra_tokens",
    "no_repeat_ngram",
    "batch_tokens",
)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Flags in place of the run's settings under `decoding`."""
    group = parser.add_argument_group("search (by default the run's settings, decoding.*)")
    add_scoring(group)
    group.add_argument(
        "--diverse-groups",
        type=positive,
        metavar="G",
        help="diverse beam search: the beam in G groups, which shun what earlier ones say; for "
        "--n-best lists that differ (Vijayakumar et al., 2016)",
    )
    group.add_argument(
        "--diversity",
        type=not_negative,
        metavar="L",
        help="how much lower a group ranks a token for each hypothesis of an earlier one",
    )
    group.add_argument(
        "--ends-among",
        choices=("candidates", "beam"),
        help="candidates: any of the 2 x beam best continuations may end a translation; beam: the "
        "beam best alone, as in other toolkits",
    )
    group.add_argument(
        "--max-ratio",
        type=not_negative,
        metavar="R",
        help="an output has at most R times the input's tokens ...",
    )
    group.add_argument("--max-extra-tokens", type=positive, metavar="N", help="... and N more")
    group.add_argument(
        "--no-repeat-ngram",
        type=count,
        metavar="N",
        help="no sequence of N tokens occurs twice in a translation (0: any may)",
    )
    add_batch_tokens(group)
    add_dtype(group)


def add_batch_tokens(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--batch-tokens",
        type=positive,
        metavar="N",
        help="source positions times beams on a device at a time: fewer need less memory",
    )


def add_scoring(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--length-norm",
        choices=("gnmt", "average"),
        help="gnmt: the score is log P over the paper's penalty; average: over |Y|^alpha",
    )
    group.add_argument(
        "--coverage-penalty",
        type=not_negative,
        metavar="B",
        help="lower the score of what leaves parts of the source without attention (Wu et al., "
        "2016: 0.2)",
    )


def add_dtype(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="of the operands of matrix products, by default the run's model.dtype: bfloat16 is "
        "faster on chips, and on CPUs that have it, and changes a few translations",
    )


def as_asked(options: argparse.Namespace, translator: Translator) -> Translator:
    """The model with those settings and the dtype that the command has and that were given.

    Raises as `with_settings`.
    """
    translator = translator.with_config(with_settings(options, translator.config))
    dtype = getattr(options, "dtype", None)
    return translator if dtype is None else translator.with_dtype(dtype)


def with_settings(options: argparse.Namespace, config: DecodingConfig) -> DecodingConfig:
    """`config` with those of the settings that the command has and that were given.

    Raises ConfigError for a diversity of groups where there is one alone, and DecodingError for a
    beam that its groups do not divide.
    """
    given = given_settings(options)
    config = dataclasses.replace(config, **given)
    if "diversity" in given and config.diverse_groups == 1:
        raise ConfigError("--diversity is between groups, and there is one: add --diverse-groups G")
    return with_search(
        config,
        beam_size=getattr(options, "beam_size", None),
        length_penalty=getattr(options, "length_penalty", None),
        sample=getattr(options, "sample", False),
    )


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Those of the settings that were given, by name."""
    values = {name: getattr(options, name, None) for name in _SETTINGS}
    return {name: value for name, value in values.items() if value is not None}


def add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling, instead of searching")
    group.add_argument(
        "--sample",
        action="store_true",
        help="draw as many translations as the beam has places, and give the --n-best likeliest",
    )
    group.add_argument("--temperature", type=not_negative, default=1.0, metavar="T", help="above 0")
    group.add_argument(
        "--top-k", type=positive, metavar="K", help="draw from the likeliest K tokens alone"
    )
    group.add_argument(
        "--top-p",
        type=not_negative,
        default=1.0,
        metavar="P",
        help="draw from the fewest tokens that have the probability P together",
    )
    group.add_argument(
        "--seed", type=positive, default=1, help="a line's draw depends on it and the line's number"
    )


def sampling_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Sampling | None:
    """What was asked for; None: a search."""
    try:
        sampling = Sampling(
            temperature=options.temperature,
            top_k=options.top_k or 0,
            top_p=options.top_p,
            seed=options.seed,
        )
    except ValueError as error:
        parser.error(str(error))
    if not options.sample and sampling != Sampling():
        parser.error("--temperature, --top-k, --top-p and --seed are for --sample")
    if options.sample and (options.diverse_groups or options.diversity is not None):
        parser.error("--diverse-groups and --diversity are for searching, and --sample draws")
    return sampling if options.sample else None
