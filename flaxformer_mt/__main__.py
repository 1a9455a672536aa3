"""`flaxformer-mt COMMAND`, which is also `python -m flaxformer_mt COMMAND`."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Runs the command; until its modules are imported, Ctrl-C ends the process at once.

    There is nothing to clean up yet, and extension modules lose a KeyboardInterrupt while they
    are imported, or make an ImportError of it.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from flaxformer_mt.cli.main import main as run

    return run(imported=lambda: signal.signal(signal.SIGINT, usual))


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
