"""Small corpora for the tests of `prepare`, and what a folder holds."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.config.schema import CorpusConfig, DataConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data.prepare.make import prepare as prepare_with
from flaxformer_mt.grammar.text import pairs

GOOD = [
    (f"the {a} sees {n} {b} .", f"{A} sieht {m} {B} .")
    for a, A in (("cat", "die Katze"), ("dog", "der Hund"), ("woman", "die Frau"))
    for n, m in (("one", "eine"), ("no", "keine"))
    for b, B in (("house", "Hütte"), ("street", "Straße"), ("lamp", "Lampe"), ("door", "Tür"))
]
"""Pairs without defects."""

ALL_FILTERS = FilterConfig(
    max_length=40, max_ratio=3.0, identical=True, duplicates=True, near_duplicates=0.7, script=0.5
)


prepare = functools.partial(prepare_with, seed=1)


def write(folder: Path, name: str, pairs: Iterable[tuple[bytes | str, bytes | str]]) -> None:
    """FOLDER/NAME.en and FOLDER/NAME.de."""
    folder.mkdir(exist_ok=True)
    for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        lines = (line.encode() if isinstance(line, str) else line for line in lines)
        (folder / f"{name}.{lang}").write_bytes(b"".join(line + b"\n" for line in lines))


def messy(size: int) -> list[tuple[bytes, bytes]]:
    """Grammar sentences among which every kind of bad pair occurs again and again."""
    mixed = [(src.encode(), tgt.encode()) for src, tgt in pairs("train", size)]
    for number in range(0, size, 7):
        src, tgt = mixed[number]
        mixed[number] = (
            (src, b"bad \xff"),
            (src, b""),
            (src + b" \x07", tgt),
            (src, src),
            (src * 20, tgt * 20),
            (src, b"x"),
            (src, "Это другой язык".encode()),
            mixed[number // 2],
        )[number // 7 % 8]
    for number in range(3, size, 14):
        src, tgt = mixed[number // 2]
        mixed[number] = (src.upper(), tgt + b" !")
    return mixed


def data_config(folder: Path, train: Sequence[str] = ("train",), **settings: Any) -> DataConfig:
    """Training corpora that `write` made in a folder, and "valid" to validate on."""
    defaults = {"vocabulary": VocabularyConfig(size=60), "filter": FilterConfig(max_length=40)}
    named = (CorpusConfig(name=name, src=f"{name}.en", tgt=f"{name}.de") for name in train)
    valid = CorpusConfig(src="valid.en", tgt="valid.de")
    settings = {"folder": str(folder), "train": tuple(named), "valid": valid, **defaults} | settings
    return DataConfig(**settings)


def two_corpora(folder: Path, size: int) -> DataConfig:
    """Two messy training corpora, the second of which repeats pairs of the first."""
    all_pairs = messy(size)
    write(folder, "one", all_pairs[: size // 2])
    write(folder, "two", all_pairs[size // 3 :])
    write(folder, "valid", all_pairs[:20])
    vocabulary = VocabularyConfig(size=200, character_coverage=0.999)
    settings = {"src_lang": "en", "tgt_lang": "de", "vocabulary": vocabulary}
    return data_config(folder, ("one", "two"), filter=ALL_FILTERS, **settings)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
