"""`prepare`: from raw corpora to the vocabulary and the token store of a run directory, once.

Everything is written aside and renamed into place at the end: a directory holds a complete store or
none. A call that was killed begins again, except that a cluster's finished parts are used. The
manifest in the store's folder records what it was made from; a later call with other settings or
changed files is an error that names the difference, never a silent reuse.
"""

import hashlib
import importlib.util
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus.paths import reaching
from flaxformer_mt.data.prepare import manifest as manifests
from flaxformer_mt.data.prepare.encode import EncodingSettings
from flaxformer_mt.data.prepare.encode_corpora import encode_corpora, require_pairs
from flaxformer_mt.data.prepare.filters import script_of, share_in_script
from flaxformer_mt.data.prepare.manifest import (
    FORMAT,
    MANIFEST,
    VALID_TEXT,
    PrepareError,
    Report,
    named_corpora,
    read_manifest,
    verify_store,
)
from flaxformer_mt.data.prepare.report import PICTURE, lengths_of, picture
from flaxformer_mt.data.prepare.sample import check_inputs, sizes, train_vocabulary
from flaxformer_mt.data.prepare.spread import Cluster, Spread, spread_over
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.errors import install
from flaxformer_mt.files.atomic import replacing

ASIDE = "data.partial"
_LOOKED_AT = 1000  # validation lines whose script is compared with the language's
_FEW_LETTERS = 200  # tell nothing
_TOO_SMALL_SHARE = 0.1  # of letters in the language's script: text with many foreign names has more


def prepare(
    config: DataConfig,
    *,
    seed: int,
    directory: str | Path,
    report: Report = lambda line: None,
    bar: bool = False,
    workers: int | None = None,
    cluster: Cluster | None = None,
    parts: Path | None = None,
    thorough: bool = False,
) -> Store:
    """The token store of a run directory, made on the first call and verified on later ones.

    Writes `vocabulary/` (unless it is there, as in fine-tuning) and `data/`: the store, the
    manifest, a picture of the lengths, and the validation sentences as text. `report` gets one line
    of progress at a time; with `bar` there is one that is renewed on standard error instead.
    `workers` is the number of processes that encode (0: this one alone), by default one for each
    processor where the corpus is worth it; a `cluster` does their work if it is given. The result
    does not depend on either. What a killed call left is removed, except a cluster's finished work
    in the folder `parts`, here or in a bucket, which the caller removes once the store is safe. Of
    a store that is there every byte is read if `thorough`.

    Raises:
      PrepareError: nothing is left to train or validate on, a filter does not know a language, a
        worker process died, something cannot be written, or the directory was prepared with other
        settings or from files that have changed, or a filter's package is missing; the message
        names them.
      CorpusError, VocabularyError, StoreError, ClusterError: see there.
    """
    directory = Path(directory)
    data = directory / "data"
    if (data / MANIFEST).exists():
        _put_vocabulary(directory)
        return verify_store(
            config, seed=seed, directory=directory, report=report, thorough=thorough
        )
    # What is made must find its place at the end.
    wanted = {"data": MANIFEST, ASIDE: None, "vocabulary": vocabulary.INDEX}
    for name, index in wanted.items():
        place = directory / name
        has_index = index and (place / index).exists()
        if place.is_symlink() and not has_index:
            raise PrepareError(f"{place}: is a link, but must be a folder; remove the link")
        if place.exists() and not place.is_dir():
            raise PrepareError(f"{place}: is a file, but must be a folder; move it away")
        if place.exists() and index and not has_index and any(place.iterdir()):
            raise PrepareError(f"{place}: holds files but no {index}: move it away, or restore it")
    scripts = _scripts(config)
    if config.filter.near_duplicates and importlib.util.find_spec("rensa") is None:
        what = "data.filter.near_duplicates: rensa is not installed"
        raise PrepareError(f"{what}: {install('dedup')}")
    aside = directory / ASIDE
    if aside.exists():
        over = "" if cluster and parts else "starting over; "
        report(f"prepare: {over}removing {aside}, left by an interrupted call")
    try:
        with replacing(data, aside=aside), spread_over(cluster, config) as spread:
            _make(config, seed, directory, scripts, workers, spread, parts, report=report, bar=bar)
        _put_vocabulary(directory)
    except OSError as error:
        # What cannot be read is a CorpusError; the writer of a full disk's file does not name it.
        raise PrepareError(
            f"{error.filename or aside}: cannot be written: {error.strerror or error}"
        ) from error
    return Store.open(data, vocabulary_digest=Vocabularies.load(directory / "vocabulary").digest)


def valid_text(directory: Path) -> tuple[list[str], list[str]]:
    """The validation sentences in a store's folder, here or in a bucket: sources and references.

    All sound pairs. Raises StoreError for other text than prepared; PrepareError, CorpusError.
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
    names, advice = " or ".join(VALID_TEXT), "delete the folder and run `prepare` again"
    raise StoreError(f"{directory}: {names} does not match {MANIFEST}: restore it, or {advice}")


def _make(
    config: DataConfig,
    seed: int,
    directory: Path,
    scripts: tuple[str, str],
    workers: int | None,
    spread: Spread | None,
    parts: Path | None,
    *,
    report: Report,
    bar: bool,
) -> None:
    aside, place = directory / ASIDE, directory / "vocabulary"
    # Before any training text is read or made: that takes hours, and this a moment.
    check_inputs(config)
    digests = spread.described() if spread else ()
    inputs = manifests.describe_inputs(
        named_corpora(config), config.folder, known=digests, fetch=True
    )
    for line in manifests.repeated(inputs):
        report(f"prepare: {line}")
    aside.mkdir(parents=True)
    kept = None
    if spread and parts:
        files = [[file["key"], file["path"], file["sha256"]] for file in inputs]
        kept = spread.keep(parts, [manifests.settings_of(config, seed), files])
    sample, records = 0, list[int]()
    if found := (place / vocabulary.INDEX).exists():
        vocabularies = Vocabularies.load(place)
        unused = "data.vocabulary.* has no effect, except .sampling"
        report(f"prepare: using the vocabulary in {place}, {sizes(vocabularies)}; {unused}")
        known = set(vocabularies.src.pieces())
        for _, key, corpus in named_corpora(config):
            if corpus.tag and corpus.tag not in known:
                report(f"prepare: {key}.tag = {corpus.tag} is not in that vocabulary; it is split")
    else:
        # What is kept must be of the text that names it.
        def train() -> tuple[Vocabularies, int, list[int]]:
            trained = train_vocabulary(
                config, seed, report, scripts=scripts, spread=spread, bar=bar
            )
            manifests.require_unchanged(inputs)
            return trained

        vocabularies, sample, records = kept.vocabulary(train) if kept else train()
        vocabularies.save(aside / "vocabulary")
    settings = EncodingSettings(vocabularies, config, scripts)
    digest, accounts = encode_corpora(
        aside, settings, workers, records=records, spread=spread, report=report, bar=bar
    )
    if kept and kept.used:
        report(f"prepare: {len(kept.used):,} finished parts of an interrupted call were in {parts}")
    for line in _in_other_scripts(config, [aside / name for name in VALID_TEXT]):
        report(f"prepare: {line}")
    require_pairs(accounts, {key for _, key, corpus in named_corpora(config) if corpus.weight})
    manifests.require_unchanged(inputs)
    store = Store.open(aside)
    manifest = {
        "format": FORMAT,
        "settings": manifests.settings_of(config, seed),
        "inputs": inputs,
        "corpora": [account.to_json() for account in accounts],
        "vocabulary": {
            "digest": vocabularies.digest,
            "shared": vocabularies.shared,
            "sizes": {"src": vocabularies.src.size, "tgt": vocabularies.tgt.size},
            "found": found,
            "sample": sample,
        },
        "lengths": {"train": lengths_of(store.train), "valid": lengths_of(store.valid)},
        "store": digest,
        "valid_text": _text_digests((aside / name).read_bytes() for name in VALID_TEXT),
    }
    (aside / PICTURE).write_text(picture(manifest), "utf-8")
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (aside / MANIFEST).write_text(text, "utf-8")


def _text_digests(contents: Iterable[bytes]) -> dict[str, str]:
    digests = (hashlib.sha256(content).hexdigest() for content in contents)
    return dict(zip(VALID_TEXT, digests, strict=True))


def _put_vocabulary(directory: Path) -> None:
    """Moves a new vocabulary out of the store's folder. A killed call leaves this to the next."""
    made, place = directory / "data" / "vocabulary", directory / "vocabulary"
    if made.exists() and not (place / vocabulary.INDEX).exists():
        try:
            os.replace(made, place)
        except OSError as error:
            raise PrepareError(f"{place}: cannot be written: {error.strerror}") from error


def _in_other_scripts(config: DataConfig, files: Sequence[Path]) -> Iterator[str]:
    """What is wrong with a language, or the order of the files, if a side has another script."""
    languages = (config.src_lang, config.tgt_lang)
    for side, language, file in zip(("src", "tgt"), languages, files, strict=True):
        script = script_of(language)
        if script is None:
            continue
        with file.open(encoding="utf-8", newline="\n") as lines:
            beginning = "".join(itertools.islice(lines, _LOOKED_AT))
        letters, share = share_in_script(beginning, script)
        if letters >= _FEW_LETTERS and share < _TOO_SMALL_SHARE:
            yield (
                f"data.{side}_lang is '{language}', but only {share:.0%} of the letters in that "
                f"side of data.valid are in its script, {script}: set the language, which decides "
                f"how BLEU is tokenised and where sentences end, or swap the files"
            )


def _scripts(config: DataConfig) -> tuple[str, str]:
    if config.filter.script == 0:
        return "", ""
    src, tgt = script_of(config.src_lang), script_of(config.tgt_lang)
    if src and tgt:
        return src, tgt
    side, language = ("tgt", config.tgt_lang) if src else ("src", config.src_lang)
    advice = f"write the code as {language + '-Latn'!r}, or set data.filter.script to 0"
    raise PrepareError(f"data.{side}_lang = {language!r}: its script is unknown: {advice}")
