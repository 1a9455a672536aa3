"""Models to and from other programs: CTranslate2, Argos, Hugging Face, StableHLO, Marian ..."""

import importlib
import importlib.util
from typing import Any

from flaxformer_mt.errors import UserError, install

FORMATS = (
    "ctranslate2",
    "argos",
    "huggingface",
    "stablehlo",
    "marian",
    "bergamot",
    "onnx",
)
QUANTIZATIONS = ("float32", "float16", "int8", "int7")  # of ctranslate2
QUANTIZED = {  # others: float32
    "ctranslate2": QUANTIZATIONS,
    "argos": QUANTIZATIONS,
    "bergamot": ("float32", "int8"),
}
BOUND = 1e-3  # nats a token by which two programs in float32 may differ


class ExportError(UserError):
    """A model that a format or this program cannot hold, a missing package, outputs that differ."""


def require_package_of_extra(module: str, purpose: str) -> None:
    """Raises ExportError if a module of the extra `export` isn't installed, without importing it;
    `purpose` opens the error message."""
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise ExportError(f"{purpose} {package}, which is not installed: {install('export')}")


def package_of_extra(module: str, purpose: str) -> Any:
    """Imports a module of the extra `export`; `purpose` opens the error message."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ExportError(
            f"{purpose} {package}, which is not installed: {install('export')}"
        ) from error
