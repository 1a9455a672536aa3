"""Do tags stay, and with their words? Text with tags is translated, and the result is recorded.

python -m benchmarks.markup --data FOLDER --workdir DIR [--config.KEY=VALUE ...]

FOLDER is `data/task1/raw` of the multi30k/dataset repository. In test_2016_flickr, inline elements
go around 30% of the source words; the demo model translates the text with them and without. In 500
held-out sentences of the built-in grammar, elements go around phrases whose German words the
grammar knows; a model of the config `quickstart` aligns them with the one right translation, and
translates them itself. A tag is placed if exactly the right words are within it. A second model has
learnt to translate symbols in the places of tags. Trains both, or continues a stopped training.
"""

import argparse
import gzip
import html
import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import SETTINGS_HELP, parse_with_settings
from benchmarks.marked_grammar import (
    NAMES,
    SHARE,
    MarkedSentence,
    Phrase,
    chosen_phrases,
    marked,
    placed_right,
    tagged,
)
from benchmarks.markup_placeholders import of_placeholders, trained_with_symbols
from benchmarks.trained_run import trained
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.placing import AlignedSentence, placed
from flaxformer_mt.reproduction.measuring import training_details
from flaxformer_mt.reproduction.result_file import write_result

TEST = "test_2016_flickr"
LONGEST = 3  # words of an element in Multi30k
SENTENCES = 500  # of the grammar
SEED = 11


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
    sentences = list(marked("test", SENTENCES))
    rng = random.Random(SEED)
    chosen = [chosen_phrases(sentence, rng) for sentence in sentences]
    metrics |= of_grammar(fm.Translator.load(quickstart), sentences, chosen)
    with_symbols = trained_with_symbols(
        options.workdir / "placeholders", changes, benchmark="benchmarks.markup"
    )
    metrics |= of_placeholders(
        fm.Translator.load(with_symbols), sentences, chosen, metrics["grammar_bleu"]
    )
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


def of_grammar(
    translator: fm.Translator,
    sentences: Sequence[MarkedSentence],
    chosen: Sequence[Sequence[Phrase]],
) -> dict[str, float]:
    """The figures of the grammar: tags around the right words of the right translation."""
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
    texts = ["".join(ElementTree.fromstring(output).itertext()) for output in outputs]
    references = [sentence.target for sentence in sentences]
    right = right_of_right = total_of_right = 0
    for output, text, sentence, phrases in zip(outputs, texts, sentences, chosen, strict=True):
        count = placed_right(output, sentence, phrases)
        right += count
        if text == sentence.target:
            right_of_right += count
            total_of_right += len(phrases)
    metrics["tags_of_right_translations"] = total_of_right
    metrics["tags_placed_share_of_right_translations"] = right_of_right / total_of_right
    metrics["tags_placed_share_of_all_translations"] = right / total
    metrics["grammar_bleu"] = corpus_scores(texts, references).bleu
    return metrics


if __name__ == "__main__":
    sys.exit(main())
