"""Tags as placeholders that a model has learnt to translate, beside alignment.

A model of the config `quickstart` learns from the built-in grammar with symbols around phrases, as
many steps as the one that `markup.py` aligns with. To translate a tagged sentence, each tag gives
way to a symbol, the search copies every symbol exactly as often as the source has it, and the tags
go back into the places of their symbols. Real text has no such phrases that are sure to be right:
the training text is better here than any that you could make.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import flaxformer_mt as fm
from benchmarks.marked_grammar import (
    MarkedSentence,
    Phrase,
    chosen_phrases,
    element_tags,
    html_text,
    marked,
    placed_right,
    with_tags,
)
from benchmarks.trained_run import trained
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.grammar.splits import Split
from flaxformer_mt.rundir.layout import RunDirectory

MOST = 9  # phrases of a sentence
SYMBOLS = tuple((f"<x{number}>", f"</x{number}>") for number in range(1, MOST + 1))
SIZES: dict[Split, int] = {"train": 40_000, "valid": 200}  # as in the config
TAGGED_SHARE = 0.5  # of the training text's sentences: the others are plain
SEED = 12
_SYMBOL = re.compile(r"(</?x[1-9]>)")


def trained_with_symbols(workdir: Path, changes: dict[str, str], *, benchmark: str) -> RunDirectory:
    """Trains on the grammar with symbols, or continues a stopped training."""
    text = workdir / "text"
    for split, size in SIZES.items():
        _write(text, split, size)
    settings = {
        "data.folder": str(text),
        "data.train": "train.en,train.de",
        "data.valid": "valid.en,valid.de",
        "data.vocabulary.symbols": ",".join(itertools.chain(*SYMBOLS)),
    }
    return trained(workdir / "run", "quickstart", settings | changes, benchmark=benchmark)


def _write(folder: Path, split: Split, size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pairs = list(_with_symbols(split, size))
    for side, code in enumerate(("en", "de")):
        (folder / f"{split}.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs))


def _with_symbols(split: Split, size: int) -> Iterator[tuple[str, str]]:
    """Sentences with symbols around some of their phrases, or without."""
    rng = random.Random(f"{SEED} {split}")
    for sentence in marked(split, size):
        phrases = chosen_phrases(sentence, rng) if rng.random() < TAGGED_SHARE else []
        yield with_symbols(sentence, phrases[:MOST])


def with_symbols(sentence: MarkedSentence, phrases: Sequence[Phrase]) -> tuple[str, str]:
    """A sentence and its translation with the same symbols around phrases."""
    symbols = SYMBOLS[: len(phrases)]
    return (
        with_tags(sentence.source, [phrase.source for phrase in phrases], symbols),
        with_tags(sentence.target, [phrase.target for phrase in phrases], symbols),
    )


def of_placeholders(
    translator: fm.Translator,
    sentences: Sequence[MarkedSentence],
    chosen: Sequence[Sequence[Phrase]],
    bleu_of_alignment: float,
) -> dict[str, float]:
    """The figures of a model of symbols; `bleu_of_alignment` is that of the other model."""
    sources = [with_symbols(*pair)[0] for pair in zip(sentences, chosen, strict=True)]
    references = [sentence.target for sentence in sentences]
    plain = [sentence.source for sentence in sentences]
    copying = translator.with_config(copy_symbols=True)
    outputs = [translation.text for translation in copying.translate(sources)]
    without = [translation.text for translation in translator.translate(plain)]
    bleu = corpus_scores([_SYMBOL.sub("", output) for output in outputs], references).bleu
    bleu_without = corpus_scores(without, references).bleu
    total = sum(map(len, chosen))
    return {
        **_counted(outputs, sentences, chosen),
        "placeholders_kept_share_uncopied": sum(
            kept_symbols(translation.text, len(phrases))
            for translation, phrases in zip(translator.translate(sources), chosen, strict=True)
        )
        / total,
        "placeholders_bleu": bleu,
        "placeholders_bleu_without_tags": bleu_without,
        "placeholders_bleu_lost": bleu_of_alignment - bleu,
    }


def _counted(
    outputs: Sequence[str],
    sentences: Sequence[MarkedSentence],
    chosen: Sequence[Sequence[Phrase]],
) -> dict[str, float]:
    """The shares of outputs that are well-formed, and of tags that are kept and placed."""
    well_formed = kept = right = of_right = right_of_right = 0
    for output, sentence, phrases in zip(outputs, sentences, chosen, strict=True):
        kept += kept_symbols(output, len(phrases))
        is_right = _SYMBOL.sub("", output) == sentence.target
        of_right += is_right * len(phrases)
        page = with_tags_again(output, len(phrases))
        if is_well_formed(page):
            well_formed += 1
            count = placed_right(page, sentence, phrases)
            right += count
            right_of_right += is_right * count
    total = sum(map(len, chosen))
    return {
        "placeholders_well_formed_share": well_formed / len(outputs),
        "placeholders_kept_share": kept / total,
        "placeholders_placed_share_of_all_translations": right / total,
        "placeholders_placed_share_of_right_translations": right_of_right / of_right,
    }


def kept_symbols(output: str, count: int) -> int:
    """Of how many phrases an output has both symbols once."""
    return sum(
        output.count(opening) == output.count(closing) == 1 for opening, closing in SYMBOLS[:count]
    )


def with_tags_again(output: str, count: int) -> str:
    """A translation as HTML, with the tags of so many elements in the places of their symbols."""
    tag_of: dict[str, str] = {}
    for symbols, tags in zip(SYMBOLS, element_tags(count), strict=False):
        tag_of |= zip(symbols, tags, strict=True)
    parts = (tag_of.get(part) or html_text(part) for part in _SYMBOL.split(output))
    return f"<p>{''.join(parts)}</p>"


def is_well_formed(page: str) -> bool:
    """Whether a page is well-formed XML."""
    try:
        ElementTree.fromstring(page)
    except ElementTree.ParseError:
        return False
    return True
