"""Where sentences end: `flaxformer_mt.sentences` and other splitters, on joined lines.

python -m benchmarks.splitter --data FOLDER --workdir DIR [--install] [--part development]

FOLDER has newstest2013 and newstest2014 (`newstest2014.en-de.en.xz` and so on), whose lines are the
English, German and French sentences. Those of other languages are of the test set of the language
detector eld, 1,000 lines a language from the web and from newspapers. Lines that end without a mark
are left out. 2 to 8 lines, drawn at random, make a text, and the figure is the F1 of the places
between lines, in percent. A line of two sentences counts against every splitter.

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
from benchmarks.peer_environments import Environments, EnvironmentMissing
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
# A mark that ends a sentence, and what may close after it.
_ENDED = re.compile(r"[.!?…。！？।]['\"”’“»」』)）\]]*$")
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

    present = {} if options.python is None else {"splitters": options.python}
    environments = Environments(options.workdir, install=options.install, present=present)
    try:
        python = environments.python("splitters")
    except EnvironmentMissing as error:
        raise SystemExit(f"benchmarks.splitter: {error}") from None

    texts = {
        language: joined(sentences, language)
        for language, sentences in read(python, options.data, options.part).items()
    }
    started = time.perf_counter()
    ours = {
        language: [split_sentences(one.text, language).texts for one in of_language]
        for language, of_language in texts.items()
    }
    seconds = time.perf_counter() - started
    answers = _asked(
        python,
        "split",
        {language: [one.text for one in of_language] for language, of_language in texts.items()},
    )
    scores = {"ours": scored(ours, texts)}
    scores |= {name: scored(answer, texts) for name, answer in answers.items()}
    metrics = figures(scores)
    characters = sum(len(one.text) for of_language in texts.values() for one in of_language)
    metrics["characters_per_second"] = characters / seconds
    print(json.dumps(metrics, indent=2))
    if options.part == "test":
        write_result(
            options.result / "splitter.json",
            command="python -m benchmarks.splitter --data FOLDER --workdir DIR --install",
            config="files",
            seconds=seconds,
            metrics=metrics,
            signatures={f"best_peer_f1_{language}": best_peer(scores, language) for language in LANGUAGES},
        )
    return 0


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
        language: [line.strip() for line in sentences if _ENDED.search(line.strip())]
        for language, sentences in by_language.items()
    }


def joined(sentences: Sequence[str], language: str) -> list[Text]:
    """Texts of a few sentences each, drawn without replacement."""
    generator = random.Random(SEED)
    shuffled = generator.sample(sentences, len(sentences))
    between = " " if has_blanks_between_sentences(language) else ""
    texts: list[Text] = []
    while shuffled:
        count = generator.randint(*LINES_OF_A_TEXT)
        taken, shuffled = shuffled[:count], shuffled[count:]
        texts.append(Text(between.join(taken), frozenset(places(taken))))
    return texts


def places(sentences: Sequence[str]) -> Iterator[int]:
    """Where each sentence but the last ends, counted in characters that aren't blank."""
    end = 0
    for sentence in sentences[:-1]:
        end += len(_BLANKS.sub("", sentence))
        yield end


def scored(
    answers: Mapping[str, Sequence[Sequence[str]]], texts: Mapping[str, Sequence[Text]]
) -> dict[str, float]:
    """F1 in percent, by language. Raises ValueError if a splitter changed a text."""
    scores: dict[str, float] = {}
    for language, answer in answers.items():
        right = found = wanted = 0
        for sentences, (text, expected) in zip(answer, texts[language], strict=True):
            if _BLANKS.sub("", "".join(sentences)) != _BLANKS.sub("", text):
                raise ValueError(f"{language}: a splitter changed the text {text[:80]!r}")
            given = {*places(sentences)}
            right += len(given & expected)
            found += len(given)
            wanted += len(expected)
        scores[language] = 100.0 * 2 * right / (found + wanted)
    return scores


def figures(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for language in LANGUAGES:
        metrics[f"ours_f1_{language}"] = scores["ours"][language]
        metrics[f"best_peer_f1_{language}"] = scores[best_peer(scores, language)][language]
    for name in scores:
        if name != "ours":
            metrics |= {f"{name}_f1_{language}": f1 for language, f1 in scores[name].items()}
    return metrics


def best_peer(scores: Mapping[str, Mapping[str, float]], language: str) -> str:
    """The other splitter that is best in a language."""
    peers = [name for name in scores if name != "ours" and language in scores[name]]
    return max(peers, key=lambda name: scores[name][language])


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
