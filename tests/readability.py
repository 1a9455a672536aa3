"""Counts what a reader holds in mind: `python -m tests.readability [FILE ...]`.

Prints each function that is too much at once and each message cut in two, with file and line, and
the shares of names; exit status 1 if a limit is passed. Lines, density and blank lines are printed
and never limited: they follow from the rest.
"""

import ast
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("flaxformer_mt", "benchmarks", "tests")

# Of a function, with the functions inside it.
BRANCHES = 12
LINES = 60
LOCAL_NAMES = 25
ASSERTS_PER_TEST = 8
# Of all names that functions assign, in hundredths.
FILLERS = 2.0

# Pronouns and the like say that there is something, not what it is.
FILLER_NAMES = frozenset(
    "found each one what own kept at more some other others whole apart made given taken asked "
    "told shown held wanted there here now then it this that such same rest".split()
)
# Counted and printed, so that they don't take the fillers' place.
EMPTY_NOUNS = frozenset("item items value values data result results thing things tmp".split())

# One table, or one equation: parts of it would be read together all the same.
WHOLE: dict[str, str] = {}


@dataclass(frozen=True)
class Function:
    """A function of a file, and what a reader of it has to hold in mind."""

    path: str
    line: int
    name: str
    lines: int
    branches: int  # and the path that takes none of them
    asserts: int
    local_names: frozenset[str]
    cut_messages: tuple[str, ...]  # names of variables that hold part of one raise's message

    @property
    def place(self) -> str:
        """File and line, for an editor."""
        return f"{self.path}:{self.line} {self.name}"

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.path.startswith("tests/") and self.name.startswith("test_")


def functions(paths: Iterable[Path]) -> Iterator[Function]:
    """All functions and methods of the files, nested ones too."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(
                    path=str(path.relative_to(ROOT)),
                    line=node.lineno,
                    name=node.name,
                    lines=len(_lines(node)),
                    branches=1 + sum(map(_branches, ast.walk(node))),
                    asserts=sum(isinstance(inner, ast.Assert) for inner in ast.walk(node)),
                    local_names=_assigned(node),
                    cut_messages=tuple(_cut_messages(node)),
                )


def complaints(function: Function) -> Iterator[str]:
    """What of a function is over a limit, in words."""
    for name in function.cut_messages:
        yield f"a message is cut in two: {name}"
    if function.is_test:
        # A test's branches are its assertions.
        if function.asserts > ASSERTS_PER_TEST:
            yield f"{function.asserts} assertions of {ASSERTS_PER_TEST}"
    elif function.branches > BRANCHES:
        yield f"{function.branches} branches of {BRANCHES}"
    if function.lines > LINES:
        yield f"{function.lines} lines of {LINES}"
    if len(function.local_names) > LOCAL_NAMES:
        yield f"{len(function.local_names)} local names of {LOCAL_NAMES}"


def _branches(node: ast.AST) -> int:
    """Ways that a node adds, those included that a dense line hides."""
    match node:
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case (
            ast.If()
            | ast.IfExp()
            | ast.For()
            | ast.AsyncFor()
            | ast.While()
            | ast.ExceptHandler()
            | ast.match_case()
            | ast.Assert()
        ):
            return 1
    return 0


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _assigned(function: ast.AST) -> frozenset[str]:
    return frozenset(
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _cut_messages(function: ast.AST) -> Iterator[str]:
    """Names that are assigned one text and read once, in a raise: grep finds half the message."""
    nodes = list(ast.walk(function))
    texts = list(_names_of_texts(nodes))
    reads = Counter(
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    raises = (ast.walk(node) for node in nodes if isinstance(node, ast.Raise))
    raised = {
        node.id for node in itertools.chain.from_iterable(raises) if isinstance(node, ast.Name)
    }
    yield from (name for name in texts if name in raised and reads[name] == texts.count(name) == 1)


def _names_of_texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables that a text is assigned to, once for each time."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_text(node.value):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.Constant():
            return isinstance(node.value, str)
        case ast.BinOp():
            return _is_text(node.left) or _is_text(node.right)
        case ast.IfExp():
            return _is_text(node.body) and _is_text(node.orelse)
    return False


def repeated_classes(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Public class names of the package that mean several things, and the files of each."""
    places: dict[str, list[str]] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return {name: files for name, files in places.items() if len(files) > 1}


def share_of_names(all_functions: Iterable[Function], names: frozenset[str]) -> float:
    """Of the local names that functions assign, how many per cent are among `names`."""
    all_functions = list(all_functions)
    total = sum(len(function.local_names) for function in all_functions)
    counted = sum(len(function.local_names & names) for function in all_functions)
    return 100 * counted / max(total, 1)


def density(paths: Iterable[Path]) -> tuple[int, float, float]:
    """Lines, nodes of the syntax tree per line of code, and blank lines in functions in per cent.

    A line of code is one that is not blank, comment or docstring.
    """
    lines = nodes = code_lines = inside = blank = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        written = text.splitlines()
        lines += len(written)

        documented = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                documented |= set(_lines(node))
        nodes += sum(1 for _ in ast.walk(tree))
        code_lines += sum(
            bool(line.strip()) and not line.lstrip().startswith("#") and number not in documented
            for number, line in enumerate(written, start=1)
        )

        of_functions = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                of_functions |= set(_lines(node))
        inside += len(of_functions)
        blank += sum(not written[number - 1].strip() for number in of_functions)
    return lines, nodes / max(code_lines, 1), 100 * blank / max(inside, 1)


def main(arguments: list[str]) -> int:
    """Prints the counts of all files, or of those named; the exit status is 1 past a limit."""
    over = 0
    for folder in FOLDERS:
        paths = [
            path
            for path in sorted((ROOT / folder).rglob("*.py"))
            if not arguments or str(path.relative_to(ROOT)) in arguments
        ]
        if not paths:
            continue

        read = list(functions(paths))
        for function in read:
            if f"{function.path} {function.name}" in WHOLE:
                continue
            for complaint in complaints(function):
                over += 1
                print(f"{function.place}: {complaint}")
        if folder == FOLDERS[0] and not arguments:
            for name, places in repeated_classes(paths).items():
                over += 1
                print(f"class {name}: {', '.join(places)}")

        fillers = share_of_names(read, FILLER_NAMES)
        over += fillers > FILLERS
        lines, nodes, blank = density(paths)
        print(
            f"{folder}: {lines:,} lines, {nodes:.1f} nodes a line of code, {blank:.1f}% blank in"
            f" functions; of local names {fillers:.1f}% fillers (limit {FILLERS}%),"
            f" {share_of_names(read, EMPTY_NOUNS):.1f}% empty nouns"
        )
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
