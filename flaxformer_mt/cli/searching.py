"""Search flags: the run's decoding settings, sampling and more."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.cli.arguments import add_settings, flags, not_negative
from flaxformer_mt.config import ConfigError, DecodingConfig

if TYPE_CHECKING:
    from flaxformer_mt.decoding.sampling import Sampling

DTYPE = {
    "--dtype float32|bfloat16": "type of matrix-product operands (default: the run's "
    "model.dtype); bfloat16 is faster on accelerators and some CPUs, and changes a few "
    "translations",
}
SHORTLIST = {
    "--shortlist": "choose only among target words that the source words make likely, learned "
    "once from the training text: faster with a large vocabulary; changes a few translations",
}
_SAMPLING = {
    "--sample": "draw --beam-size samples; return the --n-best most likely",
    "--top-k K:int": "draw from the K most likely tokens only",
    "--seed N:int": "seed; each line's draws depend only on it and the line's number",
}


def add_search(parser: argparse.ArgumentParser) -> None:
    """All flags of a search but those of `add_decoding`."""
    group = parser.add_argument_group("search (default: the run's decoding settings)")
    names = [field.name for field in dataclasses.fields(DecodingConfig)]
    add_settings(group, *(name for name in names if name not in ("beam_size", "length_penalty")))
    flags(group, DTYPE | SHORTLIST)


def as_asked(options: argparse.Namespace, translator: fm.Translator) -> fm.Translator:
    """The model with those settings and the dtype that the command has and that were given.

    Raises ConfigError for a diversity of groups where there is one alone, and for a beam that its
    groups do not divide.
    """
    given = given_settings(options)
    config = dataclasses.replace(translator.config, **given)
    if "diversity" in given and config.diverse_groups == 1:
        raise ConfigError("--diversity needs more than one group: add --diverse-groups G")
    if not getattr(options, "sample", False) and config.beam_size % config.diverse_groups:
        raise ConfigError(
            f"a beam of {config.beam_size} cannot be split into {config.diverse_groups} groups: "
            "--beam-size must be a multiple of decoding.diverse_groups (--diverse-groups)"
        )
    translator = translator.with_config(**given)
    dtype = getattr(options, "dtype", None)
    return translator if dtype is None else translator.with_dtype(dtype)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given, by name."""
    names = [field.name for field in dataclasses.fields(DecodingConfig)]
    values = {name: getattr(options, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling instead of search")
    flags(group, _SAMPLING, seed=1)
    share = "draw from the fewest tokens with a total probability of P"
    for name, metavar, help in (("--temperature", "T", "above 0"), ("--top-p", "P", share)):
        group.add_argument(name, metavar=metavar, type=not_negative, default=1.0, help=help)


def sampling_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Sampling | None:
    """What was asked for; None: a search."""
    from flaxformer_mt.decoding.sampling import Sampling

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
        parser.error("--temperature, --top-k, --top-p and --seed need --sample")
    if options.sample and (options.diverse_groups or options.diversity is not None):
        parser.error("--diverse-groups and --diversity are for beam search: leave out --sample")
    return sampling if options.sample else None
