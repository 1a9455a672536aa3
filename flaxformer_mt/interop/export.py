"""Writes a run's model for another program, and compares both before the folder appears."""

import dataclasses
import os
from collections.abc import Sequence

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2, huggingface, stablehlo
from flaxformer_mt.interop.folder import appearing
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Parity, Reference, Runtime, compare
from flaxformer_mt.rundir.paths import write_json


def export(
    translator: Translator,
    destination: str | os.PathLike[str],
    *,
    form: str,
    quantization: str = "float32",
    card: Card,
    sample: tuple[Sequence[str], str] | None,
    bound: float | None = None,
) -> Parity | None:
    """Writes the model into the new folder `destination` and compares both runtimes on `sample`,
    lines and their origin.

    A folder for Hugging Face gets `card`. `bound` is the largest accepted difference of a token's
    log-probability (default: the format's). Without a sample nothing is compared, and the result is
    None. A model to be quantized is first compared unquantized, since rounding would hide a wrong
    bias.

    Raises ExportError, and leaves nothing, if the format can't represent the model, a package is
    missing, the folder can't be written, or the runtimes disagree.
    """
    if quantization != "float32" and form != "ctranslate2":
        raise ExportError(f"the format '{form}' is float32 only: {quantization} is for ctranslate2")
    if sample is not None and form == "huggingface" and (names := huggingface.missing()):
        need = " ".join(names)
        raise ExportError(f"cannot compare outputs: pip install {need}, or use --unchecked")
    with appearing(destination) as folder:
        parity = None
        stages = (quantization,) if sample is None else ("float32", quantization)
        for stage in dict.fromkeys(stages):
            runtime: Runtime
            if form == "ctranslate2":
                ctranslate2.write(translator, folder, quantization=stage)
            elif form == "huggingface":
                huggingface.write(translator, folder, card=card)
            else:
                stablehlo.write(translator, folder)
            if sample is None:
                return None
            if form == "ctranslate2":
                runtime = ctranslate2.Runtime(folder, translator.vocabularies, quantization=stage)
            else:
                runtime = (huggingface if form == "huggingface" else stablehlo).Runtime(folder)
            usual = ctranslate2.BOUNDS[stage]  # of float32 that of every format
            most = usual if bound is None or stage != quantization else bound
            share = ctranslate2.MEAN_SHARES[stage]
            parity = compare(Reference(translator), runtime, *sample, bound=most, mean_share=share)
            write_json(folder / "parity.json", dataclasses.asdict(parity))
            if parity.agrees:
                continue
            problem = f"{destination}: not written, since the runtimes disagree"
            if stage != quantization:
                raise ExportError(f"{problem} even in float32, before {quantization}: {parity}")
            advice = "raise --bound if outputs differ only at near-equal tokens"
            if quantization == "int8":
                advice += "; on x86 without VNNI int8 products overflow: try --quantization int7"
            raise ExportError(f"{problem}: {parity}; {advice}")
        return parity
