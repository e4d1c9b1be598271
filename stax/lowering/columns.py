"""Kernels that run by columns: reductions over axes before the last.

A task takes a block of columns of the last axis and goes down the rows, with vectors across the
block.  Running values are kept in scratch, one per column, and several rows are taken per step so
that each is loaded and stored once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import static_size
from stax.lowering.paired import Pairs
from stax.lowering.schedule import column_block, unrolling
from stax.operators.broadcast import Reduction
from stax.types import accumulator, is_bool, is_float

if TYPE_CHECKING:
    from stax.lowering.build import KernelBuilder


def identity_of(kind: str, dtype: np.dtype) -> Any:
    """Return the number that leaves others alone under the combination `kind`."""
    if kind in ("add", "or", "xor"):
        return False if is_bool(dtype) else 0
    if kind in ("mul", "and"):
        return True if is_bool(dtype) else -1 if kind == "and" else 1
    low = kind == "maximum"
    if is_bool(dtype):
        return not low
    if is_float(dtype):
        return -np.inf if low else np.inf
    limits = np.iinfo(dtype)
    return limits.min if low else limits.max


def columns(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    """Write the loops; returns their number and the points of one."""
    shape, reduced = builder.region.shape, list(builder.region.axes or ())
    outer = [a for a in range(len(shape)) if a not in reduced]
    leading, last = outer[:-1], shape[outer[-1]]
    block = column_block(last)
    blocks: Any = (
        -(-last // block)
        if isinstance(last, int)
        else ir.floordiv(ir.add(builder.extent(last), block - 1), block)
    )
    with builder.parallel(leading, blocks) as (b, extent):
        base, width = builder.block_start(last, block, b)
        block_plan = _Columns(builder, outer[-1], base, width, block)
        for stage in builder.plan.stages:
            block_plan.stage(stage, reduced)
    return extent, block * static_size(tuple(shape[a] for a in reduced))


class _Columns:
    """The stages of one by-columns kernel, for one block of columns."""

    def __init__(
        self, builder: KernelBuilder, axis: int, base: ir.Expr, width: Any, block: int
    ) -> None:
        self.builder = builder
        self.axis = axis
        self.base = base
        self.width = width
        self.block = block
        # What the present stage computes for later ones, and the scratch for that.
        self.held: dict[Node, ir.Buffer] = {}

    def allocate(self, dtype: np.dtype) -> ir.Buffer:
        """Return scratch of one element per column."""
        buffer = ir.Buffer(self.builder.fresh("column"), dtype, (self.block,))
        self.builder.emit(ir.Alloc(buffer))
        return buffer

    @contextmanager
    def across(self) -> Iterator[ir.Var]:
        """Open the vector loop across the columns of the block."""
        builder = self.builder
        with builder.loop("x", self.width, "vector") as x:
            builder.axis_index[self.axis] = builder.let(ir.add(self.base, x), "i")
            yield x
            del builder.axis_index[self.axis]

    def stage(self, stage: int, reduced: list[int]) -> None:
        """One pass down the rows."""
        builder, plan = self.builder, self.builder.plan
        reductions, targets = plan.reductions(stage), plan.full_targets(stage)
        if stage == 0:
            self._outer(0)
        if not reductions and not targets:
            return
        totals = [self.allocate(accumulator(n.type.dtype)) for n in reductions]
        if reductions:
            with self.across() as x:
                for node, total in zip(reductions, totals, strict=True):
                    start = identity_of(node.op.combine, total.dtype)  # type: ignore[attr-defined]
                    builder.emit(ir.Store(total, (x,), ir.Const(start, total.dtype)))
        self._hold(stage, reduced)
        self._down(reduced, reductions, totals, targets)
        for node, buffer in self.held.items():
            self._read_back(node, buffer, reduced)
        for node, total in zip(reductions, totals, strict=True):
            self._ready(node, total)
        for node in targets:
            if node in plan.kept:
                builder.keep(node, None, reduced)
        self._outer(stage + 1)

    def _hold(self, stage: int, reduced: list[int]) -> None:
        """Reserve scratch for the values of this stage that are kept for later ones."""
        builder, lengths = self.builder, self.builder.region.shape
        targets = builder.region.targets
        nodes = [n for n, s in builder.plan.kept.items() if s == stage and n not in targets]
        shape: Any = (*(lengths[a] for a in reduced), self.block)
        self.held = {n: ir.Buffer(builder.fresh("held"), n.type.dtype, shape) for n in nodes}
        for buffer in self.held.values():
            builder.emit(ir.Alloc(buffer))

    def _read_back(self, node: Node, buffer: ir.Buffer, reduced: list[int]) -> None:
        builder = self.builder

        def read() -> ir.Expr:
            column = ir.sub(builder.axis_index[self.axis], self.base)
            place = (*(builder.axis_index[a] for a in reduced), column)
            return builder.let(ir.Load(buffer, place))

        builder.ready[node] = read

    def _ready(self, node: Node, total: ir.Buffer) -> None:
        builder = self.builder

        def read() -> ir.Expr:
            place = ir.sub(builder.axis_index[self.axis], self.base)
            return builder.let(ir.convert(ir.Load(total, (place,)), node.type.dtype))

        builder.ready[node] = read

    def _down(
        self, axes: list[int], reductions: list[Node], totals: list[ir.Buffer], targets: list[Node]
    ) -> None:
        builder = self.builder
        axis, *rest = axes
        if rest:
            with builder.loop("y", builder.region.shape[axis], "serial") as y:
                builder.axis_index[axis] = y
                self._down(rest, reductions, totals, targets)
                del builder.axis_index[axis]
            return
        rows = builder.region.shape[axis]
        step = unrolling(rows, builder.plan.work)
        whole: Any = rows // step if isinstance(rows, int) else rows
        self._steps(axis, (0, whole, step), reductions, totals, targets)
        if isinstance(rows, int) and rows % step:
            self._steps(axis, (whole * step, 1, rows % step), reductions, totals, targets)

    def _steps(
        self,
        axis: int,
        rows: tuple[int, Any, int],
        reductions: list[Node],
        totals: list[ir.Buffer],
        targets: list[Node],
    ) -> None:
        """Take some rows: from the first of `rows`, so many steps of so many rows."""
        builder = self.builder
        first, count, step = rows
        with builder.loop("y", count, "serial") as y, self.across() as x:
            running = []
            for total in totals:
                var = ir.Var(builder.fresh("acc"), total.dtype)
                builder.depth[var.name] = len(builder.scopes) - 1
                builder.emit(ir.Init(var, ir.Load(total, (x,))))
                running.append(var)
            with builder.loop("u", step, "unroll") as u:
                row = ir.add(ir.mul(y, step), ir.add(u, first))
                builder.axis_index[axis] = builder.let(row, "i")
                for node, buffer in self.held.items():
                    place = (*(builder.axis_index[a] for a in builder.region.axes or ()), x)
                    value = builder.value(node, builder.place(node))
                    builder.emit(ir.Store(buffer, place, value))
                for node, var in zip(reductions, running, strict=True):
                    builder.emit(ir.Update(node.op.combine, var, builder.term(node)))  # type: ignore[attr-defined]
                builder.store_all(targets)
                del builder.axis_index[axis]
            for total, var in zip(totals, running, strict=True):
                builder.emit(ir.Store(total, (x,), var))

    def _outer(self, stage: int) -> None:
        """Compute what follows from finished reductions, once per column."""
        builder, plan = self.builder, self.builder.plan
        found = [
            n
            for n in builder.region.nodes
            if n in plan.needed and not plan.is_full(n) and plan.stage[n] == stage
        ]
        stored = [n for n in found if n in builder.region.targets]
        held = [n for n in found if not isinstance(n.op, Reduction | Pairs)]
        if not stored and not held:
            return
        buffers = [self.allocate(n.type.dtype) for n in held]
        with self.across() as x:
            for node, buffer in zip(held, buffers, strict=True):
                builder.emit(ir.Store(buffer, (x,), builder.value(node, builder.place(node))))
            builder.store_all(stored)
        for node, buffer in zip(held, buffers, strict=True):
            self._ready(node, buffer)
