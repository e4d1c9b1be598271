"""Kernels as `explain` speaks of them: what is fused, how the loops run, what is stored and why."""

from __future__ import annotations

from collections.abc import Sequence

from stax.graph import Node
from stax.inspect.explanation import Entry
from stax.inspect.values import Values, where
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.element import FEWEST_TASKS, runs_alone
from stax.lowering.fourier import FourierPass
from stax.lowering.fuse import Region, computes
from stax.lowering.gemm import no_gemm
from stax.lowering.paired import library_op
from stax.lowering.program import KernelStep
from stax.lowering.schedule import Layout, Schedule, column_block
from stax.operators.contract import DotGeneral
from stax.operators.index import Scatter
from stax.operators.linalg import Cholesky, Lu, TriangularSolve
from stax.operators.reduce import Cumulative
from stax.operators.reshape import Transpose


def fused_entry(values: Values, step: KernelStep, plan: Schedule) -> Entry:
    """Describe a kernel that computes a region."""
    region, fusion = plan.region, values.fusion
    nodes = values.computed(region, region.targets)
    is_moving = not any(computes(node.op) for node in nodes)
    title = f"{step.built.kernel.name}, {_layout(values, plan)}"
    facts = [f"computes {line}" for line in values.lines(region, nodes)]
    facts.append(_traffic(values, step.built))
    facts.append(shared_out(step.built.extent, step.built.grain))
    facts += _apart(values, region)
    for node in nodes:
        match node.op:
            case DotGeneral():
                facts.append(f"product by loops in the kernel: {no_gemm(node)}  {where(node)}")
            case Transpose() if node not in fusion.stored and not is_moving:
                facts.append(f"transpose by index arithmetic, not copied  {where(node)}")
    facts += [f"keeps {n.op.name} in scratch for a later pass  {where(n)}" for n in plan.kept]
    facts += [
        f"stores {values.name(n)}, {n.op.name}: {fusion.stored[n]}"
        for n in region.targets
        if n in fusion.stored
    ]
    facts += _aliases(step.built.kernel)
    facts += [f"streams {n} past the caches: nothing reads it" for n in step.built.kernel.streamed]
    return Entry(title, tuple(fact.rstrip() for fact in facts))


def own_entry(values: Values, step: KernelStep, begins: bool) -> Entry:
    """Describe a kernel that computes one op; of a scatter, `begins` says that one came before."""
    node = step.node
    assert node is not None
    facts = [where(node)] if where(node) else []
    match library_op(node.op):
        case FourierPass(_, length, axis, turned, size=size):
            turning = ", which changes places with the one before" if turned else ""
            turning += f", as a convolution of length {size}" if size else ""
            what = f"Fourier pass of length {length} over axis {axis}{turning}"
        case Scatter(kind=kind) if step.is_copy:
            what = f"start of scatter ({kind}): the operand is written to the result"
            why = values.program.copied.get(node)
            facts += [f"copied: {why}"] if why else []
            facts += [
                "not run where both are one memory: the operand is donated"
            ] * step.may_be_done
        case Scatter(kind=kind):
            what = f"scatter ({kind}), updates in their order"
            if not begins:
                facts.append("in place: the result lies where its operand did")
        case Cumulative(axis=axis) as op:
            what = f"{op.name} along axis {axis}"
        case Cholesky() | Lu() | TriangularSolve() as op:
            what = f"{op.name} of many small matrices, one in each lane of a vector"
        case op:
            what = op.name
    facts.append(_traffic(values, step.built))
    facts.append(shared_out(step.built.extent, step.built.grain))
    facts += _aliases(step.built.kernel)
    return Entry(f"{step.built.kernel.name}, {what}", tuple(facts))


def shared_out(extent: ir.Expr | int, grain: int) -> str:
    """Say whether a parallel loop is handed to threads."""
    count = ir.static(extent)
    if count is None:
        return f"parallel: the length of its outer loop comes with the call; a task is {grain}"
    if runs_alone(count, grain):
        less = "" if count <= grain else f", and {FEWEST_TASKS} tasks are worth handing out"
        return f"one thread: its outer loop has length {count}, and a task is {grain} or more{less}"
    return f"parallel: its outer loop has length {count}, and a task is {grain} or more"


def _layout(values: Values, plan: Schedule) -> str:
    shape, axes = plan.region.shape, plan.region.axes or ()
    passes = sum(bool(plan.reductions(s) or plan.full_targets(s)) for s in plan.stages)
    count = "one pass" if passes <= 1 else f"{passes} passes"
    reduced = ", ".join(map(str, axes))
    if plan.layout is Layout.ROWS:
        return f"by rows: {_lengths(shape)} reduced along {reduced}, {count} along each row"
    if plan.staged:
        names = ", ".join(values.name(n) for n, _ in plan.staged)
        return (
            f"by short rows: {_lengths(shape)} reduced along {reduced}, vectors across rows, "
            f"blocks of {names} staged in scratch for many rows"
        )
    if plan.layout is Layout.SHORT_ROWS:
        return f"by short rows: {_lengths(shape)} reduced along {reduced}, vectors across rows"
    if plan.layout is Layout.COLUMNS:
        block = column_block(plan.region.outer[-1])
        blocks = f"{count} down blocks of {block} columns"
        return f"by columns: {_lengths(shape)} reduced along {reduced}, {blocks}"
    if not shape:
        return "one element"
    if plan.period:
        names = ", ".join(sorted(map(values.name, plan.repeated)))
        return f"repeating map over {_lengths(shape)}: {names} once for each short row or column"
    if plan.tile is not None:
        across, along = plan.tile
        return (
            f"tiled map over {_lengths(shape)}: blocks of axes {across} and {along}, vectors along "
            f"{along}, since memory is read along both{_turned(values, plan)}"
        )
    if plan.is_flat or len(shape) < 2:
        return f"flat map over {_lengths(shape)}: vectors along all of memory"
    return f"map over {_lengths(shape)}: vectors along the last axis"


def _turned(values: Values, plan: Schedule) -> str:
    names = ", ".join(values.name(n) for n, _ in plan.staged)
    return f"; blocks of {names} are transposed in scratch" if names else ""


def _lengths(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _traffic(values: Values, built: BuiltKernel) -> str:
    """Say what a kernel reads and writes."""
    pairs = list(zip(built.kernel.params, built.values, strict=True))
    written = [node for buffer, node in pairs if buffer.name in built.kernel.outputs]
    read = [node for node in built.values if not _among(node, written)]
    return values.traffic(read, written)


def _among(node: Node, nodes: Sequence[Node]) -> bool:
    return any(x is node for x in nodes)


def _apart(values: Values, region: Region) -> list[str]:
    """Say why a kernel is not part of one whose values it reads."""
    if region.apart is None or region.apart[0] not in values.kernels:
        return []
    other, why = region.apart
    return [f"apart from {values.kernels[other]}, for {region.nodes[0].op.name}: {why}"]


def _aliases(kernel: ir.Kernel) -> list[str]:
    return [f"writes {new} over {old}, which is not read any more" for old, new in kernel.aliases]
