"""`flaxformer-mt COMMAND`, which is also `python -m flaxformer_mt COMMAND`."""

import gc
import sys

from flaxformer_mt.cli import main as cli


def main() -> int:
    """Runs one command; returns its exit status."""
    # Libraries are hundreds of thousands of objects, which stay. To search them for garbage again
    # and again while they are loaded, and once more at the exit, takes longer than a translation.
    gc.set_threshold(20_000)
    try:
        return cli.main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
