"""What a first look at a corpus's text shows: a header line, swapped sides."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from flaxformer_mt.config.languages import base_language
from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.corpus import NoText, PairSource, open_split

_PAIRS = 2000  # of each corpus that are looked at
# Short words that are frequent in one language's text and rare in the others'.
_FREQUENT = {
    language: frozenset(words.split())
    for language, words in {
        "cs": "a se na je že ve si jsem není jako které který",
        "da": "og det er en at til ikke jeg på med der af",
        "de": "der die und das ist nicht ich ein zu den mit wir",
        "en": "the of and to is in that it you for was with",
        "es": "el los que y en una por con para las del no",
        "fi": "ja on ei se että hän oli mutta kun niin ovat minä",
        "fr": "le les et est des une dans pour que il pas vous",
        "hu": "a az és hogy nem egy van meg ez ki volt is",
        "it": "il di che e la per non un è una sono gli",
        "nl": "de het een en van ik niet dat zijn met voor hij",
        "no": "og det er en å ikke jeg på til med som av",
        "pl": "i nie w na się że jest to z do jak tak",
        "pt": "o que os e um não uma para com do da em",
        "ro": "și nu o că de la în este pe mai cu un",
        "sv": "och det är en att inte jag på som för med av",
        "tr": "ve bir bu için ne çok da de ben sen o mi",
    }.items()
}
_WORD = re.compile(r"[^\W\d_]+")
_FEWEST = 50  # frequent words by which sides are judged
_TIMES = 3  # as many of the other side's language as of its own: swapped
_OF_HEADERS = frozenset(
    "source target src tgt trg ref reference translation sentence text english german french "
    "spanish input output".split()
)


def notes(config: DataConfig) -> Iterator[str]:
    """A sentence for each corpus whose first pair looks like a header line, and for each whose
    sides are in each other's language. Reads a corpus's beginning only. Raises CorpusError."""
    yield from _untrained_tags(config)
    opened = open_split(config, "train", without_fetched=True)
    if not config.valid_fraction:
        opened += open_split(config, "valid", without_fetched=True)
    for key, corpus, source in opened:
        pairs = _first_pairs(source)
        src_lang, tgt_lang = source.languages
        if pairs and _is_header(pairs[0], source.languages):
            src, tgt = pairs[0]
            yield (
                f"{source.label}:1: {src!r} and {tgt!r} look like a header, which is read as a "
                "pair; remove the line"
            )
        # A tag may stand for another direction.
        states_own = corpus.src_lang and corpus.tgt_lang
        languages = base_language(src_lang), base_language(tgt_lang)
        if (states_own or not corpus.tag) and _are_swapped(pairs, languages):
            yield (
                f"{key}: the source text looks like {tgt_lang!r} and the target text like "
                f"{src_lang!r}: the sides seem to be swapped"
            )


def _untrained_tags(config: DataConfig) -> Iterator[str]:
    """A sentence for each validation corpus whose tag no training corpus has."""
    known = dict.fromkeys(corpus.tag for corpus in config.train)
    listed = ", ".join(tag or "none" for tag in known)
    for key, corpus in config.validation.items():
        if not config.valid_fraction and corpus.tag not in known:
            yield (
                f"{key}.tag = {corpus.tag!r} is not the tag of any training corpus (theirs: "
                f"{listed}): the model doesn't learn what it asks for"
            )


def _first_pairs(source: PairSource) -> list[tuple[str, str]]:
    """Of a corpus's beginning, those that can be read."""
    if source.size is not None:  # made, not read
        return []
    return [
        (record[0].decode(errors="replace"), record[1].decode(errors="replace"))
        for record in itertools.islice(source.records(), _PAIRS)
        if not isinstance(record, NoText)
    ]


def _is_header(pair: tuple[str, str], languages: tuple[str, str]) -> bool:
    """Whether both sides are names of columns."""
    names = {*_OF_HEADERS, *(language.lower() for language in languages)}
    words = [re.split(r"[\W_]+", side.strip().lower()) for side in pair]
    return all(side and names.issuperset(side) for side in words)


def _are_swapped(pairs: Sequence[tuple[str, str]], languages: tuple[str, str]) -> bool:
    """Whether each side has far more frequent words of the other's language than of its own.

    Never for languages that have no list here.
    """
    if languages[0] == languages[1] or not _FREQUENT.keys() >= {*languages}:
        return False
    src_words, tgt_words = (_FREQUENT[language] for language in languages)
    for side, expected, opposite in ((0, src_words, tgt_words), (1, tgt_words, src_words)):
        counts = Counter(word.lower() for pair in pairs for word in _WORD.findall(pair[side]))
        right = sum(counts[word] for word in expected - opposite)
        wrong = sum(counts[word] for word in opposite - expected)
        if wrong < max(_FEWEST, _TIMES * right):
            return False
    return True
