"""Settings that say something in vain, since another one makes that nobody reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from flaxformer_mt.config.consistency import CORPUS_SETTINGS, SPLITS
from flaxformer_mt.config.languages import contradicted
from flaxformer_mt.config.schema import CorpusConfig, ExperimentConfig, ScheduleConfig


@dataclasses.dataclass(frozen=True)
class _Vain:
    """What is said in vain by `key`, which is read where `kind`, another key, has another value."""

    text: str
    key: str = ""
    kind: str = ""


def unused_settings(config: ExperimentConfig, overrides: Sequence[str] = ()) -> Iterator[str]:
    """What is said in vain: a mistake in what is to be run, no damage to what was.

    Where one of `overrides` chose another kind, what the config said for the former one is left
    over, and no mistake.
    """
    given = {override.partition("=")[0] for override in overrides}
    return (said.text for said in _said(config) if not _left_over(said, given))


def _left_over(said: _Vain, given: Collection[str]) -> bool:
    return said.kind in given and said.key not in given


def _said(config: ExperimentConfig) -> Iterator[_Vain]:
    training = config.training
    if training.patience > 0 and not training.validate_every:
        yield _Vain(
            f"'training.patience' = {training.patience} counts validations, and there are none "
            "while 'training.validate_every' = 0: set one of them"
        )
    yield from _other_schedule(training.schedule)
    yield from map(_Vain, contradicted(config.data))
    for key, corpus in _corpora(config):
        yield from _unread(corpus, key)
    if any(corpus.name == "valid" for corpus in config.data.test):
        yield _Vain(
            "'data.test.valid': `evaluate --set valid` means 'data.valid', and keeps its scores "
            "under that name: call the test set something else"
        )


def _other_schedule(schedule: ScheduleConfig) -> Iterator[_Vain]:
    group = "training.schedule"
    for kind, (name, default) in {"paper": ("factor", 1.0), "peak": ("peak", 0.0)}.items():
        value = getattr(schedule, name)
        if kind != schedule.kind and value != default:
            said = (
                f"'{group}.{name}' = {value} is for '{group}.kind' = '{kind}', and that is "
                f"'{schedule.kind}': set it to '{kind}', or {name} to {default}"
            )
            yield _Vain(said, f"{group}.{name}", f"{group}.kind")


def _corpora(config: ExperimentConfig) -> Iterator[tuple[str, CorpusConfig]]:
    for group, corpora in (("train", config.data.train), ("test", config.data.test)):
        for corpus in corpora:
            yield f"data.{group}.{corpus.name}", corpus
    yield "data.valid", config.data.valid


def _unread(corpus: CorpusConfig, key: str) -> Iterator[_Vain]:
    """Settings that would say what is read, were the corpus of another kind."""
    read = CORPUS_SETTINGS[corpus.kind].all
    for name in ("src", "tgt", "path", "size"):
        if (value := getattr(corpus, name)) and name not in read:
            others = (kind for kind, settings in CORPUS_SETTINGS.items() if name in settings.all)
            kinds = " or ".join(f"'{kind}'" for kind in others)
            said = (
                f"'{key}.{name}' = {value!r} is not read of a corpus of kind '{corpus.kind}' (but "
                f"of {kinds}): set '{key}.kind', or {key}.{name}={'0' if name == 'size' else ''}"
            )
            yield _Vain(said, f"{key}.{name}", f"{key}.kind")
    # A mere name asks for no part of a corpus.
    if "split" not in read and corpus.split not in SPLITS:
        said = (
            f"'{key}.split' = {corpus.split!r} is not read of a corpus of kind '{corpus.kind}', "
            "which is taken whole: set it to 'train'"
        )
        yield _Vain(said, f"{key}.split", f"{key}.kind")
    if corpus.weight and not key.startswith("data.train."):
        yield _Vain(
            f"'{key}.weight' = {corpus.weight}: only corpora to train on are mixed; set it to 0"
        )
