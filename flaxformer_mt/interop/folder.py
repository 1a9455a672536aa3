"""A folder for another program: how it is written, its README, and notes on the run's search."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.config.languages import tag_of_each_pair
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.interop import ExportError, runner
from flaxformer_mt.rundir.paths import write_json


def _stopping(program: str, patience: float) -> str:
    """A note on when the other program's beam search stops, if the run's stops otherwise.

    By each program's source (CTranslate2 4.8; transformers 5.23, `_check_early_stop_heuristic`).
    """
    if program != "transformers":
        if patience == 1:
            return ""
        return (
            f"- {program} stops once as many translations as the beam holds have ended, as the "
            "run\n  does with `--patience 1`. A few outputs differ."
        )
    if patience == 1:
        return (
            "- The search stops once as many translations as the beam holds have ended\n  "
            "(`early_stopping=True`), as in the run."
        )
    return (
        "- `early_stopping` is `False`, transformers' default: once as many translations as the\n"
        "  beam holds have ended, it stops unless the best unfinished one, judged by its length\n"
        "  so far, scores above the worst of them. The run stops by another rule\n"
        f"  (`decoding.patience` is {patience:g}); `early_stopping=True` is its `--patience 1`,\n"
        '  and `"never"` searches longest. A few outputs differ.'
    )


# Settings that have no form in another program, with the values that have no effect.
_WITHOUT_FORM: Mapping[str, object] = {
    "coverage_penalty": 0.0,
    "diverse_groups": 1,
    "min_length": 0,
    "min_ratio": 0.0,
    "copy_symbols": False,
    "keep": False,
    "copy_unknown": False,
    "outputs": "text",
}
NGRAM_RULE: Mapping[str, object] = {"no_repeat_ngram": 0}  # which some programs have


def unsupported(config: DecodingConfig, also: Mapping[str, object]) -> list[str]:
    """Markdown notes on settings of the run that have an effect, but no form in another program;
    `also`: names of further ones, and their values without an effect."""
    return [
        f"- The run's `decoding.{name}` of {setting} is not supported here."
        for name, off in {**_WITHOUT_FORM, **also}.items()
        if (setting := getattr(config, name)) != off
    ]


def search_of(
    config: DecodingConfig,
    program: str,
    *,
    penalty: str = "length_penalty",
    has_ngram_rule: bool = True,
) -> tuple[float, str]:
    """The length penalty of `program` that equals the run's (0 if none does, since these programs
    only know an exponent of |Y|), and Markdown notes on the searches' differences.

    `penalty`: the program's name of it. `has_ngram_rule`: the program has
    `decoding.no_repeat_ngram`.
    """
    alpha = config.length_penalty
    average = config.length_norm == "average"
    notes = [f"- The beam size is {config.beam_size}, as in the run."]
    if alpha == 0:
        notes.append(f"- `{penalty}` is 0 (none), as in the run.")
    elif average:
        notes.append(f"- `{penalty}` is {alpha:g}, as in the run: the exponent of |Y|.")
    else:
        notes.append(
            f"- `{penalty}` is 0 (none). The run's is {alpha:g} in the paper's\n  ((5 + |Y|) "
            f"/ 6)^alpha; {program} divides by |Y|^alpha, so the same number would be\n  a "
            "different penalty. Tune one on text with known translations; the run uses that\n  "
            "formula with `--length-norm average --length-penalty A`."
        )
    if config.beam_size > 1 and config.ends_among == "beam":
        notes.append("- Only the best of the beam may end a translation, as in the run.")
    elif config.beam_size > 1:
        notes.append(
            "- In the run any of the 2 x beam best continuations may end a translation\n  "
            f"(`decoding.ends_among` is `candidates`); in {program} only the beam best may,\n  as "
            "in the run with `--ends-among beam`. A few outputs differ."
        )
    if config.beam_size > 1 and (stopping := _stopping(program, config.patience)):
        notes.append(stopping)
    notes += unsupported(config, {} if has_ngram_rule else NGRAM_RULE)
    return alpha if average else 0.0, "Search, compared with the run's:\n\n" + "\n".join(notes)


@contextlib.contextmanager
def appearing(destination: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a folder that becomes `destination` at the end, or is removed after an error. Raises
    ExportError if something exists there or can't be written."""
    if "://" in str(destination):
        raise ExportError(f"{destination}: is not a local folder; write to one, then copy it")
    place = Path(os.path.abspath(destination))  # "." has no name
    try:
        str(place).encode()
    except UnicodeEncodeError as error:  # which the other programs' libraries can't open
        raise ExportError(f"{str(place)!a}: is not UTF-8; choose another folder") from error
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ExportError(f"{place}: already exists; choose another folder, or remove it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as folder:
            folder.mkdir()
            yield folder
    except OSError as error:
        raise ExportError(
            f"{error.filename or place}: cannot be written: {error.strerror or error}"
        ) from error


def write_program(
    folder: Path, translator: Translator, marks: Sequence[object], **more: object
) -> None:
    """Writes `translate.py`, a copy of runner.py, and all files that it reads but the weights.

    `marks` stand for padding, begin, end and unknown; `more` are further settings.
    """
    settings = {
        "max_length": translator.model.config.max_length,
        "max_ratio": translator.config.max_ratio,
        "max_extra_tokens": translator.config.max_extra_tokens,
        **dict(zip(("pad", "bos", "eos", "unk"), marks, strict=True)),
        "codes": translator.vocabularies.src.language_codes,
        "added": list(map(dataclasses.asdict, translator.vocabularies.src.added_tokens)),
        **more,
    }
    write_json(folder / "settings.json", settings)
    write_models(folder, translator.vocabularies)
    (folder / "translate.py").write_bytes(Path(runner.__file__).read_bytes())


def write_models(folder: Path, vocabularies: Vocabularies) -> None:
    (folder / "source.spm").write_bytes(vocabularies.src.model)
    (folder / "target.spm").write_bytes(vocabularies.tgt.model)


def _lines_of(translator: Translator) -> str:
    """What becomes of a line of several sentences, in the run and in another program."""
    if translator.config.outputs != "text":
        return ""  # trees are of a single sentence
    together = translator.together
    if together is None:
        run = (
            "The run translates every line as a whole: how many sentences the lines of its\n  "
            'training text had isn\'t recorded. `several="split"` in Python splits them.'
        )
    else:
        sentences = "one sentence" if together == 1 else f"{together} sentences"
        run = (
            f"The run splits a line of more than {sentences}, translates it sentence by\n  "
            "sentence, and joins the translations. `translate --no-split`, in Python\n  "
            '`several="keep"`, turns this off.'
        )
    language = translator.src_lang
    return f"""Lines of several sentences:

- {run}
- Here, the model gets each line as a whole and may leave out sentences: give it one sentence
  per line. `fm.split_sentences(text, {language!r}).texts` of flaxformer-mt splits text as the run
  does, but leaves the marks of a quotation of several sentences in the first and the last of them,
  which the run puts around their translations.
"""


def _tags_of(translator: Translator) -> str:
    """Which tag asks for which languages, if the training text had tags."""
    tags = tag_of_each_pair(translator.directions)
    if not any(tags.values()):
        return ""
    listed = "".join(
        f"- {src_lang} to {tgt_lang}: {f'`{tag}`' if tag else 'no tag'}\n"
        for (src_lang, tgt_lang), tag in tags.items()
    )
    return f"""Each source begins with the tag of its direction and a blank:

{listed}
"""


def write_readme(
    folder: Path,
    translator: Translator,
    *,
    title: str,
    install: str,
    use: str,
    notes: str,
    header: str = "",
    where: str = "In this folder",
    installer: str = "pip install",
    language: str = "python",
    splits_sentences: bool = False,
) -> None:
    """Writes README.md: `header`, what to install, the lines of `language` that translate (run
    `where`), and how lines of several sentences are read, unless the program splits them."""
    text = f"""{header}# {title}

    {installer} {install}

{where}:

```{language}
{use}```

{notes}
{_tags_of(translator)}{"" if splits_sentences else _lines_of(translator)}
Written by flaxformer-mt. `parity.json`, if present, records how closely this model's outputs agree
with those of the run it was made from.
"""
    (folder / "README.md").write_text(text, "utf-8")
