"""The wheel, built and used where the source tree is out of reach."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import flaxformer_mt
from flaxformer_mt.reproduction.paper import rows_of
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.report import report
from tests.conftest import ROOT


def run(*command: str | Path, folder: Path) -> str:
    """Runs without the variables that could lead Python to the source tree; returns stdout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Without isolation: hatchling is among the development tools, and no network is needed.
    options = ["--wheel", "--no-isolation", "--outdir", folder]
    run(sys.executable, "-m", "build", *options, ROOT, folder=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_the_package_and_the_configs_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    version, page = flaxformer_mt.__version__, "flaxformer_mt/serving/page"
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"flaxformer_mt", f"flaxformer_mt-{version}.dist-info"}
    parts = {"flaxformer_mt": ROOT / "flaxformer_mt", "flaxformer_mt/configs": ROOT / "configs"}
    expected = {
        f"{place}/{path.relative_to(folder).as_posix()}"
        for place, folder in parts.items()
        for kind in ("py", "tsv", "css", "js")
        for path in folder.rglob(f"*.{kind}")
    }
    expected |= {f"{page}/{path.name}" for path in (ROOT / page).iterdir()}
    assert expected | {f"{page}/index.html", "flaxformer_mt/py.typed"} <= names
    assert {f"flaxformer_mt/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name]


def test_wheel_has_addresses_and_no_link_to_files_that_it_lacks(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = archive.read(name).decode()
    assert "Project-URL: Paper, https://arxiv.org/abs/1706.03762" in metadata
    assert "Description-Content-Type: text/markdown" in metadata
    description = metadata.partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert targets and all(target.startswith(("https://", "#")) for target in targets)


@pytest.fixture
def build_hook():
    place = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert place and place.loader
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_links_lead_to_the_repository_that_is_built_from(build_hook):
    text = "![A](docs/a.svg) [b](docs/b.md#c) [d](#e) [f](https://x.org/g)"
    assert build_hook.absolute(text, "us/it", "v1") == (
        "![A](https://raw.githubusercontent.com/us/it/v1/docs/a.svg) "
        "[b](https://github.com/us/it/blob/v1/docs/b.md#c) [d](#e) [f](https://x.org/g)"
    )
    assert build_hook.absolute(text, "", "v1") == " b [d](#e) [f](https://x.org/g)"
    assert build_hook.urls("Us/it", "v1")["Documentation"] == "https://us.github.io/it/"
    assert build_hook.urls("Us/it", "v1")["Source"] == "https://github.com/Us/it"


def test_only_the_folder_s_own_repository_is_linked_to(build_hook, monkeypatch, tmp_path):
    """Not one that an unpacked release lies in."""
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    run("git", "init", "--quiet", folder=tmp_path)
    run("git", "remote", "add", "origin", "git@github.com:us/it.git", folder=tmp_path)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    assert build_hook._repository(tmp_path) == "us/it"
    assert build_hook._repository(unpacked) == ""


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory) -> Path:
    """The command in an environment with the wheel, this one's dependencies, and not its source."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env")
    python, command = (folder / "env" / "bin" / name for name in ("python", "flaxformer-mt"))
    install = ["--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    run(sys.executable, "-m", "pip", *install, "--no-cache-dir", wheel, folder=folder)
    # A path in a .pth file is searched for modules, but .pth files in it are not followed: the
    # dependencies are found, an editable install of the source tree is not.
    question = "import site, flaxformer_mt as f; print(site.getsitepackages()[0], f.__file__)"
    site, package = run(python, "-c", question, folder=folder).split()
    assert Path(package).is_relative_to(folder)
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site, "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    return command


def test_an_installed_command_finds_the_built_in_configs(command, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    by_name = run(command, "config", "--config", "quickstart", folder=elsewhere)
    assert "model.d_model = " in by_name
    by_path = run(command, "config", "--config", "configs/quickstart.py", folder=elsewhere)
    assert by_path == by_name and not list(elsewhere.iterdir())


def test_an_installed_command_writes_the_built_in_text(command, tmp_path):
    run(command, "quickstart", "--write-text", "text", folder=tmp_path)
    assert (tmp_path / "text" / "train.en").read_text().count("\n") == 40_000


def test_an_installed_command_knows_its_version_and_its_pages(command, tmp_path):
    version = run(command, "--version", folder=tmp_path)
    assert version == f"flaxformer-mt {flaxformer_mt.__version__}\n"
    words = re.sub(r"\s", "", run(command, "--help", folder=tmp_path))
    page = Path(words.rpartition("Documentation:")[2])
    assert page.is_relative_to(command.parent.parent) and page.exists()
    assert page.parts[-3:] == ("flaxformer_mt", "docs", "index.md")


def test_an_installed_command_lists_the_paper_s_rows_and_reports_results(command, tmp_path):
    """Without a checkout, hence without benchmarks/."""
    rows = run(command, "reproduce", "table3", "--dry-run", folder=tmp_path)
    assert all(f"\n{row.name} " in rows for row in rows_of("table3"))

    recorded = ROOT / "benchmarks" / "results" / "reproduction"
    shutil.copytree(recorded, tmp_path / "runs" / "results")
    run(command, "reproduce", "report", "--workdir", "runs", folder=tmp_path)
    written = (tmp_path / "runs" / "reproduction.md").read_text(encoding="utf-8")
    assert written == report(read_records(recorded))
    assert "## Which of Table 3's orderings hold" in written
    run(command, "reproduce", "report", "--workdir", "runs", "--check", folder=tmp_path)
