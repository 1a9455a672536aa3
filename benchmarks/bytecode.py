"""Python files compiled as pip leaves them: without that, starting a program takes seconds more.

uv and some images install packages without bytecode, and with `PYTHONDONTWRITEBYTECODE` none is
ever kept: every process then compiles all that it imports. A benchmark of how long one takes to
start would measure that of one contestant and not of the other.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# compileall skips files that are up to date, and those that aren't Python of this version.
_COMPILE = """\
import compileall, sys
for folder in sys.argv[1:]:
    compileall.compile_dir(folder, quiet=2, workers=0)
"""
_PACKAGES = """\
import sysconfig
print(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sep="\\n")
"""


def packages_of(python: Path) -> list[Path]:
    """Where an interpreter has its packages."""
    command = [str(python), "-c", _PACKAGES]
    completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Path(folder) for folder in dict.fromkeys(completed.stdout.splitlines())]


def keep_bytecode(python: Path, folders: Sequence[Path]) -> None:
    """Compiles the files of these folders for this interpreter, unless they already are.

    Names the folders that it may not write.
    """
    for folder in folders:
        if not os.access(folder, os.W_OK):
            print(f"{folder}: cannot be written, starts may be slower", file=sys.stderr)
    subprocess.run([str(python), "-c", _COMPILE, *map(str, folders)], check=True)
