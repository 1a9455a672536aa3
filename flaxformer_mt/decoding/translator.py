"""From text to text with a run directory's model."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args, overload

import numpy as np
from jaxtyping import Bool

from flaxformer_mt.config import DecodingConfig, freeze
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.shortlist import Shortlist, ShortlistError, learn
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import EOS, UNK, Vocabularies
from flaxformer_mt.decoding import arguments
from flaxformer_mt.decoding.alignment import Alignment, align_parts
from flaxformer_mt.decoding.batch_search import Source
from flaxformer_mt.decoding.batches import ConstraintSizes, Decoder
from flaxformer_mt.decoding.forbidden import Forbidden, continues_word, forbidden
from flaxformer_mt.decoding.rules import brackets_of
from flaxformer_mt.decoding.sampling import Sampling
from flaxformer_mt.decoding.segments import (
    DecodingError,
    LineError,
    Overlong,
    OverlongError,
    Part,
    Piece,
    Target,
    check_prefix,
    check_unicode,
    cut_pairs,
    describe_overlong,
    encode,
    source_pieces,
    types_of,
)
from flaxformer_mt.decoding.teacher_forcing import Attention, Scored, TeacherForcing
from flaxformer_mt.decoding.terminology import Terminology, required
from flaxformer_mt.decoding.translation import Translation, joined
from flaxformer_mt.files.reading import read_file
from flaxformer_mt.model.embedding import softmax_table, table_rows
from flaxformer_mt.model.parameters import count, count_by_formula
from flaxformer_mt.model.stacks import aligning_layer
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import local_mesh, whole_on
from flaxformer_mt.parsing.linearization import escaped, tokens_of
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoint_choice import Chosen, Which
from flaxformer_mt.rundir.checkpoints import load_chosen
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record
from flaxformer_mt.rundir.paths import exists, explained, write_bytes
from flaxformer_mt.sentences import split_sentences

_LOGGER = logging.getLogger(__name__)
Member = tuple[Any, Transformer]  # a tree under "params" and its model
Several = Literal["warn", "keep"]
_SHOWN = 10  # of the lines that a warning is about
_first_process: int | None = None  # which made the first Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the translations of some lines must be, checked; lists have an item per line."""

    prefixes: Sequence[str]
    prefix_tokens: Sequence[Sequence[int]]
    suppressed: tuple[int, ...]  # types that are never generated
    forbidden: Forbidden | None  # phrases that no line may have
    forbidden_each: Sequence[Sequence[str]]
    constraints: Sequence[Sequence[str]]
    terminology: Terminology | None
    # Which types continue a word; None if there are no constraints and no terms.
    continues: Bool[np.ndarray, " vocab"] | None


class PreparedLine(NamedTuple):
    """A line in pieces that fit the model; a blank one has none."""

    pieces: Sequence[Piece]
    sources: Sequence[Source]  # one per piece


class Wanted(TypedDict, total=False):
    n_best: int
    overlong: Overlong
    several: Several
    prefixes: str | Sequence[str] | None
    suppress: str | Sequence[str]
    forbid: str | Sequence[str]
    forbid_each: Sequence[Sequence[str]] | None
    constraints: Sequence[Sequence[str]] | None
    terminology: Terminology | None
    sampling: Sampling | None
    first: int
    mbr: bool
    constraint_sizes: Sequence[ConstraintSizes]


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
        others: Sequence[Member] = (),
        shortlist: Shortlist | None = None,
    ) -> None:
        """`params` is the tree under "params"; `name` says which weights these are,
        `src_lang` (a code such as "en") where its sources' sentences end.

        They are copied to every device of this process, which share a batch's sentences; several
        processes must call it together. `others`, with the same vocabularies, make it an ensemble,
        which decides by mean probability. With a `shortlist`, `translate` chooses among its types
        for a batch, and scores are relative to these. Raises DecodingError if the vocabularies
        don't have the model's sizes.
        """
        rows = softmax_table(params, model.config).shape[0]
        types = vocabularies.tgt.size
        if rows != table_rows(model.config, types) or types != model.tgt_vocab_size:
            what = f"the parameters are for {rows} target types, but the target vocabulary"
            raise DecodingError(f"{what} has {types}")
        _remember_process()
        self.mesh = local_mesh()
        self.params = whole_on(params, self.mesh)
        self.model, self.vocabularies = model, vocabularies
        self.config, self.name, self.shortlist = config, name, shortlist
        self.src_lang = src_lang
        whole = [(whole_on(theirs, self.mesh), other) for theirs, other in others]
        self.members: tuple[Member, ...] = ((self.params, model), *whole)
        self.max_length = min(member.config.max_length for _, member in self.members)

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
        run = open_run(run_dir)
        config = freeze(read_record(run).config, str(run.config_file))
        vocabularies = Vocabularies.load(local_copy(run.vocabulary))
        chosen, params = load_chosen(run, which)
        sizes = vocabularies.src.size, vocabularies.tgt.size
        described = sum(count_by_formula(config.model, *sizes).values())
        if described != (found := sum(count(params).values())):
            what = f"{run}: config.json and the vocabulary describe {described:,} parameters, but "
            raise DecodingError(f"{what}'{chosen.name}' has {found:,}: restore it from a copy")
        model = Transformer(config.model, *sizes)
        short = _shortlist(run, vocabularies) if shortlist else None
        return cls(
            params,
            model,
            vocabularies,
            config.decoding,
            name=chosen.name,
            src_lang=config.data.src_lang,
            shortlist=short,
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
        others = [cls.load(run, which=which) for run in run_dirs[1:]]
        for run, other in zip(run_dirs[1:], others, strict=True):
            if other.vocabularies.digest != first.vocabularies.digest:
                what = f"{run}: its vocabulary differs from that of {run_dirs[0]}"
                raise DecodingError(f"{what}: an ensemble's models must share one")
        return cls(
            first.params,
            first.model,
            first.vocabularies,
            first.config,
            name=" + ".join(each.name for each in (first, *others)),
            src_lang=first.src_lang,
            others=[(each.params, each.model) for each in others],
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
        other.config = dataclasses.replace(self.config, **arguments.decoding_settings(settings))
        return other

    def with_dtype(self, dtype: Literal["float32", "bfloat16"]) -> Translator:
        """The same weights with another `model.dtype` for products, which may change an output."""
        arguments.one_of("dtype", dtype, ("float32", "bfloat16"))
        other = copy.copy(self)
        other.members = tuple(
            (params, model.clone(config=dataclasses.replace(model.config, dtype=dtype)))
            for params, model in self.members
        )
        other.model = other.members[0][1]
        return other

    @overload
    def translate(self, lines: str, **wanted: Unpack[Wanted]) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, lines: Sequence[str], **wanted: Unpack[Wanted]) -> list[Translation]: ...
    def translate(
        self,
        lines: str | Sequence[str],
        *,
        n_best: int = 1,
        overlong: Overlong = "split",
        several: Several = "warn",
        prefixes: str | Sequence[str] | None = None,
        suppress: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        forbid_each: Sequence[Sequence[str]] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        terminology: Terminology | None = None,
        sampling: Sampling | None = None,
        first: int = 0,
        mbr: bool = False,
        constraint_sizes: Sequence[ConstraintSizes] = (),
    ) -> Translation | list[Translation]:
        """Each line's translation, in order, or a `str`'s; a blank line's is empty, with score 0.

        In float32 and without a shortlist (which a batch shares), a line's translation doesn't
        depend on the other lines. A line longer than `model.max_length` tokens is cut at every
        sentence end (and between clauses, words, characters, where a sentence is too long),
        translated in pieces, rejoined and marked `split`; its n-th hypothesis joins each piece's
        n-th. With `overlong` "refuse" it raises OverlongError. Of a shorter line's several
        sentences the model may translate only one: a log line says which lines these are, unless
        `several` is "keep".

        A translation begins with its line's prefix in `prefixes` (one `str`: every line's) and has
        none of the pieces in `suppress`. As whole words, its text has none of the phrases in
        `forbid` and its line's in `forbid_each` (piece by piece, if split), but each of its line's
        `constraints` and the translations of its terms in `terminology`. With `sampling`, the
        `n_best` likeliest of beam_size draws are returned; draws depend on the seed and the line's
        number, counted from `first`. With `mbr`, the best are those that resemble the others most,
        by chrF. No two of the `n_best` have the same text: there are fewer if the search finds
        fewer.
        `constraint_sizes`: see `Decoder`.

        Raises OverlongError and LineError with the line's number, other DecodingErrors, ValueError
        for contradictory settings and lists of another length, and TypeError for arguments of
        another type, all before anything is searched.
        """
        single = isinstance(lines, str)
        texts = [lines] if isinstance(lines, str) else arguments.lines("lines", lines)
        if self.config.outputs == "trees":
            texts = [escaped(line) for line in texts]
        n_best = arguments.whole_number("n_best", n_best)
        mbr = arguments.flag("mbr", mbr)
        first = arguments.whole_number("first", first)
        warns = arguments.one_of("several", several, get_args(Several)) == "warn"
        refuses = arguments.overlong(overlong) == "refuse"
        arguments.check_optional("sampling", sampling, Sampling, "Sampling(temperature=0.8)")
        wishes = self._wishes(
            len(texts),
            prefixes=prefixes,
            suppress=suppress,
            forbid=forbid,
            forbid_each=forbid_each,
            constraints=constraints,
            terminology=terminology,
        )
        prepared = self._prepared(texts, wishes, refuse=refuses, first=first)

        decoder = self._decoder(
            n_best=self.config.beam_size if mbr else n_best,
            suppress=wishes.suppressed,
            sampling=sampling,
            constraint_sizes=constraint_sizes,
            distinct=not mbr,  # which compares all that the search finds
        )
        sources = [source for line in prepared for source in line.sources]
        try:
            decoded = iter(decoder.decode(sources, continues=wishes.continues))
        except LineError as error:
            raise LineError(sources[error.number].number[0] - first, error.reason) from error

        translations = []
        for text, line in zip(texts, prepared, strict=True):
            translation = joined(
                line.pieces,
                list(itertools.islice(decoded, len(line.pieces))),
                self.vocabularies.tgt,
                self.config,
                n_best=n_best,
                mbr=mbr,
                sampled=sampling is not None,
            )
            if self.config.outputs == "text" and not translation.split:
                translation = dataclasses.replace(translation, sentences=self._sentences(text))
            translations.append(translation)
        if warns:
            _warn(translations, first)
        return translations[0] if single else translations

    def _wishes(
        self,
        count: int,
        *,
        prefixes: Any,
        suppress: Any,
        forbid: Any,
        forbid_each: Any,
        constraints: Any,
        terminology: Any,
    ) -> Wishes:
        """What callers want of `count` lines' translations. All that can be checked without the
        lines is: a term that can't be spelled is an error before the first line that has it."""
        tgt = self.vocabularies.tgt
        advice = "make one with Terminology.of or Terminology.read"
        arguments.check_optional("terminology", terminology, Terminology, advice)
        pieces = arguments.texts("suppress", suppress)
        begun = arguments.prefixes(prefixes, count)
        # An empty text has always stood for no phrase.
        never = arguments.texts("forbid", forbid) if forbid != "" else []
        never_each = arguments.phrases("forbid_each", forbid_each, count)
        must = arguments.phrases("constraints", constraints, count)
        for texts in (pieces, never, *never_each, *must):
            check_unicode(texts)
        suppressed = (UNK, *types_of(pieces, tgt))
        if self.config.outputs == "trees" and (never or any(never_each)):
            raise DecodingError("forbidden phrases need text, but decoding.outputs is trees")
        if terminology is not None:
            terminology.check(
                tgt, suppressed=suppressed, longest=self.max_length, never=tuple(never)
            )

        constrained = terminology is not None or any(must)
        return Wishes(
            prefixes=begun,
            prefix_tokens=encode(tgt, begun),
            suppressed=suppressed,
            forbidden=forbidden(tuple(never), tgt) if never else None,
            forbidden_each=never_each,
            constraints=must,
            terminology=terminology,
            continues=continues_word(tgt) if constrained else None,
        )

    def _prepared(
        self, lines: Sequence[str], wishes: Wishes, *, refuse: bool, first: int
    ) -> list[PreparedLine]:
        """Each line cut into pieces that fit, and what the search needs of each piece. Raises
        LineError, and OverlongError for a line that doesn't fit if `refuse`."""
        prepared = []
        for number, tokens in enumerate(encode(self.vocabularies.src, lines)):
            line = lines[number]
            if refuse and len(tokens) >= self.max_length and not is_blank(line):
                why = describe_overlong(self.max_length, source=tokens)
                raise OverlongError(number, why, splits=True)
            pieces, of_pieces = self._parts(line, tokens)
            try:
                sources = self._sources(number, pieces, of_pieces, wishes, first=first)
            except DecodingError as error:
                raise LineError(number, str(error)) from None
            prepared.append(PreparedLine(pieces, sources))
        return prepared

    def _sources(
        self,
        number: int,
        pieces: Sequence[Piece],
        of_pieces: Sequence[Sequence[int]],
        wishes: Wishes,
        *,
        first: int,
    ) -> list[Source]:
        """What the search needs of each piece of line `number`; nothing of a blank line, whose
        translation is blank whatever is wanted of it."""
        if not pieces:
            return []
        tgt = self.vocabularies.tgt
        prefix = wishes.prefix_tokens[number]
        check_prefix(wishes.prefixes[number], prefix, tgt, suppressed=wishes.suppressed)
        must = wishes.constraints[number]
        if must and len(pieces) > 1:
            raise DecodingError(
                "is translated in parts, but its constraints apply to a whole translation"
            )

        banned = [] if wishes.forbidden is None else [wishes.forbidden]
        if own := wishes.forbidden_each[number]:
            banned.append(forbidden(tuple(own), tgt))
        return [
            Source(
                [*ids, EOS],
                number=(first + number, place),
                prefix=() if place else prefix,
                words=len(tokens_of(piece.text)),
                forbidden=banned,
                phrases=required(
                    must,
                    wishes.terminology,
                    piece.text,
                    tgt,
                    suppressed=wishes.suppressed,
                ),
            )
            for place, (piece, ids) in enumerate(zip(pieces, of_pieces, strict=True))
        ]

    def _sentences(self, line: str) -> int:
        return max(1, len(split_sentences(line, self.src_lang).texts))

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
        n_best = arguments.whole_number("n_best", n_best)
        arguments.check_str("longest", longest)
        lines = arguments.lines("lines", lines)
        *encoded, of_longest = encode(self.vocabularies.src, [*lines, longest])
        each = zip(lines, encoded, strict=True)
        lengths = [len(ids) + 1 for line, own in each for ids in self._parts(line, own)[1]]
        most = min(len(of_longest) + 1, self.max_length)
        decoder = self._decoder(n_best=n_best, constraint_sizes=constraint_sizes)
        return decoder.compile(lengths, longest=most, constrained=bool(constraint_sizes))

    def _parts(self, line: str, tokens: list[int]) -> tuple[list[Piece], list[list[int]]]:
        """The pieces that a line is translated in, and their tokens; none for a blank line."""
        if not tokens or is_blank(line):
            return [], []
        if len(tokens) < self.max_length:
            return [Piece(line, "")], [tokens]
        return source_pieces(line, self.vocabularies.src, self.max_length, self.src_lang)[1:]

    def _decoder(self, *, distinct: bool = True, **settings: Any) -> Decoder:
        """The search; with `distinct`, no two outputs in an n-best list have the same text."""
        _check_not_forked()
        params, models = zip(*self.members, strict=True)
        trees = brackets_of(self.vocabularies) if self.config.outputs == "trees" else None
        settings |= {"mesh": self.mesh, "shortlist": self.shortlist, "trees": trees}
        text_of = self._text_of if distinct else None
        return Decoder(params, models, self.config, text_of=text_of, **settings)

    def _text_of(self, tokens: tuple[int, ...]) -> str:
        (text,) = self.vocabularies.tgt.decode([tokens])
        return text

    def score(
        self, pairs: Iterable[tuple[str, Target]], *, overlong: Overlong = "refuse"
    ) -> list[Scored]:
        """How likely the model finds each translation, in order.

        A translation is a text, or tokens as in `Hypothesis.tokens`, whose score in float32 is
        `translate`'s, except for trees of the source's words (`rules.pooled`) and with a shortlist:
        `translate`'s scores are relative to its types, these to all. A blank pair has 0.
        If a side is too long for the model, `overlong` "split" scores the pair in the parts of
        `translate`, cutting a text where its source is cut, by a guess.

        Raises OverlongError, TargetError and DecodingError.
        """
        checked = arguments.pairs(pairs)
        return self._forcing("scores are").score(self._cut(checked, arguments.overlong(overlong)))

    def attend(self, src: str, tgt: Target) -> Attention:
        """All attention weights as the model reads `src` and says `tgt` (text or tokens). Raises
        OverlongError, TargetError and DecodingError."""
        forcing = self._forcing("attention is")
        ((part,),) = cut_pairs(
            arguments.pairs([(src, tgt)]),
            self.vocabularies,
            max_length=self.max_length,
            overlong="refuse",
        )
        return forcing.attention(part, self.vocabularies)

    def align(
        self,
        pairs: Iterable[tuple[str, Target]],
        *,
        layer: int | None = None,
        overlong: Overlong = "split",
    ) -> list[Alignment]:
        """The source word of each translation's words, by the decoder's attention, in order.

        `layer` counts from 0 (default: the last but one). Translations are as in `score`. Raises
        OverlongError, TargetError, DecodingError, and ValueError for an unknown layer.
        """
        forcing = self._forcing("alignments need")
        checked = arguments.pairs(pairs)
        cut = self._cut(checked, arguments.overlong(overlong))
        lines = [
            (source, target if isinstance(target, str) else None, parts)
            for (source, target), parts in zip(checked, cut, strict=True)
        ]
        if layer is None:
            layer = aligning_layer(self.model.config)
        layer = arguments.whole_number("layer", layer)
        return align_parts(forcing, self.vocabularies, lines, layer=layer)

    def _cut(self, pairs: Sequence[tuple[str, Target]], overlong: Overlong) -> list[list[Part]]:
        """The parts of each pair; none if both sides are blank for `translate`."""
        cut = cut_pairs(
            pairs,
            self.vocabularies,
            max_length=self.max_length,
            overlong=overlong,
            language=self.src_lang,
        )
        return [
            parts
            if (not is_blank(source) and any(part.src for part in parts))
            or any(part.tgt and not is_blank(part.tgt_text) for part in parts)
            else []
            for (source, _), parts in zip(pairs, cut, strict=True)
        ]

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        window: int = 4096,
        n_best: int = 1,
        several: Several = "warn",
    ) -> Iterator[Translation]:
        """As `translate`, for any number of lines, with at most `window` in memory."""
        if isinstance(lines, str):
            raise TypeError("translate_lines takes lines; for a single str use `translate`")
        if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
            raise TypeError(f"translate_lines takes lines of text, not {type(lines).__name__}")
        if arguments.whole_number("window", window) < 1:
            raise ValueError(f"window = {window} must be at least 1")
        remaining = iter(lines)
        first = 0
        while block := list(itertools.islice(remaining, window)):
            yield from self.translate(block, n_best=n_best, several=several, first=first)
            first += len(block)

    def _forcing(self, what: str) -> TeacherForcing:
        _check_not_forked()
        if len(self.members) > 1:
            raise DecodingError(f"{what} a single model: load the ensemble's runs one at a time")
        return TeacherForcing(self.params, self.model, self.config, self.mesh)


def _warn(translations: Sequence[Translation], first: int) -> None:
    """`first` is the number of the first line."""
    several = [
        number
        for number, translation in enumerate(translations, start=first)
        if translation.sentences > 1
    ]
    if several:
        shown = ", ".join(map(str, several[:_SHOWN])) + ", ..." * (len(several) > _SHOWN)
        _LOGGER.warning(
            "%s of %s lines have several sentences, but the model may translate only one of them: "
            "split these lines (flaxformer_mt.split_sentences); counted from 0: %s",
            f"{len(several):,}",
            f"{len(translations):,}",
            shown,
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
