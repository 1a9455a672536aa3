"""What `data.filter.language` drops of text in the right language, and of text in another one.

python -m benchmarks.language_filter --data FOLDER [--share 0.1]

FOLDER has `multi30k/raw` (train.en.gz, .de.gz and .fr.gz) and `tatoeba_en_de` (train.en.xz and
.de.xz). 4,000 lines, evenly spread over each file, are judged by the filter's own function. Needs
py3langid.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import RESULTS
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.data.prepare.language_id import in_other_languages
from flaxformer_mt.reproduction.result_file import write_result

LINES = 4000
SHORT = 24  # characters, at most
FILES = {
    f"{corpus}_{language}": folder.format(language)
    for corpus, folder, languages in (
        ("multi30k", "multi30k/raw/train.{}.gz", ("en", "de", "fr")),
        ("tatoeba", "tatoeba_en_de/train.{}.xz", ("en", "de")),
    )
    for language in languages
}
# The text, and the language that it is given as, by the name of the result.
RIGHT = {name: name.rpartition("_")[2] for name in FILES if not name.endswith("_fr")}
WRONG = {("multi30k_fr", "en"), ("multi30k_fr", "de"), ("tatoeba_de", "en"), ("tatoeba_en", "de")}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_filter",
        description="Measures what the filter by language drops.",
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    text = {name: sample(options.data / file) for name, file in FILES.items()}
    short = sample(options.data / FILES["tatoeba_de"], lambda line: len(line.decode()) <= SHORT)

    def dropped(sentences: Sequence[bytes], language: str) -> float:
        return len(in_other_languages(sentences, language, options.share)) / len(sentences)

    started = time.perf_counter()
    metrics = {f"dropped_right_{name}": dropped(text[name], RIGHT[name]) for name in RIGHT}
    metrics |= {
        f"dropped_{name}_as_{language}": dropped(text[name], language)
        for name, language in sorted(WRONG)
    }
    seconds = time.perf_counter() - started
    judged = sum(len(text[name]) for name in (*RIGHT, *(name for name, _ in WRONG)))
    metrics["lines_per_second"] = judged / seconds
    metrics["dropped_short_tatoeba_de_as_en"] = dropped(short, "en")
    result = write_result(
        options.result / "language_filter.json",
        command=f"python -m benchmarks.language_filter --data FOLDER --share {options.share:g}",
        config="files",
        seconds=seconds,
        metrics=metrics,
        signatures={},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def sample(path: Path, is_wanted: Callable[[bytes], bool] = lambda line: True) -> list[bytes]:
    """`LINES` of a file's lines, evenly spread over those that are wanted."""
    wanted = [line for line in lines(path) if is_wanted(line)]
    return list(itertools.islice(wanted[:: max(1, len(wanted) // LINES)], LINES))


if __name__ == "__main__":
    sys.exit(main())
