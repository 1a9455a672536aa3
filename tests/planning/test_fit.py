"""The largest batch and what keeps one that does not fit, on devices that are a formula."""

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.config import ExperimentConfig, read_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning import report
from flaxformer_mt.planning.fit import largest, remedied, search


def device(fixed: int, a_row: int, square: float, available: int, kink: int = 10**9):
    """Memory that grows a little faster than rows, and thrice as fast from `kink`."""
    calls: list[int] = []

    def measure(rows: int) -> Any:
        calls.append(rows)
        needed = int(fixed + a_row * (rows + 2 * max(rows - kink, 0)) + square * rows * rows)
        return SimpleNamespace(
            **{"shape": Shape(rows, 1, 1), "fits": needed <= available},
            **{"needed_bytes": needed, "available_bytes": available},
        )

    return measure, calls


@given(
    fixed=st.integers(0, 20_000),  # from 16,000 nothing fits
    a_row=st.integers(1, 400),
    square=st.floats(0, 0.02),
    start=st.integers(8, 4000).map(lambda rows: rows // 8 * 8),
    multiple=st.sampled_from([1, 8]),
    kink=st.integers(8, 4000),
)
def test_finds_nearly_the_largest_in_few_compilations(fixed, a_row, square, start, multiple, kink):
    measure, calls = device(fixed, a_row, square, 16_000, kink)
    plans = search(measure, start=start, multiple=multiple)
    assert len(calls) == len(set(calls)) <= 8
    assert all(rows % multiple == 0 and rows > 0 for rows in calls)
    assert [plan.shape.rows for plan in plans] == calls
    best = largest(plans)
    if best is not None:
        # Either within a tenth of the memory, or the next step up does not fit, or out of tries.
        above = measure(best.shape.rows + multiple)
        assert best.fits
        assert best.needed_bytes >= 0.9 * 16_000 or not above.fits or len(plans) == 8
    elif len(plans) < 8:
        assert min(calls) == multiple


def config_of(accumulation: int = 1, remat: bool = False, multiple: int = 8) -> ExperimentConfig:
    config = read_config("quickstart", [f"data.batch.multiple={multiple}"])
    return remedied(config, accumulation=accumulation, remat=remat, split=1)[0]


@pytest.mark.parametrize(
    ("multiple", "accumulation", "split", "expected"),
    [(8, 4, 1, 8), (8, 16, 1, 16), (24, 4, 4, 48)],
)
def test_rows_divide_by_devices_and_micro_batches(
    multiple: int, accumulation: int, split: int, expected: int
) -> None:
    before = config_of(multiple=multiple)
    config, flags = remedied(before, accumulation=accumulation, remat=True, split=split)
    assert config.data.batch.multiple == expected
    expected_flags = (
        f"--config.training.optimizer.accumulation={accumulation} --config.model.remat=true"
    )
    if expected != multiple:
        expected_flags += f" --config.data.batch.multiple={expected}"
    assert flags == expected_flags


class Chip:
    """A chip of 2 GiB, and what was compiled for it: rows, micro-batches, remat."""

    row = 32  # MiB that each takes, without remat

    def __init__(self) -> None:
        self.compiled: list[tuple[int, int, bool]] = []

    def plan(self, config: ExperimentConfig, request: Any, shape: Any, say: Any) -> Any:
        """Remat takes a third longer, and each micro-batch a tenth."""
        parts, again = config.training.optimizer.accumulation, config.model.remat
        self.compiled.append((shape.rows, parts, again))
        needed = shape.rows // parts * (self.row // 10 if again else self.row) * 2**20
        fits = needed <= 2**31
        seconds = 1.0 + 0.1 * parts + 0.3 * again
        return SimpleNamespace(
            **{"shape": shape, "needed_bytes": needed, "available_bytes": 2**31, "fits": fits},
            **{"to_json": lambda: {"rows": shape.rows}},
            **{"step_seconds": seconds, "positions_per_second": shape.positions / seconds},
        )


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Chip:
    """What `report_fit` compiles for."""
    chip, mesh = Chip(), SimpleNamespace(shape={"data": 1, "fsdp": 1})
    monkeypatch.setattr(report, "_plan", chip.plan)
    monkeypatch.setattr(report, "describe", lambda *_: SimpleNamespace(devices=[None]))
    monkeypatch.setattr(report, "make_mesh", lambda *_: mesh)
    return chip


def of_rows(rows: int, **settings: Any) -> tuple[ExperimentConfig, Any]:
    """A config whose budget holds so many rows, in eights, and the request for such."""
    config, length = config_of(**settings), 64
    batch = dataclasses.replace(config.data.batch, tokens=rows * length)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, batch=batch))
    return config, report.Request(topology="v5e:1x1", lengths=(length, length))


class Case(NamedTuple):
    """A batch of 100 rows that does not fit. Each remedy is (micro-batches, remat)."""

    row: int  # MiB
    as_it_is: tuple[int, bool]
    tried: list[tuple[int, bool]]
    fastest: tuple[int, bool]


SPLITS = [(2**n, False) for n in range(1, 5)]
CASES = [
    # Remat alone is enough, and two micro-batches are quicker.
    Case(32, (1, False), [(1, True), (2, False)], (2, False)),
    # Sixteen micro-batches would take longer than remat.
    Case(200, (1, False), [(1, True), *SPLITS], (1, True)),
    # Remat alone is not enough: with fewer micro-batches than without it, it may be.
    Case(300, (1, False), [(1, True), (2, True), *SPLITS], (2, True)),
    # With remat already, splitting is all that is left.
    Case(600, (2, True), [(4, True)], (4, True)),
]


class Reported(NamedTuple):
    """The outcome of `report_fit`, and what it compiled and reported."""

    fit: report.Report
    compiled: list[tuple[int, int, bool]]
    messages: list[str]


def reported(chip: Chip, case: Case) -> Reported:
    chip.row = case.row
    accumulation, remat = case.as_it_is
    messages: list[str] = []
    fit = report.report_fit(*of_rows(100, accumulation=accumulation, remat=remat), messages.append)
    return Reported(fit, chip.compiled, messages)


@pytest.mark.parametrize("case", CASES)
def test_remedies_that_keep_the_batch_are_tried_in_order(chip: Chip, case: Case) -> None:
    fit, compiled, _ = reported(chip, case)
    assert fit.fits and not fit.values["fits_as_it_is"]
    tried = [(parts, remat) for _, parts, remat in compiled[1 : 1 + len(case.tried)]]
    assert tried == case.tried


@pytest.mark.parametrize("case", CASES)
def test_the_quickest_of_what_fits_keeps_the_batch(chip: Chip, case: Case) -> None:
    text = reported(chip, case).fit.text
    accumulation, remat = case.fastest
    _, had_remat = case.as_it_is
    flags = [f"--config.training.optimizer.accumulation={accumulation}"] * (accumulation > 1)
    flags += ["--config.model.remat=true"] * (remat and not had_remat)
    assert f"fastest that keeps it: {' '.join(flags)}\n" in text
    assert f"as it is takes {case.row * 96 / 2**10:.2f} GiB, too much" in text or had_remat


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_compiled_twice_and_each_verdict_is_said_once(chip: Chip, case: Case) -> None:
    _, compiled, messages = reported(chip, case)
    assert len(compiled) == len(set(compiled))
    assert sum("GiB" in message for message in messages) == len(compiled)


def test_a_smaller_batch_that_fits_without_remat_is_named(chip: Chip) -> None:
    text = reported(chip, CASES[0]).fit.text
    assert "without remat: data.batch.tokens = 4,096 fits (64 rows" in text


@pytest.mark.parametrize(
    ("budget", "rows", "most"),
    [(100, 96, 32), (12, 8, 8)],  # 64 parts would be of 64 rows; 16 parts exceed the budget
)
def test_parts_that_cost_rows_are_no_remedy(chip: Chip, budget: int, rows: int, most: int) -> None:
    chip.row = 40_960
    fit = report.report_fit(*of_rows(budget), [].append)
    tried = chip.compiled[: 1 + len(fit.values["remedies"])]
    assert {compiled_rows for compiled_rows, _, _ in tried} == {rows}
    assert max(parts for _, parts, _ in tried) == most
    assert "none of these keeps it" in fit.text
