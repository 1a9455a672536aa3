"""Translates a file with JoeyNMT's own command: `python -m ... CONFIG.json SOURCE OUTPUT`.

The outputs are what it prints: in 2.3.0 its `--output-path` fails.
"""

import contextlib
import sys

from joeynmt.__main__ import main as joeynmt


def main() -> None:
    config, source, output = sys.argv[1:]
    with open(source, encoding="utf-8") as lines, open(output, "w", encoding="utf-8") as file:
        sys.stdin = lines
        sys.argv = ["joeynmt", "translate", config]
        with contextlib.redirect_stdout(file):
            joeynmt()


if __name__ == "__main__":
    main()
