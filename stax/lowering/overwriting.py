"""Which kernels may write a result over an operand that is not needed any more.

The loops of a kernel say it: each element of the operand has been read for the last time when the
element at its place is written.  Within the innermost loop that is a read at the same place, before
the write; of a row, a loop over it that ends before the one that writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stax.lowering import loop_ir as ir


class _Access(NamedTuple):
    """A load or a store: its number in the order of the program, its place, the loops around."""

    number: int
    place: tuple[ir.Expr, ...]
    loops: tuple[ir.For, ...]


def may_overwrite(kernel: ir.Kernel, old: str, new: str) -> bool:
    """Say whether buffer `new`, which `kernel` writes, may be the memory of `old`, which it reads.

    The kernel has to write each element once, as one that is built `once` does.
    """
    buffers = {buffer.name: buffer for buffer in kernel.params}
    if old in kernel.outputs or new not in kernel.outputs or old not in buffers:
        return False
    before, after = buffers[old], buffers[new]
    if not all(isinstance(n, int) for n in after.shape):
        return False
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return False
    loads, stores = _accesses(kernel, old, new)
    if len(stores) != 1 or not loads:
        return False
    return all(_is_over(load, stores[0]) for load in loads)


def _accesses(kernel: ir.Kernel, old: str, new: str) -> tuple[list[_Access], list[_Access]]:
    """Return the loads of `old` and the stores of `new`."""
    loads, stores = [], []
    for number, (stmt, loops) in enumerate(_statements(kernel.body, ())):
        # Of a loop that is the extent alone; what is in it comes by itself.
        for node in ir.walk(stmt.extent if isinstance(stmt, ir.For) else stmt):
            if isinstance(node, ir.Load) and node.buffer.name == old:
                loads.append(_Access(number, node.index, loops))
        if isinstance(stmt, ir.Store) and stmt.buffer.name == new:
            stores.append(_Access(number, stmt.index, loops))
    return loads, stores


def _statements(
    body: Sequence[ir.Stmt], loops: tuple[ir.For, ...]
) -> Iterator[tuple[ir.Stmt, tuple[ir.For, ...]]]:
    for stmt in body:
        yield stmt, loops
        if isinstance(stmt, ir.For):
            yield from _statements(stmt.body, (*loops, stmt))


def _is_over(load: _Access, store: _Access) -> bool:
    """Say whether an element is read for the last time when the one at its place is written."""
    if load.number > store.number:
        return False
    if load.loops == store.loops:
        return load.place == store.place
    # A loop over the same row, closed before the one that writes: both are within the parallel one.
    shared = [a for a, b in zip(load.loops, store.loops, strict=False) if a is b]
    if len(shared) != 1 or shared[0].kind != "parallel":
        return False
    inside = [{loop.var: loop for loop in access.loops[1:]} for access in (load, store)]
    fixed = 0
    for a, b in zip(load.place, store.place, strict=True):
        if a == b:
            # A place that a task has for itself: a variable of the parallel loop.
            fixed += isinstance(a, ir.Var)
            continue
        if not (isinstance(a, ir.Var) and isinstance(b, ir.Var)):
            return False
        if a not in inside[0] or b not in inside[1]:
            return False
    return fixed > 0 or ir.static(shared[0].extent) == 1
