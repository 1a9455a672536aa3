"""A store's manifest: its settings and files, and whether they have changed."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from flaxformer_mt.config.digest_keys import first_default
from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import CorpusError, open_sources, paths
from flaxformer_mt.data.given_vocabulary import given_vocabularies
from flaxformer_mt.data.store import INDEX, Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import AnyPath, json_errors_as, load_json

FORMAT = 1
MANIFEST = "manifest.json"
VALID_TEXT = ("valid.src.txt", "valid.tgt.txt")

Say = Callable[[str], None]
Files = Sequence[dict[str, Any]]  # as `describe_inputs` gives them
NamedCorpora = Sequence[tuple[str, str, CorpusConfig]]  # with split and configuration key


class PrepareError(UserError):
    """Data that can't be prepared, or isn't what the run directory was prepared from."""


def named_corpora(config: DataConfig) -> list[tuple[str, str, CorpusConfig]]:
    """The split, configuration key and settings of each corpus that is prepared."""
    train = [("train", f"data.train.{corpus.name}", corpus) for corpus in config.train]
    if config.valid_fraction:
        return train
    return [*train, *(("valid", key, corpus) for key, corpus in config.validation.items())]


def settings_of(config: DataConfig, seed: int) -> dict[str, Any]:
    """The settings that decide the store's contents, flat; files count by contents, not by path."""
    settings: dict[str, Any] = {
        "training.seed": seed,
        "data.src_lang": config.src_lang,
        "data.tgt_lang": config.tgt_lang,
        "data.train": [corpus.name for corpus in config.train],
        "data.valid_fraction": config.valid_fraction,
        "data.mix_temperature": config.mix_temperature,
    }
    if config.valid_sets:
        settings["data.valid_sets"] = [corpus.name for corpus in config.valid_sets]
    for split, key, corpus in named_corpora(config):
        names = ["kind", *corpus.source.contents(), "tag"]
        if split == "train":
            names.append("weight")
        if split == "train" and config.filter.reads_languages:
            names += ["src_lang", "tgt_lang"]
        settings |= {f"{key}.{name}": getattr(corpus, name) for name in names}
        for name in corpus.source.optional_files():
            settings[f"{key}.{name}"] = "given" if getattr(corpus, name) else ""
    for name, setting in dataclasses.asdict(config.filter).items():
        settings[f"data.filter.{name}"] = setting
    return settings | _vocabulary_settings(config)


def _vocabulary_settings(config: DataConfig) -> dict[str, Any]:
    """Those that decide which vocabulary there is, flat."""
    settings = {
        f"data.vocabulary.{name}": list(setting) if isinstance(setting, tuple) else setting
        for name, setting in dataclasses.asdict(config.vocabulary).items()
    }
    # Drawn from the stored pairs in every epoch.
    del settings["data.vocabulary.sampling"]
    # It decides whether there is a vocabulary, not which.
    del settings["data.vocabulary.soft_size"]
    if settings["data.vocabulary.model"] or settings["data.vocabulary.src_model"]:
        settings["data.vocabulary.symbols"] = []  # they say what is copied, and not what is a type
    for name in ("model", "src_model", "tgt_model", "joint_types"):
        if settings[f"data.vocabulary.{name}"]:
            settings[f"data.vocabulary.{name}"] = "given"  # by its digest, wherever it is
    return settings


def describe_inputs(
    named: NamedCorpora,
    folder: str,
    *,
    known: Files = (),
    download: bool = False,
) -> list[dict[str, Any]]:
    """Each file's key, path, size, time of change and sha256, in order. Raises CorpusError.

    Unchanged files' digests come from `known`. `download` fetches sets of TFDS or the hub.
    """
    digests = {(file["path"], file["size"], file["mtime_ns"]): file["sha256"] for file in known}
    described = []
    for _, key, corpus in named:
        sources = open_sources(corpus, folder, key, download=download)
        for number, source in enumerate(sources):
            which = f"[{number}]" if len(sources) > 1 else ""
            for setting, path in source.files.items():
                size, mtime_ns = paths.stamp(path)
                sha256 = digests.get((str(path), size, mtime_ns)) or sha256_of(path)
                file = {"key": f"{key}.{setting}{which}", "path": str(path), "size": size}
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
    warnings = []
    first_with = dict[str, dict[str, Any]]()  # by contents
    for file in described:
        first = first_with.setdefault(file["sha256"], file)
        if first is file or not file["size"]:
            continue
        corpus = file["key"].rpartition(".")[0]
        if corpus == first["key"].rpartition(".")[0]:
            warnings.append(f"{first['key']} and {file['key']} have the same contents")
        elif corpus.startswith("data.valid") and first["key"].startswith("data.train."):
            warnings.append(
                f"{file['key']}: validation text is the training text of {first['key']}"
            )
    return warnings


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest in a store's folder. Raises PrepareError."""
    path = directory / MANIFEST
    place = os.path.realpath(directory) if isinstance(directory, Path) else directory  # gs://
    advice = f"; delete {place} and run `prepare` again"
    with json_errors_as(PrepareError, path, advice):
        manifest = load_json(path)
        if manifest["format"] != FORMAT:
            raise PrepareError(f"{path}: has format {manifest['format']}, not {FORMAT}")
        for key in ("settings", "inputs", "corpora", "vocabulary", "store"):
            manifest[key]
    return manifest


def verify_store(
    config: DataConfig, *, seed: int, directory: Path, say: Say, thorough: bool
) -> Store:
    """The store in a run directory, if `prepare` would make the same; corpora may be gone.

    Raises PrepareError, which names changed settings or files; VocabularyError, StoreError.
    """
    folder = directory / "data"
    manifest = read_manifest(folder)
    changes = _changed_settings(manifest["settings"], settings_of(config, seed))
    if not changes:
        changes = _changed_inputs(config, manifest["inputs"], say)
    if changes:
        raise PrepareError(
            f"{folder} was prepared from other data or settings: {'; '.join(changes)}. "
            f"Set them back, or use a new directory; before training, you can delete {folder}"
        )

    vocabularies = Vocabularies.load(directory / "vocabulary")
    if vocabularies.digest != manifest["vocabulary"]["digest"]:
        raise PrepareError(
            f"{directory / 'vocabulary'}: is not the vocabulary of {folder}; restore it from a copy"
        )
    require_given(config, vocabularies, directory, say)
    store = Store.open(folder, vocabulary_digest=vocabularies.digest, thorough=thorough)
    if store.digest != manifest["store"]:
        raise PrepareError(
            f"{folder / INDEX}: is not the store that {MANIFEST} records; "
            f"delete {folder.resolve()} and run `prepare` again"
        )
    say(f"prepare: {len(store.train):,} training pairs in {folder} are up to date")
    return store


def require_given(
    config: DataConfig, vocabularies: Vocabularies, directory: Path, say: Say
) -> None:
    """Raises PrepareError if the settings name other models than the run's; they may be gone, which
    is said."""
    try:
        given = given_vocabularies(config.vocabulary, config.folder)
    except CorpusError as error:
        say(f"prepare: warning: {error}; the vocabulary in {directory} is used")
        return
    if given is None:
        return
    from flaxformer_mt.data.extended_vocabulary import with_tags_of, with_types_of

    # A run has its tags too, and one that starts from another one its symbols.
    extended = with_tags_of(given, config), with_types_of(given, config)
    if vocabularies.digest not in (given.digest, *(one.digest for one in extended)):
        raise PrepareError(
            f"data.vocabulary names another model than the vocabulary in {directory}: use a new "
            "directory"
        )


def _changed_settings(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Each setting that differs; unrecorded ones had their first default."""
    defaults = {key: first_default(key) for key in current if key not in recorded}
    recorded = defaults | recorded
    reading = ("data.filter.script", "data.filter.language")  # as `FilterConfig.reads_languages`
    reads = [any(settings[key] for key in reading) for settings in (recorded, current)]
    return [
        f"{key}: {recorded.get(key, 'not set')!r} then, {current.get(key, 'not set')!r} now"
        for key in sorted(recorded.keys() | current.keys())
        if recorded.get(key) != current.get(key) and (all(reads) or not key.endswith("_lang"))
    ]


def _changed_inputs(config: DataConfig, recorded: Files, say: Say) -> list[str]:
    """Each file whose contents differ; files of a corpus that can't be read count as unchanged."""
    changes = []
    for named in named_corpora(config):
        _, key, _ = named
        of_corpus = [file for file in recorded if file["key"].startswith(f"{key}.")]
        try:
            current = describe_inputs([named], config.folder, known=of_corpus)
        except CorpusError as error:
            say(f"prepare: {error} (using the store made from it)")
        else:
            changes += _changed_contents(of_corpus, current)
    return changes


def _changed_contents(recorded: Files, current: Files) -> list[str]:
    digests = {file["key"]: file["sha256"] for file in recorded}
    changes = [
        f"{file['key']}: the contents of {file['path']} have changed"
        for file in current
        if digests.get(file["key"]) != file["sha256"]
    ]
    gone = digests.keys() - {file["key"] for file in current}
    return changes + [f"{key}: is no longer there" for key in sorted(gone)]


def sha256_of(path: AnyPath) -> str:
    with paths.reaching(path), paths.open_binary(path) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
