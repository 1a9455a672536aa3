"""Translates greedily with the StableHLO programs in this file's folder.

    python translate.py < source.txt > target.txt

Needs jax, flatbuffers, numpy and sentencepiece, and nothing of the program that wrote the folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import sentencepiece

PROGRAMS = ("encoder", "decode_step")
WEIGHTS, SETTINGS = "weights.npz", "settings.json"
STEP_OF_LENGTHS = 16  # each length is compiled, so there are few
BATCH = 32

# Zero-width marks, and the sign for a blank.
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u2581"))


class Model:
    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text("utf-8"))
        self.params: dict[str, Any] = {}
        with np.load(folder / WEIGHTS) as arrays:
            for path, array in arrays.items():
                *folders, name = path.split("/")
                part = self.params
                for each in folders:
                    part = part.setdefault(each, {})
                part[name] = jnp.asarray(array)
        programs = (bytearray((folder / f"{name}.jaxexport").read_bytes()) for name in PROGRAMS)
        self._encoder, self._decode_step = (
            jax.jit(jax.export.deserialize(program).call) for program in programs
        )
        self._src, self._tgt = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for side in ("source", "target")
        )
        src, self._pieces = (
            json.loads((folder / f"{side}_pieces.json").read_text("utf-8"))
            for side in ("source", "target")
        )
        # A run of unknown characters is one piece, which may look like a mark.
        marks = {self.settings[mark] for mark in ("pad", "bos", "eos", "unk")}
        self._ids = {piece: number for number, piece in enumerate(src) if number not in marks}
        self._codes = frozenset(self.settings["codes"])

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The greedy translation of each line; that of a blank one is empty.

        Raises ValueError for a line that is longer than the model takes.
        """
        # A single no-break space may have a token, which a model would turn into text.
        sources = [
            ids if line.translate(_INVISIBLE).strip() else []
            for line, ids in zip(lines, self.encode(lines), strict=True)
        ]
        longest = self.settings["max_length"]
        for number, ids in enumerate(sources, start=1):
            if len(ids) > longest:
                raise ValueError(f"line {number} has {len(ids)} tokens of at most {longest}")
        outputs = [""] * len(lines)
        # Of like length together.
        order = sorted(range(len(lines)), key=lambda number: len(sources[number]))
        order = [number for number in order if len(sources[number]) > 1]
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            batch = [sources[number] for number in numbers]
            ratio, extra = self.settings["max_ratio"], self.settings["max_extra_tokens"]
            limits = [min(int(ratio * len(ids)) + extra, longest) for ids in batch]
            for number, output in zip(numbers, self.greedy(batch, limits), strict=True):
                outputs[number] = self.decode(output)
        return outputs

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Token ids of each line, the end mark last."""
        unknown, end = self.settings["unk"], self.settings["eos"]
        found = []
        for line in lines:
            code, closing, rest = line.partition("<<")
            # Some models are told the target language by a code, such as >>fra<<.
            coded = code + closing in self._codes
            pieces = self._src.encode(
                (rest if coded else line).replace("\u2581", " "), out_type=str
            )
            pieces = [code + closing, *pieces] if coded else pieces
            found.append([*(self._ids.get(piece, unknown) for piece in pieces), end])
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids, on one line."""
        text = str(self._tgt.decode([self._pieces[number] for number in ids]))
        return text.replace("\u2581", " ").replace("\r", " ").replace("\n", " ").strip(" ")

    def greedy(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """The likeliest token at each position, until the end mark or the limit (it counted)."""
        never = [self.settings[mark] for mark in ("pad", "bos", "unk")]
        end, ends = self.settings["eos"], np.array(limits)
        state = _Decoding(self, sources, max(limits))
        outputs = np.full((len(sources), max(limits)), end)
        running = np.ones(len(sources), bool)
        tokens = np.full(len(sources), self.settings["bos"], np.int32)
        for index in range(max(limits)):
            log_probs = np.array(state.step(tokens, index))
            log_probs[:, never] = -np.inf
            tokens = log_probs.argmax(axis=1).astype(np.int32)
            tokens[index + 1 >= ends] = end
            outputs[running, index] = tokens[running]
            running &= tokens != end
            if not running.any():
                break
        return [row[: row.tolist().index(end)].tolist() for row in outputs]

    def log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[np.ndarray]:
        """Natural log-probability of each target's tokens and of the end mark after them."""
        length = max(map(len, targets)) + 1
        state = _Decoding(self, sources, length)
        forced = np.full((len(targets), length + 1), self.settings["eos"], np.int32)
        forced[:, 0] = self.settings["bos"]
        for row, target in enumerate(targets):
            forced[row, 1 : len(target) + 1] = target
        rows, found = np.arange(len(targets)), []
        for index in range(length):
            log_probs = np.asarray(state.step(forced[:, index], index))
            found.append(log_probs[rows, forced[:, index + 1]])
        lengths = [len(target) + 1 for target in targets]
        return [row[:end] for row, end in zip(np.stack(found, axis=1), lengths, strict=True)]


class _Decoding:
    """The state of decoding a batch: keys, values and cache."""

    def __init__(self, model: Model, sources: Sequence[Sequence[int]], length: int) -> None:
        self._model, settings = model, model.settings
        width = _rounded(max(map(len, sources)), settings["max_length"])
        src = np.full((len(sources), width), settings["pad"], np.int32)
        for row, ids in enumerate(sources):
            src[row, : len(ids)] = ids
        lengths = np.array([len(ids) for ids in sources], np.int32)
        self._source = model._encoder(model.params, src, lengths)
        rows, heads = len(sources), settings["heads"]
        room = _rounded(length, settings["max_length"])
        self._own = {
            layer: {
                "key": jnp.zeros((rows, heads, settings["key_width"], room), jnp.float32),
                "value": jnp.zeros((rows, heads, room, settings["value_width"]), jnp.float32),
            }
            for layer in self._source["cross"]
        }

    def step(self, tokens: np.ndarray, index: int) -> jax.Array:
        log_probs, self._own = self._model._decode_step(
            self._model.params, tokens, np.int32(index), self._own, self._source
        )
        return log_probs


def _rounded(length: int, longest: int) -> int:
    return min(-(-length // STEP_OF_LENGTHS) * STEP_OF_LENGTHS, longest)


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
