"""Other programs that split text into sentences, for `benchmarks.splitter`.

Run in their environment (`peers/splitters.txt`), without this project:

python splitter_peers.py lines LANGUAGE ...     JSON on stdout: eld's test sentences by language
python splitter_peers.py split < JSON           texts by language; JSON on stdout: by program and
                                                language, each text's sentences

A program leaves out the languages that it doesn't know.
"""

import importlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Split = Callable[[str], Sequence[str]]
PUNKT = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "ru": "russian"}


def lines(languages: Sequence[str]) -> dict[str, list[str]]:
    """The sentences of eld's test set `big-test`, by language."""
    package = importlib.import_module("eld").__file__
    assert package is not None
    text = (Path(package).parent / "tests" / "data" / "big-test.txt").read_text(encoding="utf-8")
    by_language: dict[str, list[str]] = {language: [] for language in languages}
    for line in text.split("\n"):
        language, _, sentence = line.partition("\t")
        if language in by_language:
            by_language[language].append(sentence)
    return by_language


def moses(language: str) -> Split | None:
    module: Any = importlib.import_module("sentence_splitter")
    try:
        splitter = module.SentenceSplitter(language)
    except module.SentenceSplitterException:
        return None
    return lambda text: splitter.split(text)


def pysbd(language: str) -> Split | None:
    module: Any = importlib.import_module("pysbd")
    try:
        segmenter = module.Segmenter(language=language, clean=False)
    except ValueError:
        return None
    return lambda text: segmenter.segment(text)


def sentencex(language: str) -> Split:
    module: Any = importlib.import_module("sentencex")
    return lambda text: module.segment(language, text)


def blingfire(language: str) -> Split:
    module: Any = importlib.import_module("blingfire")
    return lambda text: module.text_to_sentences(text).split("\n")


def punkt(language: str) -> Split | None:
    if language not in PUNKT:
        return None
    module: Any = importlib.import_module("punkt")
    return lambda text: module.sent_tokenize(text, PUNKT[language])


def syntok(language: str) -> Split | None:
    if language not in ("en", "de", "es"):
        return None
    module: Any = importlib.import_module("syntok.segmenter")

    def split(text: str) -> list[str]:
        sentences = [words for paragraph in module.process(text) for words in paragraph]
        starts = [words[0].offset for words in sentences[1:]]
        return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]

    return split


PROGRAMS: dict[str, Callable[[str], Split | None]] = {
    "moses": moses,
    "pysbd": pysbd,
    "sentencex": sentencex,
    "blingfire": blingfire,
    "punkt": punkt,
    "syntok": syntok,
}


def main() -> None:
    warnings.simplefilter("ignore")  # of pySBD's regular expressions
    command, *languages = sys.argv[1:]
    if command == "lines":
        print(json.dumps(lines(languages)))
        return
    texts: dict[str, list[str]] = json.load(sys.stdin)
    answers: dict[str, dict[str, list[list[str]]]] = {}
    for name, program in PROGRAMS.items():
        splitters = {language: program(language) for language in texts}
        answers[name] = {
            language: [_visible(split(text)) for text in texts[language]]
            for language, split in splitters.items()
            if split is not None
        }
    print(json.dumps(answers))


def _visible(sentences: Sequence[str]) -> list[str]:
    return [sentence for sentence in sentences if re.search(r"\S", sentence)]


if __name__ == "__main__":
    main()
