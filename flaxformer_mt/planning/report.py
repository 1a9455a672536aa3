"""The reports of `flaxformer-mt plan`, as text and as JSON values."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.parallel.mesh import make_mesh
from flaxformer_mt.planning import PlanningError, fit
from flaxformer_mt.planning.compiler import Compiled
from flaxformer_mt.planning.costs import Compute, Cost, added
from flaxformer_mt.planning.describe import describe
from flaxformer_mt.planning.plan import DecodePlan, StepPlan, plan, plan_decoding
from flaxformer_mt.planning.searches import SearchProgram, plan_search_programs
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.text_table import aligned
from flaxformer_mt.training.program import build

Say = Callable[[str], None]
_GIB = 2**30
_MIB = 2**20
_LINE = 300  # characters of a complaint that are worth showing
_MOST_PARTS = 64  # micro-batches: beyond that, take another chip

_TPU_CAVEAT = """\
How to read this: the TPU's own compiler compiled the program that would run; memory and
communication are read from it, and cycles are the compiler's estimates. Operations without an
estimate and collectives are bounded by bytes over bandwidth. A collective is hidden only by compute
that the compiled schedule runs beside it; asynchronous copies into on-chip memory are assumed to
overlap. Only a run shows the true time (launches, memory conflicts and waiting for data lengthen
it), memory fragmentation and numerical results."""
_GPU_CAVEAT = """\
How to read this: XLA's GPU compiler compiled the program that would run, from a description of the
card; memory, kernels and communication are read from it. A kernel is taken to last as long as its
memory traffic or its products, whichever is longer, at 0.895 of the memory's bandwidth and 0.707 of
the matrix peak, and 2 microseconds. The one step that was measured, on an H100, took 10% longer.
A collective is hidden only by kernels that the compiled schedule runs beside it.
On a GPU XLA also times kernels and chooses the fastest, which is not possible here. Only a run
shows the true time, memory fragmentation and numerical results."""
_CAVEATS = {"tpu": _TPU_CAVEAT, "gpu": _GPU_CAVEAT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A question to answer; a `workdir`'s vocabulary and batch shapes are used."""

    topology: str
    slices: int = 1
    workdir: str | None = None
    lengths: tuple[int, int] | None = None  # source and target positions of a row
    price_per_chip_hour: float | None = None
    save_hlo: str | None = None

    def sizes(self, config: ExperimentConfig) -> dict[str, int]:
        """Of the vocabularies."""
        if self.workdir is None:
            src, tgt = expected_types(config.data.vocabulary)
        else:
            run = layout.open_run(self.workdir)
            vocabularies = Vocabularies.load(local_copy(run.vocabulary))
            src, tgt = vocabularies.src.size, vocabularies.tgt.size
        return {"src_vocab_size": src, "tgt_vocab_size": tgt}

    def shape(self, config: ExperimentConfig) -> Shape:
        """Of the batch. Raises PlanError, PlanningError."""
        if self.lengths is not None:
            return fit.shape_of(config, *self.lengths)
        if self.workdir is None:
            return fit.largest_shape(config)
        store = Store.open(local_copy(layout.open_run(self.workdir).data))
        planner = Planner(store.train, config.data.batch, config.training.seed)
        return fit.largest_shape(config, planner.shapes)


class Report(NamedTuple):
    """The answer for people and for programs, and whether the program fits."""

    text: str
    values: Any
    fits: bool = True


def report_step(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """The training step: memory, time, communication, cost."""
    step_plan = _plan(config, request, request.shape(config), say)
    return Report("\n".join(_lines(step_plan)), step_plan.to_json(), step_plan.fits)


def report_shardings(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """How every parameter lies on the mesh, and the share that each device holds whole."""
    topology = describe(request.topology, request.slices)
    program = build(config, **request.sizes(config), devices=topology.devices)
    rows: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    size, replicated_size = 0, 0
    for name, leaf in flatten_paths(program.abstract_weights).items():
        axes = [axis or "-" for axis in leaf.sharding.spec]
        spec = ", ".join(axis if isinstance(axis, str) else "+".join(axis) for axis in axes)
        shard = leaf.sharding.shard_shape(leaf.shape)
        rows.append({"name": name, "shape": leaf.shape, "spec": spec, "shard": shard})
        cells.append([name, _sides(leaf.shape), spec or "-", _sides(shard)])
        size += math.prod(leaf.shape)
        replicated_size += math.prod(leaf.shape) if shard == leaf.shape else 0
    table = aligned(["parameter", "shape", "split over", "on a device"], cells, left=set(range(4)))
    return Report(
        f"{table}\n{replicated_size / size:.2%} of the parameters replicated on every device", rows
    )


def _sides(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def report_decoding(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """Beam search on one device."""
    topology = describe(request.topology, request.slices)
    say(f"compiling beam search for one device of {topology}")
    sizes = request.sizes(config)
    decode_plan = plan_decoding(config, topology, lengths=request.lengths, **sizes)
    say("compiling the programs that a file of any lengths needs")
    programs = plan_search_programs(config, topology, **sizes)
    return Report(
        f"{decoding_as_text(decode_plan)}\n\n{programs_as_text(programs)}",
        decode_plan.to_json() | {"programs": [dataclasses.asdict(item) for item in programs]},
        decode_plan.fits and all(program.fits for program in programs),
    )


def report_fit(config: ExperimentConfig, request: Request, say: Say) -> Report:
    """Remedies if the config's token budget doesn't fit, and the largest that fits, if smaller than
    the config's also with remat."""
    config_shape = request.shape(config)
    plans = _Plans(request, say)
    plain = plans.of(config, config_shape)
    remedies = {} if plain.fits else _remedies(config, config_shape, plans)
    lines = [] if plain.fits else [remedies_as_text(config, plain, remedies)]

    searches: list[dict[str, Any]] = []
    for remat in (config.model.remat, True):
        tried = _search(config, remat, config_shape, plans)
        largest = fit.largest(tried)
        lines.append(fit_as_text(remat, tried, config_shape))
        searches.append(
            {
                "remat": remat,
                "tried": [_need(plan) for plan in tried],
                "largest": largest and largest.to_json(),
            }
        )
        if remat or (largest and largest.shape.rows >= config_shape.rows):
            break
    values = {
        "fits_as_it_is": plain.fits,
        "remedies": [{"flags": flags, "plan": plan.to_json()} for flags, plan in remedies.items()],
        "largest": searches,
    }
    return Report("\n".join(lines), values, any(search["largest"] for search in searches))


class _Plans:
    """A request's plans, each compiled once and reported by `say`."""

    def __init__(self, request: Request, say: Say) -> None:
        self.request = request
        self._say = say
        self._compiled: dict[tuple[int, int, bool], StepPlan] = {}

    def of(self, config: ExperimentConfig, shape: Shape) -> StepPlan:
        key = shape.rows, config.training.optimizer.accumulation, config.model.remat
        if key not in self._compiled:
            self._compiled[key] = plan = _plan(config, self.request, shape, self._say)
            verdict = "fits" if plan.fits else "is too much"
            self._say(f"  {plan.needed_bytes / _GIB:.2f} GiB {verdict}")
        return self._compiled[key]


def _search(
    config: ExperimentConfig, remat: bool, config_shape: Shape, plans: _Plans
) -> list[StepPlan]:
    """The plans tried for the largest batch, with or without remat."""
    model = dataclasses.replace(config.model, remat=remat)
    changed = dataclasses.replace(config, model=model)
    return fit.search(
        lambda rows: plans.of(changed, dataclasses.replace(config_shape, rows=rows)),
        start=config_shape.rows,
        multiple=config.data.batch.multiple,
    )


def _need(plan: StepPlan) -> dict[str, Any]:
    return {
        "rows": plan.shape.rows,
        "needed": plan.needed_bytes,
        "available": plan.available_bytes,
        "fits": plan.fits,
    }


def _remedies(config: ExperimentConfig, config_shape: Shape, plans: _Plans) -> dict[str, StepPlan]:
    """Ways to keep a batch that doesn't fit, by flags: more and more micro-batches until it fits,
    with remat and, unless the config has it, without."""
    request = plans.request
    mesh = make_mesh(config.mesh, describe(request.topology, request.slices).devices)
    split = mesh.shape["data"] * mesh.shape["fsdp"]
    tried: dict[str, StepPlan] = {}
    for remat in (True,) if config.model.remat else (True, False):
        parts = config.training.optimizer.accumulation
        parts *= 2 if remat == config.model.remat else 1
        while parts <= _MOST_PARTS:
            changed, flags = fit.remedied(config, accumulation=parts, remat=remat, split=split)
            parts *= 2
            try:
                shape = request.shape(changed)
            except (PlanningError, PlanError):
                break  # less than a row per part
            if shape.rows < config_shape.rows:
                break  # rounded down to a multiple of the parts, it would be another batch
            tried[flags] = plans.of(changed, shape)
            if tried[flags].fits:
                break
    return tried


def _plan(config: ExperimentConfig, request: Request, shape: Shape, say: Say) -> StepPlan:
    topology = describe(request.topology, request.slices)
    parts = config.training.optimizer.accumulation
    form = ", remat" if config.model.remat else ""
    form += f", in {parts} micro-batches" if parts > 1 else ""
    say(
        f"compiling for {topology}: {shape.rows:,} rows of {shape.src_length} + "
        f"{shape.tgt_length}{form}; this takes half a minute to several minutes"
    )
    return plan(
        config,
        topology,
        shape,
        **request.sizes(config),
        price_per_chip_hour=request.price_per_chip_hour,
        save_hlo=request.save_hlo,
    )


def _lines(plan: StepPlan) -> Iterator[str]:
    yield from _header(plan)
    yield from _memory(
        plan, smaller="Lower data.batch.tokens, set model.remat or mesh.fsdp, or try --fit"
    )
    for complaint in plan.replications:
        yield f"  the partitioner copies an array to every device: {complaint[:_LINE]} ..."
    if not plan.replications:
        yield "nothing replicated against its sharding"
    if plan.recomputed:
        yield f"to save memory the compiler recomputes {plan.recomputed} operations"
    compute = plan.compute
    if compute is None:
        return

    yield "\ntime of a step"
    if compute.guessed_loops:
        yield "  (a loop with an unknown number of iterations counts once)"
    steps = {"step": plan.step_seconds}
    if plan.collectives:
        steps = {
            "collectives": plan.collective_seconds,
            "  of these, not hidden by the schedule": plan.exposed.most,
            "step": plan.step_seconds,
            "  without any overlap": plan.unoverlapped_step_seconds,
            "  if all that is asynchronous is hidden": plan.least_step_seconds,
        }
    yield from _times(compute, steps)
    yield from _throughput(plan)
    yield "\nestimated compute by part of the model"
    yield from _costs(compute.parts, compute.seconds)
    yield f"\nmost expensive operations (estimated; {_sum_of(compute)} in all)"
    yield from _costs(compute.operations, compute.seconds)
    yield from _unestimated(compute, plan.step_seconds)
    networks = (
        "ICI: between chips; DCN: between slices" if plan.platform == "tpu" else "between GPUs"
    )
    yield f"\ncollectives of a step ({networks})"
    yield from _communication(plan)
    yield f"\n{_CAVEATS[plan.platform]}"


def _sum_of(compute: Compute) -> str:
    """What all operations come to, in what they are estimated by."""
    if compute.cycles is not None:
        return f"{compute.cycles:,} cycles"
    return (
        f"{compute.kernels:,} kernels, {compute.bytes / 1e9:.1f} GB, "
        f"{compute.flops / 1e12:.2f} TFLOP"
    )


def _header(plan: StepPlan) -> Iterator[str]:
    shape = plan.shape
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    form = f"{plan.dtype}, {'scanned' if plan.scan_layers else 'unrolled'} layers"
    yield f"{plan.config} on {plan.topology}: {plan.chips} {plan.chip} chips, mesh {mesh}"
    yield (
        f"{plan.parameters:,} parameters, {form}{', remat' if plan.remat else ''}; batch of "
        f"{shape.rows:,} rows x {shape.src_length} source + {shape.tgt_length} target positions"
    )


def _throughput(plan: StepPlan) -> Iterator[str]:
    yield (
        f"model FLOPs (formula) {plan.step_flops:.4g} per device: {plan.peak_share:.1%} of the "
        f"chip's matrix peak, {plan.compute_peak_share:.1%} counting estimated compute only"
    )
    yield (
        f"{plan.positions_per_second:,.0f} positions/s, source and target, padding included; "
        f"{plan.steps:,} steps: {plan.hours:.2f} hours, {plan.chip_hours:.1f} chip hours"
    )
    if plan.cost is not None:
        yield f"cost at {plan.price_per_chip_hour:g} per chip hour: {plan.cost:,.2f}"


def _communication(plan: StepPlan) -> Iterator[str]:
    for collective in plan.collectives:
        yield (
            f"  {collective.kind:<20}{collective.network:<5}{collective.count:>5}x "
            f"{collective.bytes / _MIB:>9,.1f} MiB, sends {collective.sent / _MIB:>9,.1f} MiB, "
            f"at least {1e3 * collective.seconds:.3f} ms"
        )
    if not plan.collectives:
        yield "  none"
    elif plan.expected_collective_bytes:
        ratio = plan.collective_bytes / plan.expected_collective_bytes
        yield (
            f"  a device sends {ratio:.2f} times what the mesh needs by formula, "
            f"{plan.expected_collective_bytes / _MIB:,.1f} MiB"
        )


def _memory(plan: Compiled, *, smaller: str) -> Iterator[str]:
    yield f"compiled by {plan.compiler} in {plan.compile_seconds:.0f} s\n"
    yield "memory of a device, as compiled"
    memory = plan.memory
    limit = plan.hbm_bytes
    needed = plan.needed_bytes
    if memory is None or not plan.fits:
        needed_gib = needed / _GIB
        available_gib = plan.available_bytes / _GIB
        yield (
            f"  DOES NOT FIT: needs {needed_gib:.2f} GiB of the {available_gib:.2f} that may be "
            f"used: {needed_gib - available_gib:.2f} GiB too much. {smaller}"
        )
        return
    for name, size in {
        "arguments (state and batch)": memory.arguments,
        "outputs": memory.outputs,
        "  of these, reusing arguments": memory.aliased,
        "temporaries": memory.temporaries,
        "peak of all these": memory.peak,
        "program": memory.code,
    }.items():
        yield f"  {name:<34}{size / _MIB:>10,.0f} MiB"
    spare_gib = (limit - needed) / _GIB
    spare = f"{spare_gib:.2f} GiB left" if spare_gib > 0 else "almost nothing left"
    yield (
        f"  {'in all, at most':<34}{needed / _MIB:>10,.0f} MiB of {limit / _MIB:,.0f}: "
        f"fits, {spare}"
    )


def _times(compute: Compute, more: Mapping[str, float]) -> Iterator[str]:
    if compute.cycles is None:
        times = {"kernels, estimated by bytes and FLOPs": compute.seconds}
    else:
        times = {
            "compute, estimated cycles": compute.seconds,
            "operations without an estimate": compute.unestimated_seconds,
            "asynchronous copies, overlapping": compute.copy_seconds,
        }
    for name, seconds in {**times, **more}.items():
        yield f"  {name:<40}{1e3 * seconds:>10.3f} ms"


def _costs(costs: tuple[Cost, ...], total: float, shown: int = 15) -> Iterator[str]:
    lines = list(costs[:shown])
    hidden = costs[shown:]
    if hidden:
        lines.append(added(f"{len(hidden)} more kinds", hidden))
    has_bytes = any(cost.bytes for cost in costs)
    for cost in lines:
        share = cost.seconds / total if total else 0.0
        moved = f"{cost.bytes / 1e9:>7.2f} GB {cost.flops / 1e12:>6.2f} TFLOP " if has_bytes else ""
        yield f"  {1e3 * cost.seconds:>8.3f} ms {share:>6.1%} {moved}{cost.count:>6}x  {cost.name}"


def decoding_as_text(plan: DecodePlan) -> str:
    """The report of beam search on one device."""
    lines = [
        f"{plan.config}, beam search on one {plan.chip}: {plan.rows} sources of "
        f"{plan.src_length} positions, beam {plan.beam_size}, at most {plan.max_length} tokens",
        *_memory(plan, smaller="Lower decoding.batch_tokens or decoding.beam_size"),
    ]
    if (step := plan.step) is not None:
        lines += [
            f"\nat most {1e3 * plan.seconds:.1f} ms per batch, {plan.rows / plan.seconds:,.0f} "
            "sentences/s\n\ntime of a decoding step",
            *_times(step, {"step": plan.seconds_per_token}),
            "\nestimated compute of a step by part",
            *_costs(step.parts, step.seconds),
            "\nmost expensive operations of a step",
            *_costs(step.operations, step.seconds),
            *_unestimated(step, plan.seconds_per_token),
            f"\n{_CAVEATS[plan.platform]}",
        ]
    return "\n".join(lines)


def programs_as_text(programs: Sequence[SearchProgram]) -> str:
    """The table of a search's programs."""
    cells = [
        [
            program.name,
            f"{program.rows} x {program.src_length}",
            str(program.room),
            f"{program.compile_seconds:.1f} s" if program.fits else "too large",
            "" if program.step is None else f"{1e3 * program.step.overlapped_seconds:.2f} ms",
            "" if program.step is None or not program.step.bytes or not program.least_bytes
            else f"{program.step.bytes / program.least_bytes:.1f}",
        ]
        for program in programs
    ]  # fmt: skip
    seconds = sum(program.compile_seconds for program in programs)
    header = ["program", "batch", "cache", "compiled in", "step", "bytes"]
    if not any(row[-1] for row in cells):  # a TPU's compiler counts cycles
        header, cells = header[:-1], [row[:-1] for row in cells]
    lines = [
        f"{len(programs)} programs for a file of any lengths, compiled here in {seconds:.0f} s",
        aligned(header, cells, left={0, 1}),
        "A batch is rows x source positions.",
    ]
    if header[-1] == "bytes":
        lines.append(
            "Bytes are those of a step over the least: decoder, softmax and cache read once."
        )
    return "\n".join(lines)


def _unestimated(compute: Compute, seconds: float) -> Iterator[str]:
    if not compute.unestimated:
        return
    yield "\noperations without an estimate, by bytes over memory bandwidth"
    yield from _costs(compute.unestimated, seconds, shown=6)
    calls = [cost for cost in compute.unestimated if cost.name.startswith("custom-call")]
    if calls:
        targets = ", ".join(f"{cost.count}x {cost.name.split()[-1]}" for cost in calls)
        yield f"  custom calls, not included in these bytes: {targets}"


def remedies_as_text(
    config: ExperimentConfig, plain: StepPlan, tried: Mapping[str, StepPlan]
) -> str:
    """The ways tried to keep the config's batch, and the fastest that fits."""
    tokens = config.data.batch.tokens
    needed = plain.needed_bytes / _GIB
    lines = [f"data.batch.tokens = {tokens:,} as it is takes {needed:.2f} GiB, too much"]
    for flags, remedy in tried.items():
        verdict = f"fits; {_speed(remedy)}" if remedy.fits else "too much"
        lines.append(
            f"    {flags}: {remedy.shape.rows:,} rows, {remedy.needed_bytes / _GIB:.2f} GiB, "
            f"{verdict}"
        )
    fitting = [flags for flags, plan in tried.items() if plan.fits]
    fastest = max(fitting, key=lambda flags: tried[flags].positions_per_second, default=None)
    lines.append(f"fastest that keeps it: {fastest}" if fastest else "none of these keeps it")
    return "\n".join(lines)


def fit_as_text(remat: bool, tried: Sequence[StepPlan], config_shape: Shape) -> str:
    """The largest batch of a search, with or without remat."""
    form = "with remat" if remat else "without remat"
    best = fit.largest(tried)
    if best is None:
        return f"{form}: not even {min(plan.shape.rows for plan in tried)} rows fit"
    shape = best.shape
    tokens = shape.rows * max(shape.src_length, shape.tgt_length)
    enough = "as many as" if shape.rows >= config_shape.rows else "fewer than"
    return (
        f"{form}: data.batch.tokens = {tokens:,} fits ({shape.rows:,} rows of {shape.src_length} + "
        f"{shape.tgt_length}; {best.needed_bytes / _GIB:.2f} GiB; {enough} the config's "
        f"{config_shape.rows:,} rows); {_speed(best)}; {len(tried)} compilations"
    )


def _speed(plan: StepPlan) -> str:
    return f"{1e3 * plan.step_seconds:.1f} ms/step, {plan.positions_per_second:,.0f} positions/s"
