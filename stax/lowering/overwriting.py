"""Which kernels may write a result over an operand that is not needed any more.

The loops of a kernel say it: each element of the operand has been read for the last time when the
element at its place is written.  Within the innermost loop that is a read at the same place, before
the write; of a row, a loop over it that ends before the one that writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stax.lowering import loop_ir as ir


class _Access(NamedTuple):
    """A load or a store: its number in the order of the program, its place, the loops around."""

    number: int
    place: tuple[ir.Expr, ...]
    loops: tuple[ir.For, ...]


class Accesses:
    """Where a kernel reads and writes its buffers, found in one walk."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.buffers = {buffer.name: buffer for buffer in kernel.params}
        self.loads: dict[str, list[_Access]] = {}
        self.stores: dict[str, list[_Access]] = {}
        # What variables depend on: what the task is, what loops within it go along, or both.
        self.depends: dict[ir.Var, frozenset[str]] = {}
        for number, (stmt, loops) in enumerate(_statements(kernel.body, ())):
            if isinstance(stmt, ir.For):
                self.depends[stmt.var] = frozenset(("loop",) if loops else ("task",))
            elif isinstance(stmt, ir.Let):
                self.depends[stmt.var] = self._depends(stmt.value)
            elif isinstance(stmt, ir.Init):
                self.depends[stmt.var] = frozenset(("task", "loop"))
            # Of a loop that is the extent alone; what is in it comes by itself.
            for node in ir.walk(stmt.extent if isinstance(stmt, ir.For) else stmt):
                if isinstance(node, ir.Load):
                    access = _Access(number, node.index, loops)
                    self.loads.setdefault(node.buffer.name, []).append(access)
            if isinstance(stmt, ir.Store):
                access = _Access(number, stmt.index, loops)
                self.stores.setdefault(stmt.buffer.name, []).append(access)

    def may_overwrite(self, old: str, new: str) -> bool:
        """Say whether buffer `new`, which the kernel writes, may be the memory of `old`, which it
        reads.

        The kernel has to write each element once, as one that is built `once` does.
        """
        outputs = self.kernel.outputs
        if old in outputs or new not in outputs or old not in self.buffers:
            return False
        before, after = self.buffers[old], self.buffers[new]
        is_static = all(isinstance(n, int) for n in after.shape)
        if not is_static or (before.dtype, before.shape) != (after.dtype, after.shape):
            return False
        loads, stores = self.loads.get(old, []), self.stores.get(new, [])
        pairs = itertools.product(loads, stores)
        return bool(loads) and bool(stores) and all(self._is_over(x, y) for x, y in pairs)

    def _is_over(self, load: _Access, store: _Access) -> bool:
        """Say whether an element is read for the last time when the one at its place is written."""
        if load.number > store.number:
            return False
        if load.loops == store.loops:
            # Where both are at fixed places of an axis, one iteration has all of them for itself.
            places = zip(load.place, store.place, strict=True)
            return all(a == b or {type(a), type(b)} == {ir.Const} for a, b in places)
        # A loop over the same row, closed before the one that writes: both are in the parallel one.
        shared = [a for a, b in zip(load.loops, store.loops, strict=False) if a is b]
        if len(shared) != 1 or shared[0].kind != "parallel":
            return False
        # A task has a row for itself: what it does not go along is the same in both.
        is_task = False
        for before, written in zip(load.place, store.place, strict=True):
            depends = self._depends(written)
            if depends == {"loop"}:
                continue
            if before != written or "loop" in depends:
                return False
            is_task = is_task or isinstance(written, ir.Var)
        return is_task or ir.static(shared[0].extent) == 1

    def _depends(self, x: ir.Expr) -> frozenset[str]:
        found = (self.depends.get(v, frozenset()) for v in ir.walk(x) if isinstance(v, ir.Var))
        return frozenset().union(*found)


def _statements(
    body: Sequence[ir.Stmt], loops: tuple[ir.For, ...]
) -> Iterator[tuple[ir.Stmt, tuple[ir.For, ...]]]:
    for stmt in body:
        yield stmt, loops
        if isinstance(stmt, ir.For):
            yield from _statements(stmt.body, (*loops, stmt))
