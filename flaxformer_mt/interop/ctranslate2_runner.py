"""Translates with the CTranslate2 model in this file's folder.

    python translate.py < source.txt > target.txt

Needs ctranslate2 and sentencepiece, and nothing of the program that wrote the folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece

SETTINGS = "settings.json"
BATCH = 32

# Zero-width marks, and the sign for a blank.
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u2581"))


class Model:
    """The model and the vocabularies of a folder.

    How it searches is what `settings.json` says, unless a call says otherwise. `device` is "cpu" or
    "cuda"; `compute_type` as in ctranslate2.Translator.
    """

    def __init__(
        self, folder: str | Path, *, device: str = "cpu", compute_type: str = "default"
    ) -> None:
        folder = Path(folder)
        self.settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text("utf-8"))
        self.translator = ctranslate2.Translator(
            str(folder), device=device, compute_type=compute_type
        )
        self._src, self._tgt = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for side in ("source", "target")
        )
        self._codes = frozenset(self.settings["codes"])
        self._marks = {self.settings[mark] for mark in ("pad", "bos", "eos")}

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """The translation of each line; that of a blank one is empty.

        Raises ValueError for a line that is longer than the model takes.
        """
        # A single no-break space may have a token, which a model would turn into text.
        sources = [
            pieces if line.translate(_INVISIBLE).strip() else []
            for line, pieces in zip(lines, self.encode(lines), strict=True)
        ]
        longest = self.settings["max_length"] - 1
        for number, pieces in enumerate(sources, start=1):
            if len(pieces) > longest:
                raise ValueError(f"line {number} has {len(pieces)} tokens of at most {longest}")
        outputs = [""] * len(lines)
        # A call has one limit, so it gets sentences of one length.
        by_length: dict[int, list[int]] = {}
        for number, pieces in enumerate(sources):
            by_length.setdefault(len(pieces), []).append(number)
        for length in sorted(by_length.keys() - {0}):
            numbers = by_length[length]
            found = self.search(
                [sources[number] for number in numbers],
                limit=self.limit(length),
                beam_size=beam_size,
                length_penalty=length_penalty,
            )
            for number, pieces in zip(numbers, found, strict=True):
                outputs[number] = self.decode(pieces)
        return outputs

    def encode(self, lines: Sequence[str]) -> list[list[str]]:
        """Pieces of each line, without the end mark, which ctranslate2 adds."""
        found = []
        for line in lines:
            code, closing, rest = line.partition("<<")
            # Some models are told the target language by a code, such as >>fra<<.
            coded = code + closing in self._codes
            pieces = self._src.encode(
                (rest if coded else line).replace("\u2581", " "), out_type=str
            )
            # A run of unknown characters is one piece, which may look like a mark.
            unknown = self.settings["unk"]
            pieces = [unknown if piece in self._marks else piece for piece in pieces]
            found.append([code + closing, *pieces] if coded else pieces)
        return found

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of target pieces, on one line."""
        text = str(self._tgt.decode(list(pieces))).replace("\u2581", " ")
        return text.replace("\r", " ").replace("\n", " ").strip(" ")

    def limit(self, length: int) -> int:
        """The most pieces in the output for `length` pieces; end marks count on both sides."""
        ratio, extra = self.settings["max_ratio"], self.settings["max_extra_tokens"]
        return min(int(ratio * (length + 1)) + extra, self.settings["max_length"]) - 1

    def search(
        self,
        sources: Sequence[Sequence[str]],
        *,
        limit: int,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        no_repeat_ngram: int | None = None,
    ) -> list[list[str]]:
        """The best output of each source, of at most `limit` pieces."""
        given = {
            "beam_size": beam_size,
            "length_penalty": length_penalty,
            "no_repeat_ngram": no_repeat_ngram,
        }
        search = self.settings | {name: each for name, each in given.items() if each is not None}
        results = self.translator.translate_batch(
            list(map(list, sources)),
            max_batch_size=BATCH,
            max_input_length=0,  # cuts nothing off
            max_decoding_length=limit,
            min_decoding_length=0,  # the default of 1 forbids empty translations
            beam_size=search["beam_size"],
            length_penalty=search["length_penalty"],
            no_repeat_ngram_size=search["no_repeat_ngram"],
            disable_unk=True,
            suppress_sequences=[[self.settings["pad"]], [self.settings["bos"]]],
        )
        return [result.hypotheses[0] for result in results]


def main() -> None:
    """Standard input to standard output, line by line."""
    try:
        # Only line feeds end lines, so that every line has its translation.
        *lines, rest = sys.stdin.buffer.read().decode("utf-8").removeprefix("\ufeff").split("\n")
        lines += [rest] if rest else []
        texts = Model(Path(__file__).parent).translate([line.rstrip("\r") for line in lines])
    except UnicodeDecodeError as error:
        sys.exit(f"the input is not UTF-8 text (byte {error.start + 1})")
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.buffer.writelines(f"{text}\n".encode() for text in texts)


if __name__ == "__main__":
    main()
