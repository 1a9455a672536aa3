"""`flaxformer-mt COMMAND ...`: finds the command, runs it, turns errors into messages.

Exit status: 0 done; 1 failed; 2 wrong usage; 75 training stopped on request and can go on
(EX_TEMPFAIL: what a restart script looks for); 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "quickstart": "train on the built-in grammar, evaluate, translate: minutes, nothing needed",
    "prepare": "read corpora, train the vocabulary, write the token store",
    "train": "train a model, or go on with a stopped run",
    "average": "average checkpoints of a run",
    "translate": "translate lines from standard input or files",
    "evaluate": "translate test sets and score them: BLEU and chrF with signatures",
    "doctor": "check a machine: devices, numbers, collectives, checkpoints, speed",
    "plan": "compile the training step for TPUs that are not there: memory, time, cost",
    "config": "show a resolved configuration, or what each setting means",
}

COMPILING = {"quickstart", "train", "translate", "evaluate", "doctor"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="flaxformer-mt",
        description="Train and use Transformers for machine translation, on CPU, GPU and TPU.",
        epilog="`flaxformer-mt COMMAND --help` explains a command.",
    )
    from flaxformer_mt import __version__

    parser.add_argument("--version", action="version", version=f"flaxformer-mt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    # The command's own parser sees the rest: only the chosen command's rooms are imported.
    chosen, rest = parser.parse_args(arguments[:1]), arguments[1:]
    _quiet_libraries()
    if chosen.command in COMPILING:
        _keep_compiled()
    command = importlib.import_module(f"flaxformer_mt.cli.{chosen.command}")
    try:
        status: int = command.main(
            rest, f"flaxformer-mt {chosen.command}", COMMANDS[chosen.command]
        )
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): no error, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        # Our own errors say what happened and what to do; any other is a bug and keeps its trace.
        if not type(error).__module__.startswith("flaxformer_mt."):
            raise
        print(f"flaxformer-mt {chosen.command}: error: {error}", file=sys.stderr)
        return 1


def _keep_compiled() -> None:
    """What this process compiles is kept in the user's cache folder for the next one."""
    from flaxformer_mt.parallel.compile_cache import keep_compiled
    from flaxformer_mt.rundir.cache import cache_folder

    keep_compiled(cache_folder() / "xla")


def _quiet_libraries() -> None:
    """Keeps what XLA and Orbax say about themselves off the user's screen; errors still show."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "2")
    import logging

    for name in ("absl", "orbax", "jax._src.xla_bridge", "tensorboardX"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
