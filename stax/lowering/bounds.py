"""Bounds checks in kernels, which the setting `check="bounds"` (STAX_CHECK=bounds) asks for.

A pass over the loop IR: every load and store whose index is not known to lie inside its buffer gets
a mask that says whether it does, so that nothing else is touched, and before it a store that leaves
the number of the place in a record, one integer of the program.  The driver looks at the record
after each kernel and ends the program with that number as its status.  Where an access has a mask
of its own, only what that selects counts.  Code generators know nothing of it.

What is not loop IR is not checked: sorts, products, LAPACK, and the memory that loops make for what
they record.  A sum may be taken in another order than without checks, as masks take lanes too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stax.errors import InternalError
from stax.lowering.loop_ir import (
    INDEX,
    Alloc,
    Apply,
    Buffer,
    Const,
    Expr,
    For,
    Init,
    Kernel,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    apply,
    children,
    index as index_of,
    map_children,
    walk,
)
from stax.lowering.loop_printer import print_expressions, type_name
from stax.types import bool_

# The record in the module of a program; 0 while all is well.
RECORD = "@bounds.broken"

# The smallest and the largest value of an index, or None where nothing is known.
Interval = tuple[int, int] | None


@dataclass(frozen=True)
class Site:
    """An access that is checked: `index` and `extents` as the kernel is printed."""

    kernel: str
    access: str
    buffer: str
    index: str
    extents: str

    def error(self) -> InternalError:
        """Return the error of an access outside of its buffer."""
        return InternalError(
            f"kernel {self.kernel}: the {self.access} {self.buffer}[{self.index}] is outside of "
            f"{self.buffer}, whose type is {self.extents}.",
            doing=[f"running kernel {self.kernel} with bounds checks"],
            advice="The pass that built this kernel computed a wrong index.",
        )


def checked_kernel(kernel: Kernel, sites: list[Site]) -> Kernel:
    """Return `kernel` with checks, and the record as its last param, unless it needs none.

    Adds what is checked to `sites`; the record takes the numbers of sites, from 1.
    """
    return _Checker(kernel, sites).run()


class _Checker:
    """Builds the statements anew; `before` collects what has to come before the one at hand."""

    def __init__(self, kernel: Kernel, sites: list[Site]) -> None:
        self.kernel = kernel
        self.sites = sites
        self.names = _names(kernel)
        self.record = Buffer(self.fresh("broken"), INDEX, (1,))
        self.intervals: dict[Var, Interval] = {}
        self.before: list[Stmt] = []
        # Stores for what is loaded before the parallel loop, where no store may be.
        self.waiting: list[Stmt] = []
        self.is_inside = False

    def run(self) -> Kernel:
        kernel, before = self.kernel, len(self.sites)
        body = self.statements(kernel.body)
        if len(self.sites) == before:
            return kernel
        return replace(
            kernel,
            params=(*kernel.params, self.record),
            body=body,
            outputs=(*kernel.outputs, self.record.name),
        )

    def fresh(self, prefix: str) -> str:
        number = len(self.names)
        while f"{prefix}{number}" in self.names:
            number += 1
        self.names.add(f"{prefix}{number}")
        return f"{prefix}{number}"

    # Statements

    def statements(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            self.before = []
            new = self.loop(stmt, made) if isinstance(stmt, For) else self.simple(stmt)
            made += [*self.before, new]
            self.before = []
        return tuple(made)

    def simple(self, stmt: Stmt) -> Stmt:
        """Check the accesses of a statement without a body."""
        if isinstance(stmt, Alloc):
            return stmt
        rewrite = self.rewriter()
        new = map_children(stmt, rewrite)
        if isinstance(new, Let) and new.var.dtype == INDEX:
            self.intervals[new.var] = self.interval(new.value)
        return self.access(new) if isinstance(new, Store) else new

    def loop(self, stmt: For, made: list[Stmt]) -> For:
        extent = self.rewriter()(stmt.extent)
        made += self.before
        limit = self.interval(extent)
        self.intervals[stmt.var] = None if limit is None else (0, max(limit[1] - 1, 0))
        outside, self.is_inside = self.is_inside, True
        first = () if outside else tuple(self.waiting)
        body = (*first, *self.statements(stmt.body))
        self.before, going = [], stmt.going
        if going is not None:
            going = self.rewriter()(going)
            body += tuple(self.before)
        self.before, self.is_inside = [], outside
        return For(stmt.var, extent, stmt.kind, body, going)

    # Accesses

    def rewriter(self) -> Callable[[Expr], Expr]:
        """Return what checks the loads in an expression, each once for a statement."""
        memo: dict[int, Any] = {}

        def rewrite(root: Expr) -> Expr:
            stack: list[Any] = [root]
            while stack:
                node = stack[-1]
                if id(node) in memo:
                    stack.pop()
                    continue
                waiting = [child for child in children(node) if id(child) not in memo]
                if waiting:
                    stack += reversed(waiting)
                    continue
                stack.pop()
                new = map_children(node, lambda child: memo[id(child)])
                memo[id(node)] = self.access(new) if isinstance(new, Load) else new
            return memo[id(root)]

        return rewrite

    def access(self, node: Any) -> Any:
        """Return a load or a store that leaves alone what is outside of its buffer."""
        conditions = []
        for position, extent in zip(node.index, node.buffer.shape, strict=True):
            known, size = self.interval(position), self.interval(index_of(extent))
            if known is None or known[0] < 0:
                conditions.append(apply("ge", position, index_of(0), dtype=bool_))
            if known is None or size is None or known[1] >= size[0]:
                conditions.append(apply("lt", position, index_of(extent), dtype=bool_))
        if not conditions:
            return node
        inside = Var(self.fresh("inside"), bool_)
        self.before.append(Let(inside, _all(conditions)))
        self._record(node, apply("not", inside))
        return replace(node, mask=inside if node.mask is None else _all([node.mask, inside]))

    def _record(self, node: Any, outside: Expr) -> None:
        """Write the number of an access down where it is outside of its buffer."""
        self.sites.append(
            Site(
                self.kernel.name,
                type(node).__name__.lower(),
                node.buffer.name,
                ", ".join(print_expressions(node.index)),
                type_name(node.buffer),
            )
        )
        broken = outside if node.mask is None else _all([node.mask, outside])
        number = Const(len(self.sites), INDEX)
        store = Store(self.record, (index_of(0),), number, broken)
        (self.before if self.is_inside else self.waiting).append(store)

    # What is known of indices

    def interval(self, e: Expr) -> Interval:
        """Return what is known of an index expression."""
        match e:
            case Const(value, dtype) if dtype == INDEX:
                return int(value), int(value)
            case Var():
                return self.intervals.get(e)
            case Apply("convert", (x,), _) if x.dtype.kind in "iub" and x.dtype.itemsize < 8:
                return (0, 1) if x.dtype.kind == "b" else _range_of(x.dtype)
            case Apply("select", (_, x, y), _):
                a, b = self.interval(x), self.interval(y)
                return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
            case Apply(name, (x, y), dtype) if dtype == INDEX and name in _COMBINE:
                a, b = self.interval(x), self.interval(y)
                if name in ("minimum", "maximum"):
                    a, b = a or _range_of(INDEX), b or _range_of(INDEX)
                found = None if a is None or b is None else _COMBINE[name](a, b)
                low, high = _range_of(INDEX)
                return found if found and low <= found[0] and found[1] <= high else None
        return None


def _range_of(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


_Known = tuple[int, int]


def _product(a: _Known, b: _Known) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: _Known, b: _Known) -> Interval:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _remainder(a: _Known, b: _Known) -> Interval:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


_COMBINE: dict[str, Callable[[_Known, _Known], Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def _all(conditions: Sequence[Expr]) -> Expr:
    result, *rest = conditions
    for condition in rest:
        result = apply("and", result, condition)
    return result


def _names(kernel: Kernel) -> set[str]:
    """Return all names of a kernel."""
    names = {buffer.name for buffer in kernel.params} | {var.name for var in kernel.extents}
    for node in walk(*kernel.body):
        match node:
            case Var(name) | For(Var(name)) | Let(Var(name)) | Init(Var(name)):
                names.add(name)
            case Alloc(buffer):
                names.add(buffer.name)
    return names
