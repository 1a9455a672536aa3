"""Runs commands in forks of one process that has imported everything: it saves seconds a command.

`python -m tests.system.warm SOCKET` is that process. `warm_client.py` asks it for a command (or,
with `--script FILE`, for a Python file) and is to a shell what the command itself would be: its
standard streams and its exit status are the command's, and signals to it are passed on.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from typing import Any


def main(address: str) -> None:
    from flaxformer_mt.cli.main import COMMANDS, module_of

    for command in COMMANDS:
        importlib.import_module(f"flaxformer_mt.cli.{module_of(command)}")
    # What they import once they are called.
    for module in ("api.training", "api.validation", "interop.import_run", "serving.server"):
        importlib.import_module(f"flaxformer_mt.{module}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks here
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    """In a fork: the command that is asked for, then the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    connection.sendall(f"{os.getpid()}\n".encode())
    status = _run(json.loads(message))
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except OSError:
            pass  # nobody reads it any more
    connection.sendall(f"{status}\n".encode())
    os._exit(0)


def _run(asked: dict[str, Any]) -> int:
    from flaxformer_mt.cli.main import main as command

    try:
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        first, *rest = asked["arguments"]
        if first != "--script":
            return command(asked["arguments"])
        sys.path.insert(0, asked["folder"])
        runpy.run_path(rest[0], run_name="__main__")
        return 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main(sys.argv[1])
