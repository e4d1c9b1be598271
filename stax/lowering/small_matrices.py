"""Factorizations of many small matrices: one matrix in each lane of a vector.

A call of LAPACK takes longer to begin than a small matrix takes to factorize.  Here a task takes a
block of matrices, and an element of each makes a vector, so the textbook loops (G. Golub and C. Van
Loan, "Matrix Computations", 2013, sections 3.1, 3.4 and 4.2) are vector arithmetic.  Pivots differ
from lane to lane: rows are exchanged by selects.  The loops of very small matrices are written out,
and their elements then live in registers.

What a lane finds does not depend on its neighbours, nor on how matrices are dealt out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.op import Op
from stax.operators.linalg import Cholesky, Lu, TriangularSolve
from stax.types import float32, float64, int32

# Matrices side by side, the fewest for which this is worth it, and the bytes that a block of them
# may take in scratch.
LANES, FEWEST, SCRATCH_BYTES = 16, 8, 48 << 10
# Up to so many elements of all operands, loops are written out.
WRITTEN_OUT = 18
# Operations worth handing to another thread.
TASK = 60_000

_X = ir.Var("x0", ir.INDEX)
_BASE = ir.Var("base0", ir.INDEX)
_TASK = ir.Var("p0", ir.INDEX)

Place = int | ir.Expr


def in_lanes(node: Node) -> bool:
    """Say whether `node` factorizes many small real matrices."""
    if not isinstance(node.op, Cholesky | Lu | TriangularSolve):
        return False
    a = node.inputs[0].type
    if a.dtype not in (float32, float64):
        return False
    shapes = [x.type.shape for x in node.inputs]
    if not all(isinstance(n, int) for shape in shapes for n in shape):
        return False
    elements = [math.prod(shape[-2:]) for shape in shapes]
    is_square = a.shape[-1] == a.shape[-2]
    fits = sum(elements) * LANES * a.dtype.itemsize <= SCRATCH_BYTES
    return is_square and fits and 0 not in elements and math.prod(a.shape[:-2]) >= FEWEST


def lane_matrices(
    node: Node,
    sources: Sequence[Node],
    results: Sequence[tuple[int, Node]],
    name: str,
    labels: Mapping[Node, str],
) -> BuiltKernel:
    """Return the kernel of a node that `in_lanes` takes; `results` are those that are read."""
    return _Kernel(node, sources, results, name, labels).build()


class _Matrix:
    """A matrix of each lane: in scratch, or as named values where loops are written out."""

    def __init__(
        self, kernel: _Kernel, name: str, rows: int, columns: int, dtype: Any = None
    ) -> None:
        self.kernel = kernel
        self.values: dict[tuple[Any, Any], ir.Expr] = {}
        self.buffer = ir.Buffer(name, dtype or kernel.dtype, (rows, columns, kernel.block))
        if not kernel.written_out:
            kernel.allocs.append(ir.Alloc(self.buffer))

    def __getitem__(self, place: tuple[Place, Place]) -> ir.Expr:
        if self.kernel.written_out:
            return self.values[place]
        row, column = map(ir.index, place)
        return self.kernel.let(ir.Load(self.buffer, (row, column, _X)))

    def chosen(self, row: ir.Expr, column: Place) -> ir.Expr:
        """Return an element of a row that differs from lane to lane."""
        if self.kernel.written_out:
            found = self[0, column]
            for i in range(1, self.kernel.n):
                is_row = ir.apply("eq", row, ir.Const(i, int32))
                found = self.kernel.let(ir.apply("select", is_row, self[i, column], found))
            return found
        at = (ir.convert(row, ir.INDEX), ir.index(column), _X)
        return self.kernel.let(ir.Load(self.buffer, at))

    def __setitem__(self, place: tuple[Place, Place], value: ir.Expr) -> None:
        if self.kernel.written_out:
            self.values[place] = self.kernel.let(value)
        else:
            row, column = map(ir.index, place)
            self.kernel.body.append(ir.Store(self.buffer, (row, column, _X), value))


class _Local:
    """A number of each lane that changes."""

    def __init__(self, kernel: _Kernel, value: ir.Expr) -> None:
        self.kernel = kernel
        self.value = kernel.let(value)
        if not kernel.written_out:
            self.var = ir.Var(kernel.fresh("c"), value.dtype)
            kernel.body.append(ir.Init(self.var, self.value))
            self.value = self.var

    def set(self, value: ir.Expr) -> None:
        if self.kernel.written_out:
            self.value = self.kernel.let(value)
        else:
            self.kernel.body.append(ir.Set(self.var, value))


class _Kernel:
    """Writes the loops for one op, once for all lanes."""

    def __init__(
        self,
        node: Node,
        sources: Sequence[Node],
        results: Sequence[tuple[int, Node]],
        name: str,
        labels: Mapping[Node, str],
    ) -> None:
        self.op: Op = node.op
        self.name, self.dtype = name, node.inputs[0].type.dtype
        self.shapes: list[Any] = [x.type.shape[-2:] for x in node.inputs]
        self.n: int = self.shapes[0][-1]
        self.batch: int = math.prod(node.inputs[0].type.shape[:-2])
        self.block = min(LANES, self.batch)
        self.given = [self._buffer(x, labels) for x in sources]
        self.results = {i: self._buffer(x, labels) for i, x in results}
        self.values = (*sources, *(x for _, x in results))
        self.written_out = sum(map(math.prod, self.shapes)) <= WRITTEN_OUT
        self.body: list[ir.Stmt] = []
        self.allocs: list[ir.Alloc] = []
        self.numbers = itertools.count()

    def _buffer(self, x: Node, labels: Mapping[Node, str]) -> ir.Buffer:
        shape = x.type.shape
        rank = 1 if x.type.dtype == int32 else 2
        return ir.Buffer(labels[x], x.type.dtype, (self.batch, *shape[len(shape) - rank :]))

    def build(self) -> BuiltKernel:
        """Return the kernel."""
        blocks = -(-self.batch // self.block)
        start: ir.Expr = ir.mul(_TASK, self.block)
        if self.batch % self.block:
            # The last block ends with the batch; some are then computed twice, to the same result.
            start = ir.apply("minimum", start, ir.index(self.batch - self.block))
        match self.op:
            case Cholesky():
                self._cholesky()
            case Lu():
                self._lu()
            case TriangularSolve() as op:
                self._triangular_solve(op)
        lanes = ir.For(_X, ir.index(self.block), "vector", tuple(self.body))
        body: tuple[ir.Stmt, ...] = (*self.allocs, ir.Let(_BASE, start), lanes)
        params = (*self.given, *self.results.values())
        outputs = tuple(b.name for b in self.results.values())
        loop = ir.For(_TASK, ir.index(blocks), "parallel", body)
        kernel = ir.Kernel(self.name, params, (), (loop,), outputs)
        work = self.block * self.n * sum(map(math.prod, self.shapes))
        return BuiltKernel(kernel, self.values, ir.index(blocks), max(1, TASK // work))

    # --- statements ---

    def fresh(self, letter: str) -> str:
        """Return a new name."""
        return f"{letter}{next(self.numbers)}"

    def let(self, value: ir.Expr) -> ir.Expr:
        """Name a value where it stands."""
        if isinstance(value, ir.Var | ir.Const):
            return value
        var = ir.Var(self.fresh("v"), value.dtype)
        self.body.append(ir.Let(var, value))
        return var

    def number(self, value: float) -> ir.Const:
        """Return a number in the type of the elements."""
        return ir.Const(value, self.dtype)

    def loop(self, start: Place, stop: Place, body: Callable[[Any], None]) -> None:
        """Do `body` for start, ..., stop - 1."""
        if self.written_out:
            assert isinstance(start, int)
            assert isinstance(stop, int)
            for i in range(start, stop):
                body(i)
            return
        var, outside = ir.Var(self.fresh("i"), ir.INDEX), self.body
        self.body = []
        body(ir.add(var, start))
        outside.append(ir.For(var, ir.sub(stop, start), "serial", tuple(self.body)))
        self.body = outside

    def each(self, rows: int, columns: int, body: Callable[[Any, Any], None]) -> None:
        """Do `body` for each row and column."""
        self.loop(0, rows, lambda i: self.loop(0, columns, lambda j: body(i, j)))

    def read(self, which: int, name: str) -> _Matrix:
        """Return an operand as matrices of the lanes."""
        rows, columns = self.shapes[which]
        found, buffer = _Matrix(self, name, rows, columns), self.given[which]

        def copy(i: Place, j: Place) -> None:
            found[i, j] = ir.Load(buffer, (self.lane, ir.index(i), ir.index(j)))

        self.each(rows, columns, copy)
        return found

    @property
    def lane(self) -> ir.Expr:
        """The matrix that a lane holds."""
        return ir.add(_BASE, _X)

    def store(self, which: int, place: Sequence[Place], value: ir.Expr) -> None:
        """Store an element of a result, if it is read."""
        if which in self.results:
            buffer = self.results[which]
            at = (self.lane, *map(ir.index, place))
            self.body.append(ir.Store(buffer, at, value))

    # --- ops ---

    def _cholesky(self) -> None:
        """Column by column, each from those before it."""
        n, a = self.n, self.read(0, "a0")
        fails = _Local(self, ir.Const(False, ir.BOOL))

        def column(j: Any) -> None:
            def element(i: Any) -> ir.Expr:
                total = _Local(self, a[i, j])
                self.loop(0, j, lambda k: total.set(_less(total.value, a[i, k], a[j, k])))
                return total.value

            square = self.let(element(j))
            fails.set(ir.apply("or", fails.value, ir.apply("le", square, self.number(0.0))))
            root = self.let(ir.apply("sqrt", square))
            a[j, j] = root

            def below(i: Any) -> None:
                a[i, j] = ir.apply("div", element(i), root)

            self.loop(_after(j), n, below)

        self.loop(0, n, column)
        failed = self.number(math.nan)

        def row(i: Any) -> None:
            def kept(j: Any) -> None:
                self.store(0, (i, j), ir.apply("select", fails.value, failed, a[i, j]))

            self.loop(0, _after(i), kept)
            self.loop(_after(i), n, lambda j: self.store(0, (i, j), self.number(0.0)))

        self.loop(0, n, row)

    def _lu(self) -> None:
        """Gaussian elimination with exchanges of rows; a column of zeros is left as it is."""
        n, a = self.n, self.read(0, "a0")
        old, order = _Matrix(self, "old0", 1, n), _Matrix(self, "order0", 1, n, int32)

        def begin(i: Any) -> None:
            order[0, i] = ir.convert(ir.index(i), int32)

        def step(k: Any) -> None:
            pivot = self._largest(a, k)
            self.store(1, (k,), pivot)
            self._exchange(order, k, pivot)

            def move(j: Any) -> None:
                old[0, j] = a[k, j]
                a[k, j] = a.chosen(pivot, j)

            self.loop(0, n, move)
            is_zero = ir.apply("eq", a[k, k], self.number(0.0))
            divisor = self.let(ir.apply("select", is_zero, self.number(1.0), a[k, k]))

            def eliminate(i: Any) -> None:
                is_pivot = self.let(ir.apply("eq", pivot, ir.convert(ir.index(i), int32)))

                def given(j: Any) -> ir.Expr:
                    return self.let(ir.apply("select", is_pivot, old[0, j], a[i, j]))

                def kept(j: Any) -> None:
                    a[i, j] = given(j)

                def less(j: Any) -> None:
                    a[i, j] = _less(given(j), factor, a[k, j])

                self.loop(0, k, kept)
                factor = self.let(ir.apply("div", given(k), divisor))
                a[i, k] = factor
                self.loop(_after(k), n, less)

            self.loop(_after(k), n, eliminate)

        self.loop(0, n, begin)
        self.loop(0, n, step)
        if 0 in self.results:
            self.each(n, n, lambda i, j: self.store(0, (i, j), a[i, j]))
        self.loop(0, n, lambda i: self.store(2, (i,), order[0, i]))

    def _largest(self, a: _Matrix, k: Any) -> ir.Expr:
        """Return the row of the largest element of column k, from the diagonal on."""
        best = _Local(self, ir.apply("abs", a[k, k]))
        found = _Local(self, ir.convert(ir.index(k), int32))

        def compare(i: Any) -> None:
            size = self.let(ir.apply("abs", a[i, k]))
            is_larger = self.let(ir.apply("gt", size, best.value))
            row = ir.convert(ir.index(i), int32)
            best.set(ir.apply("select", is_larger, size, best.value))
            found.set(ir.apply("select", is_larger, row, found.value))

        self.loop(_after(k), self.n, compare)
        return found.value

    def _exchange(self, order: _Matrix, k: Any, pivot: ir.Expr) -> None:
        """Exchange the numbers of row k and of the row of its pivot."""
        first, second = self.let(order[0, k]), _Local(self, order[0, k])

        def exchange(i: Any) -> None:
            is_pivot = self.let(ir.apply("eq", pivot, ir.convert(ir.index(i), int32)))
            other = self.let(order[0, i])
            second.set(ir.apply("select", is_pivot, other, second.value))
            order[0, i] = ir.apply("select", is_pivot, first, other)

        self.loop(_after(k), self.n, exchange)
        order[0, k] = second.value

    def _triangular_solve(self, op: TriangularSolve) -> None:
        """Substitution; from the right, the transpose of both sides is solved."""
        n, (rows, columns) = self.n, self.shapes[1]
        a, b = self.read(0, "a0"), self.read(1, "b0")
        is_turned = op.transpose_a == op.left_side
        goes_down = op.is_lower != is_turned

        def element(i: Any, k: Any) -> ir.Expr:
            return a[k, i] if is_turned else a[i, k]

        def place(i: Any, c: Any) -> tuple[Any, Any]:
            return (i, c) if op.left_side else (c, i)

        def row(r: Any) -> None:
            i = r if goes_down else _back(n, r)
            scale = None
            if not op.unit_diagonal:
                scale = self.let(ir.apply("div", self.number(1.0), element(i, i)))

            def solve(c: Any) -> None:
                total = _Local(self, b[place(i, c)])

                def subtract(k: Any) -> None:
                    total.set(_less(total.value, element(i, k), b[place(k, c)]))

                self.loop(0 if goes_down else _after(i), i if goes_down else n, subtract)
                found = total.value
                if scale is not None:
                    found = self.let(ir.apply("mul", found, scale))
                b[place(i, c)] = found
                self.store(0, place(i, c), found)

            self.loop(0, columns if op.left_side else rows, solve)

        self.loop(0, n, row)


def _less(total: ir.Expr, x: ir.Expr, y: ir.Expr) -> ir.Expr:
    """Return total - x y, rounded once."""
    return ir.apply("fma", ir.apply("neg", x), y, total)


def _after(i: Place) -> Any:
    return i + 1 if isinstance(i, int) else ir.add(i, 1)


def _back(n: int, i: Place) -> Any:
    """Return the place that is i from the end."""
    return n - 1 - i if isinstance(i, int) else ir.sub(ir.index(n - 1), i)
