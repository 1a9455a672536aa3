"""Do placeholders survive? Multi30k with a symbol in 30% of pairs, and the result is recorded.

python -m benchmarks.symbols --data FOLDER --workdir DIR [--config.KEY=VALUE ...]

FOLDER is `data/task1/raw` of the multi30k/dataset repository. In 30% of the pairs of each split a
word and its translation, the pair of words that most often occur together, give way to one of nine
symbols. The recipe `multi30k:tiny_raw` learns from that, and the test set is translated with and
without `decoding.copy_symbols`. BLEU is against references with symbols. Continues a stopped run.
"""

import argparse
import dataclasses
import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import SETTINGS_HELP, parse_with_settings
from benchmarks.trained_run import trained
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.reproduction.result_file import this_machine, write_result
from flaxformer_mt.rundir.paths import read_json, write_json

SPEC = "multi30k:tiny_raw"
SYMBOLS = tuple(f"<x{number}/>" for number in range(1, 10))
SHARE = 0.3  # of pairs have a symbol
SEED = 49
SPLITS = {"train": "train", "val": "valid", "test_2016_flickr": "test"}
LANGUAGES = ("en", "de")
_WORD = re.compile(r"[^\W\d_]{3,}")
_LEAST_DICE = 0.2  # words that occur together by chance have less

Pair = tuple[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.symbols",
        description="Trains on text with placeholders, and counts those that survive.",
        epilog=SETTINGS_HELP,
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options, changes = parse_with_settings(parser, arguments)

    start = time.perf_counter()
    text = options.workdir / "text"
    counts = write_text(options.data, text)
    settings = {"data.folder": str(text), "data.vocabulary.symbols": ",".join(SYMBOLS), **changes}
    run = trained(options.workdir / "run", SPEC, settings, benchmark="benchmarks.symbols")
    translator = fm.Translator.load(run)
    sources, references = (_read(text / f"test_2016_flickr.{code}.gz") for code in LANGUAGES)
    without, copied = (
        [one.text for one in translator.with_config(copy_symbols=copies).translate(sources)]
        for copies in (False, True)
    )
    metrics, signature = compared(sources, references, without, copied)
    result = write_result(
        options.result / "symbols.json",
        command="python -m benchmarks.symbols --data FOLDER --workdir DIR"
        + "".join(f" --config.{key}={value}" for key, value in changes.items()),
        config=SPEC,
        seconds=time.perf_counter() - start,
        metrics=metrics | {"steps": fm.load_config(run).training.steps},
        signatures=dict.fromkeys(("bleu", "bleu_without"), signature),
        details={f"pairs_{split}": str(count) for split, count in counts.items()},
        machine=this_machine("none"),
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def compared(
    sources: Sequence[str], references: Sequence[str], without: Sequence[str], copied: Sequence[str]
) -> tuple[dict[str, float], str]:
    """The figures of outputs without and with `decoding.copy_symbols`, and BLEU's signature."""
    scores_without, scores = (corpus_scores(lines, references) for lines in (without, copied))
    kept_without, kept_copied = kept(sources, without), kept(sources, copied)
    metrics = {
        "pairs_with_symbols": kept_copied.lines,
        "all_kept_share": kept_copied.share,
        "all_kept_share_without": kept_without.share,
        "bleu": scores.bleu,
        "bleu_without": scores_without.bleu,
        "bleu_lost": scores_without.bleu - scores.bleu,
        "outputs_changed": sum(a != b for a, b in zip(without, copied, strict=True)),
    }
    return metrics, scores.signatures[scores.bleu_name]


@dataclasses.dataclass(frozen=True)
class Kept:
    """How many lines have symbols, and of how many the output has them all, each as often."""

    lines: int
    all_kept: int

    @property
    def share(self) -> float:
        return self.all_kept / self.lines


def kept(sources: Sequence[str], outputs: Sequence[str]) -> Kept:
    """Counts lines whose source or output has a symbol."""
    wanted = [_symbols_in(source) for source in sources]
    found = [_symbols_in(output) for output in outputs]
    of_symbols = [pair for pair in zip(wanted, found, strict=True) if any(pair)]
    return Kept(len(of_symbols), sum(a == b for a, b in of_symbols))


def _symbols_in(line: str) -> Counter[str]:
    return Counter({symbol: line.count(symbol) for symbol in SYMBOLS if symbol in line})


def write_text(data: Path, folder: Path) -> Mapping[str, int]:
    """The corpus with symbols, written on the first call; by split the pairs that have one."""
    record = folder / "text.json"
    if not record.exists():
        folder.mkdir(parents=True, exist_ok=True)
        train = _pairs(data, "train")
        dice = association(train)
        counts = {}
        for number, split in enumerate(SPLITS):
            pairs = train if split == "train" else _pairs(data, split)
            random = np.random.default_rng([SEED, number])
            marked = list(with_symbols(pairs, dice, random))
            for side, code in enumerate(LANGUAGES):
                lines = "".join(f"{pair[side]}\n" for pair in marked)
                with gzip.open(folder / f"{split}.{code}.gz", "wb") as file:
                    file.write(lines.encode())
            counts[SPLITS[split]] = sum(bool(_symbols_in(source)) for source, _ in marked)
        write_json(record, counts)
    written: Mapping[str, int] = read_json(record)
    return written


def association(pairs: Sequence[Pair]) -> dict[Pair, float]:
    """Dice's coefficient of a source word and a target word: how often they occur together."""
    src, tgt, both = Counter[str](), Counter[str](), Counter[Pair]()
    for source, target in pairs:
        src_words, tgt_words = _words(source), _words(target)
        src.update(src_words)
        tgt.update(tgt_words)
        both.update((a, b) for a in src_words for b in tgt_words)
    return {
        (a, b): 2 * count / (src[a] + tgt[b])
        for (a, b), count in both.items()
        if 2 * count > _LEAST_DICE * (src[a] + tgt[b])
    }


def with_symbols(
    pairs: Sequence[Pair], dice: Mapping[Pair, float], random: np.random.Generator
) -> Iterator[Pair]:
    """The pairs, of which a share have a symbol instead of one of the pairs of words that go
    together, drawn evenly."""
    for source, target in pairs:
        together = sorted((a, b) for a in _words(source) for b in _words(target) if (a, b) in dice)
        best = [
            (a, b)
            for a, b in together
            if dice[a, b] == max(dice[pair] for pair in together if a == pair[0] or b == pair[1])
        ]
        if random.random() < SHARE and best:
            a, b = best[random.integers(len(best))]
            symbol = SYMBOLS[random.integers(len(SYMBOLS))]
            source, target = _replaced(source, a, symbol), _replaced(target, b, symbol)
        yield source, target


def _replaced(line: str, word: str, symbol: str) -> str:
    """The line with a symbol in place of the first of these words."""
    place = next(match for match in _WORD.finditer(line) if match[0].lower() == word)
    return line[: place.start()] + symbol + line[place.end() :]


def _words(line: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(line)}


def _pairs(data: Path, split: str) -> list[Pair]:
    sides = [_read(data / f"{split}.{code}.gz") for code in LANGUAGES]
    return list(zip(*sides, strict=True))


def _read(path: Path) -> list[str]:
    with gzip.open(path, "rb") as file:
        return file.read().decode().removesuffix("\n").split("\n")


if __name__ == "__main__":
    sys.exit(main())
