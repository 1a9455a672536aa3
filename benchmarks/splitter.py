"""Where sentences end: `flaxformer_mt.sentences` and other splitters, on joined lines.

python -m benchmarks.splitter --data FOLDER --workdir DIR [--install] [--part development]

FOLDER has newstest2013 and newstest2014 (`newstest2014.en-de.en.xz` and so on), whose lines are the
English, German and French sentences. Those of other languages are of the test set of the language
detector eld, 1,000 lines a language from the web and from newspapers. Another program has split
these; lines that it cut wrongly are left out, as far as that shows: those without a mark of their
script at the end (in Hindi, Chinese and Japanese, a Latin full stop there mostly follows an
abbreviation), and those with half of a pair of quotation marks or brackets. 2 to 8 lines, drawn at
random, make a text, and the figure is the F1 of the places between lines, in percent. A line of two
sentences counts against every splitter.

Figures are of newstest2014 and of every second of eld's lines. The others, `--part development`,
are for whoever changes the splitter: no result is written. Splitters run in an environment of
their own below DIR, which `--install` makes.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import RESULTS
from benchmarks.peer_environments import EnvironmentMissing, Environments
from flaxformer_mt.config.languages import has_blanks_between_sentences
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.sentences import split_sentences

PEERS = Path(__file__).with_name("splitter_peers.py")
NEWS = {"en": "en-de.en", "de": "en-de.de", "fr": "en-fr.fr"}
WEB = ("es", "ru", "hi", "zh", "ja")
LANGUAGES = (*NEWS, *WEB)
YEARS = {"test": "newstest2014", "development": "newstest2013"}
SEED = 1
LINES_OF_A_TEXT = (2, 8)
# Marks that end a sentence, and those that may close after it.
_ENDED = re.compile(r"[.!?…](?:\s?['\"”’“»«)\]])*$")
_ENDED_IN = {
    "hi": re.compile(r"[।!?…]['\"”’)\]]*$"),
    "zh": re.compile(r"[。！？!?…][\"”’」』)）】》\]]*$"),
    "ja": re.compile(r"[。！？!?…][\"”’」』)）】》\]]*$"),
}
_PAIRS = ("()", "[]", "（）", "「」", "『』", "【】", "《》", "“”", "«»")
_GERMAN_PAIRS = (*_PAIRS[:-2], "„“", "»«")
_BLANKS = re.compile(r"\s+")


class Text(NamedTuple):
    """Joined lines, and the places between them: counted in characters that aren't blank."""

    text: str
    places: frozenset[int]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.splitter",
        description="Measures where sentences end, beside other splitters.",
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--part", choices=[*YEARS], default="test")
    parser.add_argument("--install", action="store_true", help="make the splitters' environment")
    parser.add_argument("--python", type=Path, metavar="PYTHON", help="of an environment with them")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    python = _environment(options.workdir, options.install, options.python)
    texts = {
        language: joined(sentences, language)
        for language, sentences in read(python, options.data, options.part).items()
    }
    started = time.perf_counter()
    ours = {language: _split(of_language, language) for language, of_language in texts.items()}
    seconds = time.perf_counter() - started
    peers = _asked(python, "split", {language: _plain(texts[language]) for language in texts})
    metrics = figures(ours, peers, texts)
    characters = sum(len(text) for language in texts for text in _plain(texts[language]))
    metrics["characters_per_second"] = characters / seconds
    print(json.dumps(metrics, indent=2))
    if options.part == "test":
        write_result(
            options.result / "splitter.json",
            command="python -m benchmarks.splitter --data FOLDER --workdir DIR --install",
            config="files",
            seconds=seconds,
            metrics=metrics,
            signatures={},
        )
    return 0


def _environment(folder: Path, install: bool, python: Path | None) -> Path:
    """The interpreter of the splitters' environment. Raises SystemExit without one."""
    present = {} if python is None else {"splitters": python}
    try:
        return Environments(folder, install=install, present=present).python("splitters")
    except EnvironmentMissing as error:
        raise SystemExit(f"benchmarks.splitter: {error}") from None


def _split(texts: Sequence[Text], language: str) -> list[Sequence[str]]:
    return [split_sentences(text, language).texts for text in _plain(texts)]


def _plain(texts: Sequence[Text]) -> list[str]:
    return [one.text for one in texts]


def read(python: Path, folder: Path, part: str) -> dict[str, list[str]]:
    """The sentences of a part, by language, in their order."""
    by_language = {
        language: [line.decode() for line in lines(folder / f"{YEARS[part]}.{name}.xz")]
        for language, name in NEWS.items()
    }
    web = _asked(python, "lines", None, *WEB)
    first = [*YEARS].index(part)
    by_language |= {language: web[language][first::2] for language in WEB}
    return {
        language: [line.strip() for line in sentences if is_whole(line.strip(), language)]
        for language, sentences in by_language.items()
    }


def is_whole(line: str, language: str) -> bool:
    """Whether a line ends with a sentence's mark, and has no half of a pair of marks."""
    ended = _ENDED_IN.get(language, _ENDED)
    pairs = _GERMAN_PAIRS if language == "de" else _PAIRS
    are_paired = line.count('"') % 2 == 0 and all(_is_balanced(line, *pair) for pair in pairs)
    return are_paired and ended.search(line) is not None


def _is_balanced(line: str, opening: str, closing: str) -> bool:
    """Whether every opening mark has its closing one after it."""
    depth = 0
    for character in line:
        depth += (character == opening) - (character == closing)
        if depth < 0:
            return False
    return depth == 0


def joined(sentences: Sequence[str], language: str) -> list[Text]:
    """Texts of a few sentences each, drawn without replacement."""
    generator = random.Random(SEED)
    shuffled = generator.sample(sentences, len(sentences))
    between = " " if has_blanks_between_sentences(language) else ""
    texts: list[Text] = []
    while shuffled:
        count = generator.randint(*LINES_OF_A_TEXT)
        taken, shuffled = shuffled[:count], shuffled[count:]
        text = between.join(taken)
        texts.append(Text(text, frozenset(places(taken, text))))
    return texts


def places(sentences: Sequence[str], text: str) -> Iterator[int]:
    """Where each sentence but the last ends, counted in characters that aren't blank. A sentence
    that isn't in the text as it is has no place."""
    visible = _BLANKS.sub("", text)
    end = 0
    for sentence in sentences:
        part = _BLANKS.sub("", sentence)
        start = visible.find(part, end)
        if start >= 0:
            end = start + len(part)
            if end < len(visible):
                yield end


def scored(
    answers: Mapping[str, Sequence[Sequence[str]]], texts: Mapping[str, Sequence[Text]]
) -> dict[str, float]:
    """F1 in percent, by language."""
    scores: dict[str, float] = {}
    for language, answer in answers.items():
        right = answered_count = expected_count = 0
        for sentences, (text, expected) in zip(answer, texts[language], strict=True):
            answered = {*places(sentences, text)}
            right += len(answered & expected)
            answered_count += len(answered)
            expected_count += len(expected)
        scores[language] = 100.0 * 2 * right / (answered_count + expected_count)
    return scores


def changed(
    answers: Mapping[str, Sequence[Sequence[str]]], texts: Mapping[str, Sequence[Text]]
) -> int:
    """How many texts a splitter gave back with other characters."""
    return sum(
        _BLANKS.sub("", "".join(sentences)) != _BLANKS.sub("", one.text)
        for language, answer in answers.items()
        for sentences, one in zip(answer, texts[language], strict=True)
    )


def figures(
    ours: Mapping[str, Sequence[Sequence[str]]],
    peers: Mapping[str, Mapping[str, Sequence[Sequence[str]]]],
    texts: Mapping[str, Sequence[Text]],
) -> dict[str, float]:
    """F1 by language: ours, the best peer's and each peer's; and how many texts peers changed."""
    scores = {name: scored(answers, texts) for name, answers in peers.items()}
    metrics: dict[str, float] = {}
    for language, f1 in scored(ours, texts).items():
        metrics[f"ours_f1_{language}"] = f1
        metrics[f"best_peer_f1_{language}"] = max(
            of_peer[language] for of_peer in scores.values() if language in of_peer
        )
    for name, of_peer in scores.items():
        metrics |= {f"{name}_f1_{language}": f1 for language, f1 in of_peer.items()}
        metrics[f"{name}_changed_texts"] = changed(peers[name], texts)
    return metrics


def _asked(python: Path, command: str, question: Any, *more: str) -> Any:
    """What `splitter_peers.py` answers."""
    completed = subprocess.run(
        [str(python), str(PEERS), command, *more],
        input=None if question is None else json.dumps(question),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(completed.stdout)


if __name__ == "__main__":
    sys.exit(main())
