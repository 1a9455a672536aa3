"""What the project promises about itself: floors, pins, tracked files, commands in the README."""

import ast
import importlib
import importlib.metadata
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import flaxformer_mt.data
from flaxformer_mt.cli.arguments import take_overrides
from flaxformer_mt.cli.main import COMMANDS, module_of
from flaxformer_mt.config import default_config, read_config, to_dict
from flaxformer_mt.rundir import layout
from tests import mutations
from tests.docs.markdown import blocks, commands, guides, pages

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "flaxformer_mt"
README = ROOT / "README.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def project_files() -> list[Path]:
    """Tracked files and new ones that git does not ignore; an unpacked archive has no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_help_and_what_computes_nothing_load_no_jax():
    """They answer at once, and where no device can be had. Corpora load no framework before one
    of its kind is read."""
    modules = pkgutil.walk_packages(flaxformer_mt.data.__path__, "flaxformer_mt.data.")
    names = [module.name for module in modules if module.name != "flaxformer_mt.data.pipeline"]
    code = f"""
import contextlib, sys
import flaxformer_mt.data.corpus
heavy = {{"array_record", "etils", "grain", "jax", "tensorflow", "tensorflow_datasets"}}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
import {", ".join(names)}
import flaxformer_mt as fm, flaxformer_mt.parsing
from flaxformer_mt.cli.main import COMMANDS, main
fm.load_config("quickstart", {{"training.steps": 7}})
for command in ([], *([name] for name in COMMANDS)):
    with contextlib.suppress(SystemExit):
        main([*command, "--help"])
    loaded = {{"jax", "flax", "optax", "tensorflow"}} & sys.modules.keys()
    assert not loaded, command
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_wrong_arguments_load_no_heavy_library(tmp_path):
    """A misspelt flag, setting or folder shows at once: a command loads what its work needs only
    when its arguments are right (`cli/actions`)."""
    setting = ["--config", "quickstart", "--config.training.stps=3"]
    run = layout.create(tmp_path / "run", to_dict(default_config()), ["test"])
    code = f"""
import contextlib, sys
from flaxformer_mt.cli.main import COMMANDS, main
setting, place = {setting!r}, ["--workdir", "no-such-run"]
wrong = [[name, "--no-such-flag"] for name in COMMANDS]
wrong += [[name, *place, *setting] for name in ("train", "prepare")]
wrong += [[name, *setting] for name in ("doctor", "config")]
wrong += [["plan", "--topology", "v5e:2x4", *setting], ["quickstart", setting[-1]]]
wrong += [["reproduce", "table2", setting[-1]]]
wrong += [[name, *place] for name in ("translate", "evaluate", "average", "serve")]
wrong += [["score", *place, "--input", "pairs.tsv"]]
wrong += [["evaluate", "--hypotheses", "a.de", "--ref", "b.de", "--tgt-lang", "?"]]
wrong += [["compare", "a.de", "b.de", "--ref", "c.de", "--comet-gpus", "1"]]
wrong += [["figures", "curves", "--output", "a.svg"]]
wrong += [["figures", "schedule", "run", "--output", "a.svg"]]
wrong += [["attention", *place, "--src", "a", "--output", "a.svg"]]
attention = ["attention", "--workdir", "{run}"]
wrong += [[*attention, "--src", source, "--output", "a.gif"] for source in ("a", " ")]
wrong += [[*attention, "--find", "--input", "a.en", "--output", "a.svg"]]
wrong += [["export", *place, "--format", "ctranslate2", "--output", "exported"]]
for command in wrong:
    status = 2
    try:
        status = main(command)
    except SystemExit as error:
        status = error.code
    assert status == 2, (command, status)
    loaded = {{"jax", "numpy", "sacrebleu", "sentencepiece", "asyncio"}} & sys.modules.keys()
    assert not loaded, (command, loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_file_is_scored_without_jax_and_what_reads_runs(tmp_path):
    text = tmp_path / "text.de"
    text.write_text("ein altes Haus, z. B. dieses.\n")
    code = f"""
import sys
from flaxformer_mt.cli.main import main
assert main(["evaluate", "--hypotheses", "{text}", "--ref", "{text}"]) == 0
heavy = {{"flax", "jax", "orbax", "tensorflow_datasets", "sacremoses.tokenize"}}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_sentence_is_translated_without_what_only_training_needs(tmp_path):
    code = f"""
import sys
import flaxformer_mt as fm
translator = fm.Translator.load("{tmp_path / "run"}")
heavy = {{"grain", "optax", "orbax", "tensorboardX", "tensorflow_datasets"}}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    flaxformer_mt.demo_run(tmp_path / "run")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_fault_of_the_list_has_its_place():
    """One that is nowhere breaks nothing: the function has moved, or its text has changed."""
    nowhere = [fault for fault in mutations.faults() if mutations.placed(fault, ROOT) is None]
    assert nowhere == []


def imported_packages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


# Rooms that need an extra: only the commands that ask for it import them.
EXTRAS = {
    "serving": ["serve"],
    "figures": ["figures"],
    "interop": ["export"],
    "markup": ["markdown"],
    "files": ["hub"],
    "data": ["dedup", "langid", "memories"],
    "flaxformer_mt": ["ray"],  # cluster.py
    "training": ["wandb", "mlflow"],
}


def test_every_import_of_the_package_is_a_declared_dependency():
    """What merely comes along with another library may be gone with its next version."""
    # `compression` is Python's own from 3.14 on.
    not_declared = {*sys.stdlib_module_names, "compression", "flaxformer_mt"}
    providers = importlib.metadata.packages_distributions()
    for room in [PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_dir())]:
        texts = list(PROJECT["dependencies"])
        for extra in EXTRAS.get(room.name, ()):
            texts += PROJECT["optional-dependencies"][extra]
        declared = {canonicalize_name(Requirement(text).name) for text in texts}
        files = room.glob("*.py") if room == PACKAGE else room.rglob("*.py")
        for package in {
            package for path in files for package in imported_packages(path)
        } - not_declared:
            # What is not installed is looked for under its own name, or one of these (MLflow's
            # client, and `translate`).
            usual = [package, f"{package}-skinny", f"{package}-toolkit"]
            names = map(canonicalize_name, providers.get(package, usual))
            assert declared & set(names), f"{room.name}: imports {package}, which is not declared"


def imported_modules(path: Path) -> Iterator[str]:
    """Modules that a file imports, wherever it does, and those that it runs by their names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_benchmarks_measure_the_library_not_its_commands():
    """A benchmark that needs a command's code shows that a library user misses it. Commands are
    started as users start them: `-m flaxformer_mt`."""
    paths = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "docs" / "examples").glob("*.py")]
    assert len(paths) > 60
    for path in paths:
        commands = [
            module for module in imported_modules(path) if module.startswith("flaxformer_mt.cli")
        ]
        assert not commands, f"{path}: {commands}"


# Beside the commands; docs/architecture.md says why, under "Output".
PRINTING = {
    "api/__init__.py",
    "api/documents.py",  # `output=None`
    "api/trees.py",  # `output=None`
    "bulk/reading.py",
    "evaluation/compare.py",
    "interop/runner.py",  # a program of its own
    "parallel/processes.py",
    "progress.py",
    "training/telemetry.py",
}
PRINT = re.compile(r"print|sys\.std(out|err)\.(buffer\.)?write(lines)?")


def prints(path: Path) -> bool:
    """Whether a file calls `print`, or writes to standard output or standard error."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(PRINT.fullmatch(ast.unparse(call.func)) for call in calls)


def test_only_commands_and_a_few_that_own_the_terminal_print():
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if prints(path)}
    assert {name for name in files if not name.startswith("cli/")} == PRINTING


def test_version_is_the_newest_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert versions[0] == flaxformer_mt.__version__
    assert sorted(set(versions), key=Version, reverse=True) == versions
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {flaxformer_mt.__version__}\n" in citation
    promised = set(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'"(3\.\d+)"', workflow)) == promised


def pins_for(python: str) -> dict[str, str]:
    """Package to version, as pip on Linux with this Python reads constraints.txt."""
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        (specifier,) = requirement.specifier
        name = canonicalize_name(requirement.name)
        assert specifier.operator == "==", line
        assert name not in pins, f"two pins of {name} for Python {python}"
        pins[name] = specifier.version
    return pins


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_constraints_pin_every_dependency_within_its_bounds(python):
    pins = pins_for(python)
    groups = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(text for group in groups for text in group)]:
        requirement = Requirement(text)
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not pinned: renew constraints.txt"
        assert requirement.specifier.contains(pin), f"{text}, but the pin is {pin}"
        assert ">=" in {specifier.operator for specifier in requirement.specifier}, text
    # The datasets library and its metadata carry TensorFlow's name and do without the framework.
    tensorflow = {name for name in pins if name.startswith(("tensorflow", "tf-", "keras"))}
    assert python == "3.13" or tensorflow <= {"tensorflow-datasets", "tensorflow-metadata"}


# Written so that this file does not contain what it looks for.
FORBIDDEN = {
    "a registry's host": r"pypi\.(?:org|python)|python" + r"hosted\.|npm" + r"js\.(?:org|com)",
    "an index address": r"--(?:extra-)?index" + r"-url[ =]\S|--find" + r"-links[ =]\S",
    "a path of one machine": r"(?<![\w.~}/])/(?:home|root|work|mnt|Users)/[\w.]",
}


# Weights that every installation carries; tests/demo limits all their files together.
DEMO = ROOT / "flaxformer_mt" / "demo" / "weights.npz"


def test_tracked_files_are_small_and_name_no_registry_and_no_machine():
    for path in project_files():
        is_small = path == DEMO or path.stat().st_size <= 2**20
        assert is_small, f"{path}: data, models and caches do not belong here"
        text = path.read_bytes().decode("utf-8", "replace")
        for kind, pattern in FORBIDDEN.items():
            match = re.search(pattern, text)
            assert match is None, f"{path}: {kind}: {match}"


# What reads as translated: a plainer word exists for each.
STILTED = re.compile(
    r"\b(of which [a-z]+|which of them|go(es|ing|ne)? on\b|no whole number|it is that|in place of"
    r"|anew|(is|are) not there|is worth [a-z]+|none such|is there already"
    r"|(is|are) to be|(is|are) no (?!longer|such|room|pairs)[a-z]+|a panel an?)\b"
)


def prose_of(path: Path) -> Iterator[str]:
    """A page's or script's paragraphs; what a module prints, without its docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from text.split("\n\n")
        return
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_pages_and_messages_are_plain_english():
    assert STILTED.search("4 runs, of which one has stopped") and not STILTED.search("4 of 5 runs")
    scripts = (ROOT / "launch").rglob("*.sh")
    for path in [*pages(), *scripts, *(ROOT / "flaxformer_mt").rglob("*.py")]:
        for text in prose_of(path):
            match = STILTED.search(text)
            assert match is None, f"{path}: {match and match[0]!r}: {text}"


def documented_commands() -> list[str]:
    """Those of this program, from a pipe's middle, too; of examples with `...` only the name."""
    documented: dict[str, None] = {}  # in order, each once
    for page in [README, ROOT / "CONTRIBUTING.md", *guides()]:
        shell = [block for block in blocks(page) if block.language == "bash" and not block.fails]
        for command in (command for block in shell for command in commands(block.text)):
            for words in simple_commands(command):
                if words[0] in ("launch/local.sh", "flaxformer-mt"):
                    named = words[: words.index("...")] if "..." in words else words
                    documented[shlex.join(named)] = None
    return list(documented)


def simple_commands(command: str) -> Iterator[list[str]]:
    """The words of each command of a pipe, without the variables that are set for it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="<>|;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if not set(word) <= set("<>|;&"):
            words.append(word)
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            yield words
        words = []


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_exist(command, capsys):
    """Command, options, config and overrides of each are accepted; the work itself is not done."""
    _, name, *arguments = shlex.split(command)
    if name in ("test", "--help", "--version"):
        return
    assert name in COMMANDS, command

    words, overrides = take_overrides(arguments)
    titles = {block.title for page in guides() for block in blocks(page)}
    if "--config" in words:
        spec = words[words.index("--config") + 1]
        if spec not in titles:
            read_config(spec, overrides)
    module = importlib.import_module(f"flaxformer_mt.cli.{module_of(name)}")
    with pytest.raises(SystemExit) as stop:
        # Of a command with actions, the action explains its options.
        module.main([*words[: name == "trees"], "--help"], name, COMMANDS[name])
    assert stop.value.code == 0
    explained = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert options <= explained, command
