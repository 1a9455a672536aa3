"""Writing a run's model for another program, and proving it before it appears under its name."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from flaxformer_mt.config import DataConfig
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import ExportError, ctranslate2, huggingface, stablehlo
from flaxformer_mt.export.folder import appearing, write_json
from flaxformer_mt.export.parity import Parity, Runtime, compare
from flaxformer_mt.export.reference import Reference

FORMATS = ("ctranslate2", "huggingface", "stablehlo")
QUANTIZATIONS = ctranslate2.QUANTIZATIONS
PARITY = "parity.json"


@dataclasses.dataclass(frozen=True)
class Sample:
    """Source lines for the comparison, and where they are from."""

    lines: Sequence[str]
    origin: str


def export(
    translator: Translator,
    destination: str | os.PathLike[str],
    *,
    form: str,
    quantization: str = "float32",
    languages: DataConfig,
    sample: Sample | None,
    bound: float | None = None,
) -> Parity | None:
    """Writes the model into the new folder `destination` and compares both runtimes on `sample`.

    `bound` is the largest difference of a token's log-probability that passes, by default that of
    the format. Without a sample nothing is compared, and None returned. A model to be quantized is
    first compared as it is, for rounding would hide a wrong bias. The folder appears when it is
    complete and, if compared, proven.

    Raises ExportError where the format has no place for the model, a package is missing, the folder
    cannot be written, or the runtimes disagree; nothing is left then.
    """
    if quantization != "float32" and form != "ctranslate2":
        raise ExportError(f"the format '{form}' is float32: {quantization} is for ctranslate2")
    if sample is not None:
        _require_runtime(form)
    with appearing(destination) as folder:
        if sample is not None and quantization != "float32":
            open_runtime, exact, _ = _write(translator, folder, form, "float32", languages)
            lines, origin = sample.lines, sample.origin
            parity = compare(Reference(translator), open_runtime(), lines, origin, bound=exact)
            if not parity.agrees:
                raise ExportError(
                    f"{destination}: not written, for the runtimes disagree in float32, before "
                    f"{quantization}: {parity}"
                )
        open_runtime, usual, share = _write(translator, folder, form, quantization, languages)
        if sample is None:
            return None
        parity = compare(
            Reference(translator),
            open_runtime(),
            sample.lines,
            sample.origin,
            bound=usual if bound is None else bound,
            mean_share=share,
        )
        if not parity.agrees:
            advice = (
                "--bound raises the difference that passes, where outputs part only at near-equal "
                "tokens"
            )
            if quantization == "int8" and _weights_agree(translator, folder, sample, parity.bound):
                advice = (
                    "in float32 the same weights agree, so this CPU's products of bytes lose what "
                    "does not fit into 16 bits, as x86 without VNNI does: --quantization int7"
                )
            raise ExportError(
                f"{destination}: not written, for the runtimes disagree: {parity}; {advice}"
            )
        write_json(folder / PARITY, dataclasses.asdict(parity))
        return parity


def _write(
    translator: Translator, folder: Path, form: str, quantization: str, languages: DataConfig
) -> tuple[Callable[[], Runtime], float, float]:
    """Fills the folder; how its runtime is opened, the format's bound, and the mean's share."""
    if form == "ctranslate2":
        ctranslate2.write(translator, folder, quantization=quantization)
        bound, share = ctranslate2.BOUNDS[quantization], ctranslate2.MEAN_SHARES[quantization]
        return (
            lambda: ctranslate2.Runtime(folder, translator.vocabularies, quantization=quantization),
            bound,
            share,
        )
    if form == "huggingface":
        huggingface.write(translator, folder, languages=languages)
        return lambda: huggingface.Runtime(folder), huggingface.BOUND, 1.0
    stablehlo.write(translator, folder)
    return lambda: stablehlo.Runtime(folder), stablehlo.BOUND, 1.0


def _weights_agree(translator: Translator, folder: Path, sample: Sample, bound: float) -> bool:
    """Whether a CTranslate2 folder's weights, as rounded as they are, agree in float32 products."""
    in_float32 = ctranslate2.Runtime(folder, translator.vocabularies, quantization="float32")
    found = compare(
        Reference(translator),
        in_float32,
        sample.lines,
        sample.origin,
        bound=bound,
        mean_share=ctranslate2.MEAN_SHARES["int8"],
    )
    return found.agrees


def _require_runtime(form: str) -> None:
    if form == "huggingface" and (names := huggingface.missing()):
        raise ExportError(
            f"whether outputs agree was not checked, for {' and '.join(names)} "
            f"{'is' if len(names) == 1 else 'are'} not installed: pip install {' '.join(names)}, "
            "or write the folder without the check by --unchecked"
        )
    if form == "stablehlo" and importlib.util.find_spec("flatbuffers") is None:
        raise ExportError(
            "the format 'stablehlo' is written by means of the package flatbuffers, which is not "
            "installed: pip install 'flaxformer-mt[export]'"
        )
