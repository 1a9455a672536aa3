"""Arguments shared by commands: config with overrides, run directory, weights, search, numbers."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import json
import math
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.bulk.shards import LARGEST_SHARDS
from flaxformer_mt.config import ConfigError, DecodingConfig, ExperimentConfig, flatten
from flaxformer_mt.config.freeze import field_types
from flaxformer_mt.config.schema import Bounds

if TYPE_CHECKING:
    from flaxformer_mt.decoding.search.sampling import Sampling
    from flaxformer_mt.parallel.processes import Cluster

LARGEST_INTEGER = 999_999_999
LARGEST_NUMBER = 1e9  # unless something else limits it; a larger one is a typing error
# Settings that name corpora or their files.
_TEXT_OF_CORPUS = re.compile(r"data\.(valid|(train|test)(\.[^.]+)?)(\.(src|tgt|path))?")
_OVERRIDE = re.compile(r"--config\.([^=]+)(?:=(.*))?", re.DOTALL)


def integer(text: str, *, least: int, most: int = LARGEST_INTEGER) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise ArgumentTypeError(f"{text!r} must be an integer from {least} to {most:,}")
    return int(text)


def integer_in(numbers: Bounds) -> Callable[[str], int]:
    """Parses an integer within the bounds of a setting."""
    most = min(numbers.maximum, LARGEST_INTEGER)
    return functools.partial(integer, least=int(numbers.minimum), most=int(most))


positive = functools.partial(integer, least=1)
shards = functools.partial(integer, least=1, most=LARGEST_SHARDS)
million = functools.partial(integer, least=1, most=1_000_000)
samples = functools.partial(integer, least=0, most=1_000_000)
count = functools.partial(integer, least=0)
port = functools.partial(integer, least=0, most=65_535)


def weights(text: str) -> str | int:
    """A choice of weights, as `Translator.load` takes it."""
    if text in ("auto", "average", "best", "latest"):
        return text
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    raise ArgumentTypeError(f"{text}: write average, best, latest, auto, or a step's number")


def lengths(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*),([1-9]\d*)", text)
    if not match:
        raise ArgumentTypeError(f"{text}: write SRC,TGT, such as 64,64")
    return int(match[1]), int(match[2])


def steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if not match:
        raise ArgumentTypeError(f"{text}: write A:B, the first and last step to trace")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last:
        raise ArgumentTypeError(f"{text}: A must be at least 1, and at most B")
    return first, last


def not_negative(text: str, *, most: float = LARGEST_NUMBER) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} must be a finite number ≥ 0")
    if value > most:
        raise ArgumentTypeError(f"{text!r} must be at most {most:,.0f}")
    return value


def positive_number(text: str) -> float:
    value = not_negative(text)
    if value == 0:
        raise ArgumentTypeError(f"{text!r} must be a number > 0")
    return value


def utf8_text(given: str) -> str:
    """An argument that is not a path, which may be any bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"{given!a} is not UTF-8") from None
    return given


@dataclasses.dataclass(frozen=True)
class Flag:
    """The help of a flag or of a positional argument, and the words that it takes.

    A flag that takes none is a switch.
    """

    help: str
    takes: str | tuple[str, ...] = ()  # the words, named for --help: "FILE", or ("SRC", "TGT")
    read: Callable[[str], Any] | None = None  # of each word; None: any text, such as a path
    choices: Collection[str] = ()  # the words to choose from
    several: bool = False  # one word or more

    def keywords(self) -> dict[str, Any]:
        """The arguments of argparse's `add_argument`, but for the help."""
        several: dict[str, Any] = {"nargs": "+"} if self.several else {}
        if self.choices:
            metavar = {"metavar": self.takes} if self.takes else {}  # if the help lists the choices
            return {"choices": [*self.choices], **metavar, **several}
        if not self.takes:
            return {"action": "store_true"}
        keywords: dict[str, Any] = {"metavar": self.takes, **several}
        if self.read is not None:
            keywords["type"] = self.read
        if isinstance(self.takes, tuple):
            keywords["nargs"] = len(self.takes)
        return keywords


CONFIG = {
    "--config": Flag(
        "config file, or the name of a built-in one; --config.a.b=VALUE overrides a setting",
        takes="FILE[:VARIANT]",
    ),
}
WORKDIR = {"--workdir": Flag("run directory, local or gs://BUCKET/FOLDER", takes="DIR")}
DTYPE = {
    "--dtype": Flag(
        "type of matrix-product operands (default: the run's "
        "model.dtype); bfloat16 is faster on accelerators and some CPUs, and changes a few "
        "translations",
        choices=("float32", "bfloat16"),
    ),
}
NO_SPLIT = {
    "--no-split": Flag(
        "take a line of several sentences as it is, even if the model has learnt from "
        "lines of fewer (default: sentence by sentence)"
    ),
}
TAG = {
    "--tag": Flag(
        "put this before every line: a tag of the run's training text "
        "(data.train.NAME.tag), such as <2fr> for a target language, or several in quotation marks",
        takes="TAG",
        read=utf8_text,
    ),
}
SHORTLIST = {
    "--shortlist": Flag(
        "choose only among target words that the source words make likely, learned "
        "once from the training text: faster with a large vocabulary; changes a few translations"
    ),
}
_PROCESSES = {
    "--process-id": Flag("this process's number, from 0", takes="I", read=count),
    "--coordinator": Flag("address of the first process", takes="HOST:PORT"),
    "--num-processes": Flag("number of processes", takes="N", read=positive),
    "--heartbeat": Flag(
        "when a process dies, the others exit within this many seconds (default: 100)",
        takes="SECONDS",
        read=positive,
    ),
    "--join-within": Flag(
        "at the start, give up if not all have come within this many seconds (default: 300)",
        takes="SECONDS",
        read=positive,
    ),
}
_SEED = 1  # of sampling, unless --seed is given
_SAMPLING = {
    "--sample": Flag("draw --beam-size samples; return the --n-best most likely"),
    "--top-k": Flag("draw from the K most likely tokens only", takes="K", read=positive),
    "--seed": Flag(
        "seed; each line's draws depend only on it and the line's number", takes="N", read=positive
    ),
}


def make_parser(
    prog: str, purpose: str, epilog: str = "", *, overridable: bool = False
) -> ArgumentParser:
    """A command's parser. Its options have the command's words as `command` and, if `overridable`,
    `--config.KEY=VALUE` as `overrides`."""
    parser = _Parser(prog=prog, description=purpose, epilog=epilog, formatter_class=_WithDefaults)
    for name in (None, "store"):
        parser.register("action", name, _Once)
    parser.overridable = overridable
    return parser


class _Parser(ArgumentParser):
    """Suggests the flag or setting that a misspelt flag may mean."""

    overridable = False
    _words: Sequence[str] = ()
    _given: set[str]  # flags so far

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = set()
        self._words, overrides = take_overrides(args) if self.overridable else (args, [])
        self._refuse_corpora_given_twice(overrides)
        options: Any = super().parse_args(self._words, namespace)
        options.overrides = overrides
        options.command = [*self.prog.rsplit(" ", 1), *args]
        return options

    def once(self, flag: str, *, several: bool) -> None:
        """Refuses a second file, name or text, which would replace the first, or `several`."""
        if flag in self._given:
            advice = f"write all after one {flag}" if several else "keep one"
            self.error(f"{flag} is given twice: the second would replace the first; {advice}")
        self._given.add(flag)

    def _refuse_corpora_given_twice(self, overrides: Sequence[str]) -> None:
        """Other settings may be given again, as when a script's own are followed by the user's."""
        first: dict[str, str] = {}
        for override in overrides:
            key, _, value = override.partition("=")
            if not _TEXT_OF_CORPUS.fullmatch(key):
                continue
            if first.setdefault(key, value) != value:
                self.error(
                    f"--config.{key} is given twice: the second would replace the first; keep one "
                    "of them, or name several corpora: --config.data.train.NAME=SRC,TGT"
                )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            words = value if isinstance(value, list) else [value]
            # A sentence or a prefix may be empty; nothing that is named or read may.
            is_sentence = action.metavar == "TEXT" and action.nargs is None
            if "" in words and value not in (action.default, action.const) and not is_sentence:
                self.error(_empty(action))
        return options, unknown

    def error(self, message: str) -> NoReturn:
        hints = []
        for flag in self._unknown_flags():
            suggestion = self._suggestion(flag)
            if suggestion:
                hints.append(f"{flag}: did you mean {suggestion}?")
        takes_input = "--input" in self._option_string_actions
        if message.startswith("unrecognized arguments") and not hints and takes_input:
            hints.append("name a file with --input FILE; text comes from standard input")
        if message.startswith("the following arguments are required"):
            hints += self._greedy_flags()
        super().error("; ".join([message, *hints]))

    def _greedy_flags(self) -> list[str]:
        """What to say if a flag of several words may have taken a positional one."""
        is_missing = any(not action.option_strings and action.required for action in self._actions)
        flags = [flag for flag in self._words if flag in self._option_string_actions]
        several = [flag for flag in flags if self._option_string_actions[flag].nargs == "+"]
        if not is_missing or not several:
            return []
        return [f"{several[-1]} takes all words that follow it: write it last"]

    def _unknown_flags(self) -> list[str]:
        """The words that are neither flags nor their beginnings."""
        flags = {word.partition("=")[0] for word in self._words if word.startswith("--")}
        known = self._option_string_actions
        return sorted(
            flag for flag in flags if not any(option.startswith(flag) for option in known)
        )

    def _suggestion(self, flag: str) -> str | None:
        """The setting or the flag that a misspelt flag may mean."""
        known = self._option_string_actions
        if "--config" in known and (setting := _setting_meant(flag, known)):
            return setting
        return next(iter(difflib.get_close_matches(flag, known, n=1, cutoff=0.5)), None)


def _setting_meant(flag: str, known: Collection[str]) -> str:
    """How to write a setting that was given as a flag, by its name here or in other programs.

    `known` are this command's flags. Empty if there is no such setting.
    """
    from flaxformer_mt.config.other_names import ours

    meant = flag.strip("-").replace("-", "_")
    section, dot, _ = meant.partition(".")
    settings = [*flatten(ExperimentConfig())]
    if dot and any(key.startswith(f"{section}.") for key in settings):
        return f"--config.{meant}"
    for key in settings:
        if key.rpartition(".")[2] == meant:
            return f"--config.{key}"
    return " and ".join(key if key in known else f"--config.{key}" for key in ours(flag))


class _Once(argparse._StoreAction):
    """Takes one file, name or text; a second is an error. Numbers and words of a fixed list may be
    given again, as when an alias's own are followed by the user's."""

    def __call__(
        self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if option_string is not None and self.type in (None, utf8_text) and self.choices is None:
            parser.once(self.option_strings[0], several=self.nargs == "+")
        super().__call__(parser, namespace, values, option_string)


def _empty(action: argparse.Action) -> str:
    name = action.option_strings[-1] if action.option_strings else str(action.metavar)
    metavars = action.metavar if isinstance(action.metavar, tuple) else (action.metavar,)
    kind = metavars[0] or action.dest.upper()
    advice = {"FILE": "name a file", "DIR": "name a folder", "RUN": "name a run directory"}
    return f"{name} is empty: {advice.get(kind, f'give {kind}')}"


class _WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, except for switches and values that are determined later."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if "default: " in (action.help or "") or action.default in (None, False, "", []):
            return action.help
        return super()._get_help_string(action)


def flags(
    parser: argparse._ActionsContainer,
    table: Mapping[str, Flag],
    *,
    required: bool = False,
    repeatable: bool = False,
    **defaults: Any,
) -> None:
    """Adds the arguments of a table, by name. `repeatable` ones are collected in a list."""
    for name, flag in table.items():
        keywords = flag.keywords()
        if required:
            keywords["required"] = True
        if repeatable:
            keywords |= {"action": "append", "default": []}
        parser.add_argument(name, help=flag.help, **keywords)
    parser.set_defaults(**defaults)


def take_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--config.KEY=VALUE` (or `--config.KEY VALUE`), and these."""
    other_words: list[str] = []
    overrides: list[str] = []
    words = iter(arguments)
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            other_words.append(word)
        else:
            value = next(words, None) if match[2] is None else match[2]
            overrides.append(match[1] if value is None else f"{match[1]}={value}")
    return other_words, overrides


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def add_weights(parser: ArgumentParser) -> None:
    meaning = "average, best, latest, a step, or auto: a current average, else best, else latest"
    flags(parser, {"--weights": Flag(meaning, takes="WHICH", read=weights)}, weights="auto")


def add_decoding(parser: ArgumentParser) -> None:
    add_weights(parser)
    add_settings(parser, "beam_size", "length_penalty", note=" (default: the run's decoding.{})")


def add_settings(parser: argparse._ActionsContainer, *names: str, note: str = "") -> None:
    """A flag for each of these settings under `decoding`, with the schema's explanation and `note`,
    in which `{}` stands for the name."""
    hints = field_types(DecodingConfig)
    for name in names:
        field = DecodingConfig.__dataclass_fields__[name]
        numbers = field.metadata["bounds"]
        form: dict[str, Any] = {"choices": get_args(hints[name])}
        if hints[name] is float:
            form = {"type": functools.partial(not_negative, most=numbers.maximum), "metavar": "X"}
        elif hints[name] is int:
            form = {"type": integer_in(numbers), "metavar": "N"}
        elif hints[name] is bool:
            form = {"action": argparse.BooleanOptionalAction}
        meaning = f"{field.metadata['help']}{note.format(name)}".replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", help=meaning, **form)


def add_search(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("search (default: the run's decoding settings)")
    names = [
        name
        for name in field_types(DecodingConfig)
        # `add_decoding` adds two, and the choice is a run's.
        if name not in ("beam_size", "length_penalty", "length_choice")
    ]
    add_settings(group, *names)
    flags(group, DTYPE | SHORTLIST)


def as_asked(options: Namespace, translator: fm.Translator) -> fm.Translator:
    """The model with the settings and dtype given to the command. Raises ConfigError."""
    settings = given_settings(options)
    translator = translator.with_config(**settings)
    config = translator.config
    if "diversity" in settings and config.diverse_groups == 1:
        raise ConfigError("--diversity needs more than one group: add --diverse-groups G")
    if not getattr(options, "sample", False) and config.beam_size % config.diverse_groups:
        raise ConfigError(
            f"--beam-size {config.beam_size} must be a multiple of the {config.diverse_groups} "
            "groups (decoding.diverse_groups, --diverse-groups)"
        )
    if getattr(options, "tag", None):
        translator = translator.with_tag(options.tag)
    if getattr(options, "no_split", False):
        translator = translator.with_whole_lines()
    dtype = getattr(options, "dtype", None)
    return translator if dtype is None else translator.with_dtype(dtype)


def say_if_untagged(translator: fm.Translator) -> None:
    """That sources need a tag, if the model has seen none without."""
    tags = [direction.tag for direction in translator.directions]
    if all(tags) and not translator.tag:
        listed = ", ".join(dict.fromkeys(tags))
        say(f"all training text of this model has tags: give --tag ({listed}), or begin lines so")


def given_settings(options: Namespace) -> dict[str, Any]:
    """Those under `decoding` that the command's flags set, by name."""
    settings = {name: getattr(options, name, None) for name in field_types(DecodingConfig)}
    return {name: setting for name, setting in settings.items() if setting is not None}


def add_sampling(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("sampling instead of search")
    flags(group, _SAMPLING, seed=_SEED)
    share = "draw from the fewest tokens with a total probability of P"
    for name, metavar, help in (("--temperature", "T", "above 0"), ("--top-p", "P", share)):
        group.add_argument(name, metavar=metavar, type=not_negative, default=1.0, help=help)


def sampling_of(options: Namespace, parser: ArgumentParser) -> Sampling | None:
    """The sampling that the flags of `add_sampling` ask for; None for search."""
    if not options.sample:
        given = (options.temperature, options.top_p, options.top_k, options.seed)
        if given != (1.0, 1.0, None, _SEED):
            parser.error("--temperature, --top-k, --top-p and --seed need --sample")
        return None
    if options.diverse_groups or options.diversity is not None:
        parser.error("--diverse-groups and --diversity are for beam search: leave out --sample")
    from flaxformer_mt.decoding.search.sampling import Sampling  # which loads JAX

    try:
        return Sampling(
            temperature=options.temperature,
            top_k=options.top_k or 0,
            top_p=options.top_p,
            seed=options.seed,
        )
    except ValueError as error:
        parser.error(str(error))


def add_processes(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several processes",
        "TPU pod slices, GKE, Slurm and Open MPI are detected and need no flags. Elsewhere run "
        "the same command in every process, with the first three of these flags.",
    )
    flags(group, _PROCESSES)


def cluster(options: Namespace, parser: ArgumentParser) -> Cluster | None:
    """The processes that the flags of `add_processes` describe, if any was given."""
    description = (options.coordinator, options.num_processes, options.process_id)
    if description == (None, None, None):
        return None
    if None in description:
        parser.error("--coordinator, --num-processes and --process-id go together")
    if not re.fullmatch(r".+:\d+", options.coordinator):
        parser.error(f"--coordinator {options.coordinator}: write HOST:PORT")
    if options.process_id >= options.num_processes:
        parser.error(f"--process-id {options.process_id}: must be below --num-processes")
    from flaxformer_mt.parallel.processes import Cluster  # which loads JAX

    return Cluster(*description)


def patience(options: Namespace) -> dict[str, int | None]:
    """How long `joined` waits for other processes, by the flags of `add_processes`."""
    return {"heartbeat": options.heartbeat, "meeting": options.join_within}
