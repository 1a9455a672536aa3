"""`flaxformer-mt COMMAND ...`: finds the command, runs it, turns errors into messages.

Exit status: `_STATUSES`. 75 is EX_TEMPFAIL; `exit_status` tells errors apart.
"""

import argparse
import errno
import importlib
import keyword
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.errors import FlaxformerError, exit_status, nearest, program

COMMANDS = {
    "demo": "try a small English-German model that comes with the package, without training",
    "quickstart": "train on the built-in grammar, evaluate and translate, in minutes, without data",
    "prepare": "read corpora, learn the vocabulary and write the token store",
    "train": "train a model, or resume a run",
    "average": "average a run's checkpoints",
    "translate": "translate lines from standard input or files",
    "score": "score given translations by log-probability and perplexity",
    "evaluate": "translate and score test sets, or score another system's output",
    "trees": "parsing: turn treebanks into parallel text and output into trees; score with EVALB",
    "compare": "compare systems on a test set: scores, intervals, significance",
    "attention": "draw what each head attends to; list the heads most worth drawing",
    "figures": "draw training curves of runs, and the paper's learning rate and positions",
    "serve": "serve a trained model over HTTP, with a web page",
    "reproduce": "train the rows of the paper's tables and report the results",
    "doctor": "check a machine: devices, numbers, collectives, checkpoints, speed",
    "plan": "compile the training step for TPUs or GPUs you don't have: memory, time, cost",
    "export": "export a model for CTranslate2, Hugging Face, StableHLO, ONNX, Marian or browsers",
    "import": "convert a Marian model, such as OPUS-MT's, into a run directory",
    "config": "show a resolved configuration, or explain each setting",
}

_BATCH = (
    "lower data.batch.tokens (or, if that doesn't help, the model's sizes), or raise "
    "training.optimizer.accumulation"
)
_SMALLER = {
    **dict.fromkeys(("train", "quickstart", "reproduce"), _BATCH),
    **dict.fromkeys(("translate", "evaluate"), "lower --batch-tokens or --beam-size"),
    "prepare": "set data.vocabulary.sample to fewer pairs, or turn off data.filter.near_duplicates "
    "and .duplicates",
    "score": "lower --batch-tokens",
    "serve": "lower --beam-size, or decoding.batch_tokens in the run's config.json",
}
_STATUSES = (
    "0 done; 1 failed, but may succeed when run again; 2 wrong usage, settings or input: running "
    "again won't help; 75 stopped on request: the same command resumes; 130 interrupted; "
    "141 nobody reads the output any more"
)
# Advice on errors of the machine.
_OF_THE_MACHINE = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "free some and repeat the command",
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "choose another place, or get permission"
    ),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "the disk or its connection is failing"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "its symbolic links form a loop: choose another name",
    errno.ENOTDIR: "it is a file or is inside one: choose another place",
    errno.EISDIR: "it is a folder: choose another name",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    _open_closed_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        parser.error(f"no command '{arguments[0]}'; {nearest(arguments[0], COMMANDS)}")
    # The command's own parser sees its arguments: only that command's rooms are imported, and JAX
    # only once the arguments are read.
    name: str = parser.parse_args(arguments[:1]).command
    try:
        return _run(name, arguments[1:])
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): as if SIGPIPE had ended us, so that nobody
        # takes a run for finished.
        _discard_output()
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        message = user_message(error, name)
        if message is None:
            raise
        print(f"{program()} {name}: error: {message}", file=sys.stderr)
        if isinstance(error, OSError):
            _discard_output()
        processes = sys.modules.get("flaxformer_mt.parallel.processes")
        status = exit_status(error)
        return status if processes is None else processes.settled_status(error, status)


def _open_closed_streams() -> None:
    """A shell can close standard streams (`>&-`), and services start without them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _parser() -> argparse.ArgumentParser:
    from flaxformer_mt import __version__

    parser = argparse.ArgumentParser(
        prog=program(),
        description="Train and use Transformers for machine translation, on CPU, GPU and TPU.",
        epilog=f"`{program()} COMMAND --help` explains a command. Exit status: {_STATUSES}. "
        f"Documentation: {documentation()}",
    )
    parser.add_argument("--version", action="version", version=f"flaxformer-mt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    return parser


def _run(name: str, arguments: Sequence[str]) -> int:
    """Runs the command of this name; returns its exit status."""
    _quiet_libraries()
    command = importlib.import_module(f"flaxformer_mt.cli.{module_of(name)}")
    status: int = command.main(arguments, f"{program()} {name}", COMMANDS[name])
    sys.stdout.flush()
    return status


def _quiet_libraries() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "2")
    # Otherwise its logger is a plain one, whose records name absl as their source.
    import absl.logging  # noqa: F401

    for library in ("absl", "orbax", "jax._src.xla_bridge", "matplotlib", "tensorboardX"):
        logging.getLogger(library).setLevel(logging.ERROR)


def _discard_output() -> None:
    """Keeps the interpreter from trying again, when it ends, to write the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def documentation() -> Path:
    """The first page: an installed package has its pages inside, a checkout beside it."""
    package = Path(__file__).parent.parent
    inside = package / "docs" / "index.md"
    return inside if inside.exists() else package.parent / "docs" / "index.md"


def module_of(command: str) -> str:
    """The module of a command: its name, with an underscore if it is a Python keyword."""
    return f"{command}_" if keyword.iskeyword(command) else command


def user_message(error: Exception, command: str) -> str | None:
    """A message to the user about an error of `command`; None for a bug, which keeps its trace."""
    if isinstance(error, FlaxformerError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; {_OF_THE_MACHINE[error.errno]}"
    text = str(error).split("\n")[0]
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        where = "this machine" if isinstance(error, MemoryError) else "the device"
        advice = f"; {_SMALLER[command]}" if command in _SMALLER else ""
        return f"{where} ran out of memory: {text}{advice}"
    return None


if __name__ == "__main__":
    sys.exit(main())
