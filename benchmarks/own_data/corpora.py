"""The corpora of the study and their subsets, written as plain text that every contestant reads."""

import dataclasses
import gzip
import hashlib
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flaxformer_mt.rundir.paths import read_json, write_bytes, write_json

SEED = 46  # of the subsets
SHORT, LONG = (5, 20, 60), (5, 20, 60, 180)  # minutes
SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """A subset of a training set, with the dev and test sets of the whole, and its times.

    The `files` of a split are below the data folder, without the language and the ending that
    follow: `multi30k/raw/train` stands for `multi30k/raw/train.en.gz`.
    """

    name: str
    pairs: int
    languages: tuple[str, str]
    files: Mapping[str, str]
    minutes: tuple[int, ...] = SHORT


def _corpus(
    family: str,
    pairs: int,
    languages: tuple[str, str],
    files: Sequence[str],
    minutes: tuple[int, ...] = SHORT,
) -> Corpus:
    return Corpus(
        name=f"{family}_{pairs}",
        pairs=pairs,
        languages=languages,
        files=dict(zip(SPLITS, files, strict=True)),
        minutes=minutes,
    )


_GERMAN, _FRENCH = ("en", "de"), ("en", "fr")
_MULTI30K = [f"multi30k/raw/{name}" for name in ("train", "val", "test_2016_flickr")]
_PHP = [f"php_docs/en-de/{split}" for split in SPLITS]
_TATOEBA = [f"tatoeba_en_de/{name}" for name in ("train", "dev", "test-tatoeba-v2021-08-07")]
_EUROPARL = [f"europarl_en_fr/{name}" for name in ("train-500k", "dev", "test")]

CORPORA = {
    corpus.name: corpus
    for corpus in (
        _corpus("multi30k", 3_000, _GERMAN, _MULTI30K),
        _corpus("multi30k", 10_000, _GERMAN, _MULTI30K),
        _corpus("multi30k", 29_000, _GERMAN, _MULTI30K),
        _corpus("php", 18_291, _GERMAN, _PHP),
        _corpus("tatoeba", 30_000, _GERMAN, _TATOEBA),
        _corpus("tatoeba", 150_000, _GERMAN, _TATOEBA, LONG),
        _corpus("europarl", 100_000, _FRENCH, _EUROPARL),
        _corpus("europarl", 300_000, _FRENCH, _EUROPARL, LONG),
    )
}


@dataclasses.dataclass(frozen=True)
class Text:
    """A corpus as plain text in a folder, `SPLIT.LANGUAGE`; `digest` is of all its files."""

    corpus: Corpus
    folder: Path
    digest: str

    def path(self, split: str, side: int) -> Path:
        """The file of a split; side 0 is the source."""
        return self.folder / f"{split}.{self.corpus.languages[side]}"

    def lines(self, split: str, side: int) -> list[str]:
        """The lines of a split, of which only "\\n" is an end."""
        return self.path(split, side).read_text("utf-8").split("\n")[:-1]


def written(corpus: Corpus, data: Path, folder: Path) -> Text:
    """The corpus's text in `folder`, written on the first call. Raises OSError and ValueError."""
    record = folder / "text.json"
    if not record.exists():
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        for split in SPLITS:
            sides = [_read(data, corpus.files[split], code) for code in corpus.languages]
            if len(sides[0]) != len(sides[1]):
                raise ValueError(f"{data / corpus.files[split]}: its sides have unequal lengths")
            if split == "train":
                sides = _subset(sides, corpus)
            for code, lines in zip(corpus.languages, sides, strict=True):
                content = "".join(f"{line}\n" for line in lines).encode()
                write_bytes(folder / f"{split}.{code}", content)
                digest.update(content)
        write_json(record, {"digest": digest.hexdigest()})
    return Text(corpus, folder, read_json(record)["digest"])


def _subset(sides: Sequence[Sequence[str]], corpus: Corpus) -> list[list[str]]:
    """As many pairs as the corpus has, drawn evenly and left in order."""
    usable = [
        number
        for number, pair in enumerate(zip(*sides, strict=True))
        if all(_is_one_line(line) for line in pair)
    ]
    if len(usable) < corpus.pairs:
        raise ValueError(f"{corpus.name}: only {len(usable):,} pairs are there")
    order = np.random.default_rng(SEED).permutation(len(usable))
    chosen = np.sort(order[: corpus.pairs])
    return [[lines[usable[number]] for number in chosen] for lines in sides]


def _is_one_line(line: str) -> bool:
    """Whether every program reads one line: JoeyNMT also splits at U+0085 and the like."""
    return len(line.strip()) > 0 and len(line.splitlines()) == 1


def _read(data: Path, name: str, code: str) -> list[str]:
    """The lines of a packed or plain file. Raises OSError."""
    for ending, opened in ((".xz", lzma.open), (".gz", gzip.open), ("", open)):
        path = data / f"{name}.{code}{ending}"
        if path.exists():
            with opened(path, "rb") as file:
                return file.read().decode().removesuffix("\n").split("\n")
    raise FileNotFoundError(f"{data / name}.{code}: no such file, plain, .gz or .xz")
