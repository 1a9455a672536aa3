"""Follows one warm translation: `python -m tests.switches`.

Prints the functions of the package that `Translator.translate` of one line calls at its second
call, in order and by file, and how often they pass from one file to another. Comprehensions and
lambdas belong to the function around them.
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import flaxformer_mt
from flaxformer_mt.decoding.translator import Translator
from tests.decoding.runs import LINES, make_run

PACKAGE = Path(flaxformer_mt.__file__).parent


class Call(NamedTuple):
    """A call of one of the package's functions."""

    file: str
    function: str


def calls_of(action: Callable[[], object]) -> list[Call]:
    """The calls of an action, in every thread."""
    calls: list[Call] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        name = frame.f_code.co_name
        if event == "call" and path.is_relative_to(PACKAGE) and not name.startswith("<"):
            calls.append(Call(str(path.relative_to(PACKAGE)), name))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return calls


def calls_of_a_translation() -> list[Call]:
    """The calls of a warm translation."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", {1: 1.0})
        translator = Translator.load(run.path)
        translator.translate(LINES[0])
        return calls_of(lambda: translator.translate(LINES[0]))


def main() -> None:
    """Prints the calls and their counts."""
    calls = calls_of_a_translation()
    switches = 0
    file = ""
    for call in calls:
        if call.file != file:
            switches += bool(file)
            file = call.file
            print(file)
        print(f"    {call.function}")
    functions = len(set(calls))
    files = len({call.file for call in calls})
    print(f"{functions} functions in {files} files, {switches} switches from one file to another")


if __name__ == "__main__":
    main()
