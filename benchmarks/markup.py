"""Do tags stay, and with their words? Text with tags is translated, and the result is recorded.

python -m benchmarks.markup --data FOLDER --workdir DIR [--config.KEY=VALUE ...]

FOLDER is `data/task1/raw` of the multi30k/dataset repository. In test_2016_flickr, inline elements
go around 30% of the source words; the demo model translates the text with them and without. In 500
held-out sentences of the built-in grammar, elements go around phrases whose German words the
grammar knows; a model of the config `quickstart` aligns them with the one right translation, and
translates them itself. A tag is placed if exactly the right words are within it. Trains that model,
or continues a stopped training.
"""

import argparse
import dataclasses
import gzip
import html
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import SETTINGS_HELP, parse_with_settings
from benchmarks.trained_run import trained
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.grammar.clauses import BilingualPhrase, Clause
from flaxformer_mt.grammar.sentences import SentenceSampler
from flaxformer_mt.grammar.text import derivations
from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.placing import AlignedSentence, placed
from flaxformer_mt.reproduction.measuring import training_details
from flaxformer_mt.reproduction.result_file import write_result

TEST = "test_2016_flickr"
NAMES = ("b", "i", "em", "span", "a")
SHARE = 0.3  # of the source words are within elements
LONGEST = 3  # words of an element in Multi30k
SENTENCES = 500  # of the grammar
SEED = 11
_FIRST_MARK = 0xE000  # of Unicode's private characters: even ones begin a phrase, odd ones end it


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.markup",
        description="Translates text with tags, and counts those that stay and stand right.",
        epilog=SETTINGS_HELP,
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options, changes = parse_with_settings(parser, arguments)

    start = time.perf_counter()
    sources, references = (read(options.data / f"{TEST}.{code}.gz") for code in ("en", "de"))
    demo = fm.Translator.load(fm.demo_run(options.workdir / "demo"))
    metrics, signature = of_captions(demo, sources, references)
    quickstart = trained(
        options.workdir / "quickstart", "quickstart", changes, benchmark="benchmarks.markup"
    )
    metrics |= of_grammar(fm.Translator.load(quickstart), list(marked(SENTENCES)))
    result = write_result(
        options.result / "markup.json",
        command="python -m benchmarks.markup --data FOLDER --workdir DIR"
        + "".join(f" --config.{key}={value}" for key, value in changes.items()),
        config="quickstart",
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures=dict.fromkeys(("bleu", "bleu_without"), signature),
        details=training_details(quickstart),
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def of_captions(
    translator: fm.Translator, sources: Sequence[str], references: Sequence[str]
) -> tuple[dict[str, float], str]:
    """The figures of Multi30k, with tags and without, and BLEU's signature."""
    rng = random.Random(SEED)
    tagged = [with_elements(line, rng) for line in sources]
    page = "\n".join(f"<p>{line}</p>" for line in tagged)
    outputs = fm.translate_document(translator, page).text.split("\n")
    without = [translation.text for translation in translator.translate(sources)]
    plain = [" ".join(segment.text for segment in read_html(line).segments) for line in outputs]
    scores, scores_without = (corpus_scores(lines, references) for lines in (plain, without))
    kept_counts = [elements_kept(*pair) for pair in zip(tagged, outputs, strict=True)]
    tags = sum(line.count("</") for line in tagged)
    metrics = {
        "tags": tags,
        "well_formed_share": 1 - kept_counts.count(None) / len(kept_counts),
        "tags_kept_share": sum(filter(None, kept_counts)) / tags,
        "bleu": scores.bleu,
        "bleu_without": scores_without.bleu,
        "bleu_lost": scores_without.bleu - scores.bleu,
        "texts_changed": sum(a != b for a, b in zip(plain, without, strict=True)),
    }
    return metrics, scores.signatures[scores.bleu_name]


def with_elements(line: str, rng: random.Random) -> str:
    """A line as HTML with numbered elements around about SHARE of its words."""
    words = [html.escape(word, quote=False) for word in line.split()]
    tagged: list[str] = []
    numbers = itertools.count()
    place = 0
    while place < len(words):
        length = rng.randint(1, LONGEST)
        inside = " ".join(words[place : place + length])
        if rng.random() < SHARE:
            name = rng.choice(NAMES)
            inside = f'<{name} id="{next(numbers)}">{inside}</{name}>'
        tagged.append(inside)
        place += length
    return " ".join(tagged)


def elements_kept(source: str, output: str) -> int | None:
    """How many of the source's elements the output has once; None if it isn't well-formed."""
    try:
        ids = [element.get("id") for element in ElementTree.fromstring(output).iter()]
    except ElementTree.ParseError:
        return None
    return sum(ids.count(str(number)) == 1 for number in range(source.count("</")))


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


def marked(count: int) -> Iterator[MarkedSentence]:
    """Held-out sentences of the grammar with their phrases, outer ones first."""
    for source, target, _ in derivations("test", count, sampled_by=MarkingSampler):
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


def of_grammar(translator: fm.Translator, sentences: Sequence[MarkedSentence]) -> dict[str, float]:
    """The figures of the grammar: tags around the right words of the right translation."""
    rng = random.Random(SEED)
    chosen = [chosen_phrases(sentence, rng) for sentence in sentences]
    pages = [tagged(*pair) for pair in zip(sentences, chosen, strict=True)]
    pairs = [(sentence.source, sentence.target) for sentence in sentences]
    last_but_one = max(translator.model.config.decoder_layers - 2, 0)
    placed_by = {
        "": translator.align(pairs),
        "_by_one_layer": translator.align(pairs, layer=last_but_one),
    }
    total = sum(map(len, chosen))
    metrics: dict[str, float] = {"tags_of_grammar": total}
    for name, alignments in placed_by.items():
        right = 0
        for page, sentence, phrases, alignment in zip(
            pages, sentences, chosen, alignments, strict=True
        ):
            document = read_html(page)
            (segment,) = document.segments
            aligned_sentence = AlignedSentence(
                sentence.source, sentence.target, links=alignment.links
            )
            output = document.joined([placed(segment, sentence.target, [aligned_sentence])])
            right += placed_right(output, sentence, phrases)
        metrics[f"tags_placed_share{name}"] = right / total

    outputs = fm.translate_document(translator, "\n".join(pages)).text.split("\n")
    right = total = 0
    for output, sentence, phrases in zip(outputs, sentences, chosen, strict=True):
        if "".join(ElementTree.fromstring(output).itertext()) == sentence.target:
            right += placed_right(output, sentence, phrases)
            total += len(phrases)
    metrics["tags_of_right_translations"] = total
    metrics["tags_placed_share_of_right_translations"] = right / total
    return metrics


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
    before: dict[int, str] = {}
    behind: dict[int, str] = {}
    for number, (source, _) in enumerate(phrases):
        name = NAMES[number % len(NAMES)]
        before[source.start] = before.get(source.start, "") + f'<{name} id="{number}">'
        behind[source.stop] = f"</{name}>" + behind.get(source.stop, "")
    text = "".join(
        behind.get(place, "") + before.get(place, "") + html.escape(character, quote=False)
        for place, character in enumerate(sentence.source)
    )
    return f"<p>{text}{behind.get(len(sentence.source), '')}</p>"


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


if __name__ == "__main__":
    sys.exit(main())
