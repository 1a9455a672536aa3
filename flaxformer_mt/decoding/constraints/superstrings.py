"""How few tokens have all of some phrases, where phrases may overlap: on the host, once a batch."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from flaxformer_mt.decoding.constraints.phrases import Phrase
from flaxformer_mt.decoding.constraints.symbols import Continues

MOST_OVERLAPPING = 8  # phrases of a row whose overlaps are counted exactly; others count in full
NEVER = 1 << 20  # tokens: more than any output has


def still_needed(phrases: Sequence[Phrase], said: Sequence[int], continues: Continues) -> int:
    """How many more tokens an output that begins with the tokens `said` needs for all phrases."""
    said = tuple(said)
    ordered, _ = overlapping_first(phrases, continues)
    unmet = [
        phrase
        for phrase in ordered
        if not _has(said, phrase, continues) and not (phrase.open and _ends_with(said, phrase))
    ]
    # As in `Required.to_come`: the word that ends the prefix ends there, or goes on.
    whole_words = {
        phrase: _begun(said, phrase, continues) for phrase in unmet if not _ends_with(said, phrase)
    }
    parts_of_words = {phrase: _begun(said, phrase) for phrase in unmet}
    return min(
        _needed(ordered, whole_words, continues), _needed(ordered, parts_of_words, continues)
    )


def _needed(ordered: Sequence[Phrase], begun: Mapping[Phrase, int], continues: Continues) -> int:
    """The tokens to come of all phrases in `begun`, as `banks._shortest_rest` counts them.

    `begun` gives how many of each one's first tokens are there; `ordered` are these phrases and
    those that are met.
    """
    overlapping = [
        place for place, phrase in enumerate(ordered[:MOST_OVERLAPPING]) if phrase in begun
    ]
    counted_alone = [phrase for phrase in ordered[MOST_OVERLAPPING:] if phrase in begun]
    table = shortest_texts(ordered[:MOST_OVERLAPPING], continues)
    if_first = table[sum(1 << place for place in overlapping)]
    begun_apart = int(if_first.min()) if overlapping else 0
    ways = [
        begun_apart,
        *(int(if_first[place]) - begun[ordered[place]] for place in overlapping),
        *(begun_apart - begun[phrase] for phrase in counted_alone),
    ]
    return min(ways) + sum(len(phrase.tokens) for phrase in counted_alone)


def _begun(
    said: tuple[int, ...],
    phrase: Phrase,
    continues: Continues | None = None,
) -> int:
    """How many of a phrase's first tokens, but not all, end a text; with `continues`, only so many
    that they end a word."""
    tokens = phrase.tokens
    sizes = [
        size
        for size in range(1, min(len(tokens), len(said) + 1))
        if said[-size:] == tokens[:size] and not (continues is not None and continues[tokens[size]])
    ]
    return max(sizes, default=0)


def _ends_with(said: tuple[int, ...], phrase: Phrase) -> bool:
    return bool(phrase.tokens) and said[-len(phrase.tokens) :] == phrase.tokens


def _has(text: tuple[int, ...], phrase: Phrase, continues: Continues) -> bool:
    """Whether a text has a phrase before its last token: one whose end shows in what follows."""
    size = len(phrase.tokens)
    return any(
        text[end - size : end] == phrase.tokens and (phrase.open or not continues[text[end]])
        for end in range(size, len(text))
    )


def overlapping_first(phrases: Sequence[Phrase], continues: Continues) -> tuple[list[Phrase], int]:
    """The phrases, first those that share tokens with another one, and how many these are."""
    shared = [
        any(_share_tokens(first, second, continues) for second in phrases if second is not first)
        for first in phrases
    ]
    order = sorted(range(len(phrases)), key=lambda number: not shared[number])
    return [phrases[number] for number in order], sum(shared)


def _share_tokens(first: Phrase, second: Phrase, continues: Continues) -> bool:
    """Whether a text with both phrases may have fewer tokens than the two added up."""
    if {*first.tokens}.isdisjoint(second.tokens):
        return False
    pairs = (first, second), (second, first)
    return any(_overlap(*pair, continues) or _within(*pair, continues) for pair in pairs)


def shortest_texts(
    phrases: Sequence[Phrase], continues: Continues
) -> Int[np.ndarray, "subsets first"]:
    """The tokens of the shortest text with all phrases of a subset, if it begins with one of them.

    Subsets are numbered by bits. Exact: a shortest common superstring is an order of the phrases
    that no other one has, each joined to the next by as many tokens as they share.
    """
    count = len(phrases)
    shares = [[_overlap(first, second, continues) for second in phrases] for first in phrases]
    without = [
        ~sum(1 << n for n, phrase in enumerate(phrases) if _within(phrase, first, continues))
        for first in phrases
    ]
    table = np.full((1 << count, count), NEVER, np.int32)
    table[0] = 0
    # A subset's own subsets have smaller numbers.
    for subset in range(1, 1 << count):
        for first in range(count):
            if not subset >> first & 1:
                continue
            left = subset & without[first] & ~(1 << first)
            following = [
                table[left, second] - shares[first][second]
                for second in range(count)
                if left >> second & 1
            ]
            table[subset, first] = len(phrases[first].tokens) + min(following, default=0)
    return table


def _overlap(first: Phrase, second: Phrase, continues: Continues) -> int:
    """How many of a phrase's last tokens may be another's first, neither having the other whole."""
    for size in range(min(len(first.tokens), len(second.tokens)) - 1, 0, -1):
        ends_word = first.open or not continues[second.tokens[size]]
        if ends_word and first.tokens[-size:] == second.tokens[:size]:
            return size
    return 0


def _within(phrase: Phrase, other: Phrase, continues: Continues) -> bool:
    """Whether a text that has the other phrase has this one."""
    size = len(phrase.tokens)
    ends_with = other.tokens[len(other.tokens) - size :] == phrase.tokens
    return _has(other.tokens, phrase, continues) or (size <= len(other.tokens) and ends_with)
