"""A store that is there already: used if it is what this call would make, refused otherwise."""

from __future__ import annotations

from pathlib import Path

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.prepare import inputs
from flaxformer_mt.data.prepare.manifest import (
    MANIFEST,
    PrepareError,
    changed_settings,
    named_corpora,
    read_manifest,
    settings_of,
)
from flaxformer_mt.data.prepare.meter import Report
from flaxformer_mt.data.store import INDEX, Store
from flaxformer_mt.data.vocabulary import Vocabularies


def reuse(
    config: DataConfig, *, seed: int, directory: Path, report: Report, thorough: bool
) -> Store:
    """The store in a run directory, verified: every byte if `thorough` (see `Store.open`).

    Raises:
      PrepareError: it was prepared with other settings, another vocabulary or from files that
        have changed since; the message names them.
      VocabularyError, StoreError: see there.
    """
    data = directory / "data"
    manifest = read_manifest(data)
    changes = changed_settings(manifest["settings"], settings_of(config, seed))
    if not changes:
        changes, gone = inputs.compare(manifest["inputs"], named_corpora(config), config.folder)
        for line in gone:
            report(f"prepare: {line} (the store made from it is used)")
    if changes:
        raise PrepareError(
            f"{data} was prepared from other data or settings: {'; '.join(changes)}. "
            f"Put them back, or use a new directory"
        )
    vocabularies = Vocabularies.load(directory / "vocabulary")
    if vocabularies.digest != manifest["vocabulary"]["digest"]:
        raise PrepareError(
            f"{directory / 'vocabulary'}: is not the vocabulary with which {data} was prepared; "
            f"put that back, or use a new directory"
        )
    store = Store.open(data, vocabulary_digest=vocabularies.digest, thorough=thorough)
    if store.digest != manifest["store"]:
        raise PrepareError(
            f"{data / INDEX}: is not the store that {MANIFEST} records; delete {data.resolve()} "
            f"and run `prepare` again"
        )
    report(f"prepare: {len(store.train):,} training pairs in {data} are up to date")
    return store
