"""Asks `warm.py` for a command: SOCKET ARGUMENT ... . Imports little, and nothing of ours."""

import json
import os
import signal
import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
asked = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
answers = connection.makefile()
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = answers.readline()
sys.exit(int(status) if status else 1)  # none: the command was killed
