"""What `train` and `--dry-run` set of the host's memory: before devices, after the first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flaxformer_mt.cli import dry_run, train
from flaxformer_mt.parallel import ALONE
from flaxformer_mt.training import loop, try_step
from tests.cli.conftest import settings
from tests.system.conftest import SMALL

Started = Callable[[str, list[str]], object]


def trains(workdir: str, overrides: list[str]) -> object:
    return train.train_run(workdir, "files", [*overrides, "training.steps=2"], ["train"])


def tries(workdir: str, overrides: list[str]) -> object:
    return dry_run.dry_run(workdir, "files", overrides, ALONE)


@pytest.mark.parametrize(
    ("module", "steps", "started"), [(train, loop, trains), (dry_run, try_step, tries)]
)
def test_one_heap_first_and_kept_memory_after_a_step(
    module: object,
    steps: object,
    started: Started,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    build = train.build

    def building(*args: object, **named: object) -> object:
        events.append("build")
        return build(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "build", building)
    monkeypatch.setattr(module, "share_one_heap", lambda: events.append("one heap"))
    monkeypatch.setattr(steps, "keep_freed_memory", lambda count: events.append(f"kept, {count}"))
    arguments = settings(corpus, **SMALL)[2:]
    overrides = [argument.removeprefix("--config.") for argument in arguments]
    assert started(str(tmp_path / "run"), overrides) == 0
    assert events == ["one heap", "build", "kept, 1"]
