"""`prepare`: from raw corpora to the vocabulary and the token store of a run directory, once.

Everything is written aside and renamed into place at the end: a directory holds a complete store or
none. A call that was killed begins again, except that a cluster's finished parts are used. The
manifest in the store's folder records what it was made from; a later call with other settings or
changed files is an error that names the difference, never a silent reuse.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus.paths import reaching
from flaxformer_mt.data.extended_vocabulary import new_types, with_tags_of
from flaxformer_mt.data.given_vocabulary import given_vocabularies
from flaxformer_mt.data.prepare import first_look, manifest as manifests
from flaxformer_mt.data.prepare.encode import EncodingSettings
from flaxformer_mt.data.prepare.encode_corpora import Account, encode_corpora, require_pairs
from flaxformer_mt.data.prepare.evaluation_text import EvaluationText
from flaxformer_mt.data.prepare.filters import script_of, share_in_script
from flaxformer_mt.data.prepare.finished_parts import FinishedParts
from flaxformer_mt.data.prepare.manifest import (
    FORMAT,
    MANIFEST,
    VALID_TEXT,
    PrepareError,
    Say,
    named_corpora,
    read_manifest,
    verify_store,
)
from flaxformer_mt.data.prepare.report import PICTURE, lengths_of, picture
from flaxformer_mt.data.prepare.sample import check_inputs, sizes, train_vocabulary
from flaxformer_mt.data.prepare.spread import Cluster, Spread, spread_over
from flaxformer_mt.data.store import Store, StoreError
from flaxformer_mt.data.training_text import sentence_counts
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
    say: Say = lambda line: None,
    bar: bool = False,
    workers: int | None = None,
    cluster: Cluster | None = None,
    parts: Path | None = None,
    thorough: bool = False,
) -> Store:
    """The token store of a run directory, made on the first call and verified on later ones.

    Writes `vocabulary/` (unless it exists, as in fine-tuning) and `data/`: the store, the manifest,
    a picture of the lengths, and the validation sentences as text. `say` gets lines of progress;
    with `bar` one line on standard error is renewed instead.

    `workers` is the number of processes that encode (0: only this one), by default one for each
    processor if the corpus is large; a `cluster`, if there is one, encodes instead. The result
    doesn't depend on either. Files that a killed call left are removed, except a cluster's finished
    work in the folder `parts`, here or in a bucket, which the caller removes once the store is
    safe. `thorough` reads every byte of an existing store.

    Raises:
      PrepareError: nothing is left to train or validate on, a filter does not know a language, a
        worker process died, something cannot be written, or the directory was prepared with other
        settings or from files that have changed, or a filter's package is missing; the message
        names them.
      CorpusError, VocabularyError, StoreError, ClusterError: see there.
    """
    directory = Path(directory)
    store_folder = directory / "data"
    if (store_folder / MANIFEST).exists():
        _put_vocabulary(directory)
        return verify_store(config, seed=seed, directory=directory, say=say, thorough=thorough)

    _require_places(directory)
    _require_packages(config)
    _require_languages(config)
    aside = directory / ASIDE
    if aside.exists():
        over = "" if cluster and parts else "starting over; "
        say(f"prepare: {over}removing {aside}, left by an interrupted call")
    try:
        with replacing(store_folder, aside=aside), spread_over(cluster, config) as spread:
            _Preparation(config, seed, directory, workers, spread, parts, say, bar).make()
        _put_vocabulary(directory)
    except OSError as error:
        # A file that can't be read is a CorpusError; one on a full disk has no name here.
        raise PrepareError(
            f"{error.filename or aside}: cannot be written: {error.strerror or error}"
        ) from error
    vocabularies = Vocabularies.load(directory / "vocabulary")
    return Store.open(store_folder, vocabulary_digest=vocabularies.digest)


def _require_places(directory: Path) -> None:
    """Raises PrepareError unless all folders of the result can be renamed into place at the end."""
    indices = {"data": MANIFEST, ASIDE: None, "vocabulary": vocabulary.INDEX}
    for name, index in indices.items():
        place = directory / name
        has_index = index and (place / index).exists()
        if place.is_symlink() and not has_index:
            raise PrepareError(f"{place}: is a link, but must be a folder; remove the link")
        if place.exists() and not place.is_dir():
            raise PrepareError(f"{place}: is a file, but must be a folder; move it away")
        if place.exists() and index and not has_index and any(place.iterdir()):
            raise PrepareError(f"{place}: holds files but no {index}: move it away, or restore it")


def valid_text(directory: Path) -> tuple[list[str], list[str]]:
    """The validation sentences in a store's folder, here or in a bucket: sources and references.

    All sound pairs. Raises StoreError for other text than prepared; PrepareError, CorpusError.
    """
    with reaching(directory):
        contents = [(directory / name).read_bytes() for name in VALID_TEXT]
    digests = _text_digests(contents)
    try:
        # Early manifests record none.
        if read_manifest(directory).get("valid_text", digests) == digests:
            src, tgt = (content.decode("utf-8").split("\n")[:-1] for content in contents)
            return src, tgt
    except UnicodeDecodeError:
        pass
    names = " or ".join(VALID_TEXT)
    raise StoreError(
        f"{directory}: {names} does not match {MANIFEST}: "
        "restore it, or delete the folder and run `prepare` again"
    )


def _require_packages(config: DataConfig) -> None:
    """Raises PrepareError if a filter's package is missing."""
    needed = {
        "near_duplicates": (config.filter.near_duplicates, "rensa", "dedup"),
        "language": (config.filter.language, "py3langid", "langid"),
    }
    for name, (is_set, package, extra) in needed.items():
        if is_set and importlib.util.find_spec(package) is None:
            raise PrepareError(f"data.filter.{name}: {package} is not installed: {install(extra)}")


class _Learned(NamedTuple):
    """The vocabularies of a store, and counts from learning them."""

    vocabularies: Vocabularies
    sample: int = 0  # pairs that they were learned from
    records: Sequence[int] = ()  # of each corpus, if all were counted


@dataclasses.dataclass(frozen=True)
class _Preparation:
    """One store to make, by the arguments of `prepare`, and how to make it."""

    config: DataConfig
    seed: int
    directory: Path
    workers: int | None
    spread: Spread | None
    parts_folder: Path | None
    say: Say
    bar: bool

    @property
    def _aside(self) -> Path:
        return self.directory / ASIDE

    @property
    def _vocabulary_folder(self) -> Path:
        return self.directory / "vocabulary"

    def make(self) -> None:
        """Writes everything aside. Raises as `prepare` does."""
        config, say = self.config, self.say
        # Before any training text is read or made: that takes hours, and this a moment.
        check_inputs(config)
        for note in first_look.notes(config):
            say(f"prepare: warning: {note}")
        inputs = self._described_inputs()
        evaluation = EvaluationText.of(config, say)
        self._aside.mkdir(parents=True)

        finished = self._finished(inputs, evaluation)
        was_there = (self._vocabulary_folder / vocabulary.INDEX).exists()
        learned = self._loaded() if was_there else self._given()
        if learned is None:
            learned = self._learned(inputs, evaluation, finished)
        vocabularies = learned.vocabularies

        digest, accounts = encode_corpora(
            self._aside,
            EncodingSettings(vocabularies, config, evaluation),
            self.workers,
            records=learned.records,
            spread=self.spread,
            say=say,
            bar=self.bar,
        )
        if finished and finished.used:
            say(
                f"prepare: {len(finished.used):,} finished parts of an interrupted call were in "
                f"{self.parts_folder}"
            )
        texts = [(self._aside / name).read_bytes().decode() for name in VALID_TEXT]
        sides = [text.split("\n")[:-1] for text in texts]
        for note in _in_other_scripts(config, _by_set(sides[0], sides[1], accounts)):
            say(f"prepare: warning: {note}")
        require_pairs(accounts, {key for _, key, corpus in named_corpora(config) if corpus.weight})
        manifests.require_unchanged(inputs)

        description = {
            "digest": vocabularies.digest,
            "shared": vocabularies.shared,
            "sizes": {"src": vocabularies.src.size, "tgt": vocabularies.tgt.size},
            "found": was_there,
            "sample": learned.sample,
        }
        self._write_manifest(inputs, accounts, vocabularies, description, digest)

    def _described_inputs(self) -> list[dict[str, Any]]:
        digests = self.spread.described() if self.spread else ()
        inputs = manifests.describe_inputs(
            named_corpora(self.config), self.config.folder, known=digests, download=True
        )
        for note in manifests.repeated(inputs):
            self.say(f"prepare: warning: {note}")
        return inputs

    def _finished(
        self, inputs: manifests.Files, evaluation: EvaluationText
    ) -> FinishedParts | None:
        """A cluster's finished work, if a folder for it is named."""
        if not self.spread or not self.parts_folder:
            return None
        files = [[file["key"], file["path"], file["sha256"]] for file in inputs]
        settings = manifests.settings_of(self.config, self.seed)
        made_from = [settings, files, evaluation.digest]
        return self.spread.keep(self.parts_folder, made_from)

    def _loaded(self) -> _Learned:
        """The vocabularies in the run directory."""
        vocabularies = Vocabularies.load(self._vocabulary_folder)
        self.say(
            f"prepare: using the vocabulary in {self._vocabulary_folder}, {sizes(vocabularies)}; "
            "data.vocabulary.* has no effect, except .sampling and .symbols"
        )
        manifests.require_given(self.config, vocabularies, self.directory, self.say)
        self._warn_of_split(vocabularies)
        return _Learned(vocabularies)

    def _warn_of_split(self, vocabularies: Vocabularies) -> None:
        """Warns of tags and symbols that are no single types: tags of the source, symbols of
        either side."""
        src, tgt = vocabularies.src, vocabularies.tgt
        split = [
            f"{key}.tag = {tag}"
            for _, key, corpus in named_corpora(self.config)
            for tag in corpus.tags
            if not src.is_one_type(tag)
        ]
        split += [
            f"data.vocabulary.symbols: {symbol}"
            for symbol in self.config.vocabulary.symbols
            if not (src.is_one_type(symbol) and tgt.is_one_type(symbol))
        ]
        for name in split:
            self.say(f"prepare: warning: {name} is not in that vocabulary; it is split")

    def _given(self) -> _Learned | None:
        """The vocabularies of models that the settings name, if any, saved aside."""
        given = given_vocabularies(self.config.vocabulary, self.config.folder)
        if given is None:
            return None
        self.say(
            f"prepare: using the SentencePiece models given, {sizes(given)}; other settings of "
            "data.vocabulary have no effect, except .sampling and .symbols"
        )
        vocabularies = with_tags_of(given, self.config)
        if added := new_types(given, vocabularies):
            self.say(f"prepare: with tags as types after all others: {', '.join(added)}")
        self._warn_of_split(vocabularies)
        vocabularies.save(self._aside / "vocabulary")
        return _Learned(vocabularies)

    def _learned(
        self,
        inputs: manifests.Files,
        evaluation: EvaluationText,
        finished: FinishedParts | None,
    ) -> _Learned:
        """New vocabularies, which are saved aside."""

        def train() -> tuple[Vocabularies, int, list[int]]:
            trained = train_vocabulary(
                self.config,
                self.seed,
                self.say,
                evaluation=evaluation,
                spread=self.spread,
                bar=self.bar,
            )
            # A part is named by the inputs' digests: it must be made of that text.
            manifests.require_unchanged(inputs)
            return trained

        learned = _Learned(*(finished.vocabulary(train) if finished else train()))
        learned.vocabularies.save(self._aside / "vocabulary")
        return learned

    def _source_languages(self) -> dict[str, str]:
        """The source language of each training corpus, by its name."""
        config = self.config
        return {corpus.name: config.of_corpus(corpus).src_lang for corpus in config.train}

    def _write_manifest(
        self,
        inputs: manifests.Files,
        accounts: Sequence[Account],
        vocabularies: Vocabularies,
        vocabulary_description: dict[str, Any],
        digest: str,
    ) -> None:
        """The manifest and the picture of the store aside, which has this digest."""
        store = Store.open(self._aside)
        manifest = {
            "format": FORMAT,
            "settings": manifests.settings_of(self.config, self.seed),
            "inputs": inputs,
            "corpora": [account.to_json() for account in accounts],
            "vocabulary": vocabulary_description,
            "lengths": {"train": lengths_of(store.train), "valid": lengths_of(store.valid)},
            "sentences": sentence_counts(store.train, vocabularies.src, self._source_languages()),
            "store": digest,
            "valid_text": _text_digests((self._aside / name).read_bytes() for name in VALID_TEXT),
        }
        (self._aside / PICTURE).write_text(picture(manifest), "utf-8")
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        (self._aside / MANIFEST).write_text(text, "utf-8")


Text = tuple[list[str], list[str]]  # sources and references, line by line


def valid_sets(directory: Path) -> dict[str, Text]:
    """The sentences of `valid_text` by validation set: one, "valid", or those of data.valid_sets.
    Raises as `valid_text`."""
    sources, references = valid_text(directory)
    accounts = [
        Account(corpus["key"], corpus["split"], text=corpus["text"])
        for corpus in read_manifest(directory)["corpora"]
        if "text" in corpus
    ]
    if not accounts:  # the store of an earlier version, which had one set
        return {"valid": (sources, references)}
    return _by_set(sources, references, accounts)


def _by_set(
    sources: list[str], references: list[str], accounts: Iterable[Account]
) -> dict[str, Text]:
    """Lines of several sets, one after the other, by set."""
    by_set = dict[str, Text]()
    first = 0
    for account in accounts:
        if account.split == "valid":
            lines = slice(first, first + account.text)
            # Text that is held out of several corpora is one set.
            of_set = by_set.setdefault(account.key.rpartition(".")[2], ([], []))
            for side, of_side in zip((sources, references), of_set, strict=True):
                of_side += side[lines]
            first = lines.stop
    return by_set


def _text_digests(contents: Iterable[bytes]) -> dict[str, str]:
    digests = (hashlib.sha256(content).hexdigest() for content in contents)
    return dict(zip(VALID_TEXT, digests, strict=True))


def _put_vocabulary(directory: Path) -> None:
    """Moves a new vocabulary out of the store's folder. A killed call leaves this to the next."""
    new, place = directory / "data" / "vocabulary", directory / "vocabulary"
    if new.exists() and not (place / vocabulary.INDEX).exists():
        try:
            os.replace(new, place)
        except OSError as error:
            raise PrepareError(f"{place}: cannot be written: {error.strerror}") from error


def _in_other_scripts(config: DataConfig, sets: Mapping[str, Text]) -> Iterator[str]:
    """Warnings of sides of validation text that aren't in the script of their language."""
    for key, corpus in config.validation.items():
        of_corpus = config.of_corpus(corpus)
        languages = {"src": of_corpus.src_lang, "tgt": of_corpus.tgt_lang}
        text = sets[key.rpartition(".")[2]]
        for (side, language), lines in zip(languages.items(), text, strict=True):
            script = script_of(language)
            if script is None:
                continue
            letters, share = share_in_script("\n".join(lines[:_LOOKED_AT]), script)
            if letters >= _FEW_LETTERS and share < _TOO_SMALL_SHARE:
                setting = f"{key}.{side}_lang" if config.valid_sets else f"data.{side}_lang"
                yield (
                    f"{setting} is '{language}', but only {share:.0%} of the letters in that "
                    f"side of {key} are in its script, {script}: set the language, which decides "
                    f"how BLEU is tokenised and where sentences end, or swap the files"
                )


def _require_languages(config: DataConfig) -> None:
    """Raises PrepareError if a filter looks at the language of a training corpus that it doesn't
    know, or at its script, which isn't known."""
    if config.filter.language:
        from flaxformer_mt.data.prepare.language_id import knows

    for key, language in _languages_of_training_text(config):
        if config.filter.script and script_of(language) is None:
            raise PrepareError(
                f"{key} = {language!r}: its script is unknown: write the code as "
                f"{language + '-Latn'!r}, or set data.filter.script to 0"
            )
        if config.filter.language and not knows(language):
            raise PrepareError(
                f"{key} = {language!r}: py3langid doesn't know this language: set "
                "data.filter.language to 0"
            )


def _languages_of_training_text(config: DataConfig) -> Iterator[tuple[str, str]]:
    """Each side's language of each training corpus, by the key of the setting that has it."""
    for corpus in config.train:
        of_corpus = config.of_corpus(corpus)
        for side, language in (("src", of_corpus.src_lang), ("tgt", of_corpus.tgt_lang)):
            is_own = getattr(corpus, f"{side}_lang")
            group = f"data.train.{corpus.name}" if is_own else "data"
            yield f"{group}.{side}_lang", language
