"""A plan as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning.cycles import Cost
from flaxformer_mt.planning.decode import DecodePlan
from flaxformer_mt.planning.fit import Fit, Remedy, quickest
from flaxformer_mt.planning.plan import Plan, Sharding

_GIB = 2**30
_MIB = 2**20
_LINE = 300  # characters of a complaint that are worth showing
SHOWN = 15

CAVEAT = """\
What this is: the program is the one that would run, compiled by the TPU's own compiler; memory and
communication are read from it. Cycles are that compiler's estimates. Operations without one and
collectives are bounded by bytes over bandwidth; collectives are taken not to overlap with compute,
asynchronous copies into on-chip memory to do so.
Only a run shows: the true time (overlap shortens it; starting operations, memory conflicts and
waiting for data lengthen it), memory fragmentation, numerical results."""


def as_text(plan: Plan) -> str:
    """The whole report."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    shape = plan.shape
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    form = f"{plan.dtype}, {'scanned' if plan.scan_layers else 'unrolled'} layers"
    yield f"{plan.config} on {plan.topology}: {plan.chips} {plan.chip} chips, mesh {mesh}"
    yield (
        f"{plan.parameters:,} parameters, {form}{', remat' if plan.remat else ''}; batch of "
        f"{shape.rows:,} rows x {shape.src_length} source + {shape.tgt_length} target positions"
    )
    yield f"compiled in {plan.compile_seconds:.0f} s"
    yield ""
    yield from _memory(plan, smaller=_SMALLER_STEP)
    for line in plan.replications:
        yield f"  the partitioner copies an array to every device: {line[:_LINE]} ..."
    if not plan.replications:
        yield "nothing replicated against its sharding"
    if plan.recomputed:
        yield f"to save memory the compiler itself computes {plan.recomputed} operations twice"
    if plan.compute is None:
        return
    yield ""
    yield from _time(plan)
    yield ""
    yield "estimated compute by part of the model"
    yield from _costs(plan.compute.parts, plan.compute.seconds)
    yield ""
    yield f"most expensive operations (estimated; {plan.compute.cycles:,} cycles in all)"
    yield from _costs(plan.compute.operations, plan.compute.seconds)
    yield ""
    yield "operations without an estimate, by bytes over the memory's bandwidth"
    yield from _costs(plan.compute.unestimated, plan.step_seconds, shown=6)
    yield ""
    yield from _collectives(plan)
    yield ""
    yield CAVEAT


_SMALLER_STEP = "Lower data.batch.tokens, set model.remat or mesh.fsdp, or let --fit search"
_SMALLER_SEARCH = "Lower decoding.batch_tokens or decoding.beam_size"


def _memory(plan: Plan | DecodePlan, *, smaller: str) -> Iterator[str]:
    yield "memory of a device, as compiled"
    memory, limit = plan.memory, plan.hbm_bytes
    if memory is None:
        assert plan.refused is not None
        over = plan.refused.needed - plan.refused.available
        yield (
            f"  DOES NOT FIT: needs {plan.refused.needed / _GIB:.2f} GiB, the compiler may use "
            f"{plan.refused.available / _GIB:.2f}: {over / _GIB:.2f} GiB too much. {smaller}"
        )
        return
    for name, size in (
        ("arguments (state and batch)", memory.arguments),
        ("outputs", memory.outputs),
        ("  of them in place of arguments", memory.aliased),
        ("temporaries", memory.temporaries),
        ("peak of all these", memory.peak),
        ("program", memory.code),
    ):
        yield f"  {name:<34}{size / _MIB:>10,.0f} MiB"
    needed = memory.needed(limit)
    left = (limit - needed) / _GIB
    spare = f"{left:.2f} GiB left" if left > 0 else "nothing left to speak of"
    yield (
        f"  {'in all, at most':<34}{needed / _MIB:>10,.0f} MiB of {limit / _MIB:,.0f}: "
        f"fits, {spare}"
    )


def _time(plan: Plan) -> Iterator[str]:
    compute = plan.compute
    assert compute is not None
    yield "time of a step"
    if compute.guessed_loops:
        yield "  (a loop's number of passes is not known before it runs; it is counted once)"
    yield f"  {'compute, estimated cycles':<34}{1e3 * compute.seconds:>10.2f} ms"
    yield f"  {'operations without an estimate':<34}{1e3 * compute.unestimated_seconds:>10.2f} ms"
    yield f"  {'asynchronous copies, beside these':<34}{1e3 * compute.copy_seconds:>10.2f} ms"
    yield f"  {'collectives, without overlap':<34}{1e3 * plan.collective_seconds:>10.2f} ms"
    yield f"  {'step':<34}{1e3 * plan.step_seconds:>10.2f} ms"
    yield (
        f"model FLOPs (formula) {plan.step_flops:.4g} a device: {plan.peak_share:.1%} of the "
        f"chip's matrix peak, {plan.compute_peak_share:.1%} in the estimated compute alone"
    )
    yield (
        f"{plan.positions_per_second:,.0f} positions/s, source and target, padding included; "
        f"{plan.steps:,} steps: {plan.hours:.2f} hours, {plan.chip_hours:.1f} chip hours"
    )
    if plan.cost is not None:
        yield f"cost at {plan.price_per_chip_hour:g} a chip hour: {plan.cost:,.2f}"


def _costs(costs: tuple[Cost, ...], total: float, shown: int = SHOWN) -> Iterator[str]:
    for cost in costs[:shown]:
        share = cost.seconds / total if total else 0.0
        yield f"  {1e3 * cost.seconds:>8.3f} ms {share:>6.1%} {cost.count:>6}x  {cost.name}"
    rest = costs[shown:]
    if rest:
        seconds = sum(cost.seconds for cost in rest)
        count = sum(cost.count for cost in rest)
        share = seconds / total if total else 0.0
        yield f"  {1e3 * seconds:>8.3f} ms {share:>6.1%} {count:>6}x  {len(rest)} more kinds"


def _collectives(plan: Plan) -> Iterator[str]:
    yield "collectives of a step (ICI: between chips; DCN: between slices)"
    for item in plan.collectives:
        yield (
            f"  {item.kind:<20}{item.network:<5}{item.count:>5}x {item.bytes / _MIB:>9,.1f} MiB, "
            f"sends {item.sent / _MIB:>9,.1f} MiB, at least {1e3 * item.seconds:.3f} ms"
        )
    if not plan.collectives:
        yield "  none"
    elif plan.expected_collective_bytes:
        ratio = plan.collective_bytes / plan.expected_collective_bytes
        yield (
            f"  a device sends {ratio:.2f} times what the mesh needs by formula, "
            f"{plan.expected_collective_bytes / _MIB:,.1f} MiB"
        )


def decoding_as_text(plan: DecodePlan) -> str:
    """The report of beam search on one device."""
    lines = [
        f"{plan.config}, beam search on one {plan.chip}: {plan.rows} sources of "
        f"{plan.src_length} positions, beam {plan.beam_size}, at most {plan.max_length} tokens",
        f"compiled in {plan.compile_seconds:.0f} s",
        "",
        *_memory(plan, smaller=_SMALLER_SEARCH),
    ]
    if plan.compute is not None:
        lines += [
            "",
            f"at most {1e3 * plan.seconds:.1f} ms a batch, {1e3 * plan.seconds_per_token:.3f} ms a "
            f"decoding step, {plan.rows / plan.seconds:,.0f} sentences/s: estimated cycles and "
            "unestimated operations by bytes over bandwidth",
            "",
            f"most expensive operations, {plan.max_length} decoding steps",
            *_costs(plan.compute.operations, plan.compute.seconds),
            "",
            "operations without an estimate, by bytes over the memory's bandwidth",
            *_costs(plan.compute.unestimated, plan.seconds, shown=6),
            "",
            CAVEAT,
        ]
    return "\n".join(lines)


def shardings_as_text(rows: list[Sharding]) -> str:
    """One line a parameter: name, shape, mesh axis of each side, a device's part."""
    width = max(len(row.name) for row in rows) + 2
    lines = [f"{'parameter':<{width}}{'shape':<20}{'split over':<24}{'on a device'}"]
    for row in rows:
        shape, shard = ("x".join(map(str, sides)) or "scalar" for sides in (row.shape, row.shard))
        lines.append(f"{row.name:<{width}}{shape:<20}{row.spec or '-':<24}{shard}")
    return "\n".join(lines)


def remedies_as_text(config: ExperimentConfig, plain: Plan, tried: Sequence[Remedy]) -> str:
    """What was tried to keep the config's batch, and which of it is the quickest."""
    tokens, needed = config.data.batch.tokens, plain.needed_bytes / _GIB
    lines = [f"data.batch.tokens = {tokens:,} as it is takes {needed:.2f} GiB, too much"]
    for remedy in tried:
        plan = remedy.plan
        takes = f"{plan.shape.rows:,} rows, {plan.needed_bytes / _GIB:.2f} GiB"
        verdict = (
            f"fits; {1e3 * plan.step_seconds:.1f} ms a step, "
            f"{plan.positions_per_second:,.0f} positions/s"
            if plan.fits
            else "too much"
        )
        lines.append(f"    {remedy.flags(config)}: {takes}, {verdict}")
    best = quickest(tried)
    lines.append(
        "nothing of this keeps it"
        if best is None
        else f"the quickest that keeps it: {best.flags(config)}"
    )
    return "\n".join(lines)


def fit_as_text(remat: bool, fit: Fit, best: Plan | None, asked: Shape) -> str:
    """What a search found, for layers with or without recomputation."""
    form = "with remat" if remat else "without remat"
    if fit.largest is None or best is None:
        return f"{form}: not even {min(need.rows for need in fit.tried)} rows fit"
    shape = best.shape
    tokens = shape.rows * max(shape.src_length, shape.tgt_length)
    enough = "as many as" if shape.rows >= asked.rows else "fewer than"
    return (
        f"{form}: data.batch.tokens = {tokens:,} fits ({shape.rows:,} rows of {shape.src_length} + "
        f"{shape.tgt_length}; {fit.largest.needed / _GIB:.2f} GiB; {enough} the config's "
        f"{asked.rows:,} rows); {1e3 * best.step_seconds:.1f} ms a step, "
        f"{best.positions_per_second:,.0f} positions/s; {len(fit.tried)} compilations"
    )
