"""A store's manifest: what it was made from, and whether that still holds."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from flaxformer_mt.config.consistency import CORPUS_SETTINGS
from flaxformer_mt.config.digest_keys import first_default
from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import CorpusError, open_source, paths
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.store import INDEX, Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import explained, load_json

FORMAT = 1
MANIFEST = "manifest.json"
VALID_TEXT = ("valid.src.txt", "valid.tgt.txt")

Report = Callable[[str], None]
Files = Sequence[dict[str, Any]]  # as `describe_inputs` gives them
NamedCorpora = Sequence[tuple[str, str, CorpusConfig]]  # with split and configuration key


class PrepareError(UserError):
    """Data that can't be prepared, or isn't what the run directory was prepared from."""


def named_corpora(config: DataConfig) -> list[tuple[str, str, CorpusConfig]]:
    """The split, configuration key and settings of each corpus that is prepared."""
    train = [("train", f"data.train.{corpus.name}", corpus) for corpus in config.train]
    return train if config.valid_fraction else [*train, ("valid", "data.valid", config.valid)]


def settings_of(config: DataConfig, seed: int) -> dict[str, Any]:
    """What decides the store's contents, flat; files count by contents, not by place."""
    settings: dict[str, Any] = {
        "training.seed": seed,
        "data.src_lang": config.src_lang,
        "data.tgt_lang": config.tgt_lang,
        "data.train": [corpus.name for corpus in config.train],
        "data.valid_fraction": config.valid_fraction,
    }
    for split, key, corpus in named_corpora(config):
        weight = ["weight"] if split == "train" else []
        for name in ("kind", *CORPUS_SETTINGS[corpus.kind].contents, "tag", *weight):
            settings[f"{key}.{name}"] = getattr(corpus, name)
    for room in ("vocabulary", "filter"):
        for name, value in dataclasses.asdict(getattr(config, room)).items():
            settings[f"data.{room}.{name}"] = list(value) if isinstance(value, tuple) else value
    # Drawn from the stored pairs in every epoch.
    del settings["data.vocabulary.sampling"]
    # It decides whether there is a vocabulary, not which.
    del settings["data.vocabulary.soft_size"]
    return settings


def describe_inputs(
    named: NamedCorpora,
    folder: str,
    *,
    known: Files = (),
    fetch: bool = False,
) -> list[dict[str, Any]]:
    """Each file's key, path, size, time of change and sha256, in order. Raises CorpusError.

    Unchanged files' digests come from `known`. With `fetch`, sets of TFDS or the hub are fetched.
    """
    digests = {(file["path"], file["size"], file["mtime_ns"]): file["sha256"] for file in known}
    described = []
    for _, key, corpus in named:
        source = open_source(corpus, folder, key, fetch=fetch)
        for setting, path in source.files.items():
            size, mtime_ns = paths.stamp(path)
            sha256 = digests.get((str(path), size, mtime_ns)) or sha256_of(path)
            file = {"key": f"{key}.{setting}", "path": str(path), "size": size}
            described.append(file | {"mtime_ns": mtime_ns, "sha256": sha256})
    return described


def require_unchanged(recorded: Files) -> None:
    """Raises CorpusError if a file changed since it was described."""
    for file in recorded:
        path = paths.locate(file["path"], "")
        if paths.stamp(path) != (file["size"], file["mtime_ns"]):
            raise CorpusError(f"{path}: changed while it was being read: try again")


def repeated(described: Files) -> list[str]:
    """Warnings of files with the same contents."""
    found, first = [], dict[str, dict[str, Any]]()
    for file in described:
        other = first.setdefault(file["sha256"], file)
        if other is file or not file["size"]:
            continue
        corpus, other_corpus = (one["key"].rpartition(".")[0] for one in (file, other))
        if corpus == other_corpus:
            found.append(f"{other['key']} and {file['key']} have the same contents")
        elif corpus == "data.valid":
            found.append(f"{file['key']}: validation text is the training text of {other['key']}")
    return found


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest in a store's folder. Raises PrepareError."""
    path = directory / MANIFEST
    place = os.path.realpath(directory) if isinstance(directory, Path) else directory  # gs://
    advice = f"; delete {place} and run `prepare` again"
    with explained(PrepareError, path, advice):
        manifest = load_json(path)
        if manifest["format"] != FORMAT:
            raise PrepareError(f"{path}: has format {manifest['format']}, not {FORMAT}")
        for key in ("settings", "inputs", "corpora", "vocabulary", "store"):
            manifest[key]
    return manifest


def verify_store(
    config: DataConfig, *, seed: int, directory: Path, report: Report, thorough: bool
) -> Store:
    """The store in a run directory, if it is what `prepare` would make; corpora may be gone.

    Raises PrepareError, which names changed settings or files; VocabularyError, StoreError.
    """
    data = directory / "data"
    manifest = read_manifest(data)
    changes = _changed_settings(manifest["settings"], settings_of(config, seed))
    for item in () if changes else named_corpora(config):
        then = [file for file in manifest["inputs"] if file["key"].startswith(f"{item[1]}.")]
        try:
            changes += _changed_contents(then, describe_inputs([item], config.folder, known=then))
        except CorpusError as error:
            report(f"prepare: {error} (using the store made from it)")
    if changes:
        said = f"was prepared from other data or settings: {'; '.join(changes)}"
        raise PrepareError(f"{data} {said}. Set them back, or use a new directory")
    vocabularies = Vocabularies.load(directory / "vocabulary")
    if vocabularies.digest != manifest["vocabulary"]["digest"]:
        place = directory / "vocabulary"
        advice = "restore it from a copy"
        raise PrepareError(f"{place}: is not the vocabulary of {data}; {advice}")
    store = Store.open(data, vocabulary_digest=vocabularies.digest, thorough=thorough)
    if store.digest != manifest["store"]:
        advice = f"delete {data.resolve()} and run `prepare` again"
        raise PrepareError(f"{data / INDEX}: is not the store that {MANIFEST} records; {advice}")
    report(f"prepare: {len(store.train):,} training pairs in {data} are up to date")
    return store


def _changed_settings(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Each setting that differs; unrecorded ones had their first default."""
    then = {key: first_default(key) for key in wanted if key not in recorded} | recorded
    if not (then["data.filter.script"] or wanted["data.filter.script"]):
        then |= {key: wanted[key] for key in ("data.src_lang", "data.tgt_lang")}
    return [
        f"{key}: {then.get(key, 'not set')!r} then, {wanted.get(key, 'not set')!r} now"
        for key in sorted(then.keys() | wanted.keys())
        if then.get(key) != wanted.get(key)
    ]


def _changed_contents(recorded: Files, now: Files) -> list[str]:
    then = {file["key"]: file["sha256"] for file in recorded}
    changes = [
        f"{file['key']}: the contents of {file['path']} have changed"
        for file in now
        if then.get(file["key"]) != file["sha256"]
    ]
    gone = then.keys() - {file["key"] for file in now}
    return changes + [f"{key}: is no longer there" for key in sorted(gone)]


def sha256_of(path: AnyPath) -> str:
    with paths.reaching(path), paths.open_binary(path) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
