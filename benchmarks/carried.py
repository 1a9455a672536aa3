"""Files of first_contact for a machine without a network: wheels and a cut of Europarl.

The image there has Python 3.12, JAX 0.11, Flax, Optax, Orbax, SentencePiece and PyTorch. `WHEELS`
are the other packages that this project imports, in the versions of constraints.txt.
"""

import itertools
import lzma
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
WHEELS = (
    *("array-record", "attrs", "backports.zstd", "click", "cloudpickle", "colorama", "dm-tree"),
    *("grain", "jaxtyping", "joblib", "lxml", "ml-collections", "packaging", "portalocker"),
    *("portpicker", "regex", "sacrebleu", "sacremoses", "tabulate", "tensorboardX", "tqdm"),
    *("wadler-lindig", "wrapt"),
)
# pip doesn't add the older platforms that each of these includes.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")
MOST_WHEELS, MOST_TEXT = 30, 20  # MB
# Pairs of each part of the corpus. Sentences to score have at most SHORT words, so that the search
# is compiled for one length.
PAIRS = {"train-500k": 250_000, "dev": 300, "test": 500}
SHORT = 30


class CannotCollect(Exception):
    """Wheels or text that cannot be had, or are too large; says which."""


def collect(folder: Path, europarl: Path) -> None:
    """Writes `folder`/wheels and `folder`/europarl anew. Raises CannotCollect."""
    collect_wheels(folder / "wheels")
    cut(europarl, folder / "europarl")


def collect_wheels(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version=3.12", "--implementation=cp"]
    command += [f"--platform={platform}_x86_64" for platform in PLATFORMS]
    command += [f"--constraint={CONSTRAINTS}", f"--dest={folder}", *WHEELS]
    completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode:
        errors = [line for line in completed.stderr.splitlines() if line.startswith("ERROR")]
        raise CannotCollect(f"pip download: {(errors or ['ended without an error message'])[-1]}")
    _check_size(folder, MOST_WHEELS)


def cut(europarl: Path, folder: Path) -> None:
    """The first pairs of each part of a folder as configs/europarl.py describes it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part, count in PAIRS.items():
        try:
            pairs = list(itertools.islice(_pairs(europarl, part), count))
        except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
            raise CannotCollect(f"{europarl}: {part} cannot be read: {error}") from error
        for side, lines in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
            with lzma.open(folder / f"{part}.{side}.xz", "wt", encoding="utf-8") as file:
                file.writelines(lines)
    _check_size(folder, MOST_TEXT)


def _pairs(europarl: Path, part: str) -> Iterator[tuple[str, str]]:
    english, french = (
        lzma.open(europarl / f"{part}.{side}.xz", "rt", encoding="utf-8") for side in ("en", "fr")
    )
    with english, french:
        for pair in zip(english, french, strict=True):
            if part == "train-500k" or max(len(line.split()) for line in pair) <= SHORT:
                yield pair


def _check_size(folder: Path, most: float) -> None:
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    if size > most:
        raise CannotCollect(f"{folder}: holds {size:.1f} MB; at most {most} MB can be taken along")
