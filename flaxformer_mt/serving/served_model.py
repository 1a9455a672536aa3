"""The served model, as clients and the page may know it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.config.language_names import LANGUAGE_NAMES
from flaxformer_mt.data.prepare.filters import count_letters, script_of
from flaxformer_mt.markup.opening import endings
from flaxformer_mt.serving.settings import ServerSettings

# Written from right to left, by script.
_RIGHT_TO_LEFT = {"Arab", "Hebr", "Thaa"}


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
