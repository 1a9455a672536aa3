"""Counts what makes the project heavy and compares it with budgets.toml: `python -m tests.budgets`.

Exit status 1 if something is over its budget.
"""

import ast
import collections
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "flaxformer_mt"
PROCESSES = re.compile(r"\b(subprocess|Popen|multiprocessing)\b")
LOADED = "import sys, flaxformer_mt.api.training; print(*(m.__file__ for n, m in "
LOADED += "sys.modules.items() if n.partition('.')[0] == 'flaxformer_mt'), sep='\\n')"


def counts() -> dict[str, int]:
    """Every figure by the name that its budget has."""
    package, tests = _files(PACKAGE, "*.py"), _files("tests", "*.py")
    pages = [*_files("docs", "*.md"), ROOT / "README.md"]
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    modules = [Path(name) for name in loaded.stdout.decode().split()]
    train = ROOT / PACKAGE / "api" / "training.py"
    return {
        "test_lines": _lines(tests),
        "test_files_that_start_processes": sum(
            bool(PROCESSES.search(path.read_text())) for path in tests
        ),
        "package_lines": _lines(package),
        "package_files": len(package),
        "package_files_of_one_importer": _of_one_importer(package),
        "modules_loaded_by_train": len(modules),
        "lines_loaded_by_train": _lines(modules),
        "imports_of_train": len(set(_imported(train))),
        "doc_words": sum(len(path.read_text().split()) for path in pages),
    }


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob(pattern) if path.is_file())


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _of_one_importer(package: list[Path]) -> int:
    """Files that one file of the same room imports, and no other file."""
    importers = collections.defaultdict(set)
    for path in package:
        for name in _imported(path):
            importers[name].add(path)
    alone = 0
    for path in package:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        alone += [other.parent for other in importers[name] - {path}] == [path.parent]
    return alone


def _imported(path: Path) -> Iterator[str]:
    """Our modules that a file names in its imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if _is_module(name))


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return name.startswith(PACKAGE) and path.with_suffix(".py").is_file()


def main() -> int:
    budgets = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text())
    found = counts()
    for name, count in found.items():
        over = "  OVER" if count > budgets[name] else ""
        print(f"{name:32} {count:7,} of {budgets[name]:7,}{over}")
    return int(any(found[name] > budgets[name] for name in found))


if __name__ == "__main__":
    sys.exit(main())
