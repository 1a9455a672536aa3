"""Writes a run's model for another program, and compares both before the folder appears."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import (
    QUANTIZED,
    ExportError,
    argos,
    ctranslate2,
    huggingface,
    marian_program,
    onnx,
    package_of_extra,
    stablehlo,
)
from flaxformer_mt.interop.argos import ArgosRuntime
from flaxformer_mt.interop.ctranslate2 import CTranslate2Runtime
from flaxformer_mt.interop.folder import appearing
from flaxformer_mt.interop.huggingface import Card, HuggingFaceRuntime
from flaxformer_mt.interop.marian_program import MarianRuntime
from flaxformer_mt.interop.onnx import ONNXRuntime
from flaxformer_mt.interop.parity import Parity, Reference, Runtime, compare
from flaxformer_mt.interop.stablehlo import StableHLORuntime
from flaxformer_mt.rundir.paths import write_json


class DisagreeError(ExportError):
    """The other program's outputs differ from this program's by more than the bounds."""

    def __init__(self, message: str, parity: Parity) -> None:
        super().__init__(message)
        self.parity = parity


def export(
    translator: Translator,
    destination: str | os.PathLike[str],
    *,
    form: str,
    quantization: str = "float32",
    card: Card | None = None,
    sample: tuple[Sequence[str], str] | None,
    bound: float | None = None,
) -> Parity | None:
    """Writes the model into the new folder `destination` and compares both runtimes on `sample`,
    lines and their origin.

    Hugging Face's and ONNX's folders need a `card`. `bound` is the largest accepted difference of a
    token's log-probability (default: the format's). Without a sample nothing is compared, and the
    result is None. A model to be quantized is first compared unquantized, since rounding would hide
    a wrong bias.

    Raises ExportError, and leaves nothing, if the format can't represent the model, a package is
    missing, the folder can't be written, or the runtimes disagree.
    """
    _check_quantization(form, quantization)
    if sample is not None and form == "huggingface" and (names := huggingface.missing()):
        raise ExportError(
            f"cannot compare outputs: pip install {' '.join(names)}, or use --unchecked"
        )
    if sample is not None and form == "onnx":
        package_of_extra("onnxruntime", "the format 'onnx' is compared by the package")

    with appearing(destination) as folder:
        if sample is None:
            _write(translator, folder, form, quantization, card)
            return None
        parity = None
        for stage in dict.fromkeys(("float32", quantization)):
            _write(translator, folder, form, stage, card)
            is_last = stage == quantization
            parity = compare(
                Reference(translator),
                _runtime(translator, folder, form, stage),
                *sample,
                bound=bound if is_last and bound is not None else ctranslate2.BOUNDS[stage],
                mean_share=ctranslate2.MEAN_SHARES[stage],
            )
            write_json(folder / "parity.json", dataclasses.asdict(parity))
            if parity.agrees:
                continue
            if is_last:
                raise DisagreeError(
                    f"{destination}: not written, since the runtimes disagree: {parity}; "
                    f"{_advice(form, quantization)}",
                    parity,
                )
            raise DisagreeError(
                f"{destination}: not written, since the runtimes disagree even in float32, "
                f"before {quantization}: {parity}",
                parity,
            )
        return parity


def _check_quantization(form: str, quantization: str) -> None:
    supported = QUANTIZED.get(form, ("float32",))
    if quantization not in supported:
        forms = ", ".join(form for form, types in QUANTIZED.items() if quantization in types)
        raise ExportError(
            f"the format '{form}' is {' or '.join(supported)} only: {quantization} is for {forms}"
        )


def _write(
    translator: Translator, folder: Path, form: str, quantization: str, card: Card | None
) -> None:
    if form == "ctranslate2":
        ctranslate2.write(translator, folder, quantization=quantization)
    elif form == "argos":
        argos.write(translator, folder, quantization=quantization)
    elif form in ("huggingface", "onnx"):
        if card is None:
            raise TypeError(f"a folder in the format '{form}' needs a card")
        write = huggingface.write if form == "huggingface" else onnx.write
        write(translator, folder, card=card)
    elif form in ("marian", "bergamot"):
        marian_program.write(translator, folder, form=form, quantization=quantization)
    else:
        stablehlo.write(translator, folder)


def _runtime(translator: Translator, folder: Path, form: str, quantization: str) -> Runtime:
    if form == "ctranslate2":
        return CTranslate2Runtime(folder, translator.vocabularies, quantization=quantization)
    if form == "argos":
        return ArgosRuntime(folder, translator.vocabularies, quantization=quantization)
    if form == "huggingface":
        return HuggingFaceRuntime(folder)
    if form in ("marian", "bergamot"):
        longest = translator.model.config.max_length
        return MarianRuntime(folder, form, translator.config, max_length=longest)
    if form == "onnx":
        return ONNXRuntime(folder, huggingface.numbering_of(translator))
    return StableHLORuntime(folder)


def _advice(form: str, quantization: str) -> str:
    advice = "raise --bound if outputs differ only at near-equal tokens"
    if form in ("ctranslate2", "argos") and quantization == "int8":
        advice += "; on x86 without VNNI int8 products overflow: try --quantization int7"
    return advice
