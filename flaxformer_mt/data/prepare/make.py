"""`prepare`: from raw corpora to the vocabulary and the token store of a run directory, once.

Everything is written aside and renamed into place at the end: a directory holds a complete store or
none. What a stopped call leaves is gone on with, to the same bytes as without the stop. The
manifest in the store's folder records what it was made from; a later call with other settings or
changed files is an error that names the difference, never a silent reuse.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus.paths import reaching
from flaxformer_mt.data.prepare import accounts, inputs
from flaxformer_mt.data.prepare.encode import Encoder
from flaxformer_mt.data.prepare.fill import VALID_TEXT, Filling
from flaxformer_mt.data.prepare.lengths import lengths_of
from flaxformer_mt.data.prepare.manifest import (
    FORMAT,
    MANIFEST,
    PrepareError,
    changed_settings,
    named_corpora,
    read_manifest,
    settings_of,
)
from flaxformer_mt.data.prepare.meter import Meter, Report
from flaxformer_mt.data.prepare.picture import PICTURE, picture
from flaxformer_mt.data.prepare.progress import LEFTOVERS, PROGRESS, VOCABULARY, Progress
from flaxformer_mt.data.prepare.reuse import reuse
from flaxformer_mt.data.prepare.sample import require_validation, sizes, train_vocabulary
from flaxformer_mt.data.prepare.scripts import script_of
from flaxformer_mt.data.prepare.workers import Workers
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.vocabulary import Vocabularies, VocabularyError


def prepare(
    config: DataConfig,
    *,
    seed: int,
    directory: str | Path,
    report: Report = lambda line: None,
    bar: bool = False,
    workers: int | None = None,
    thorough: bool = False,
) -> Store:
    """The token store of a run directory, made on the first call and verified on later ones.

    Writes `vocabulary/` (unless it is there, as in fine-tuning) and `data/`: the store, the
    manifest, a picture of the lengths, and the validation sentences as text. `report` gets one line
    of progress at a time; `bar` draws a progress bar on standard error as well. `workers` is the
    number of processes that encode (0: this one alone), by default one for each processor where the
    corpus is worth it; the result does not depend on it. A call that was stopped at any moment
    is gone on with by the next one. Of a store that is there every byte is read if `thorough`.

    Raises:
      PrepareError: nothing is left to train or validate on, a filter does not know a language, a
        worker process died, something cannot be written, or the directory was prepared with other
        settings or from files that have changed; the message names them.
      CorpusError, VocabularyError, StoreError: see there.
    """
    directory = Path(directory)
    data = directory / "data"
    if (data / MANIFEST).exists():
        _remove_leftovers(data)
        return reuse(config, seed=seed, directory=directory, report=report, thorough=thorough)
    _require_free_places(directory)
    if not config.train:
        raise PrepareError("data.train names no corpus: set data.train.NAME.src and .tgt")
    scripts = _scripts(config)
    aside = directory / "data.partial"
    meter = Meter(report, bar=bar)
    try:
        progress, vocabularies = _begin(config, seed, directory, aside, meter)
        encoder = Encoder(
            vocabularies.src,
            vocabularies.tgt,
            config.filter,
            scripts,
            tgt_words=config.vocabulary.tgt_types == "words",
        )
        with (
            Workers(encoder, workers) as processes,
            Filling(aside, config, vocabularies, progress, processes, meter) as filling,
        ):
            digest = filling.fill()
        weighted = {key for _, key, corpus in named_corpora(config) if corpus.weight}
        accounts.require_pairs(progress.accounts, weighted)
        inputs.require_unchanged(progress.inputs)
        _finish(aside, progress, digest)
        if not progress.vocabulary["found"] and not _has_vocabulary(directory):
            vocabularies.save(directory / "vocabulary")
        os.replace(aside, data)
    except BaseException as error:
        # With progress, the next call goes on from it; if what it was asked for or the files have
        # changed by then, it notices and begins anew.
        if not (aside / PROGRESS).exists():
            shutil.rmtree(aside, ignore_errors=True)
        # What cannot be read is a CorpusError; the writer of a full disk's file does not name it.
        if isinstance(error, OSError):
            raise PrepareError(
                f"{error.filename or aside}: cannot be written: {error.strerror or error}; the "
                "same command goes on with what is there"
            ) from error
        raise
    _remove_leftovers(data)
    return Store.open(data, vocabulary_digest=vocabularies.digest)


def valid_text(directory: Path) -> tuple[list[str], list[str]]:
    """The validation sentences in a store's folder, here or in a bucket: sources and references.

    Every sound pair is there, also one too long to be among the store's tokens.

    Raises:
      StoreError: they are not the text that the manifest records.
      PrepareError, CorpusError: the manifest or the text cannot be read.
    """
    with reaching(directory):
        contents = [(directory / name).read_bytes() for name in VALID_TEXT]
    found = _text_digests(contents)
    try:
        # Early manifests record none.
        if read_manifest(directory).get("valid_text", found) == found:
            src, tgt = (content.decode("utf-8").split("\n")[:-1] for content in contents)
            return src, tgt
    except UnicodeDecodeError:
        pass
    raise StoreError(
        f"{directory}: {' or '.join(VALID_TEXT)} is not the text that {MANIFEST} was written with: "
        "put that back, or delete the folder and run `prepare` again"
    )


def _text_digests(contents: Iterable[bytes]) -> dict[str, str]:
    digests = (hashlib.sha256(content).hexdigest() for content in contents)
    return dict(zip(VALID_TEXT, digests, strict=True))


def _require_free_places(directory: Path) -> None:
    """Raises PrepareError if what would be made could not be put into its place at the end."""
    wanted = {"data": MANIFEST, "data.partial": None, "vocabulary": vocabulary.INDEX}
    for name, index in wanted.items():
        place = directory / name
        if place.exists() and not place.is_dir():
            raise PrepareError(f"{place}: is a file where a folder is to be; move it away")
        if place.exists() and index and not (place / index).exists() and any(place.iterdir()):
            raise PrepareError(
                f"{place}: holds files but no {index}: it was not made by `prepare`, or lost a "
                "part; move it away, or restore it from a copy"
            )


def _begin(
    config: DataConfig, seed: int, directory: Path, aside: Path, meter: Meter
) -> tuple[Progress, Vocabularies]:
    """What an earlier call has left, if it was a call for the same; otherwise a new start."""
    earlier = Progress.read(aside)
    if earlier is None:
        # Before any training text is read or made: that takes hours, and this a moment.
        require_validation(config)
    settings = settings_of(config, seed)
    known = earlier.inputs if earlier else []
    read_from = inputs.describe_all(named_corpora(config), config.folder, known=known, make=True)
    if earlier is not None:
        changes = changed_settings(earlier.settings, settings)
        changes += inputs.changed_contents(earlier.inputs, read_from)
        vocabularies = _vocabulary_of(earlier, directory, aside)
        if vocabularies is None:
            changes.append("the vocabulary is not the one it was begun with")
        elif not changes:
            earlier.inputs = read_from
            meter.say(f"prepare: going on with what an earlier call left in {aside}")
            return earlier, vocabularies
        meter.say(
            f"prepare: what an earlier call left in {aside} is of other data or settings and is "
            f"started anew: {'; '.join(changes)}"
        )
        require_validation(config)
    for line in inputs.repeated(read_from):
        meter.say(f"prepare: {line}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    records: list[int] = []
    if found := _has_vocabulary(directory):
        vocabularies, sample = Vocabularies.load(directory / "vocabulary"), 0
        meter.say(
            f"prepare: using the vocabulary in {directory / 'vocabulary'}, "
            f"{sizes(vocabularies)}; of data.vocabulary.* only .sampling has an effect"
        )
    else:
        vocabularies, sample, records = train_vocabulary(config, seed, meter)
        vocabularies.save(aside / VOCABULARY)
    description = {
        "digest": vocabularies.digest,
        "shared": vocabularies.shared,
        "sizes": {"src": vocabularies.src.size, "tgt": vocabularies.tgt.size},
        "found": found,
        "sample": sample,
    }
    progress = Progress(settings, read_from, description, records)
    progress.write(aside)
    return progress, vocabularies


def _vocabulary_of(progress: Progress, directory: Path, aside: Path) -> Vocabularies | None:
    """The vocabulary with which the earlier call began, if it is still the one to use."""
    folders = [] if progress.vocabulary["found"] else [aside / VOCABULARY]
    if _has_vocabulary(directory):
        # It may be the earlier call's, which ended between the last two steps.
        folders.append(directory / "vocabulary")
    try:
        loaded = [Vocabularies.load(folder) for folder in folders]
    except VocabularyError:
        return None
    same = all(found.digest == progress.vocabulary["digest"] for found in loaded)
    return loaded[0] if loaded and same else None


def _finish(aside: Path, progress: Progress, digest: str) -> None:
    """Writes the manifest and the picture."""
    store = Store.open(aside)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "settings": progress.settings,
        "inputs": progress.inputs,
        "corpora": progress.accounts,
        "vocabulary": progress.vocabulary,
        "lengths": {"train": lengths_of(store.train), "valid": lengths_of(store.valid)},
        "store": digest,
        "valid_text": _text_digests((aside / name).read_bytes() for name in VALID_TEXT),
    }
    (aside / PICTURE).write_text(picture(manifest), "utf-8")
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (aside / MANIFEST).write_text(text, "utf-8")


def _has_vocabulary(directory: Path) -> bool:
    return (directory / "vocabulary" / vocabulary.INDEX).exists()


def _remove_leftovers(data: Path) -> None:
    """What only an unfinished store needs: the last thing, so that any moment is safe."""
    for name in LEFTOVERS:
        (data / name).unlink(missing_ok=True)
    shutil.rmtree(data / VOCABULARY, ignore_errors=True)


def _scripts(config: DataConfig) -> tuple[str, str]:
    if config.filter.script == 0:
        return "", ""
    found = []
    for side, language in (("src", config.src_lang), ("tgt", config.tgt_lang)):
        script = script_of(language)
        if script is None:
            raise PrepareError(
                f"data.{side}_lang = {language!r}: its script is not known, and "
                f"data.filter.script needs it: add it to the code, such as {language + '-Latn'!r}, "
                f"or set data.filter.script to 0"
            )
        found.append(script)
    return found[0], found[1]
