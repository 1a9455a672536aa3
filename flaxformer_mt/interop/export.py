"""Writes a run's model for another program, and proves it before it gets its name."""

import dataclasses
import os
from collections.abc import Sequence

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2, huggingface, stablehlo
from flaxformer_mt.interop.card import Card
from flaxformer_mt.interop.folder import appearing, write_json
from flaxformer_mt.interop.parity import Parity, Reference, Runtime, compare

PARITY = "parity.json"


@dataclasses.dataclass(frozen=True)
class Sample:
    lines: Sequence[str]
    origin: str


def export(
    translator: Translator,
    destination: str | os.PathLike[str],
    *,
    form: str,
    quantization: str = "float32",
    card: Card,
    sample: Sample | None,
    bound: float | None = None,
) -> Parity | None:
    """Writes the model into the new folder `destination` and compares both runtimes on `sample`.

    A folder for Hugging Face gets `card`. `bound` is the largest accepted difference of a token's
    log-probability (default: the format's). Without a sample nothing is compared, and the result is
    None. A model to be quantized is first compared unquantized, since rounding would hide a wrong
    bias. The folder appears when it is complete and has passed the comparison.

    Raises ExportError, and leaves nothing, if the format can't represent the model, a package is
    missing, the folder can't be written, or the runtimes disagree.
    """
    if quantization != "float32" and form != "ctranslate2":
        raise ExportError(f"the format '{form}' is float32 only: {quantization} is for ctranslate2")
    if sample is not None and form == "huggingface" and (names := huggingface.missing()):
        raise ExportError(
            f"cannot compare outputs without {' and '.join(names)}: pip install "
            f"{' '.join(names)}, or skip the comparison with --unchecked"
        )
    usual = ctranslate2.BOUNDS[quantization]  # of float32 that of every format
    with appearing(destination) as folder:

        def write(quantization: str) -> None:
            if form == "ctranslate2":
                ctranslate2.write(translator, folder, quantization=quantization)
            elif form == "huggingface":
                huggingface.write(translator, folder, card=card)
            else:
                stablehlo.write(translator, folder)

        def proof(rounded: str, bound: float, *, products: str = "") -> Parity:
            assert sample is not None
            runtime: Runtime
            if form == "ctranslate2":
                products = products or rounded
                pair = translator.vocabularies
                runtime = ctranslate2.Runtime(folder, pair, quantization=products)
            else:
                program = huggingface if form == "huggingface" else stablehlo
                runtime = program.Runtime(folder)
            share = ctranslate2.MEAN_SHARES[rounded]
            lines, origin = sample.lines, sample.origin
            reference = Reference(translator)
            return compare(reference, runtime, lines, origin, bound=bound, mean_share=share)

        if sample is not None and quantization != "float32":
            write("float32")
            parity = proof("float32", ctranslate2.BOUNDS["float32"])
            if not parity.agrees:
                raise ExportError(
                    f"{destination}: not written, since the runtimes disagree even in float32, "
                    f"before {quantization}: {parity}"
                )
        write(quantization)
        if sample is None:
            return None
        parity = proof(quantization, usual if bound is None else bound)
        if not parity.agrees:
            advice = "raise --bound if outputs differ only at near-equal tokens"
            # The same rounded weights in float32 products.
            if quantization == "int8" and proof("int8", parity.bound, products="float32").agrees:
                advice = (
                    "the same weights agree in float32, so this CPU's int8 products overflow 16 "
                    "bits, as on x86 without VNNI: use --quantization int7"
                )
            raise ExportError(
                f"{destination}: not written, since the runtimes disagree: {parity}; {advice}"
            )
        write_json(folder / PARITY, dataclasses.asdict(parity))
        return parity
