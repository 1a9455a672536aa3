"""The first step compiled beside what else a start has to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from flaxformer_mt.data.plan import Shape
from flaxformer_mt.training.program import Program


@contextlib.contextmanager
def compiled_beside(program: Program, shape: Shape) -> Iterator[None]:
    """Compiles the training step for a shape in a thread while the body runs; waits for it.

    The compiler needs no Python: drawing a state, which is compiled as well, costs no time then.
    What the compiler raises is raised at the end of the body.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="compile") as pool:
        # JAX keeps what was compiled for these avals and shardings: the first call finds it.
        compiled = pool.submit(lambda: program.lower_train_step(shape).compile())
        yield
        compiled.result()
