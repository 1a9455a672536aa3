"""Translates a file with JoeyNMT's own command: `python -m ... CONFIG.json SOURCE OUTPUT`."""

import sys

from joeynmt.__main__ import main as joeynmt


def main() -> None:
    config, source, output = sys.argv[1:]
    with open(source, encoding="utf-8") as lines:
        sys.stdin = lines
        sys.argv = ["joeynmt", "translate", config, "--output-path", output]
        joeynmt()


if __name__ == "__main__":
    main()
