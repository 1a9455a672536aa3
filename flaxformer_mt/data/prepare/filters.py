"""Why a store drops pairs, the scripts of sentences, and which pairs came before."""

import functools
import hashlib
import math
import re
import sys
from collections.abc import Iterable, Sequence

import numpy as np
import regex
from jaxtyping import Bool, Integer, UInt8, UInt64

from flaxformer_mt.config.languages import SCRIPT_OF, base_language, written_script

TOO_LONG = "too long"
LENGTH_RATIO = "length ratio"
IDENTICAL = "identical sides"
SCRIPT = "another script"
LANGUAGE = "another language"
SWAPPED = "swapped sides"
TOO_MANY_CHARACTERS = "too many characters"
CHARACTER_RATIO = "character ratio"
DUPLICATE = "duplicate"
NEAR_DUPLICATE = "near-duplicate"
UNKNOWN_WORD = "unknown target word"
OTHER_LEAVES = "leaves other than the source's words"

MIN_HASHES = 128  # of a pair, at most
_NGRAM = 5  # characters; what Leskovec et al., Mining of Massive Datasets, 3.2.2, use for emails

# Scripts that are written together, by their names in ISO 15924.
_MIXED = {
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kana": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}


def other_script(
    sentences: Sequence[bytes], script: str, share: float
) -> Bool[np.ndarray, " sentences"]:
    """Sentences with less than this share of their letters, if any, in `script`."""
    if share == 0 or not sentences:
        return np.zeros(len(sentences), bool)
    letters, in_script = count_letters(sentences, script)
    return in_script < share * letters


def script_of(language: str) -> str | None:
    """The script of a language code, if known; a code may name it: "sr-Latn", "zh_Hant"."""
    script = written_script(language)
    if script in _MIXED or _is_script(script):
        return script
    return SCRIPT_OF.get(base_language(language)) or None


def count_letters(
    sentences: Sequence[bytes], script: str
) -> tuple[Integer[np.ndarray, " sentences"], Integer[np.ndarray, " sentences"]]:
    """How many letters each UTF-8 sentence has, and how many of them in `script`.

    A letter of several scripts is in each; one of Unicode's Common, such as the micro sign, in any.
    """
    # A flat array of code points: looping over characters is slower than encoding the sentence.
    texts = [sentence.decode("utf-8") for sentence in sentences]
    points = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le"), np.uint32)
    kinds = _kinds(script)[points]
    ends = np.cumsum([len(text) + 1 for text in texts])
    starts = np.concatenate(([0], ends[:-1]))
    letters = np.add.reduceat(kinds != 0, starts, dtype=np.int64)
    return letters, np.add.reduceat(kinds == 2, starts, dtype=np.int64)


def share_in_script(text: str, script: str) -> tuple[int, float]:
    """The number of a text's letters, and the share of them in `script`. For short texts: it needs
    no table of all code points."""
    letters = "".join(regex.findall(r"\p{L}+", text))
    in_script = regex.findall(_letters_of(script), letters)
    return len(letters), len(in_script) / max(1, len(letters))


def _letters_of(script: str) -> str:
    """A pattern of characters in `script`; those of Unicode's Common are in every one."""
    return "|".join(rf"\p{{scx={part}}}" for part in ("Zyyy", *_MIXED.get(script, (script,))))


@functools.cache
def _kinds(script: str) -> UInt8[np.ndarray, " points"]:
    """For every code point: 0 for no letter, 1 for a letter of another script, 2 of this one."""
    points = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.zeros(len(points), np.uint8)
    letters = _letters_of(script)
    for run in regex.finditer(r"\p{L}+", points):
        kinds[run.start() : run.end()] = 1
    for run in regex.finditer(rf"(?:(?=\p{{L}})(?:{letters}))+", points):
        kinds[run.start() : run.end()] = 2
    return kinds


def _is_script(name: str) -> bool:
    try:
        return bool(re.fullmatch("[A-Z][a-z]{3}", name) and regex.compile(rf"\p{{scx={name}}}"))
    except regex.error:
        return False


def hashes(pairs: Iterable[tuple[bytes, bytes]]) -> UInt64[np.ndarray, " pairs"]:
    """A hash for each pair of UTF-8 texts, stripped; the same on any machine."""
    digests = (
        # Sound text has no zero byte.
        hashlib.blake2b(src.strip() + b"\0" + tgt.strip(), digest_size=8).digest()
        for src, tgt in pairs
    )
    return np.frombuffer(b"".join(digests), "<u8")


def line_hashes(lines: Iterable[bytes]) -> UInt64[np.ndarray, " lines"]:
    """A hash for each line of UTF-8 text, stripped; the same on any machine."""
    digests = (hashlib.blake2b(line.strip(), digest_size=8).digest() for line in lines)
    return np.frombuffer(b"".join(digests), "<u8")


def band_hashes(
    pairs: Iterable[tuple[bytes, bytes]], threshold: float
) -> UInt64[np.ndarray, " pairs bands"]:
    """Hashes of each pair's bands of MinHashes, over both sides' lowercased character n-grams.

    Two pairs of Jaccard similarity s share a band with probability 1 - (1 - s^rows)^bands. The same
    on any machine; nothing for a threshold of 0.
    """
    if not threshold:
        return np.empty((0, 0), np.uint64)
    from rensa import RMinHash

    bands, rows = bands_for(threshold)
    texts = (f"{src.decode().strip()}\0{tgt.decode().strip()}".lower() for src, tgt in pairs)
    ngrams = ([text[start : start + _NGRAM] for start in range(len(text))] for text in texts)
    digests = RMinHash.digest_matrix_from_token_sets(ngrams, bands * rows, seed=1)
    hashes = np.array(digests.to_rows(), np.uint64).reshape(-1, bands, rows)
    # A polynomial modulo 2^64, with other powers in each band.
    powers = np.uint64(0x9E3779B97F4A7C15) ** np.arange(bands * rows, dtype=np.uint64)
    return (hashes * powers.reshape(bands, rows)).sum(axis=2)


def bands_for(threshold: float) -> tuple[int, int]:
    """Bands and their rows: the longest with which half the pairs at the threshold share one."""

    def bands(rows: int) -> int:
        return max(1, round(math.log(0.5) / math.log1p(-(threshold**rows))))

    longer = range(2, MIN_HASHES + 2)
    rows = next(rows - 1 for rows in longer if rows * bands(rows) > MIN_HASHES)
    return min(bands(rows), MIN_HASHES), rows


class Seen:
    """The pairs that came before: 64-bit hashes in sorted arrays, each twice as long as the next.

    Of 41 million pairs (330 MB), one is lost as a duplicate with a chance of 1 in 22,000.
    """

    def __init__(self) -> None:
        self._sorted: list[UInt64[np.ndarray, " pairs"]] = []

    def add(self, keys: UInt64[np.ndarray, " pairs"]) -> Bool[np.ndarray, " pairs"]:
        """Adds the hashes; True where one is new."""
        unique, first = np.unique(keys, return_index=True)
        new = ~self.known(unique)
        added = unique[new]
        first_time = np.zeros(len(keys), bool)
        first_time[first[new]] = True
        while self._sorted and len(self._sorted[-1]) < 2 * len(added):
            added = np.sort(np.concatenate([self._sorted.pop(), added]), kind="stable")
        if len(added):
            self._sorted.append(added)
        return first_time

    def known(self, keys: UInt64[np.ndarray, " keys"]) -> Bool[np.ndarray, " keys"]:
        """Which of the hashes were added before; it is faster if they are sorted."""
        is_known = np.zeros(len(keys), bool)
        for earlier in self._sorted:
            is_known |= earlier[np.searchsorted(earlier[:-1], keys)] == keys
        return is_known


class SeenNear(Seen):
    """The pairs that came before, by the hashes of their bands."""

    def add(self, pairs: UInt64[np.ndarray, " pairs bands"]) -> Bool[np.ndarray, " pairs"]:
        """Adds the pairs that share no band with one added before; True for these.

        A dropped pair drops no others, so a chain of ever less similar pairs keeps some.
        """
        bands, places = np.unique(pairs, return_inverse=True)
        known = self.known(bands)[places.reshape(pairs.shape)]  # [pairs, bands]
        new = np.ones(len(pairs), bool)
        new[known.any(axis=1)] = False
        added_bands = set[int]()
        for pair in np.flatnonzero(new):
            hashes = pairs[pair].tolist()
            if added_bands.isdisjoint(hashes):
                added_bands.update(hashes)
            else:
                new[pair] = False
        super().add(pairs[new].ravel())
        return new
