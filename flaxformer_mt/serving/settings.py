"""The server's limits, and whom it serves.

The numeric fields of ServerSettings say how they are given on the command line; `serve` makes its
flags from them.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from flaxformer_mt.errors import UserError

Log = Literal["quiet", "requests", "text"]


class SettingsError(UserError):
    """Settings that contradict each other, or that no server or client could follow."""


@dataclasses.dataclass(frozen=True)
class Option:
    """A number's flag, its help and the help's heading."""

    group: str
    flag: str
    help: str
    metavar: str = "N"
    least: int = 1  # of whole numbers; numbers of seconds are above 0


def _limit(group: str, default: float, *option: Any, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(group, *option, **more)})


_of_request = functools.partial(_limit, "limits of a request")
_of_server = functools.partial(_limit, "limits of the server")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Limits of one request, limits of the server, and whom it serves; seconds are wall time.

    Raises SettingsError, which names flags, for contradictory settings.
    """

    max_characters: int = _of_request(5000, "--max-characters", "in all texts")
    max_texts: int = _of_request(64, "--max-texts", "texts in one list")
    max_sentences: int = _of_request(256, "--max-sentences", "sentences in all texts")
    max_body_bytes: int = _of_request(256 * 1024, "--max-body-bytes", "size of the body")
    max_n_best: int = _of_request(8, "--max-n-best", "hypotheses; at most the beam size")
    max_attention_weights: int = _of_request(  # 400,000 are about 3 MB of JSON
        400_000, "--max-attention-weights", "weights (rows x columns x heads) in an answer"
    )
    max_file_bytes: int = _of_request(2 << 20, "--max-file-bytes", "size of a file")
    max_file_sentences: int = _of_request(5000, "--max-file-sentences", "sentences in a file")
    file_seconds: float = _of_request(
        600.0, "--file-timeout", "time to translate a file; then 503", "SECONDS"
    )
    seconds: float = _of_request(
        30.0, "--timeout", "time to answer a received request; then 503", "SECONDS"
    )
    body_seconds: float = _of_request(
        10.0,
        "--client-timeout",
        "time for a client to send its request or read its answer",
        "SECONDS",
    )
    batch_sentences: int = _of_server(16, "--batch", "sentences translated together")
    waiting_sentences: int = _of_server(
        1024, "--queue", "sentences that may wait, of all requests; more get 503"
    )
    files_at_once: int = _of_server(
        4, "--files-at-once", "files that are read and translated together; more get 503"
    )
    connections: int = _of_server(512, "--connections", "open connections")
    drain_seconds: float = _of_server(
        30.0, "--drain", "time to finish accepted requests when stopping", "SECONDS"
    )
    warm_up_words: int = _of_server(
        40,
        "--warm-up",
        "when idle, compile for sentences of up to this many words; 0: nothing",
        "WORDS",
        least=0,
    )
    keep: bool = True  # whether URLs, placeholders and so on stay, unless a request says otherwise
    constraints: bool = True  # whether requests may have terms and forbidden phrases
    keys: frozenset[str] = frozenset()  # empty: no key needed
    cors_origins: tuple[str, ...] = ()  # whose pages may use the API; "*": everybody's
    allowed_hosts: tuple[str, ...] = ()  # NAME or NAME:PORT, in lower case
    public_address: str = ""  # where clients reach the server; "": at the Host that they ask for
    examples: tuple[str, ...] = ()  # offered on the page
    log: Log = "quiet"

    def __post_init__(self) -> None:
        if self.max_sentences > self.waiting_sentences:
            raise SettingsError(
                f"a request may have {self.max_sentences} sentences, but only "
                f"{self.waiting_sentences} can wait: raise --queue"
            )
        if "" in self.keys:
            raise SettingsError("an API key must not be empty")
        for origin in self.cors_origins:
            if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^/\sA-Z]+", origin):
                raise SettingsError(
                    f"--cors {origin!r} is not a lower-case origin without a path, such as "
                    "https://example.org"
                )
        if self.public_address and not re.fullmatch(r"https?://[^\s?#]+", self.public_address):
            raise SettingsError(
                f"--public-address {self.public_address!r} is not an address such as "
                "https://example.org/translate"
            )
        for host in self.allowed_hosts:
            if not re.fullmatch(r"[^\s:/\[\]A-Z]+(:[0-9]{1,5})?", host):
                raise SettingsError(
                    f"--allowed-host {host!r} is not a lower-case host name, such as "
                    "translate.example.org"
                )

    def most_hypotheses(self, beam_size: int) -> int:
        return min(self.max_n_best, beam_size)


def flags() -> Mapping[str, Option]:
    """The settings that have flags, by field, in the order of `--help`."""
    fields = dataclasses.fields(ServerSettings)
    return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}


def read_keys(text: str, name: str) -> frozenset[str]:
    """One API key per line of the file `name`, except blank lines and those that begin with `#`.

    Raises SettingsError for a key that no client can send, and if there is none.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    keys = {key: number for number, key in lines if key and not key.startswith("#")}
    for key, number in keys.items():
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(f"{name}:{number}: the key must be printable ASCII")
    if not keys:
        raise SettingsError(f"{name}: has no key; write one per line")
    return frozenset(keys)
