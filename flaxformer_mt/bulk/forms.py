"""Lines as plain text, columns and JSON: sources and translations, or pairs and scores."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from flaxformer_mt.data.corpus.json_records import NoText, first_name, parsed, text_at
from flaxformer_mt.errors import UserError
from flaxformer_mt.n_best_lists import line_of
from flaxformer_mt.wording import counted

if TYPE_CHECKING:
    from flaxformer_mt.data.vocabulary import Vocabulary
    from flaxformer_mt.decoding.alignment import Alignment
    from flaxformer_mt.decoding.teacher_forcing import Scored
    from flaxformer_mt.decoding.text.segments import Target
    from flaxformer_mt.decoding.text.translation import Hypothesis, Translation

Name = Literal["text", "tsv", "jsonl"]
NAMES: tuple[Name, ...] = ("text", "tsv", "jsonl")
Written = Literal["text", "tsv", "jsonl", "moses"]
WRITTEN: tuple[Written, ...] = (*NAMES, "moses")
WRITABLE: dict[Name, tuple[Written, ...]] = {
    "text": ("text", "tsv", "jsonl", "moses"),
    "tsv": ("tsv", "text", "moses"),
    "jsonl": ("jsonl", "text", "moses"),
}


class UnwritableError(UserError):
    """A format that can't be written from the one that is read."""


class BadLine(UserError):
    """A line that can't be used; the message has neither file nor line number."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A line: the source to translate, with its own wishes, and the rest of the line."""

    source: str
    prefix: str = ""  # the beginning of the translation
    forbid: tuple[str, ...] = ()  # phrases that it must not have
    constraints: tuple[str, ...] = ()  # phrases that it must have
    columns: tuple[str, ...] = ()
    json: str = ""  # the object as written
    value: Any = None  # parsed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """The facts written besides a translation's text."""

    scores: bool = False
    alignments: bool = False
    tokens: bool = False
    n_best: bool = False  # in JSON a list below the best, in text and columns numbered lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """How lines are read and written.

    `column`, from 0, is translated in place, or with `append`, always for text, after the last.
    `key` leads to a JSON object's source (a dot into an object); its translation goes under
    `target_key`, which begins the other fields' names unless it is the default. All else is passed
    through, except to "moses": n-best lists as Moses writes them. With `join_lines` a line of text
    is a paragraph of hard-wrapped text, whose end is a blank line. Raises ValueError if two keys
    are the same and for lines to join in another format than text, and UnwritableError, a
    ValueError, for a format that can't be written from the other.
    """

    read: Name = "text"
    write: Written = "text"
    column: int = 0
    append: bool = False
    key: str = "source"
    target_key: str = "translation"
    prefix_key: str = ""
    forbid_key: str | None = None
    constraints_key: str | None = None
    shown: Shown = Shown()
    join_lines: bool = False

    def __post_init__(self) -> None:
        if self.write not in WRITABLE[self.read]:
            *others, last = WRITABLE[self.read]
            raise UnwritableError(
                f"from {self.read} you can write {', '.join(others)} or {last}, not {self.write}"
            )
        if self.join_lines and self.read != "text":
            raise ValueError(f"lines are joined in plain text only, not in {self.read}")
        if self.read == "text":  # it has no column to replace
            object.__setattr__(self, "append", True)
        if self.write == "jsonl":
            self._check_keys()

    def identity(self) -> dict[str, Any]:
        """The settings that a resumed call must share. Earlier versions' records don't have
        `join_lines`, so it is left out unless it is set."""
        settings = dataclasses.asdict(self)
        if not self.join_lines:
            del settings["join_lines"]
        return settings

    def _check_keys(self) -> None:
        """Raises ValueError if a field would be added under the key of a text."""
        if self.read != "jsonl":
            _check_written("source's", self.key)
        _check_written("translation's", self.target_key)
        read = {
            "the source is": self.key,
            "the prefix is": self.prefix_key,
            "the forbidden phrases are": self.forbid_key,
            "the constraints are": self.constraints_key,
        }
        readers = {key.partition(".")[0]: reader for reader, key in read.items() if key}
        for name in self._fields():
            if name not in readers:
                continue
            if name == self.target_key:
                raise ValueError(
                    f"the translation would be added under {name!r}, where {readers[name]}"
                )
            raise ValueError(
                f"the field {name!r} would be added under {name!r}, where {readers[name]}"
            )

    def parse(self, line: bytes) -> Record:
        """The content of a line. Raises BadLine."""
        if self.read == "jsonl":
            return self._parse_json(line)
        if self.read == "text":
            text = _decoded(line)
            return Record(text, columns=(_as_column(text),))
        columns = columns_of(line, self.column)
        return Record(columns[self.column], columns=tuple(columns))

    def render(
        self,
        record: Record,
        translation: Translation,
        alignments: Sequence[Alignment] = (),
        *,
        number: int = 1,
    ) -> bytes:
        """The lines to write; lines of n-best lists begin with the source's `number` and a tab, or
        in Moses's form with one less."""
        aligned: Sequence[Alignment | None] = alignments or [None] * len(translation.hypotheses)
        hypotheses = list(zip(translation.hypotheses, aligned, strict=True))
        if self.write == "jsonl":
            best, best_alignment = hypotheses[0]
            fields = {
                **self._object(best, best_alignment),
                self._named("at_limit"): translation.at_limit,
            }
            if self.shown.n_best:
                fields[self._named("n_best")] = [
                    self._object(hypothesis, alignment) for hypothesis, alignment in hypotheses
                ]
            return with_fields(record.json or _dumped({self.key: record.source}), fields)

        if self.write == "moses":
            return "".join(
                f"{_of_moses(number - 1, hypothesis, alignment)}\n"
                for hypothesis, alignment in hypotheses
            ).encode()

        index = f"{number}\t" if self.shown.n_best else ""
        return "".join(
            f"{index}{self._line(record, hypothesis, alignment)}\n"
            for hypothesis, alignment in hypotheses
        ).encode()

    def _line(self, record: Record, hypothesis: Hypothesis, aligned: Alignment | None) -> str:
        score = [f"{hypothesis.score:.4f}"] if self.shown.scores else []
        links = [] if aligned is None else [str(aligned)]
        text = _as_column(hypothesis.text)
        columns = list(record.columns)
        if self.write == "text":
            if score or links or self.shown.n_best:
                return "\t".join([*score, text, *links])
            return hypothesis.text
        if self.append:
            columns.append(text)
        else:
            columns[self.column] = text
        return "\t".join([*columns, *score, *links])

    def _parse_json(self, line: bytes) -> Record:
        record = _parsed_object(line)
        if self.write == "jsonl":
            for name in self._fields():
                if name in record.value:
                    raise BadLine(f"already has {name!r}: choose another key for the translation")
        return dataclasses.replace(
            record,
            source=_text_under(record, self.key),
            prefix=_text_under(record, self.prefix_key) if self.prefix_key else "",
            forbid=_texts_under(record, self.forbid_key),
            constraints=_texts_under(record, self.constraints_key),
        )

    def _fields(self) -> list[str]:
        """The keys that are written."""
        fields = {
            "score": self.shown.scores,
            "log_prob": self.shown.scores,
            "at_limit": True,
            "alignment": self.shown.alignments,
            "tokens": self.shown.tokens,
            "n_best": self.shown.n_best,
        }
        written = [field for field, is_written in fields.items() if is_written]
        return [self.target_key, *map(self._named, written)]

    def _named(self, field: str) -> str:
        return field_of(self.target_key, field)

    def _object(self, hypothesis: Hypothesis, aligned: Alignment | None) -> dict[str, Any]:
        fields: dict[str, Any] = {self.target_key: hypothesis.text}
        if self.shown.scores:
            # Six places, which are stable in float32.
            fields[self._named("score")] = round(hypothesis.score, 6)
            fields[self._named("log_prob")] = round(hypothesis.log_prob, 6)
        if aligned is not None:
            fields[self._named("alignment")] = str(aligned)
        if self.shown.tokens:
            fields[self._named("tokens")] = list(hypothesis.tokens)
        return fields


@dataclasses.dataclass(frozen=True)
class PairRecord:
    """A pair; if `target` is tokens, `text` is the text beside them, if any."""

    source: str
    target: Target
    line: str = ""  # as read: columns or an object
    text: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairForm:
    """How pairs are read and their scores written.

    "files": two files' lines, to scores. "tsv": columns `src` and `tgt`, from 0, and scores.
    "jsonl": texts under keys (or tokens under `tokens_key`), with scores under `scored_key`.
    """

    name: Literal["files", "tsv", "jsonl"]
    src: int = 0
    tgt: int = 1
    source_key: str = "source"
    target_key: str = "translation"
    tokens_key: str = ""
    scored_key: str = "scored"
    per_token: bool = False

    def __post_init__(self) -> None:
        _check_written("scores'", self.scored_key)

    def parse(self, line: bytes) -> PairRecord:
        """The content of a line. Raises BadLine."""
        if self.name == "files":
            src, _, tgt = line.partition(b"\n")
            return PairRecord(_decoded(src, "the source "), _decoded(tgt, "the target "))
        if self.name == "jsonl":
            return self._parse_json(line)
        columns = columns_of(line, max(self.src, self.tgt))
        return PairRecord(columns[self.src], columns[self.tgt], line="\t".join(columns))

    def _parse_json(self, line: bytes) -> PairRecord:
        record = _parsed_object(line)
        if self.scored_key in record.value:
            raise BadLine(f"already has {self.scored_key!r}: choose another key for scores")
        source = _text_under(record, self.source_key)
        if not self.tokens_key:
            return PairRecord(source, _text_under(record, self.target_key), line=record.json)
        tokens = record.value.get(self.tokens_key)
        if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
            raise BadLine(
                f"has no list of integers under {self.tokens_key!r}: write it with "
                "`translate --format jsonl --tokens` and this --translation-key"
            )
        text = None
        with contextlib.suppress(BadLine):  # optional
            text = _text_under(record, self.target_key)
        return PairRecord(source, tokens, record.json, text)

    def render(self, record: PairRecord, scored: Scored, vocabulary: Vocabulary) -> bytes:
        """The line to write, with natural logarithms to six places."""
        pieces = vocabulary.pieces(scored.tokens) if self.per_token else []
        if self.name == "jsonl":
            fields: dict[str, Any] = {
                "log_prob": round(scored.log_prob, 6),
                "score": round(scored.score, 6),
            }
            if self.per_token:
                fields["pieces"] = pieces
                fields["token_log_probs"] = [
                    round(log_prob, 6) for log_prob in scored.token_log_probs
                ]
            return with_fields(record.line, {self.scored_key: fields})

        columns = [f"{scored.log_prob:.6f}", f"{scored.score:.6f}"]
        if self.per_token:
            tokens = zip(pieces, scored.token_log_probs, strict=True)
            columns.append(" ".join(f"{piece}:{log_prob:.6f}" for piece, log_prob in tokens))
        if self.name == "tsv":
            columns.insert(0, record.line)
        return ("\t".join(columns) + "\n").encode()


def _decoded(line: bytes, whose: str = "") -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadLine(f"{whose}is not UTF-8 text (byte {error.start + 1})") from None


def columns_of(line: bytes, last: int) -> list[str]:
    """The columns of a line, at least up to number `last`, from 0. Raises BadLine."""
    columns = _decoded(line).split("\t")
    if len(columns) <= last:
        raise BadLine(f"has {counted(len(columns), 'column')}, but no column {last + 1}")
    return columns


def field_of(translation: str, field: str) -> str:
    """The key of a field, such as "score", about the translation under the key `translation`."""
    return field if translation == Form.target_key else f"{translation}_{field}"


def _check_written(whose: str, key: str) -> None:
    if "." in key:
        raise ValueError(f"the {whose} key {key!r} must not contain a dot, an inner object's mark")


def _parsed_object(line: bytes) -> Record:
    content = _readable(parsed, line)
    if not isinstance(content, dict):
        raise BadLine("is JSON, but not an object")
    return Record("", json=line.decode().strip(), value=content)


def _text_under(record: Record, key: str) -> str:
    text: str = _readable(text_at, record.value, key).decode()
    return text.replace("\n", " ").replace("\r", " ")


def _texts_under(record: Record, key: str | None) -> tuple[str, ...]:
    if key is None:
        return ()
    node = record.value
    path: str | None = key
    while path is not None and isinstance(node, dict):
        name, path = first_name(path, node)
        node = node.get(name, [])
    if not isinstance(node, list):
        raise BadLine(f"has no list of texts under {key!r}")
    return tuple(_readable(text_at, {"": text}, "").decode() for text in node)


def with_fields(whole: str, fields: dict[str, Any]) -> bytes:
    """The object `whole` as a line, unchanged to the byte, with more fields at its end."""
    inside = whole[:-1].rstrip()
    comma = "" if inside.endswith("{") and not inside[:-1] else ", "
    return f"{inside}{comma}{_dumped(fields)[1:]}\n".encode()


def _of_moses(sentence: int, hypothesis: Hypothesis, aligned: Alignment | None) -> str:
    return line_of(
        sentence,
        hypothesis.text,
        log_prob=hypothesis.log_prob,
        score=hypothesis.score,
        alignment=None if aligned is None else str(aligned),
    )


def _as_column(text: str) -> str:
    # Byte pieces can spell a tab.
    return text.replace("\t", " ")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _readable(reader: Callable[..., Any], *arguments: Any) -> Any:
    value = reader(*arguments)
    if isinstance(value, NoText):
        raise BadLine(f"{value.reason}: {value.detail}")
    return value
