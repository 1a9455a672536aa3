"""Counts what every start and every test run pays for: `python -m tests.budgets`.

Compares the counts with budgets.toml; exit status 1 if one is over its budget. The words of the
pages are printed, without a limit.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "flaxformer_mt"
PROCESSES = re.compile(r"\b(subprocess|Popen|multiprocessing)\b")
LOADED = (
    "import sys, flaxformer_mt.api.training; "
    "print(*(module.__file__ for name, module in sys.modules.items() "
    "if name.partition('.')[0] == 'flaxformer_mt'), sep='\\n')"
)


def counts() -> dict[str, int]:
    """Every limited figure by the name that its budget has."""
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    train = ROOT / PACKAGE / "api" / "training.py"
    return {
        "test_files_that_start_processes": sum(
            bool(PROCESSES.search(path.read_text())) for path in _files("tests", "*.py")
        ),
        "modules_loaded_by_train": len(loaded.stdout.decode().split()),
        "imports_of_train": len(set(_imported(train))),
        "readme_words": _words(ROOT / "README.md"),
    }


def _words(page: Path) -> int:
    return len(page.read_text().split())


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob(pattern) if path.is_file())


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
    doc_words = sum(_words(page) for page in _files("docs", "*.md"))
    print(f"{'doc_words':32} {doc_words:7,}")
    return int(any(found[name] > budgets[name] for name in found))


if __name__ == "__main__":
    sys.exit(main())
