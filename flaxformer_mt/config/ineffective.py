"""Settings that say something in vain, since another one makes that nobody reads them."""

from __future__ import annotations

from collections.abc import Iterator

from flaxformer_mt.config.consistency import SPLITS
from flaxformer_mt.config.schema import CorpusConfig, ExperimentConfig, ScheduleConfig

# What of a corpus's settings says what is read of it.
_READ = {
    "files": ("src", "tgt"),
    "tsv": ("path",),
    "jsonl": ("src", "tgt", "path"),
    "tfds": ("src", "tgt", "path", "split"),
    "array_record": ("src", "tgt", "path"),
    "synthetic": ("size", "split"),
}


def ineffective(config: ExperimentConfig) -> Iterator[str]:
    """What is said in vain: a mistake in what is to be run, no damage to what was."""
    training = config.training
    if training.patience > 0 and not training.validate_every:
        yield (
            f"'training.patience' = {training.patience} counts validations, and there are none "
            "while 'training.validate_every' = 0: set one of them"
        )
    yield from _other_schedule(training.schedule)
    for key, corpus in _corpora(config):
        yield from _unread(corpus, key)
    if any(corpus.name == "valid" for corpus in config.data.test):
        yield (
            "'data.test.valid': `evaluate --set valid` means 'data.valid', and keeps its scores "
            "under that name: call the test set something else"
        )


def _other_schedule(schedule: ScheduleConfig) -> Iterator[str]:
    of_kind = {"paper": ("factor", 1.0), "peak": ("peak", 0.0)}
    for kind, (name, default) in of_kind.items():
        value = getattr(schedule, name)
        if kind != schedule.kind and value != default:
            yield (
                f"'training.schedule.{name}' = {value} is for 'training.schedule.kind' = '{kind}', "
                f"and that is '{schedule.kind}': set it to '{kind}', or {name} to {default}"
            )


def _corpora(config: ExperimentConfig) -> Iterator[tuple[str, CorpusConfig]]:
    for group, corpora in (("train", config.data.train), ("test", config.data.test)):
        for corpus in corpora:
            yield f"data.{group}.{corpus.name}", corpus
    yield "data.valid", config.data.valid


def _unread(corpus: CorpusConfig, key: str) -> Iterator[str]:
    """Settings that would say what is read, were the corpus of another kind."""
    for name in ("src", "tgt", "path", "size"):
        if (value := getattr(corpus, name)) and name not in _READ[corpus.kind]:
            kinds = " or ".join(f"'{kind}'" for kind, read in _READ.items() if name in read)
            yield (
                f"'{key}.{name}' = {value!r} is not read of a corpus of kind '{corpus.kind}' (but "
                f"of {kinds}): set '{key}.kind', or {key}.{name}={'0' if name == 'size' else ''}"
            )
    # A split's mere name is left over where a corpus of the built-in grammar became another.
    if corpus.kind not in ("tfds", "synthetic") and corpus.split not in SPLITS:
        yield (
            f"'{key}.split' = {corpus.split!r} is not read of a corpus of kind '{corpus.kind}', "
            "which is taken whole: set it to 'train'"
        )
    if corpus.weight and not key.startswith("data.train."):
        yield f"'{key}.weight' = {corpus.weight}: only corpora to train on are mixed; set it to 0"
