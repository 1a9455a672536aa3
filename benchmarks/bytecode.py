"""Python files compiled as pip leaves them: without that, starting a program takes seconds more.

uv and some images install packages without bytecode, and with `PYTHONDONTWRITEBYTECODE` none is
ever kept: every process then compiles all that it imports. A benchmark of how long one takes to
start would measure that of one contestant and not of the other.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

# compileall passes over what is up to date, and over what it may not write.
_COMPILE = """\
import compileall, sys, sysconfig
for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.argv[1:]}:
    compileall.compile_dir(folder, quiet=2, workers=0)
"""


def keep_bytecode(python: Path, folders: Sequence[Path] = ()) -> None:
    """Compiles the packages of an interpreter, and what lies in `folders`, where it is not yet."""
    subprocess.run([str(python), "-c", _COMPILE, *map(str, folders)], check=True)
