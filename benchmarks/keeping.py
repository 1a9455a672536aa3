"""Do URLs, placeholders and unknown words stay? Text with them is translated, and recorded.

python -m benchmarks.keeping --data FOLDER --workdir DIR

FOLDER is `data/task1/raw` of the multi30k/dataset repository. Into 30% of the lines of
test_2016_flickr goes a URL, an e-mail address or a placeholder, at a place drawn at random; into as
many others a word in letters that the vocabulary doesn't know. The demo model translates them with
`--keep` or `--copy-unknown`, and without. A text is kept if the output has it as often as the
source. BLEU is that of the outputs without what went in, beside that of the lines as they were.
"""

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.markup import TEST, read
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.reproduction.result_file import write_result

SHARE = 0.3  # of the lines have something to keep
SEED = 12
PLACEHOLDERS = (
    *("{name}", "{0}", "{{user}}", "${count}", "%s", "%1$d", "%(name)s"),
    "{n, plural, one {# item} other {# items}}",
)
UNKNOWN = ("Łukasz", "Ştefan", "Ħamrun")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.keeping",
        description="Translates text with URLs, placeholders and unknown words, and counts those "
        "that stay.",
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    sources, references = (read(options.data / f"{TEST}.{code}.gz") for code in ("en", "de"))
    translator = fm.Translator.load(fm.demo_run(options.workdir / "demo"))
    plain = [translation.text for translation in translator.translate(sources)]
    scores = corpus_scores(plain, references)
    rng = random.Random(SEED)
    metrics = {"bleu_of_lines_as_they_were": scores.bleu}
    for name, settings, lines in (
        ("items", {"keep": True}, [with_item(line, rng) for line in sources]),
        ("words", {"copy_unknown": True}, [with_unknown(line, rng) for line in sources]),
    ):
        metrics[name] = sum(line.added is not None for line in lines)
        for ending, changes in (("", settings), ("_without", dict.fromkeys(settings, False))):
            share, bleu = kept_and_bleu(translator.with_config(**changes), lines, references)
            metrics[f"{name}_kept_share{ending}"] = share
            metrics[f"bleu_beside_{name}{ending}"] = bleu
    result = write_result(
        options.result / "keeping.json",
        command="python -m benchmarks.keeping --data FOLDER --workdir DIR",
        config="demo",
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={
            name: scores.signatures[scores.bleu_name] for name in metrics if "bleu" in name
        },
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


class Line(NamedTuple):
    """A source line, and what was added to it, if anything was."""

    text: str
    added: str | None = None

    def is_kept(self, output: str) -> bool:
        """Whether there is something to keep and the output has it once."""
        return self.added is not None and output.count(self.added) == 1

    def without(self, output: str) -> str:
        """The output without what was added, if it has it."""
        if self.added is None:
            return output
        remaining_text = " ".join(output.replace(self.added, "", 1).split())
        return re.sub(r" ([.,!?;:])", r"\1", remaining_text)


def kept_and_bleu(
    translator: fm.Translator, given: Sequence[Line], references: Sequence[str]
) -> tuple[float, float]:
    """The share of what was added that the outputs have, and BLEU of the outputs without it."""
    translations = translator.translate([line.text for line in given])
    pairs = list(zip(given, [translation.text for translation in translations], strict=True))
    kept_count = sum(line.is_kept(output) for line, output in pairs)
    added = sum(line.added is not None for line in given)
    rests = [line.without(output) for line, output in pairs]
    return kept_count / added, corpus_scores(rests, references).bleu


def with_item(line: str, rng: random.Random) -> Line:
    """Perhaps with a URL, an e-mail address or a placeholder."""
    number = rng.randrange(1000)
    item = rng.choice(
        [
            f"https://example.org/{number}?q={number % 97}&x=a",
            f"www.example.com/a-{number}",
            f"first.last{number}@mail.example.org",
            *PLACEHOLDERS,
        ]
    )
    return _with(line, item, rng)


def with_unknown(line: str, rng: random.Random) -> Line:
    """Perhaps with a word that the demo model's vocabulary can't spell."""
    return _with(line, rng.choice(UNKNOWN), rng)


def _with(line: str, added: str, rng: random.Random) -> Line:
    """The line, with `added` before one of its words in SHARE of all cases."""
    words = line.split()
    place = rng.randrange(len(words))
    if rng.random() >= SHARE:
        return Line(line)
    return Line(" ".join([*words[:place], added, *words[place:]]), added)


if __name__ == "__main__":
    sys.exit(main())
