"""`trees`: from treebanks to parallel text, from a model's output to trees, and their scores."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.cli.arguments import flags, make_parser, print_json, say
from flaxformer_mt.parsing import linearization
from flaxformer_mt.parsing.evalb import (
    describe_left_out,
    score_sentence,
    scores_json,
    scores_table,
    trees_of_parses,
)
from flaxformer_mt.parsing.linearization import normal_form
from flaxformer_mt.parsing.repair import Repairs, counted, flat, rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.rundir.paths import as_path, write_json, writing

_EPILOG = """linearize makes the two files that a model is trained on (--config parsing); translate
turns sentences into linearised trees; rebuild makes trees of those; score compares them with gold
trees. Files are plain or .gz, .xz, .zst; - is standard input. docs/parsing.md has an example."""
_SOURCE = "sentences, one a line, words parted by blanks"
# What names the files that an action reads, and those that it writes.
_FILES = {
    "linearize": (("trees",), ("output_src", "output_tgt")),
    "rebuild": (("src", "predicted"), ("output", "json")),
    "score": (("gold", "predicted"), ("output",)),
}


_LINEARIZE = {
    "trees TREES...": "bracketed trees",
    "--leaves xx|tags": "what stands for a word: XX, or its part-of-speech tag (default: xx)",
}
_REBUILD = {
    "src SRC": _SOURCE,
    "predicted PREDICTED": "linearised trees, one a line",
    "--output FILE": "default: standard output",
    "--malformed repair|flat": "repair what is no tree, or put the words alone in its place "
    "(default: repair)",
    "--json FILE": "write the counts of repairs to this file",
}
_SCORE = {
    "gold GOLD": "bracketed trees",
    "predicted PREDICTED": "a tree for each; (()) where there is none",
    "--json": "print JSON in place of the table",
    "--output FILE": "write the JSON to this file as well",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    linearize = actions.add_parser("linearize", help="treebank files to source and target text")
    flags(linearize, _LINEARIZE, leaves="xx")
    linearize.add_argument("--output-src", metavar="FILE", required=True, help=_SOURCE)
    linearize.add_argument("--output-tgt", metavar="FILE", required=True, help="linearised trees")
    rebuilding = actions.add_parser("rebuild", help="sentences and linearised trees to trees")
    flags(rebuilding, _REBUILD, malformed="repair")
    flags(actions.add_parser("score", help="EVALB's labelled bracket scores"), _SCORE)
    options = parser.parse_args(arguments)
    _check_files(options, parser)
    {"linearize": _linearize, "rebuild": _rebuild, "score": _score}[options.action](options)
    return 0


def _linearize(options: argparse.Namespace) -> None:
    changes: collections.Counter[str] = collections.Counter()
    count = 0
    with (
        writing(as_path(options.output_src)) as src,
        writing(as_path(options.output_tgt)) as tgt,
    ):
        for name in options.trees:
            for number, tree in _trees(name):
                plain, changed = normal_form(tree)
                changes.update(changed)
                if not plain.words:
                    changes["trees without words left out"] += 1
                    continue
                tokens = linearization.linearize(plain, options.leaves)
                _require_inverse(plain, tokens, options.leaves, f"{name}:{number}")
                src.write(" ".join(plain.words) + "\n")
                tgt.write(" ".join(tokens) + "\n")
                count += 1
        if not count:
            raise TreeError(f"{', '.join(options.trees)}: no tree with words in it")
    say(f"{count:,} trees linearised; each came back from its words and tokens as it was")
    for line in counted(changes):
        say(line)


def _require_inverse(
    tree: Tree, tokens: list[str], leaves: linearization.Leaves, where: str
) -> None:
    """Raises TreeError for a tree whose labels or tags read as something else in the target."""
    rebuilt = rebuild(tree.words, tokens)
    tags = tree.tags if leaves == "tags" else (linearization.LEAF,) * len(tree.tags)
    if rebuilt.repairs or rebuilt.tree != dataclasses.replace(tree, tags=tags):
        raise TreeError(f"{where}: a label or tag has no linearised form: {' '.join(tokens)!r}")


def _rebuild(options: argparse.Namespace) -> None:
    counts = Repairs()
    with (
        _output(options.output) as write,
        open_lines(_place(options.src)) as src,
        open_lines(_place(options.predicted)) as predicted,
    ):
        for sentence, line in itertools.zip_longest(_text(src), _text(predicted)):
            if sentence is None or line is None:
                for _ in itertools.chain(src, predicted):
                    pass
                raise InputError(
                    f"{src.name} has {src.number:,} lines and {predicted.name} has "
                    f"{predicted.number:,}: each sentence has one linearised tree"
                )
            words = linearization.tokens_of(sentence)
            rebuilt = rebuild(words, linearization.tokens_of(line))
            counts.add(rebuilt)
            as_flat = rebuilt.repairs and options.malformed == "flat"
            write(f"{flat(words) if as_flat else rebuilt.tree}\n")
    for line in counts.lines():
        say(line)
    if options.json is not None:
        write_json(as_path(options.json), counts.to_json() | {"malformed": options.malformed})


def _score(options: argparse.Namespace) -> None:
    # Whole, as only the counts tell whether trees without words were parsed.
    gold, predicted = (
        [tree for _, tree in _trees(path)] for path in (options.gold, options.predicted)
    )
    if not gold:
        raise TreeError(f"{options.gold}: there is no tree")
    try:
        of_parses = trees_of_parses(gold, len(predicted))
    except TreeError as error:
        raise TreeError(
            f"{options.gold} has {error} and {options.predicted} has {len(predicted):,}: each "
            "sentence has one tree, which is (()) where it has no parse"
        ) from error
    if told := describe_left_out(gold, of_parses):
        say(told)
    scores = list(map(score_sentence, of_parses, predicted))
    if options.output is not None:
        write_json(as_path(options.output), scores_json(scores))
    if options.json:
        print_json(scores_json(scores))
    else:
        print(scores_table(scores))


def _trees(path: str) -> Iterator[tuple[int, Tree]]:
    with open_lines(_place(path)) as lines:
        yield from read(_text(lines), lines.name)


def _text(lines: Lines) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{lines.name}:{lines.number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error


def _place(path: str) -> str | None:
    return None if path == "-" else path


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield lambda text: sys.stdout.buffer.write(text.encode("utf-8"))
    else:
        with writing(as_path(path)) as file:
            yield file.write


def _check_files(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """No output may be another one or an input: it would be gone."""
    read_from, written = _FILES[options.action]
    seen: list[str] = []
    for name in read_from:
        value = getattr(options, name)
        seen += value if isinstance(value, list) else [value]
    if seen.count("-") > 1:
        parser.error("standard input (-) can be one file only")
    for name in written:
        path = getattr(options, name)
        if path is not None and os.path.realpath(path) in map(os.path.realpath, seen):
            parser.error(f"{path}: is named twice; an output needs a file of its own")
        seen += [path] if path is not None else []
