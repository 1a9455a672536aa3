"""A run's search settings with a caller's own in their place."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypedDict

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.decode import DecodingError
from flaxformer_mt.decoding.sampling import Sampling
from flaxformer_mt.decoding.segments import Overlong


class Search(TypedDict, total=False):
    """What `Translator.translate` takes beside the lines."""

    beam_size: int | None
    length_penalty: float | None
    n_best: int
    overlong: Overlong
    prefixes: str | Sequence[str] | None
    suppress: str | Sequence[str]
    sampling: Sampling | None
    first: int


def with_search(
    config: DecodingConfig,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    sample: bool = False,
) -> DecodingConfig:
    """`config` with the beam size and the length penalty that are given.

    Raises DecodingError for a beam below 1, and for one that its groups do not divide, which are
    without effect on a `sample`.
    """
    if beam_size is not None:
        config = dataclasses.replace(config, beam_size=beam_size)
    if length_penalty is not None:
        config = dataclasses.replace(config, length_penalty=length_penalty)
    if config.beam_size < 1:
        raise DecodingError(f"beam_size = {config.beam_size} must be at least 1")
    if not sample and config.beam_size % config.diverse_groups:
        raise DecodingError(
            f"a beam of {config.beam_size} cannot be split into {config.diverse_groups} groups: "
            "--beam-size must be a multiple of decoding.diverse_groups (--diverse-groups)"
        )
    return config
