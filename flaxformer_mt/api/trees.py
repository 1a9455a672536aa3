"""Files of trees: treebanks to parallel text, a model's output to trees, and scores.

Files may be plain, `.gz`, `.bz2`, `.xz` or `.zst`; "-" is standard input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from flaxformer_mt.api import say
from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.parsing import linearization
from flaxformer_mt.parsing.evalb import Score, describe_left_out, score_sentence, trees_of_parses
from flaxformer_mt.parsing.linearization import Leaves, Repairs, flat, normal_form, rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.rundir.paths import as_path, writing

Place = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linearized:
    """A treebank that has become parallel text."""

    trees: int
    changes: Mapping[str, int]  # what was removed or shortened, by kind


def linearize_files(
    treebanks: Sequence[Place], *, src: Place, tgt: Place, leaves: Leaves = "xx"
) -> Linearized:
    """Writes bracketed trees as sentences (`src`) and linearised trees (`tgt`), to train on.

    A leaf is XX, its part-of-speech tag or the word itself. Raises TreeError with file and line for
    a tree that its words and tokens wouldn't give back, and if no tree has words; CorpusError; and
    RunDirectoryError.
    """
    names = [os.fspath(path) for path in treebanks]
    changes: Counter[str] = Counter()
    count = 0
    with writing(as_path(src)) as sentences, writing(as_path(tgt)) as linearized:
        for name in names:
            for number, tree in _trees(name):
                plain, changed = normal_form(tree)
                changes.update(changed)
                if not plain.words:
                    changes["trees without words left out"] += 1
                    continue
                tokens = linearization.linearize(plain, leaves)
                if not _is_rebuilt(plain, tokens, leaves):
                    raise TreeError(
                        f"{name}:{number}: can't linearise a label or tag: {' '.join(tokens)!r}"
                    )
                sentences.write(" ".join(plain.words) + "\n")
                linearized.write(" ".join(tokens) + "\n")
                count += 1
        if not count:
            raise TreeError(f"{', '.join(names)}: no tree contains words")
    return Linearized(trees=count, changes=changes)


def rebuild_file(
    src: Place,
    predicted: Place,
    output: Place | None,
    *,
    malformed: Literal["repair", "flat"] = "repair",
) -> Repairs:
    """Writes the bracketed trees of sentences and their linearised trees; None is standard output.

    A malformed tree is repaired, or replaced with a flat one of its words. Raises InputError if one
    file has more lines, CorpusError and RunDirectoryError.
    """
    counts = Repairs()
    with (
        _output(output) as write,
        _opened(os.fspath(src)) as sentences,
        _opened(os.fspath(predicted)) as linearized,
    ):
        for sentence, line in itertools.zip_longest(_text(sentences), _text(linearized)):
            if sentence is None or line is None:
                for _ in itertools.chain(sentences, linearized):  # counts their lines
                    pass
                raise InputError(
                    f"{sentences.name} has {sentences.number:,} lines and {linearized.name} has "
                    f"{linearized.number:,}: each sentence needs one tree"
                )
            words = linearization.tokens_of(sentence)
            rebuilt = rebuild(words, linearization.tokens_of(line))
            counts.add(rebuilt)
            as_flat = rebuilt.repairs and malformed == "flat"
            write(f"{flat(words) if as_flat else rebuilt.tree}\n")
    return counts


def score_files(gold: Place, predicted: Place) -> list[Score]:
    """EVALB's counts of each sentence of two files of bracketed trees; (()) is no tree.

    `parsing.evalb` adds them up (`total`, `scores_json`). Raises TreeError and CorpusError.
    """
    gold, predicted = os.fspath(gold), os.fspath(predicted)
    # Both are read to the end: only the counts tell whether trees without words were parsed.
    gold_trees = [tree for _, tree in _trees(gold)]
    predicted_trees = [tree for _, tree in _trees(predicted)]
    if not gold_trees:
        raise TreeError(f"{gold}: contains no tree")
    try:
        of_parses = trees_of_parses(gold_trees, len(predicted_trees))
    except TreeError as error:
        raise TreeError(
            f"{gold} has {error} and {predicted} has {len(predicted_trees):,}: "
            "each sentence needs one tree, or (())"
        ) from error
    if note := describe_left_out(gold_trees, of_parses):
        say(note)
    return list(map(score_sentence, of_parses, predicted_trees))


def _is_rebuilt(tree: Tree, tokens: Sequence[str], leaves: Leaves) -> bool:
    """Whether the tokens give back the tree: a label or tag may be read as something else."""
    rebuilt = rebuild(tree.words, tokens)
    tags = tree.tags if leaves == "tags" else rebuilt.tree.tags
    return not rebuilt.repairs and rebuilt.tree == dataclasses.replace(tree, tags=tags)


def _trees(path: str) -> Iterator[tuple[int, Tree]]:
    with _opened(path) as lines:
        yield from read(_text(lines), lines.name)


def _text(lines: Lines) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{lines.name}:{lines.number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error


def _opened(path: str) -> contextlib.AbstractContextManager[Lines]:
    return open_lines(None if path == "-" else path)


@contextlib.contextmanager
def _output(path: Place | None) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield lambda text: sys.stdout.buffer.write(text.encode())
    else:
        with writing(as_path(path)) as file:
            yield file.write
