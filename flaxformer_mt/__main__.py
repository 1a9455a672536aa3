"""`flaxformer-mt COMMAND`, which is also `python -m flaxformer_mt COMMAND`."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Runs the command; while modules are imported, Ctrl-C ends the process at once.

    Extension modules lose a KeyboardInterrupt while they are imported, or make an ImportError of
    it; and there is nothing to clean up yet.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    from flaxformer_mt.cli.main import main as run

    return run()


def _interrupt(number: int, frame: FrameType | None) -> None:
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"interrupted\n")
            os._exit(130)
        caller = caller.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    sys.exit(main())
