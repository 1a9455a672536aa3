"""What a caller wants of translations: of all lines, and of each line for itself."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from flaxformer_mt.decoding import arguments
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.masks.base import Mask
from flaxformer_mt.decoding.run.arrays import ConstraintSizes
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.text.segments import Overlong

Several = Literal["auto", "split", "keep"]
"""Lines of several sentences: "keep" translates them as they are, "split" sentence by sentence, and
"auto" so only those of more sentences than the training text has shown to the model, if known."""
# Options that only decide how a line becomes sources: their text, tokens, phrases and numbers. One
# search serves all values of these. (It depends on the tokens of `suppress`, which are passed to it
# apart.)
_OF_TEXTS = frozenset({"overlong", "several", "suppress", "forbid", "terminology", "first"})

# Arguments with a value for each line.
_OF_LINES = frozenset({"prefixes", "forbid_each", "constraints"})


class WantedOfAll(TypedDict, total=False):
    """Arguments of `Translator.translate` that are the same for any list of lines."""

    n_best: int
    overlong: Overlong
    several: Several
    suppress: str | Sequence[str]
    forbid: str | Sequence[str]
    terminology: Terminology | None
    sampling: Sampling | None
    mbr: bool
    constraint_sizes: Sequence[ConstraintSizes]
    masks: Sequence[Mask]


class Wanted(WantedOfAll, total=False):
    """Arguments of `Translator.translate`: also those for each line of this list."""

    prefixes: str | Sequence[str] | None
    forbid_each: Sequence[Sequence[str]] | None
    constraints: Sequence[Sequence[str]] | None
    first: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What is wanted of all lines' translations. Raises TypeError for arguments of another type,
    and ValueError for words that they don't take."""

    n_best: int = 1
    overlong: Overlong = "split"
    several: Several = "auto"
    suppress: Sequence[str] = ()  # pieces that are never generated
    forbid: Sequence[str] = ()  # phrases that no text may have
    terminology: Terminology | None = None
    sampling: Sampling | None = None
    first: int = 0  # the number of the first line
    mbr: bool = False
    constraint_sizes: tuple[ConstraintSizes, ...] = ()
    masks: tuple[Mask, ...] = ()  # the caller's own rules on which tokens may come next

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "n_best": arguments.whole_number("n_best", self.n_best),
            "overlong": arguments.overlong(self.overlong),
            "several": arguments.one_of("several", self.several, get_args(Several)),
            "suppress": tuple(arguments.texts("suppress", self.suppress)),
            "forbid": tuple(arguments.texts("forbid", self.forbid)),
            "first": arguments.whole_number("first", self.first),
            "mbr": arguments.flag("mbr", self.mbr),
            "constraint_sizes": arguments.objects(
                "constraint_sizes", self.constraint_sizes, ConstraintSizes
            ),
            "masks": arguments.objects("masks", self.masks, Mask),
        }
        arguments.check_optional("sampling", self.sampling, Sampling, "Sampling(temperature=0.8)")
        arguments.check_optional(
            "terminology",
            self.terminology,
            Terminology,
            "make one with Terminology.of or Terminology.read",
        )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @functools.cached_property
    def of_search(self) -> tuple[Any, ...]:
        """The options that a search is made for: all but `_OF_TEXTS`. If an option is missing
        there, a search is made again for each of its values; a wrong one is never reused."""
        names = [field.name for field in dataclasses.fields(self)]
        return tuple(getattr(self, name) for name in names if name not in _OF_TEXTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What is wanted of one line's translation; a single text is one phrase, or none if it is
    empty. Raises TypeError for arguments of another type."""

    prefix: str = ""  # that it begins with
    forbid: Sequence[str] = ()  # phrases that its text may not have
    constraints: Sequence[str] = ()  # phrases that its text must have

    def __post_init__(self) -> None:
        arguments.check_str("prefix", self.prefix)
        for name in ("forbid", "constraints"):
            phrases = tuple(arguments.texts(name, getattr(self, name)))
            object.__setattr__(self, name, phrases)


# The options of a call that asks for nothing, made and checked once.
_PLAIN = SearchOptions()
PLAIN_LINE = LineOptions()


def options_of_all(wanted: Mapping[str, Any], function: str) -> SearchOptions:
    """The arguments of a `function` that takes those in `WantedOfAll`, checked. Raises TypeError
    for arguments of another type or name."""
    for name in wanted:
        if name not in WantedOfAll.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return SearchOptions(**wanted)


def options_of(wanted: Mapping[str, Any], count: int) -> tuple[SearchOptions, list[LineOptions]]:
    """The arguments of `Translator.translate` for `count` lines, checked. Raises TypeError for
    arguments of another type or name, and ValueError for lists of another length."""
    for name in wanted:
        if name not in Wanted.__annotations__:
            raise TypeError(f"Translator.translate() got an unexpected keyword argument {name!r}")
    of_all = {name: value for name, value in wanted.items() if name not in _OF_LINES}
    options = SearchOptions(**of_all) if of_all else _PLAIN
    if not wanted.keys() & _OF_LINES:
        return options, [PLAIN_LINE] * count
    lines = zip(
        arguments.prefixes(wanted.get("prefixes"), count),
        arguments.phrases("forbid_each", wanted.get("forbid_each"), count),
        arguments.phrases("constraints", wanted.get("constraints"), count),
        strict=True,
    )
    return options, [
        LineOptions(prefix=prefix, forbid=tuple(forbid), constraints=tuple(constraints))
        for prefix, forbid, constraints in lines
    ]
