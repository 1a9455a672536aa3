"""A hook of MkDocs: the files of the repository that the pages link to, as pages of the site.

The pages are read on GitHub as well, where `../flaxformer_mt/model/layers.py` is the file itself.
In the site every such link leads to a page that shows the file, and one whose text names a symbol,
`model/layers.py:LayerNorm` or `tests/.../test_x.py::test_y`, to its line there.
So the site holds all that it links to, and needs no other host. In reference.md it also fills in
the settings, from the schema, and the commands, from their parsers.
"""

import ast
import contextlib
import importlib
import io
import lzma
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent.parent
SOURCE = "source"  # where the site has them
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^()\s]+)\)")
SYMBOL = re.compile(r"\[`[\w./-]+\.py::?([\w.]+)`\]")
LANGUAGES = {
    ".html": "html",
    ".js": "javascript",
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yml": "yaml",
}


def line_of(source: str, symbol: str) -> int:
    """The line on which a function, class, method or module's name is defined; 0: it is not there.

    `symbol` is dotted: `Transformer.logits`.
    """
    nodes: list[ast.stmt] = ast.parse(source).body
    line = 0
    for name in symbol.split("."):
        for node in nodes:
            if _defines(node, name):
                line, nodes = node.lineno, getattr(node, "body", [])
                break
        else:
            return 0
    return line


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) == name


def linked(markdown: str, folder: str) -> Iterator[str]:
    """What a page of `folder` (relative to the root, "" for the root) links to outside docs/."""
    for _, target in LINK.findall(markdown):
        if (path := _outside(target, folder)) is not None:
            yield path


def rewritten(markdown: str, folder: str, page: str) -> str:
    """The page with its links as the site has them; `page` is its own place in the site."""

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = _outside(target, folder)
        if path is None:
            place, _, anchor = target.partition("#")
            if "://" in target or not place or folder == "docs":
                return match[0]
            inside = posixpath.normpath(posixpath.join(folder, place)).removeprefix("docs/")
        else:
            inside, anchor = f"{SOURCE}/{path}.md", ""
            symbol = SYMBOL.fullmatch(text)
            if symbol is not None:
                line = line_of((ROOT / path).read_text(encoding="utf-8"), symbol[1])
                anchor = f"__codelineno-0-{line}"
        relative = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{text}({relative}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(replace, markdown)


def source_page(path: str) -> str:
    """A file of the repository as a page; a folder as a list of what is in it."""
    file = ROOT / path
    if file.is_dir():
        names = [entry.name for entry in _entries(file)]
        listed = "\n".join(f"- [{name}]({posixpath.join(path, name)})" for name in names)
        return f"# {path}\n\n{listed}\n"
    opened = lzma.open if file.suffix == ".xz" else open  # translations kept beside a result
    with opened(file, "rt", encoding="utf-8") as stream:
        text = stream.read()
    if file.suffix == ".md":
        return text
    language = LANGUAGES.get(file.suffix, "text")
    return f'# {path}\n\n~~~~{language} linenums="1"\n{text}~~~~\n'


def _entries(folder: Path) -> list[Path]:
    """What of a folder is shown: text, and folders that hold some."""
    shown = {".py", ".json", ".sh", ".md", ".txt", ".bash", ".yaml", ".sbatch", "Dockerfile"}
    return sorted(
        entry
        for entry in folder.iterdir()
        if (entry.is_file() and (entry.suffix or entry.name) in shown)
        or (entry / "__init__.py").exists()
    )


def _outside(target: str, folder: str) -> str | None:
    """The file or folder that a link means, relative to the root, if it is not a page of docs/."""
    place = target.partition("#")[0]
    if "://" in place or not place:
        return None
    path = posixpath.normpath(posixpath.join(folder, place))
    inside = path.startswith(("docs/", "..")) and not path.startswith("docs/examples/")
    return None if inside else path


def _home(path: str) -> str:
    """Where the links of a source page begin: those of a list of files at the root."""
    return "" if (ROOT / path).is_dir() else posixpath.dirname(path)


def settings() -> str:
    """Every setting with its default and meaning: a table for each group."""
    from flaxformer_mt.cli.config import explanations
    from flaxformer_mt.config import ExperimentConfig

    groups: dict[str, list[str]] = {}
    for line in explanations(ExperimentConfig, ""):
        key, _, rest = line.partition(" = ")
        default, _, meaning = rest.partition(": ")
        plain = re.sub(r"([\[\]*<|])", r"\\\1", meaning)
        row = f"| `{key}` | `{default}` | {plain} |"
        groups.setdefault(key.rpartition(".")[0], []).append(row)
    tables = []
    for group, rows in groups.items():
        heading = [f"### `{group}`", ""] if group else []
        head = ["| setting | default | meaning |", "|---|---|---|"]
        tables.append("\n".join([*heading, *head, *rows]))
    return "\n\n".join(tables)


def commands() -> str:
    """What each command's `--help` prints."""
    from flaxformer_mt.cli.main import COMMANDS, module_of

    shown = []
    for name, purpose in COMMANDS.items():
        module = importlib.import_module(f"flaxformer_mt.cli.{module_of(name)}")
        printed = io.StringIO()
        with (
            mock.patch.dict("os.environ", COLUMNS="90"),
            contextlib.redirect_stdout(printed),
            contextlib.suppress(SystemExit),
        ):
            module.main(["--help"], f"flaxformer-mt {name}", purpose)
        shown.append(f"### `{name}`\n\n```text\n{printed.getvalue()}```")
    return "\n\n".join(shown)


# --- what MkDocs calls -------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each file that is linked to, and for those that these link to in turn."""
    from mkdocs.structure.files import File, InclusionLevel

    waiting: list[str] = []
    for page in (ROOT / "docs").glob("*.md"):
        waiting += linked(page.read_text(encoding="utf-8"), "docs")
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).exists():
            continue
        seen.add(path)
        content, page = source_page(path), f"{SOURCE}/{path}.md"
        if path.endswith(".md") or (ROOT / path).is_dir():  # in others `](` is no link
            waiting += linked(content, _home(path))
            content = rewritten(content, _home(path), page)
        files.append(
            File.generated(config, page, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    where = page.file.src_uri
    if where == "reference.md":
        markdown = markdown.replace("::: settings", settings()).replace("::: commands", commands())
    return markdown if where.startswith(f"{SOURCE}/") else rewritten(markdown, "docs", where)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    # MkDocs looks for the places that links lead to before code is highlighted.
    page.present_anchor_ids.update(re.findall(r'id="(__codelineno-0-\d+)"', html))
    return html
