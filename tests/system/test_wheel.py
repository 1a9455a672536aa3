"""The wheel, built and used where the source tree is out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import flaxformer_mt
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


@pytest.fixture(scope="module")
def clean(tmp_path_factory, wheel) -> Path:
    """An environment with the wheel installed, this one's dependencies, and not its source."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    run(python, *install, wheel, folder=folder)
    # A path in a .pth file is searched for modules, but .pth files in it are not followed: the
    # dependencies are found, an editable install of the source tree is not.
    site = run(python, "-c", "import site; print(site.getsitepackages()[0])", folder=folder)
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site.strip(), "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    return folder


def test_wheel_holds_the_package_and_the_configs_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    version = flaxformer_mt.__version__
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"flaxformer_mt", f"flaxformer_mt-{version}.dist-info"}
    parts = {"flaxformer_mt": ROOT / "flaxformer_mt", "flaxformer_mt/configs": ROOT / "configs"}
    expected = {
        f"{place}/{path.relative_to(folder).as_posix()}"
        for place, folder in parts.items()
        for path in folder.rglob("*.py")
    }
    page = ROOT / "flaxformer_mt" / "serving" / "page"
    expected |= {f"flaxformer_mt/serving/page/{path.name}" for path in page.iterdir()}
    assert expected <= set(names)
    assert "flaxformer_mt/serving/page/index.html" in names
    assert "flaxformer_mt/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name]


def test_installed_package_is_the_wheels(clean):
    command = "import flaxformer_mt as f; print(f.__file__)"
    path = Path(run(clean / "env/bin/python", "-c", command, folder=clean).strip())
    assert path.is_relative_to(clean)


def test_installed_command_finds_the_built_in_configs(clean):
    elsewhere = clean / "elsewhere"
    elsewhere.mkdir()
    show = [clean / "env/bin/flaxformer-mt", "config", "--config"]
    by_name = run(*show, "quickstart", folder=elsewhere)
    assert "model.d_model = " in by_name
    assert run(*show, "configs/quickstart.py", folder=elsewhere) == by_name
    module = [clean / "env/bin/python", "-m", "flaxformer_mt.cli.main", "config", "--config"]
    assert run(*module, "quickstart", folder=elsewhere) == by_name
    assert list(elsewhere.iterdir()) == []


def test_installed_command_knows_its_version(clean):
    shown = run(clean / "env/bin/flaxformer-mt", "--version", folder=clean)
    assert shown == f"flaxformer-mt {flaxformer_mt.__version__}\n"
