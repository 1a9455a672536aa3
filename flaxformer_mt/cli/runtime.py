"""`--runtime`: which program searches."""

from __future__ import annotations

from argparse import Namespace

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag
from flaxformer_mt.config import ConfigError
from flaxformer_mt.interop import require_package_of_extra
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import is_remote

# With the type of the weights, where they are exported.
RUNTIMES = {
    "jax": "",
    "ctranslate2": "float32",
    "ctranslate2-int8": "int8",
    "ctranslate2-int7": "int7",
}
RUNTIME = {
    "--runtime": Flag(
        "the program that searches; ctranslate2 (extra `export`) is faster for some models on CPUs "
        "and compiles nothing, with weights in int8 too (int7: on x86 without VNNI); a few "
        "translations differ",
        choices=RUNTIMES,
    ),
}
# Flags of what other programs' searches don't have. They multiply in types of their own.
_WITHOUT = (
    "dtype",
    "ensemble",
    "shortlist",
    "sample",
    "prefix",
    "prefix_key",
    "forbid",
    "forbid_key",
    "constraints_key",
    "terminology",
)


def check_runtime(options: Namespace) -> None:
    """Raises ExportError if the package that `--runtime` needs isn't installed, and ConfigError for
    flags of what it doesn't have."""
    if options.runtime == "jax":
        return
    given = [f"--{name.replace('_', '-')}" for name in _WITHOUT if getattr(options, name, None)]
    if given:
        raise ConfigError(
            f"--runtime {options.runtime} searches without {', '.join(given)}: leave that out, or "
            "--runtime"
        )
    require_package_of_extra("ctranslate2", f"--runtime {options.runtime} needs")


def searched_as_asked(options: Namespace, translator: fm.Translator) -> fm.Translator:
    """The model, searched by the program of `--runtime`. Raises ExportError and DecodingError."""
    quantization = RUNTIMES[options.runtime]
    if not quantization:
        return translator
    run = open_run(options.workdir)
    runtime = fm.ctranslate2_runtime(
        translator,
        quantization=quantization,
        data=None if is_remote(run.path) else run.data,
        say=say,
    )
    return translator.with_runtime(runtime)
