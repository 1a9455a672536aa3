"""From text to text with a run directory's model."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import logging
import os
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Unpack, overload

from jax.sharding import Mesh

from flaxformer_mt.config import DecodingConfig, freeze
from flaxformer_mt.config.languages import has_blanks_between_sentences, languages_of_tag
from flaxformer_mt.config.schema import Direction
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.shortlist import Shortlist, ShortlistError, learn
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.data.vocabulary import UNK, Vocabularies
from flaxformer_mt.decoding import arguments
from flaxformer_mt.decoding.alignment import (
    Alignment,
    AttendedWord,
    WordPlaces,
    align_parts,
    attended_words,
    letters_of,
    words_of,
)
from flaxformer_mt.decoding.errors import DecodingError, LineError, TargetError
from flaxformer_mt.decoding.keeping import Keeping, unmarked
from flaxformer_mt.decoding.length_choice import with_choice, with_settings
from flaxformer_mt.decoding.masks.base import Mask
from flaxformer_mt.decoding.masks.copies import CopiedSymbols, copied_types
from flaxformer_mt.decoding.masks.trees import brackets_of
from flaxformer_mt.decoding.options import (
    PLAIN_LINE,
    LineOptions,
    SearchOptions,
    Several,
    Wanted,
    options_of,
)
from flaxformer_mt.decoding.preparing import SourcePreparer
from flaxformer_mt.decoding.run.arrays import ConstraintSizes
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.run.programs import Models, Params, suited
from flaxformer_mt.decoding.runtimes import OtherRuntime, Searcher
from flaxformer_mt.decoding.teacher_forcing import Attention, Scored, TeacherForcing
from flaxformer_mt.decoding.text.kept import marked_vocabularies, units
from flaxformer_mt.decoding.text.segments import Overlong, Part, Target, cut_pairs, encode, lead_of
from flaxformer_mt.decoding.text.translation import Hypothesis, Joiner, Translation
from flaxformer_mt.files.reading import read_file
from flaxformer_mt.model.embedding import softmax_table, table_rows
from flaxformer_mt.model.parameters import count, count_by_formula
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import local_mesh, whole_on
from flaxformer_mt.parsing.linearization import escaped
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.cache import INDEX_FILES, local_copy
from flaxformer_mt.rundir.checkpoint_choice import Chosen, Which
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.paths import as_path, document, exists, explained, write_bytes
from flaxformer_mt.rundir.weights import load_chosen
from flaxformer_mt.wording import listed

_LOGGER = logging.getLogger(__name__)
Member = tuple[Any, Transformer]  # a tree under "params" and its model
_SHOWN = 10  # of the lines that a warning is about
_FEWEST_ALIGNED = 8  # translations that are aligned together
_DECODERS = 8  # searches that a translator keeps, by what they depend on
_first_process: int | None = None  # which made the first Translator


@dataclasses.dataclass(frozen=True, eq=False)
class _Ensemble:
    """The models that decide together, which copies with other settings share."""

    members: tuple[Member, ...]
    mesh: Mesh

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for the same parameters, while these exist, in equal models."""
        return tuple((id(params), model) for params, model in self.members)

    @functools.cached_property
    def suited(self) -> tuple[Params, Models]:
        """As these devices search with them; for a TPU it has copies of the tables."""
        params, models = zip(*self.members, strict=True)
        return suited(params, models, self.mesh.devices.flat[0].platform)


class _KeptDecoder(NamedTuple):
    """A search, and the objects by whose ids it is kept: as long as it is there, no others have
    them."""

    decoder: Searcher
    members: tuple[Member, ...]
    shortlist: Shortlist | None
    runtime: OtherRuntime | None


class Translator:
    """A model with its vocabularies and decoding settings: raw text in, raw text out."""

    def __init__(
        self,
        params: Mapping[str, Any],
        model: Transformer,
        vocabularies: Vocabularies,
        config: DecodingConfig,
        *,
        name: str = "",
        src_lang: str = "",
        tgt_lang: str = "",
        tags: Iterable[str] = (),
        directions: Sequence[Direction] = (),
        symbols: Iterable[str] = (),
        training_text: TrainingText | None = None,
        others: Sequence[Member] = (),
        shortlist: Shortlist | None = None,
    ) -> None:
        """`params` is the tree under "params"; `name` says which weights these are, `src_lang` (a
        code such as "en") where its sources' sentences end, and `tgt_lang` whether there are blanks
        between its outputs' sentences. A line's sentences share those of `tags` that it begins
        with. `directions` are the languages and tags of its training text.
        `symbols` are those that `decoding.copy_symbols` copies (without: all of the vocabularies').
        `training_text` says how many sentences of a line it reads together; None: unknown.

        They are copied to every device of this process, which share a batch's sentences; several
        processes must call it together. `others`, with the same vocabularies, make it an ensemble,
        which decides by mean probability. With a `shortlist`, `translate` chooses among its types
        for a batch, and scores are relative to these. Raises DecodingError if the vocabularies
        don't have the model's sizes.
        """
        rows = softmax_table(params, model.config).shape[0]
        types = vocabularies.tgt.size
        if rows != table_rows(model.config, types) or types != model.tgt_vocab_size:
            raise DecodingError(
                f"the parameters are for {rows} target types, but the target vocabulary has {types}"
            )
        _remember_process()
        self.mesh = local_mesh()
        self.params = whole_on(params, self.mesh)
        self.model, self.vocabularies = _for_search(model), vocabularies
        self.config, self.name, self.shortlist = config, name, shortlist
        self.src_lang, self.tgt_lang, self.training_text = src_lang, tgt_lang, training_text
        self.tags = frozenset(tags) - {""}
        self.directions = tuple(directions) or (Direction(src_lang, tgt_lang, ""),)
        self.tag = ""  # before every line, given by `with_tag`
        self._own_languages = src_lang, tgt_lang
        self.symbols = tuple(symbols)
        self.takes_whole_lines = False
        self.runtime: OtherRuntime | None = None  # None: this program
        placed = [(whole_on(tree, self.mesh), _for_search(member)) for tree, member in others]
        self._ensemble = _Ensemble(((self.params, self.model), *placed), self.mesh)
        self.max_length = min(member.config.max_length for _, member in self.members)
        self._decoders: dict[Hashable, _KeptDecoder] = {}
        self._decoders_lock = threading.Lock()

    @classmethod
    def load(
        cls,
        run_dir: str | os.PathLike[str],
        *,
        which: Which | Chosen = "auto",
        shortlist: bool = False,
    ) -> Translator:
        """The model of a run directory (`gs://` too), with the decoding settings recorded there.

        `which` names the checkpoint: a step, "best" by validation, "latest", "average", an earlier
        choice, or "auto": the average unless the run has continued since, else the best, else the
        latest. `shortlist` uses the run's, which is learnt on first use, and saved unless the run
        is read-only.

        Raises RunDirectoryError, CheckpointError, VocabularyError, ConfigError, ShortlistError and
        StoreError.
        """
        _check_not_forked()
        run = RunDirectory(as_path(run_dir))
        config = freeze(read_record(run).config, str(run.config_file))
        vocabularies = Vocabularies.load(local_copy(run.vocabulary))
        chosen, params = load_chosen(run, which)
        sizes = vocabularies.src.size, vocabularies.tgt.size
        described = sum(count_by_formula(config.model, *sizes).values())
        present = sum(count(params).values())
        if described != present:
            raise DecodingError(
                f"{run}: config.json and the vocabulary describe {described:,} parameters, but "
                f"'{chosen.name}' has {present:,}: restore it from a copy"
            )
        return cls(
            params,
            Transformer(config.model, *sizes),
            vocabularies,
            with_choice(run, config.decoding),
            name=chosen.name,
            src_lang=config.data.src_lang,
            tgt_lang=config.data.tgt_lang,
            tags=config.data.tags,
            directions=config.data.directions,
            symbols=config.data.vocabulary.symbols,
            training_text=_training_text(run),
            shortlist=_shortlist(run, vocabularies) if shortlist else None,
        )

    @classmethod
    def load_ensemble(
        cls,
        run_dirs: Sequence[str | os.PathLike[str]],
        *,
        which: Which = "auto",
        shortlist: bool = False,
    ) -> Translator:
        """The models of several run directories as one, with the first one's settings. Raises as
        `load`, and DecodingError if their vocabularies differ."""
        if isinstance(run_dirs, str | bytes | os.PathLike):
            raise TypeError("load_ensemble takes a list of run directories; for one use `load`")
        if not run_dirs:
            raise ValueError("load_ensemble needs at least one run directory")
        first = cls.load(run_dirs[0], which=which, shortlist=shortlist)
        further = [cls.load(run, which=which) for run in run_dirs[1:]]
        for run, translator in zip(run_dirs[1:], further, strict=True):
            if translator.vocabularies.digest != first.vocabularies.digest:
                raise DecodingError(
                    f"{run}: its vocabulary differs from that of {run_dirs[0]}: an ensemble's "
                    "models must share one"
                )
        return cls(
            first.params,
            first.model,
            first.vocabularies,
            first.config,
            name=" + ".join(translator.name for translator in (first, *further)),
            src_lang=first.src_lang,
            tgt_lang=first.tgt_lang,
            tags=first.tags,
            directions=first.directions,
            symbols=first.symbols,
            training_text=first.training_text,
            others=[(translator.params, translator.model) for translator in further],
            shortlist=first.shortlist,
        )

    def __repr__(self) -> str:
        size = sum(count(self.params).values())
        beam = self.config.beam_size
        return f"<Translator: the weights '{self.name}', {size:,} parameters, beam {beam}>"

    def with_config(self, **settings: Any) -> Translator:
        """The same model with some decoding settings changed, such as `beam_size=1`. Raises
        TypeError for an unknown setting or a value of another type, and ValueError for a word or
        number that the setting doesn't take."""
        other = copy.copy(self)
        other.config = with_settings(self.config, arguments.decoding_settings(settings))
        return other

    def with_dtype(self, dtype: Literal["float32", "bfloat16"]) -> Translator:
        """The same weights with another `model.dtype` for products, which may change an output."""
        arguments.one_of("dtype", dtype, ("float32", "bfloat16"))
        other = copy.copy(self)
        members = tuple(
            (params, model.clone(config=dataclasses.replace(model.config, dtype=dtype)))
            for params, model in self.members
        )
        other._ensemble = _Ensemble(members, self.mesh)
        other.model = other.members[0][1]
        return other

    def with_runtime(self, runtime: OtherRuntime | None) -> Translator:
        """The same model, whose search another program does; None: this program again. Scores of
        given translations, alignments and attention stay this program's. Raises DecodingError for
        the runtime of another model, and for an ensemble or a shortlist, which others don't have.
        """
        if runtime is not None and len(self.members) > 1:
            raise DecodingError(f"{runtime.name} searches with a single model, not an ensemble")
        if runtime is not None and self.shortlist is not None:
            raise DecodingError(f"{runtime.name} searches without this program's shortlist")
        if runtime is not None and runtime.params is not self.params:
            raise DecodingError(
                f"{runtime.name} was loaded for another model: load it for this one"
            )
        other = copy.copy(self)
        other.runtime = runtime
        return other

    def with_tag(self, tag: str) -> Translator:
        """The same model with a tag of its training text before every line, such as `<2fr>`, or
        several with blanks between them; "" for none. A line that begins with a tag keeps its own.

        It also stands for the languages of the corpora with that tag, where they are the same.
        Raises DecodingError for a tag that the model hasn't learnt.
        """
        arguments.check_str("tag", tag)
        words = tag.split()
        codes = frozenset(self.vocabularies.src.language_codes)
        for word in words:
            if word not in self.tags | codes:
                known = ", ".join(sorted(self.tags | codes)) or "none"
                raise DecodingError(f"the model knows no tag {word!r}; it knows {known}")
        other = copy.copy(self)
        other.tag = " ".join(words)
        other.src_lang, other.tgt_lang = self._own_languages
        return other.in_languages(*languages_of_tag(self.directions, other.tag))

    @property
    def told(self) -> dict[str, str]:
        """What `with_tag` and `in_languages` have said of its lines; nothing of a loaded model's
        own."""
        told = {"tag": self.tag} if self.tag else {}
        if (self.src_lang, self.tgt_lang) != self._own_languages:
            told["languages"] = f"{self.src_lang} {self.tgt_lang}"
        return told

    def in_languages(self, src_lang: str, tgt_lang: str) -> Translator:
        """The same model for lines of these languages (codes; empty: as they are), which decide
        where sentences end, and what is between them."""
        other = copy.copy(self)
        other.src_lang, other.tgt_lang = src_lang or self.src_lang, tgt_lang or self.tgt_lang
        return other

    def with_whole_lines(self) -> Translator:
        """The same model, which translates and scores a line of several sentences as it is,
        whatever its training text was."""
        other = copy.copy(self)
        other.takes_whole_lines = True
        return other

    @property
    def members(self) -> tuple[Member, ...]:
        """The models that decide together, with their parameters on this process's devices."""
        return self._ensemble.members

    @property
    def together(self) -> int | None:
        """The most sentences that a line may have to be translated as a whole; None: any number."""
        return None if self.takes_whole_lines else self._known_together

    @property
    def _known_together(self) -> int | None:
        """The most sentences of a line that the model has learnt to read; None: unknown."""
        return None if self.training_text is None else self.training_text.together

    @overload
    def translate(self, lines: str, **wanted: Unpack[Wanted]) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, lines: Sequence[str], **wanted: Unpack[Wanted]) -> list[Translation]: ...
    def translate(
        self, lines: str | Sequence[str], **wanted: Unpack[Wanted]
    ) -> Translation | list[Translation]:
        """Each line's translation, in order, or a `str`'s; a blank line's is empty, with score 0.

        In float32 and without a shortlist (which a batch shares), a line's translation doesn't
        depend on the other lines. A line longer than `model.max_length` tokens is cut at every
        sentence end (and between clauses, words, characters, where a sentence is too long),
        translated in pieces, rejoined and marked `split`; its n-th hypothesis joins each piece's
        n-th. With `overlong` "refuse" it raises OverlongError. Of a shorter line's several
        sentences the model may translate only one, unless its training text had many such lines:
        otherwise the line is cut at its sentence ends and marked `by_sentence`, except with
        `constraints` or a prefix and where the training text isn't known. A log line says which
        lines are `at_risk` all the same. `several` "keep" translates all lines that fit as they
        are, without that log line, and "split" cuts all.

        A translation begins with its line's prefix in `prefixes` (one `str`: every line's) and has
        none of the pieces in `suppress`. As whole words, its text has none of the phrases in
        `forbid` and its line's in `forbid_each` (piece by piece, if split), but each of its line's
        `constraints` and the translations of its terms in `terminology`. With `sampling`, the
        `n_best` likeliest of beam_size draws are returned; draws depend on the seed and the line's
        number, counted from `first` (default: 0; files and the command count from 1). With `mbr`,
        the best are those that resemble the others most, by chrF. No two of the `n_best` have the
        same text: there are fewer if the search finds fewer. `masks` are your own rules on which
        tokens may come next (`masks.base.Mask`); `constraint_sizes` keep few programs for required
        and forbidden phrases.

        With the settings `keep` and `copy_unknown`, texts of a line stay as they are: tokens and
        scores are of what the model has read and said without them. A line of nothing else has no
        tokens. Phrases that repeat such a text are a LineError, as is a forbidden word of those
        that `copy_unknown` keeps; `forbid` says nothing of the others.

        Before anything is searched: raises OverlongError and LineError with the line's number,
        other DecodingErrors, ValueError for contradictory settings and lists of another length, and
        TypeError for arguments of another type. During the search: LineError for a line whose
        constraints leave no translation, DecodingError for scores that aren't numbers.
        """
        texts = [lines] if isinstance(lines, str) else arguments.lines("lines", lines)
        options, of_lines = options_of(wanted, len(texts))
        translations = self._translations(texts, options, of_lines)
        if options.several != "keep":
            _warn(translations, options.first)
        return translations[0] if isinstance(lines, str) else translations

    def translate_with(
        self,
        lines: Sequence[str],
        options: SearchOptions,
        wanted: Sequence[LineOptions],
    ) -> list[Translation]:
        """As `translate`, with an object for all lines and one for each, and no log line."""
        lines = arguments.lines("lines", lines)
        arguments.check_count("wanted", wanted, len(lines))
        return self._translations(lines, options, wanted)

    def _translations(
        self, lines: Sequence[str], options: SearchOptions, wanted: Sequence[LineOptions]
    ) -> list[Translation]:
        """As `translate_with`, of arguments that are checked."""
        if not self._keeps:
            return self._searched(lines, options, wanted)
        keeping = self._keeping
        marked = keeping.marked(lines)
        keeping.check(marked, options, wanted)
        translations = self._searched([line.text for line in marked], options, wanted)
        return keeping.restored(marked, translations, options, wanted, self._attended_units)

    def _searched(
        self, lines: Sequence[str], options: SearchOptions, wanted: Sequence[LineOptions]
    ) -> list[Translation]:
        """The translations of lines, which may have marks."""
        if self.config.outputs == "trees":
            lines = [escaped(line) for line in lines]
        lines = self._tagged(lines)
        preparer = self._preparer
        spelled = preparer.spell(options, wanted)
        prepared = preparer.prepare(lines, options, wanted, spelled)

        decoder = self._decoder(options, suppress=spelled.suppressed)
        sources = [source for line in prepared for source in line.sources]
        try:
            decoded = iter(decoder.decode(sources, continues=spelled.continues))
        except LineError as error:
            number = sources[error.number].number[0] - options.first
            raise LineError(number, error.reason) from error

        joiner = Joiner(
            self.vocabularies.tgt,
            self.config,
            n_best=options.n_best,
            mbr=options.mbr,
            sampled=options.sampling is not None,
            blanks=has_blanks_between_sentences(self.tgt_lang),
            training_text=self.training_text,
        )
        return [
            joiner.join(cut, list(itertools.islice(decoded, len(cut.pieces))))
            for cut, _ in prepared
        ]

    @property
    def _keeps(self) -> bool:
        """Whether outputs keep texts of their sources. Raises DecodingError for trees."""
        if not (self.config.keep or self.config.copy_unknown):
            return False
        if self.config.outputs == "trees":
            raise DecodingError(
                "decoding.keep and decoding.copy_unknown need outputs that are text"
            )
        return True

    @property
    def _keeping(self) -> Keeping:
        return Keeping(
            self.vocabularies,
            self.tags,
            fixed=self.config.keep,
            unknown=self.config.copy_unknown,
            copies=self._copies if self.config.copy_symbols else {},
        )

    @functools.cached_property
    def _marked_vocabularies(self) -> Vocabularies:
        return marked_vocabularies(self.vocabularies)

    @property
    def _reading(self) -> Vocabularies:
        """Those that read lines, with marks if there may be any."""
        return self._marked_vocabularies if self._keeps else self.vocabularies

    @property
    def _preparer(self) -> SourcePreparer:
        return SourcePreparer(
            self._reading,
            self.max_length,
            self.src_lang,
            trees=self.config.outputs == "trees",
            tags=self.tags,
            together=self.together,
            known_together=self._known_together or 1,
            copies=self._copies if self.config.copy_symbols else {},
        )

    @functools.cached_property
    def _copies(self) -> dict[int, int]:
        """The target type of each symbol that outputs copy, by the source's. Raises
        DecodingError."""
        return copied_types(self.vocabularies, self.symbols, self.tags)

    def compile(
        self,
        lines: Sequence[str],
        *,
        n_best: int = 1,
        longest: str = "",
        constraint_sizes: Sequence[ConstraintSizes] = (),
    ) -> frozenset[tuple[int, int]]:
        """Compiles what `translate` may need for lines as long as these, also with some as long as
        `longest`; returns the shapes of batches, (rows, source length). With `constraint_sizes` it
        is for lines with required or forbidden phrases, in the first of these."""
        options = SearchOptions(n_best=n_best, constraint_sizes=tuple(constraint_sizes))
        arguments.check_str("longest", longest)
        lines = self._tagged(arguments.lines("lines", lines))
        (longest,) = self._tagged([longest])
        *encoded, of_longest = encode(self.vocabularies.src, [*lines, longest])
        lengths = [
            len(piece) + 1
            for line, tokens in zip(lines, encoded, strict=True)
            for piece in self._preparer.cut(line, tokens, options.several)[1]
        ]
        return self._decoder(options).compile(
            lengths,
            longest=min(len(of_longest) + 1, self.max_length),
            constrained=bool(constraint_sizes),
        )

    def _decoder(self, options: SearchOptions, *, suppress: tuple[int, ...] = (UNK,)) -> Searcher:
        """The search, made once for what it depends on."""
        _check_not_forked()
        # A copy with other settings or weights shares the decoders.
        config = _of_search(self.config)
        weights = self._ensemble.key, id(self.shortlist), id(self.runtime)
        key = options.of_search, suppress, config, weights
        with self._decoders_lock:  # threads may share a translator
            kept = self._decoders.get(key)
            if kept is None:
                decoder = self._new_decoder(options, suppress)
                kept = _KeptDecoder(decoder, self.members, self.shortlist, self.runtime)
                self._decoders[key] = kept
            if len(self._decoders) > _DECODERS:
                # Of a dict the first key is the oldest.
                self._decoders.pop(next(iter(self._decoders)))
            return kept.decoder

    def _new_decoder(self, options: SearchOptions, suppress: tuple[int, ...]) -> Searcher:
        """No two outputs in an n-best list have the same text, except for `mbr`, which compares
        all that the search finds."""
        if self.runtime is not None:
            config = _of_search(self.config)
            return self.runtime.search(config, options, suppress=suppress, text_of=self._text_of)
        params, models = self._ensemble.suited
        return BatchDecoder(
            params,
            models,
            _of_search(self.config),
            n_best=self.config.beam_size if options.mbr else options.n_best,
            suppress=suppress,
            sampling=options.sampling,
            mesh=self.mesh,
            shortlist=self.shortlist,
            trees=brackets_of(self.vocabularies) if self.config.outputs == "trees" else None,
            masks=(*self._own_masks(), *options.masks),
            constraint_sizes=options.constraint_sizes,
            text_of=None if options.mbr else self._text_of,
        )

    def _own_masks(self) -> tuple[Mask, ...]:
        """Those that its settings ask for and that depend on the vocabularies."""
        if not self.config.copy_symbols:
            return ()
        if self.config.no_repeat_ngram:
            raise DecodingError(
                "decoding.copy_symbols can't have decoding.no_repeat_ngram: a symbol may be there "
                "twice"
            )
        return (CopiedSymbols((*self._copies.values(),)),)

    def _text_of(self, tokens: tuple[int, ...]) -> str:
        (text,) = self.vocabularies.tgt.decode([tokens])
        return text

    def score(
        self, pairs: Iterable[tuple[str, Target]], *, overlong: Overlong = "refuse"
    ) -> list[Scored]:
        """How likely the model finds each translation, in order.

        A translation is a text, or tokens as in `Hypothesis.tokens`, whose score in float32 is
        `translate`'s, except for trees of the source's words (`masks.trees.pooled`) and with a
        shortlist: `translate`'s scores are relative to its types, these to all. A blank pair has 0.
        If a side is too long for the model, `overlong` "split" scores the pair in the parts of
        `translate`, cutting a text where its source is cut, by a guess.

        Raises OverlongError, TargetError and DecodingError.
        """
        checked = self._tagged_pairs(self._marked_pairs(arguments.pairs(pairs)))
        return self._forcing("scores are").score(
            self._cut_pairs(checked, arguments.overlong(overlong))
        )

    def encode_targets(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """The tokens of translations of these sources, without what they keep of them. Raises
        DecodingError."""
        targets = [str(target) for _, target in self._marked_pairs(pairs)]
        return encode(self._reading.tgt, targets)

    def _marked_pairs(self, pairs: Sequence[tuple[str, Target]]) -> Sequence[tuple[str, Target]]:
        """The pairs with marks for what outputs keep of the source."""
        if not self._keeps:
            return pairs
        sources, targets = self._keeping.marked_pairs(pairs)
        return [
            (source.text, given if target is None else target.text)
            for source, target, (_, given) in zip(sources, targets, pairs, strict=True)
        ]

    def attend(self, src: str, tgt: Target) -> Attention:
        """All attention weights as the model reads `src` and says `tgt` (text or tokens). Raises
        OverlongError, TargetError and DecodingError."""
        forcing = self._forcing("attention is")
        (parts,) = cut_pairs(
            self._tagged_pairs(arguments.pairs([(src, tgt)])),
            self.vocabularies,
            max_length=self.max_length,
            overlong="refuse",
        )
        if len(parts) > 1:
            raise TargetError(0, f"was translated in {len(parts)} parts: attend to each by itself")
        (part,) = parts
        return forcing.attention(part, self.vocabularies)

    def align(
        self,
        pairs: Iterable[tuple[str, Target]],
        *,
        layer: int | None = None,
        overlong: Overlong = "split",
        letters: bool = False,
    ) -> list[Alignment]:
        """The source word of each translation's words, by the decoder's attention, in order.

        `layer`, from 0, is the one whose attention decides (default: all layers). With `letters`,
        each letter of a script without blanks between words, such as Chinese, is a word.
        Translations are as in `score`. Raises OverlongError, TargetError, DecodingError, and
        ValueError for an unknown layer.
        """
        forcing = self._forcing("alignments need")
        given = arguments.pairs(pairs)
        checked = arguments.overlong(overlong)
        if layer is not None:
            layer = arguments.whole_number("layer", layer)
        words = letters_of if arguments.flag("letters", letters) else words_of
        if not self._keeps:
            return self._aligned(forcing, given, checked, layer=layer, words=words)
        sources, targets = self._keeping.marked_pairs(given)
        marked = [
            (source.text, target if marked_target is None else marked_target.text)
            for source, marked_target, (_, target) in zip(sources, targets, given, strict=True)
        ]
        alignments = self._aligned(forcing, marked, checked, layer=layer, words=words)
        return list(map(unmarked, alignments, sources, targets, itertools.repeat(words)))

    def target_of(self, output: Hypothesis | Translation) -> Target:
        """What `align` takes of an output of `translate`: its tokens, or its text if that has more,
        kept from the source."""
        return output.text if self._keeps else output.tokens

    def _attended_units(
        self, pairs: Sequence[tuple[str, Target]]
    ) -> Iterator[Iterable[AttendedWord]]:
        """What the units of marked sources' translations attend to, by the first model."""
        forcing = TeacherForcing(self.params, self.model, self.config, self.mesh)
        # Few are filled up by repetition: a program for each small number would be compiled.
        filled = [*pairs, *[pairs[-1]] * (_FEWEST_ALIGNED - len(pairs))]
        lines, tags = self._lines_to_align(filled, "split", units)
        attended = attended_words(
            forcing,
            self._reading,
            lines,
            blanks=has_blanks_between_sentences(self.tgt_lang),
            tags=tags,
            words=units,
        )
        return (rows for _, _, rows in attended)

    def _aligned(
        self,
        forcing: TeacherForcing,
        pairs: Sequence[tuple[str, Target]],
        overlong: Overlong,
        *,
        layer: int | None,
        words: WordPlaces,
    ) -> list[Alignment]:
        """As `align`, of lines that may have marks."""
        lines, tags = self._lines_to_align(pairs, overlong, words)
        return align_parts(
            forcing,
            self._reading,
            lines,
            layer=layer,
            blanks=has_blanks_between_sentences(self.tgt_lang),
            tags=tags,
            words=words,
        )

    def _lines_to_align(
        self, pairs: Sequence[tuple[str, Target]], overlong: Overlong, words: WordPlaces
    ) -> tuple[list[tuple[str, str | None, Sequence[Part]]], list[int]]:
        """The lines that `align_parts` takes, and how many words of each are its tag's."""
        checked = self._tagged_pairs(pairs)
        cut = self._cut_pairs(checked, overlong)
        lines: list[tuple[str, str | None, Sequence[Part]]] = [
            (source, target if isinstance(target, str) else None, parts)
            for (source, target), parts in zip(checked, cut, strict=True)
        ]
        tag_words = len(words(self.tag))
        tags = [
            0 if source == tagged else tag_words
            for (source, _), (tagged, _) in zip(pairs, checked, strict=True)
        ]
        return lines, tags

    def _tagged(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines with the tag of `with_tag`, except for those that have one or are blank."""
        if not self.tag:
            return lines
        src = self.vocabularies.src
        return [
            line if is_blank(line) or lead_of(line, src, self.tags) else f"{self.tag} {line}"
            for line in lines
        ]

    def _tagged_pairs(self, pairs: Sequence[tuple[str, Target]]) -> Sequence[tuple[str, Target]]:
        sources = self._tagged([source for source, _ in pairs])
        return [(source, target) for source, (_, target) in zip(sources, pairs, strict=True)]

    def _cut_pairs(
        self, pairs: Sequence[tuple[str, Target]], overlong: Overlong
    ) -> list[list[Part]]:
        """The parts of each pair; none if both sides are blank for `translate`."""
        cut = cut_pairs(
            pairs,
            self._reading,
            max_length=self.max_length,
            overlong=overlong,
            language=self.src_lang,
            tgt_language=self.tgt_lang,
            tags=self.tags,
            together=self.together if self.config.outputs == "text" else None,
        )
        return [
            parts if _has_text(source, parts) else []
            for (source, _), parts in zip(pairs, cut, strict=True)
        ]

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        window: int = 4096,
        n_best: int = 1,
        several: Several = "auto",
        warn: bool = True,
    ) -> Iterator[Translation]:
        """As `translate`, for any number of lines, with at most `window` in memory; no log line
        without `warn`. Arguments are checked at the call, and lines as they are read."""
        if isinstance(lines, str):
            raise TypeError("translate_lines takes lines; for a single str use `translate`")
        if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
            raise TypeError(f"translate_lines takes lines of text, not {type(lines).__name__}")
        if arguments.whole_number("window", window) < 1:
            raise ValueError(f"window = {window} must be at least 1")
        options = SearchOptions(n_best=n_best, several=several)
        return self._by_windows(iter(lines), window, options, warn=warn)

    def _by_windows(
        self, lines: Iterator[str], window: int, options: SearchOptions, *, warn: bool
    ) -> Iterator[Translation]:
        """As `translate_lines`, of arguments that are checked."""
        first = 0
        while block := list(itertools.islice(lines, window)):
            numbered = dataclasses.replace(options, first=first)
            translations = self.translate_with(block, numbered, [PLAIN_LINE] * len(block))
            if warn and options.several != "keep":
                _warn(translations, first)
            yield from translations
            first += len(block)

    def _forcing(self, what: str) -> TeacherForcing:
        _check_not_forked()
        if len(self.members) > 1:
            raise DecodingError(f"{what} a single model: load the ensemble's runs one at a time")
        return TeacherForcing(self.params, self.model, self.config, self.mesh)


def _of_search(config: DecodingConfig) -> DecodingConfig:
    """The settings that the search itself depends on: with and without kept texts it's the same."""
    return dataclasses.replace(config, keep=False, copy_unknown=False)


def _for_search(model: Transformer) -> Transformer:
    """The model without the kernels that its training may have chosen for another device."""
    return model.clone(config=model.config.for_search)


def _has_text(source: str, parts: Sequence[Part]) -> bool:
    """Whether a side of a pair has tokens and is not blank."""
    if not is_blank(source) and any(part.src for part in parts):
        return True
    return any(part.tgt and not is_blank(part.tgt_text) for part in parts)


def _warn(translations: Sequence[Translation], first: int) -> None:
    """`first` is the number of the first line."""
    several = [
        number
        for number, translation in enumerate(translations, start=first)
        if translation.at_risk
    ]
    if several:
        _LOGGER.warning(
            "%s of %s lines have several sentences, but the model may translate only one of them: "
            "split these lines (flaxformer_mt.split_sentences); counted from 0: %s",
            f"{len(several):,}",
            f"{len(translations):,}",
            listed(several[:_SHOWN], len(several)),
        )


def _remember_process() -> None:
    global _first_process
    _check_not_forked()
    _first_process = os.getpid()


def _check_not_forked() -> None:
    """Raises DecodingError in a process forked from one that has used JAX: its threads, and the
    locks that they held, would be waited for without end."""
    if _first_process not in (None, os.getpid()):
        raise DecodingError(
            f"this process was forked from process {_first_process}, which had made a Translator, "
            "and JAX doesn't work after a fork: start processes with "
            "multiprocessing.get_context('spawn') and load a Translator in each"
        )


def _training_text(run: RunDirectory) -> TrainingText | None:
    """What is known of the run's training text. Raises RunDirectoryError."""
    manifest = run.data / INDEX_FILES["data"]
    if exists(manifest):
        with document(manifest, "restore it from a copy") as content:
            return TrainingText.of(content)
    if exists(run.training_text):
        with document(run.training_text, "restore it from a copy") as content:
            return TrainingText(**content)
    return None


def _shortlist(run: RunDirectory, vocabularies: Vocabularies) -> Shortlist:
    place, digest = run.shortlist, vocabularies.digest
    if exists(place):
        with explained(place, "read"):
            content = read_file(place)
        both = vocabularies.src.size, vocabularies.tgt.size
        return Shortlist.read(content, place, vocabulary=digest, sizes=both)
    if not exists(run.data):
        raise ShortlistError(f"{run}: has no training text to learn a shortlist from")
    store = Store.open(local_copy(run.data), vocabulary_digest=digest)
    _LOGGER.warning("learning a shortlist from %s pairs, once", f"{len(store.train):,}")
    sizes = {"src_types": vocabularies.src.size, "tgt_types": vocabularies.tgt.size}
    learnt = learn(store.train, vocabulary=digest, **sizes)
    try:
        write_bytes(place, learnt.to_bytes())
    except RunDirectoryError as error:  # such as somebody else's run, which can only be read
        _LOGGER.warning("warning: %s. The shortlist is kept in memory and learnt each time", error)
    return learnt
