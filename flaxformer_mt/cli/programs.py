"""Compiled programs, which commands keep for the next call."""

from __future__ import annotations

import functools


@functools.cache
def keep_programs() -> None:
    """From now on this process keeps what it compiles, and finds what earlier ones have compiled.

    Commands call it when their arguments are known to be right: it loads JAX, which takes a second.
    """
    from flaxformer_mt.parallel.compile_cache import keep_compiled
    from flaxformer_mt.rundir.cache import cache_folder

    keep_compiled(cache_folder() / "xla")
