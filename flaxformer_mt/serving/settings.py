"""The served model, as clients and the page may know it, and the server's limits.

The numeric fields of ServerSettings say how they are given on the command line; `serve` makes its
flags from them.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from flaxformer_mt.config.language_names import LANGUAGE_NAMES
from flaxformer_mt.data.prepare.filters import count_letters, script_of
from flaxformer_mt.errors import UserError
from flaxformer_mt.markup.opening import endings

Log = Literal["quiet", "requests", "text"]
# Written from right to left, by script.
_RIGHT_TO_LEFT = {"Arab", "Hebr", "Thaa"}


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedModel:
    """The model, as far as clients may know it. Languages are codes such as "en".

    `directions` are the pairs of languages that it translates, each with the tag that asks for it
    (empty: none); `src_lang` and `tgt_lang` are the first pair.
    """

    src_lang: str
    tgt_lang: str
    name: str  # the experiment's title
    weights: str  # which weights, such as "step 5200"
    beam_size: int
    encoder_layers: int
    decoder_layers: int
    diverse: bool = False  # whether the beam is searched in groups
    codes: frozenset[str] = frozenset()  # language codes and tags that its sources may begin with
    together: int | None = None  # sentences of a line that it reads together; None: unknown
    directions: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # Also for a copy in other languages, by `dataclasses.replace`.
        if self.first not in self.directions:
            object.__setattr__(self, "directions", {self.first: ""})

    @property
    def first(self) -> tuple[str, str]:
        """The direction of requests that don't ask for one."""
        return self.src_lang, self.tgt_lang

    @property
    def sources(self) -> tuple[str, ...]:
        """All source languages."""
        return tuple(dict.fromkeys(source for source, _ in self.directions))

    @property
    def targets(self) -> tuple[str, ...]:
        """All target languages."""
        return tuple(dict.fromkeys(target for _, target in self.directions))

    @property
    def languages(self) -> tuple[str, ...]:
        """All languages, the sources first."""
        return tuple(dict.fromkeys([*self.sources, *self.targets]))

    def targets_of(self, source: str) -> list[str]:
        return [target for of_source, target in self.directions if of_source == source]

    def tag_of(self, direction: tuple[str, str]) -> str:
        """The tag before its sources. The only direction needs none: `translate` adds none."""
        return self.directions[direction] if len(self.directions) > 1 else ""


def page_settings(model: ServedModel, settings: ServerSettings) -> dict[str, Any]:
    """LibreTranslate's keys; "model", "limits" and, for a model of several directions, "languages"
    are for our page."""
    source, target = ({"code": code, "name": language_name(code)} for code in model.first)
    several = {"languages": _page_languages(model)} if len(model.directions) > 1 else {}
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.max_characters,
        "frontendTimeout": 250,
        "language": {"source": source, "target": target},
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": endings(),
        "model": {
            "name": model.name,
            "weights": model.weights,
            "source_direction": direction(model.src_lang),
            "target_direction": direction(model.tgt_lang),
            "encoder_layers": model.encoder_layers,
            "decoder_layers": model.decoder_layers,
        },
        "limits": {
            "n_best": settings.most_hypotheses(model.beam_size),
            "characters": settings.max_characters,
            "constraints": settings.constraints,
        },
        "examples": list(settings.examples),
        **several,
    }


def _page_languages(model: ServedModel) -> list[dict[str, Any]]:
    """Each language with what the page needs of it; those that are only targets have none."""
    return [
        {
            "code": code,
            "name": language_name(code),
            "direction": direction(code),
            "targets": model.targets_of(code),
        }
        for code in model.languages
    ]


def language_name(code: str) -> str:
    """The English name with the code's other parts, or the code if unknown."""
    base, separator, other_parts = code.replace("_", "-").partition("-")
    name = LANGUAGE_NAMES.get(base.lower())
    if name is None:
        return code
    return f"{name} ({other_parts})" if separator else name


def direction(code: str) -> str:
    """`ltr` or `rtl`, as HTML's `dir` has it."""
    return "rtl" if script_of(code) in _RIGHT_TO_LEFT else "ltr"


def confidence(text: str, language: str) -> float:
    """The percentage of letters in the language's script: 0 for a text without letters or an
    unknown script. It can rule a language out, but not tell English from French."""
    script = script_of(language)
    if script is None or not text:
        return 0.0
    (letters,), (of_script,) = count_letters([text.encode()], script)
    return round(100.0 * int(of_script) / int(letters), 1) if letters else 0.0
