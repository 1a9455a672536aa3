"""Keeping a batch that does not fit, on a device that is a formula."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from flaxformer_mt.config import ExperimentConfig, load_config
from flaxformer_mt.planning import report
from flaxformer_mt.planning.fit import Remedy, applied, quickest, remedies

ROW, AGAIN, FIXED = 10, 2, 100  # memory of a row, of one with remat, and of what is always there


def config_of(accumulation: int = 1, remat: bool = False, multiple: int = 8) -> ExperimentConfig:
    config = load_config("quickstart", [f"data.batch.multiple={multiple}"])
    return applied(config, accumulation=accumulation, remat=remat, split=1)


def device(available: int, rows: int = 128) -> tuple[Any, list[tuple[int, bool]]]:
    """Remat takes a quarter longer, and each micro-batch a twentieth."""
    calls: list[tuple[int, bool]] = []

    def measure(accumulation: int, remat: bool) -> Remedy:
        calls.append((accumulation, remat))
        needed = FIXED + rows // accumulation * (AGAIN if remat else ROW)
        seconds = (1.25 if remat else 1.0) + 0.05 * accumulation
        plan: Any = SimpleNamespace(fits=needed <= available, positions_per_second=rows / seconds)
        return Remedy(config_of(accumulation, remat), plan)

    return measure, calls


@pytest.mark.parametrize(
    ("before", "available", "tried", "best"),
    [
        # Remat alone is enough, and two micro-batches are quicker.
        ((1, False), 800, [(1, True), (2, False)], (2, False)),
        # Eight micro-batches would take longer than remat.
        ((1, False), 370, [(1, True), (2, False), (4, False), (8, False)], (1, True)),
        # Remat alone is not enough: with fewer micro-batches than without it, it may be.
        ((1, False), 300, [(1, True), (2, False), (4, False), (8, False), (2, True)], (2, True)),
        # What is always there does not fit.
        (
            *((1, False), 99),
            [(1, True), *((2**n, again) for again in (False, True) for n in range(1, 7))],
            None,
        ),
        # With remat already, splitting is all that is left.
        ((2, True), 170, [(4, True)], (4, True)),
    ],
)
def test_the_quickest_of_what_fits(before: Any, available: int, tried: Any, best: Any) -> None:
    measure, calls = device(available)
    found = remedies(measure, accumulation=before[0], remat=before[1])
    assert calls == tried
    chosen = quickest(found)
    assert best == (
        chosen and (chosen.config.training.optimizer.accumulation, chosen.config.model.remat)
    )


@pytest.mark.parametrize(
    ("multiple", "accumulation", "split", "expected"),
    [(8, 4, 1, 8), (8, 16, 1, 16), (24, 4, 4, 48)],
)
def test_rows_divide_by_devices_and_micro_batches(
    multiple: int, accumulation: int, split: int, expected: int
) -> None:
    before = config_of(multiple=multiple)
    config = applied(before, accumulation=accumulation, remat=True, split=split)
    assert config.data.batch.multiple == expected
    flags = f"--config.training.optimizer.accumulation={accumulation} --config.model.remat=true"
    flags += f" --config.data.batch.multiple={expected}" if expected != multiple else ""
    plan: Any = None
    assert Remedy(config, plan).flags(before) == flags


class Chip:
    """A chip of 2 GiB, and what was compiled for it: rows, micro-batches, remat."""

    row = 32  # MiB that each takes, without remat

    def __init__(self) -> None:
        self.compiled: list[tuple[int, int, bool]] = []


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Chip:
    """What `report_fit` compiles for."""
    chip = Chip()

    def plan(config: ExperimentConfig, request: Any, shape: Any, say: Any) -> Any:
        parts, again = config.training.optimizer.accumulation, config.model.remat
        chip.compiled.append((shape.rows, parts, again))
        needed = shape.rows // parts * (chip.row * 3 // 4 if again else chip.row) * 2**20
        fits = needed <= 2**31
        seconds = 1.0 + 0.1 * parts + 0.3 * again
        return SimpleNamespace(
            shape=shape,
            needed_bytes=needed,
            hbm_bytes=2**31,
            refused=None if fits else SimpleNamespace(available=2**31),
            fits=fits,
            step_seconds=seconds,
            positions_per_second=shape.positions / seconds,
        )

    monkeypatch.setattr(report, "_plan", plan)
    monkeypatch.setattr(report, "to_json", lambda made: dict(vars(made)))
    monkeypatch.setattr(report, "describe", lambda *_: SimpleNamespace(devices=[None]))
    monkeypatch.setattr(
        report, "make_mesh", lambda *_: SimpleNamespace(shape={"data": 1, "fsdp": 1})
    )
    return chip


def of_rows(rows: int) -> tuple[ExperimentConfig, Any]:
    """A config whose budget holds so many rows, in eights, and the request for such."""
    config, length = config_of(), 64
    batch = dataclasses.replace(config.data.batch, tokens=rows * length)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, batch=batch))
    return config, report.Request(topology="v5e:1x1", lengths=(length, length))


def test_the_report_says_what_keeps_the_batch(chip: Chip) -> None:
    config, request = of_rows(100)
    said: list[str] = []
    found = report.report_fit(config, request, said.append)
    assert found.fits and not found.values["fits_as_it_is"]
    assert [each["flags"] for each in found.values["remedies"]] == [
        "--config.model.remat=true",
        "--config.training.optimizer.accumulation=2",
    ]
    assert "as it is takes 3.00 GiB, too much" in found.text
    quick = "the quickest that keeps it: --config.training.optimizer.accumulation=2"
    assert quick in found.text
    assert "without remat: data.batch.tokens = 4,096 fits (64 rows" in found.text
    compiled = chip.compiled
    assert len(compiled) == len(set(compiled)), "nothing is compiled twice"
    assert sum("GiB" in line for line in said) == len(compiled), "each verdict is said once"


@pytest.mark.parametrize(
    ("budget", "rows", "most"),
    [(100, 96, 32), (12, 8, 8)],  # 64 parts would be of 64 rows; 16 parts exceed the budget
)
def test_parts_that_cost_rows_are_no_remedy(chip: Chip, budget: int, rows: int, most: int) -> None:
    chip.row = 4096
    found = report.report_fit(*of_rows(budget), [].append)
    tried = chip.compiled[: 1 + len(found.values["remedies"])]
    assert {each[0] for each in tried} == {rows}
    assert max(parts for _, parts, _ in tried) == most
    assert "nothing of this keeps it" in found.text
