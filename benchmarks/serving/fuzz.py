"""Schemathesis against a server: requests made up from its OpenAPI document, lawful and not."""

import subprocess
import sys
import tempfile
from pathlib import Path

# 413 may also answer data that the document doesn't allow, and a busy server isn't a broken one.
_SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 413, 415, 503]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 503]
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]
# A sentence can have more tokens than the model takes, which no schema can say.
[[operations]]
include-path = "/attention"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 503]

# Whether bytes are a file, or a name is of one that is there, no schema says.
[[operations]]
include-path = "/translate_file"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 413, 503]

[[operations]]
include-path = "/download_file/{name}"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 413, 503]
"""
_COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"


class Broken(Exception):
    """A server that doesn't follow its document; the message is the report."""


def fuzz(url: str, *options: str, examples: int, seed: int = 1, seconds: float = 3600) -> str:
    """The report of all of Schemathesis' checks, with `examples` for each address.

    Raises Broken if one failed, and `subprocess.TimeoutExpired`.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "schemathesis.toml").write_text(_SETTINGS)
        # Longer than the server takes to give a request up.
        patience = ["--request-timeout", "60", "--max-response-time", "60"]
        checks = ["--checks", "all", "--max-examples", str(examples), "--seed", str(seed)]
        flags = ["--no-color", "--no-shrink", *patience, *checks, *options]
        completed = subprocess.run(
            [sys.executable, "-c", _COMMAND, "run", f"{url}/openapi.json", *flags],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    if completed.returncode != 0:
        raise Broken(completed.stdout[-8000:] + completed.stderr[-2000:])
    return completed.stdout
