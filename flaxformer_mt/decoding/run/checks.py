"""What a source must be for the search to have an output for it."""

from flaxformer_mt.decoding.constraints.forbidden import forbids
from flaxformer_mt.decoding.constraints.superstrings import still_needed
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.search.settings import Rules
from flaxformer_mt.decoding.source import Source


def check_rules(rules: Rules) -> None:
    """Raises DecodingError for a search that constraints don't work with."""
    for name, used in _against_phrases(rules).items():
        if used:
            raise DecodingError(f"constraints need plain beam search and can't have {name}")


def takes_phrases(rules: Rules) -> bool:
    """Whether `check_rules` raises nothing."""
    return not any(_against_phrases(rules).values())


def _against_phrases(rules: Rules) -> dict[str, bool]:
    return {
        "sampling": rules.sampling,
        "decoding.diverse_groups": rules.diverse_groups > 1,
        "decoding.no_repeat_ngram": rules.no_repeat_ngram > 0,
        "decoding.outputs = trees": rules.trees is not None,
    }


def check_source(
    number: int,
    source: Source,
    limit: int,
    *,
    max_length: int,
    continues: Continues | None,
) -> None:
    """Raises DecodingError for a source of a length that the model doesn't take, and LineError for
    one that can have no output of at most `limit` tokens."""
    length, begun = len(source.tokens), len(source.prefix)
    if not 1 <= length <= max_length:
        raise DecodingError(
            f"source {number} has {length} tokens, end mark included; the model takes 1 to "
            f"{max_length} (model.max_length)"
        )
    if begun >= limit:
        raise LineError(
            number,
            f"has a prefix of {begun} tokens, but its translation has at most {limit}, end mark "
            "included",
        )
    for automaton in source.forbidden:
        if forbids(automaton, source.prefix, room=limit - begun):
            raise LineError(number, "its prefix has a forbidden phrase, or must end in one")
    if continues is not None:
        _check_room(number, source, limit, continues)


def _check_room(number: int, source: Source, limit: int, continues: Continues) -> None:
    """Raises LineError if an output of `limit` tokens is too short for the source's phrases."""
    needed = still_needed(source.phrases, source.prefix, continues)
    begun = len(source.prefix)
    if needed and begun + needed + 1 > limit:
        raise LineError(
            number,
            f"its constraints take {needed} tokens"
            + (f" after a prefix of {begun}" if begun else "")
            + f", but its translation may have at most {limit}, end mark included",
        )
