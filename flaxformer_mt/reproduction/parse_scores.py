"""F1 of a parser's output against gold trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.parsing import evalb, linearization
from flaxformer_mt.parsing.gold import describe_left_out, trees_of_parses
from flaxformer_mt.parsing.repair import rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read

SIGNATURE = "EVALB, COLLINS.prm; malformed outputs repaired, none left out"


def gold_trees(target: Path, count: int, *, say: Callable[[str], None]) -> tuple[Tree, ...]:
    """The bracketed trees of which `target` has the linearised form: in NAME.trees beside it.

    They have the part-of-speech tags by which EVALB leaves punctuation out, and which a linearised
    tree lacks. `say` is told of trees without words, which have none. Raises CorpusError and
    TreeError.
    """
    path = target.with_suffix(".trees")
    try:
        with open(path, encoding="utf-8") as lines:
            trees = tuple(tree for _, tree in read(lines, str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{path}: the gold trees, from which {target.name} was made, cannot be read: {error}"
        ) from error
    try:
        of_lines = trees_of_parses(trees, count)
    except TreeError as error:
        raise CorpusError(f"{path} has {error} and {target} has {count:,} lines") from error
    if told := describe_left_out(trees, of_lines):
        say(f"{path}: {told}")
    return of_lines


def parse_f1(
    sources: Sequence[str], outputs: Sequence[str], gold: Sequence[Tree]
) -> tuple[float, str, int]:
    """F1 in percent, how it was counted, and how many outputs were no tree.

    Raises CorpusError if a gold tree has other words than its sentence.
    """
    scores, malformed = [], 0
    for number, (source, output, tree) in enumerate(zip(sources, outputs, gold, strict=True), 1):
        rebuilt = rebuild(linearization.tokens_of(source), linearization.tokens_of(output))
        malformed += bool(rebuilt.repairs)
        score = evalb.score_sentence(tree, rebuilt.tree)
        if score.state == "error":
            raise CorpusError(f"sentence {number:,}: its gold tree has other words: {source}")
        scores.append(score)
    return 100 * evalb.total(scores).f1, SIGNATURE, malformed
