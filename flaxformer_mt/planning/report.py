"""The reports of `flaxformer-mt plan`, each as text for people and as JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.parallel import make_mesh
from flaxformer_mt.planning.decode import plan_decoding
from flaxformer_mt.planning.fit import (
    Fit,
    Need,
    PlanningError,
    Remedy,
    applied,
    largest_shape,
    remedies,
    search,
    shape_of,
)
from flaxformer_mt.planning.plan import Plan, plan, shardings, to_json, whole_share
from flaxformer_mt.planning.table import (
    as_text,
    decoding_as_text,
    fit_as_text,
    remedies_as_text,
    shardings_as_text,
)
from flaxformer_mt.planning.topology import describe
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.training.program import build

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What to plan for. `workdir` is a run whose vocabulary and batch shapes are taken."""

    topology: str
    slices: int = 1
    workdir: str | None = None
    lengths: tuple[int, int] | None = None  # source and target positions of a row
    price_per_chip_hour: float | None = None
    save_hlo: str | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """For people, for programs, and whether it fits."""

    text: str
    values: Any
    fits: bool = True


def report_step(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """The training step: memory, time, communication, cost."""
    result = _plan(config, request, _shape(config, request), say)
    return Report(as_text(result), to_json(result), result.fits)


def report_shardings(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """How every parameter lies on the mesh. Compiles nothing."""
    topology = describe(request.topology, request.slices)
    program = build(config, **_vocabulary_sizes(config, request), devices=topology.devices)
    rows = shardings(program)
    whole = whole_share(rows, program.mesh)
    text = f"{shardings_as_text(rows)}\n{whole:.2%} of the parameters whole on every device"
    return Report(text, [dataclasses.asdict(row) for row in rows])


def report_decoding(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """Beam search on one device."""
    sizes = _vocabulary_sizes(config, request)
    topology = describe(request.topology, request.slices)
    say(f"compiling beam search for one device of {topology}")
    src_length = request.lengths[0] if request.lengths else None
    result = plan_decoding(config, topology, src_length=src_length, **sizes)
    values = dataclasses.asdict(result) | {"fits": result.fits}
    return Report(decoding_as_text(result), values, result.fits)


def report_fit(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """What makes the config's token budget fit, if it does not, and the largest that fits as it is.

    Where that is smaller than the config's, with remat as well.
    """
    asked = _shape(config, request)
    plain = _plan(config, request, asked, say)
    _say_need(plain, say)
    kept = [] if plain.fits else _remedies(config, request, asked, say)
    known = {config.model.remat: plain} | {
        remedy.config.model.remat: remedy.plan
        for remedy in kept
        if remedy.config.training.optimizer == config.training.optimizer
    }
    found: list[tuple[bool, Fit, Plan | None]] = []
    for remat in (config.model.remat, True):
        model = dataclasses.replace(config.model, remat=remat)
        changed = dataclasses.replace(config, model=model)
        fit, plans = _search(changed, request, asked, known.get(remat), say)
        found.append((remat, fit, plans[fit.largest.rows] if fit.largest else None))
        if remat or (fit.largest and fit.largest.rows >= asked.rows):
            break
    lines = [fit_as_text(remat, fit, best, asked) for remat, fit, best in found]
    if not plain.fits:
        lines.insert(0, remedies_as_text(config, plain, kept))
    values = {
        "fits_as_it_is": plain.fits,
        "remedies": [
            {"flags": remedy.flags(config), "plan": to_json(remedy.plan)} for remedy in kept
        ],
        "largest": [
            {
                "remat": remat,
                "tried": [dataclasses.asdict(need) for need in fit.tried],
                "largest": to_json(best) if best else None,
            }
            for remat, fit, best in found
        ],
    }
    return Report("\n".join(lines), values, any(best for _, _, best in found))


def _remedies(config: ExperimentConfig, request: Request, asked: Shape, say: Say) -> list[Remedy]:
    mesh = make_mesh(config.mesh, describe(request.topology, request.slices).devices)
    split = mesh.shape["data"] * mesh.shape["fsdp"]

    def measure(accumulation: int, remat: bool) -> Remedy | None:
        changed = applied(config, accumulation=accumulation, remat=remat, split=split)
        try:
            shape = _shape(changed, request)
        except (PlanningError, PlanError):
            return None  # the budget does not hold one row for each part
        if shape.rows < asked.rows:
            return None  # rounded down to a multiple of the parts: it would be another batch
        result = _plan(changed, request, shape, say)
        _say_need(result, say)
        return Remedy(changed, result)

    accumulation = config.training.optimizer.accumulation
    return remedies(measure, accumulation=accumulation, remat=config.model.remat)


def _search(
    config: ExperimentConfig, request: Request, asked: Shape, known: Plan | None, say: Say
) -> tuple[Fit, dict[int, Plan]]:
    """`known` is the plan of what was asked for, if there is one."""
    plans = {} if known is None else {asked.rows: known}

    def measure(rows: int) -> Need:
        if rows not in plans:
            plans[rows] = _plan(config, request, dataclasses.replace(asked, rows=rows), say)
            _say_need(plans[rows], say)
        result = plans[rows]
        available = result.refused.available if result.refused else result.hbm_bytes
        return Need(rows, result.needed_bytes, available, result.fits)

    return search(measure, start=asked.rows, multiple=config.data.batch.multiple), plans


def _say_need(result: Plan, say: Say) -> None:
    verdict = "fits" if result.fits else "is too much"
    say(f"  {result.needed_bytes / 2**30:.2f} GiB {verdict}")


def _plan(config: ExperimentConfig, request: Request, shape: Shape, say: Say) -> Plan:
    topology = describe(request.topology, request.slices)
    sizes = _vocabulary_sizes(config, request)
    parts = config.training.optimizer.accumulation
    remat = ", remat" if config.model.remat else ""
    remat += f", in {parts} micro-batches" if parts > 1 else ""
    say(
        f"compiling for {topology}: {shape.rows:,} rows of {shape.src_length} + "
        f"{shape.tgt_length}{remat}; it takes from half a minute to several"
    )
    price, save_hlo = request.price_per_chip_hour, request.save_hlo
    return plan(config, topology, shape, **sizes, price_per_chip_hour=price, save_hlo=save_hlo)


def _vocabulary_sizes(config: ExperimentConfig, request: Request) -> dict[str, int]:
    """Source and target types, as `build` takes them: the run's, or those the config asks for."""
    if request.workdir is None:
        src, tgt = expected_types(config.data.vocabulary)
    else:
        run = layout.open_run(request.workdir)
        vocabularies = Vocabularies.load(local_copy(run.vocabulary))
        src, tgt = vocabularies.src.size, vocabularies.tgt.size
    return {"src_vocab_size": src, "tgt_vocab_size": tgt}


def _shape(config: ExperimentConfig, request: Request) -> Shape:
    if request.lengths is not None:
        return shape_of(config, *request.lengths)
    if request.workdir is None:
        return largest_shape(config)
    store = Store.open(local_copy(layout.open_run(request.workdir).data))
    planner = Planner(store.train, config.data.batch, config.training.seed)
    return largest_shape(config, planner.shapes)
