"""`--runtime`: which program searches."""

from __future__ import annotations

from argparse import Namespace

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag
from flaxformer_mt.interop import require_package_of_extra
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import is_remote

# With the type of the weights, where they are exported.
RUNTIMES = {"jax": "", "ctranslate2": "float32", "ctranslate2-int8": "int8"}
RUNTIME = {
    "--runtime": Flag(
        "the program that searches; ctranslate2 (extra `export`) is faster for some models on CPUs "
        "and compiles nothing, with int8 weights too; a few translations differ",
        choices=RUNTIMES,
    ),
}


def check_runtime(options: Namespace) -> None:
    """Raises ExportError if the package that `--runtime` needs isn't installed."""
    if options.runtime != "jax":
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
