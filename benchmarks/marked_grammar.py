"""Sentences of the built-in grammar with elements around phrases, whose translations it knows."""

import dataclasses
import html
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from flaxformer_mt.grammar.clauses import BilingualPhrase, Clause
from flaxformer_mt.grammar.sentences import SentenceSampler
from flaxformer_mt.grammar.splits import Split
from flaxformer_mt.grammar.text import derivations

NAMES = ("b", "i", "em", "span", "a")
SHARE = 0.3  # of the source are within elements
_FIRST_MARK = 0xE000  # of Unicode's private characters: even ones begin a phrase, odd ones end it


class Phrase(NamedTuple):
    """Where a phrase and its translation are, in characters."""

    source: slice
    target: slice


@dataclasses.dataclass(frozen=True)
class MarkedSentence:
    source: str
    target: str
    phrases: tuple[Phrase, ...]


class MarkingSampler(SentenceSampler):
    """Marks nouns with their adjectives and numbers, places, directions, times and company."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._numbers = itertools.count()

    def sentence(self) -> BilingualPhrase:
        self._numbers = itertools.count()
        return super().sentence()

    def noun_phrase(self, *arguments: object, **options: object) -> BilingualPhrase:
        phrase = super().noun_phrase(*arguments, **options)  # type: ignore[arg-type]
        # Without the article, which prepositions are contracted with.
        articles = {"a", "an", phrase.determiner.in_english("plural")}
        articles |= {phrase.determiner.in_english("singular")}
        return self._marked(phrase, articles, {*phrase.determiner.forms.values()})

    def place(self) -> BilingualPhrase:
        return self._marked(super().place())

    def direction(self) -> BilingualPhrase:
        return self._marked(super().direction())

    def when(self, clause: Clause, position: str) -> BilingualPhrase:
        return self._marked(super().when(clause, position))

    def company(self, clause: Clause, edible: bool) -> BilingualPhrase:
        return self._marked(super().company(clause, edible))

    def _marked(
        self,
        phrase: BilingualPhrase,
        english_articles: set[str] = frozenset(),  # type: ignore[assignment]
        german_articles: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> BilingualPhrase:
        begin = chr(_FIRST_MARK + 2 * next(self._numbers))
        end = chr(ord(begin) + 1)

        def marked(text: str, articles: set[str]) -> str:
            first, *following_words = text.split(" ")
            if first in articles and following_words:
                return " ".join([first, begin + following_words[0], *following_words[1:]]) + end
            return begin + text + end

        if phrase:
            phrase.english = marked(phrase.english, english_articles)
            phrase.german = marked(phrase.german, german_articles)
        return phrase


def marked(split: Split, count: int) -> Iterator[MarkedSentence]:
    """Sentences of one of the grammar's splits with their phrases, outer ones first."""
    for source, target, _ in derivations(split, count, sampled_by=MarkingSampler):
        source, of_source = unmarked(source)
        target, of_target = unmarked(target)
        # A phrase that was drawn and not used has no place.
        pairs = [Phrase(of_source[number], of_target[number]) for number in of_source]
        pairs.sort(key=lambda phrase: (phrase.source.start, -phrase.source.stop))
        yield MarkedSentence(source, target, tuple(pairs))


def unmarked(text: str) -> tuple[str, dict[int, slice]]:
    """A text without its marks, and what is between each pair of them."""
    plain = ""
    begins: dict[int, int] = {}
    phrases: dict[int, slice] = {}
    for character in text:
        number, is_end = divmod(ord(character) - _FIRST_MARK, 2)
        if not 0 <= number < 0x1000 // 2:
            plain += character
        elif is_end:
            phrases[number] = slice(begins[number], len(plain))
        else:
            begins[number] = len(plain)
    # A mark at the beginning has kept the first letter small.
    return plain[:1].upper() + plain[1:], phrases


def chosen_phrases(sentence: MarkedSentence, rng: random.Random) -> list[Phrase]:
    """Phrases with at least SHARE of a sentence's words, if there are so many."""
    within: set[int] = set()
    chosen = []
    for phrase in rng.sample(sentence.phrases, len(sentence.phrases)):
        if len(within) >= SHARE * len(sentence.source):
            break
        chosen.append(phrase)
        within |= {*range(phrase.source.start, phrase.source.stop)}
    return sorted(chosen, key=sentence.phrases.index)


def tagged(sentence: MarkedSentence, phrases: Sequence[Phrase]) -> str:
    """A sentence as HTML with numbered elements around phrases, outer ones first."""
    spans = [phrase.source for phrase in phrases]
    return f"<p>{with_tags(sentence.source, spans, element_tags(len(spans)), html_text)}</p>"


def element_tags(count: int) -> list[tuple[str, str]]:
    """The tags of numbered elements."""
    names = itertools.islice(itertools.cycle(NAMES), count)
    return [(f'<{name} id="{number}">', f"</{name}>") for number, name in enumerate(names)]


def html_text(text: str) -> str:
    """Text as HTML has it between tags."""
    return html.escape(text, quote=False)


def with_tags(
    text: str,
    spans: Sequence[slice],
    tags: Sequence[tuple[str, str]],
    written: Callable[[str], str] = str,
) -> str:
    """A text, as `written` makes it, with a pair of tags around each span, outer ones first."""
    before: dict[int, str] = {}
    behind: dict[int, str] = {}
    for span, (opening, closing) in zip(spans, tags, strict=True):
        before[span.start] = before.get(span.start, "") + opening
        behind[span.stop] = closing + behind.get(span.stop, "")
    inside = "".join(
        behind.get(place, "") + before.get(place, "") + written(character)
        for place, character in enumerate(text)
    )
    return inside + behind.get(len(text), "")


def placed_right(output: str, sentence: MarkedSentence, phrases: Sequence[Phrase]) -> int:
    """Around how many phrases the elements of a translation are."""
    inside = {
        element.get("id"): "".join(element.itertext())
        for element in ElementTree.fromstring(output).iter()
    }
    return sum(
        inside.get(str(number)) == sentence.target[phrase.target]
        for number, phrase in enumerate(phrases)
    )
