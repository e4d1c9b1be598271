"""Factorizations by LAPACK as steps of a program: native loops over the matrices of a batch.

LAPACK reads matrices by columns, so it sees the transpose of each.  Where that is as good, the
memory is used as it lies: the upper factor of the transpose is the lower one by rows.  Elsewhere
matrices are transposed into scratch memory and back, so that pivots are those of rows, and signs
and phases of vectors are those of the reference evaluator.

A matrix whose factorization fails gets NaN.  Empty matrices are left to the host (see `host`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stax.graph import Node
from stax.lowering.lapack_text import Body, helpers
from stax.lowering.paired import Paired, library_op
from stax.op import Op
from stax.operators.linalg import Cholesky, Lu, TriangularSolve
from stax.operators.qr import Qr
from stax.operators.spectral import Eigh, Svd
from stax.types import complex64, complex128, float32, float64

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Matrices are dealt out in at most so many tasks, each with scratch for one matrix.
MOST_TASKS = 16
# Element operations, about, below which threads are not worth their start.
PARALLEL_FROM = 1 << 16
# Multiplications from which unknowns are found in two halves, each of at least so many columns.
SPLIT_FROM, SIDE = 1 << 20, 32
# What a blocked algorithm of LAPACK likes to have per column.
BLOCK = 64

_PREFIXES: dict[Any, str] = {float32: "s", float64: "d", complex64: "c", complex128: "z"}
_WIDE: dict[Any, Any] = {float32: complex64, float64: complex128}


@dataclass(frozen=True)
class Matrix:
    """One operand or result: the sides of its item, and bytes of an element."""

    sides: tuple[int, ...]
    size: int

    @property
    def nbytes(self) -> int:
        """Bytes of one item."""
        return math.prod(self.sides) * self.size


@dataclass(frozen=True, eq=False)
class LapackStep:
    """Factorize the matrices of a batch: what is read, and which results are wanted."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    @cached_property
    def kernel(self) -> Kernel:
        """The native function."""
        return Kernel(self.node, tuple(i for i, _ in self.results))

    @property
    def scratch_bytes(self) -> int:
        """The memory that the tasks need between them."""
        return self.kernel.tasks * self.kernel.scratch

    def call(self, driver: DriverWriter) -> None:
        """Write the call, with BLAS at one thread: the pool's threads have each a matrix."""
        kernel = self.kernel
        if not kernel.tasks:
            return
        routines = [driver.from_context(name) for name in kernel.routines]
        pointers = [driver.scratch(self), *routines, *map(driver.pointer, self.reads_and_writes)]
        buffers = driver.table("ptr", pointers)
        given = f"ptr {buffers}, ptr null"
        driver.do(f"call void {driver.from_context('blas_begin')}()")
        if kernel.tasks == 1:
            driver.do(f"call void @{kernel.name}({given}, i64 0, i64 1)")
        else:
            parallel = driver.from_context("parallel_for")
            driver.do(
                f"call void {parallel}(ptr @{kernel.name}, {given}, i64 {kernel.tasks}, i64 1)"
            )
        driver.do(f"call void {driver.from_context('blas_end')}()")

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions that the call needs."""
        text = self.kernel.text(attributes)
        yield from helpers(attributes, text)
        yield self.kernel.name, text


def has_native(node: Node) -> bool:
    """Say whether LAPACK computes `node` without going through Python."""
    op = library_op(node.op)
    if not isinstance(op, Cholesky | TriangularSolve | Lu | Qr | Eigh | Svd):
        return False
    if isinstance(op, Qr) and op.pivoting:
        return False
    if isinstance(op, TriangularSolve) and op.conjugate_a and not op.transpose_a:
        return False
    shapes = [x.type.shape for x in node.inputs]
    return all(isinstance(n, int) for s in shapes for n in s) and not any(
        0 in s[-3:] for s in shapes
    )


class Kernel:
    """The function that does to each matrix of a batch what `node` does."""

    def __init__(self, node: Node, wanted: tuple[int, ...]) -> None:
        self.op: Op = library_op(node.op)
        paired = isinstance(node.op, Paired)
        dtype = node.inputs[0].type.dtype
        self.is_complex = paired
        self.prefix = _PREFIXES[_WIDE[dtype] if paired else dtype]
        self.real_size = dtype.itemsize
        first = node.inputs[0].type.shape
        last = 3 if paired else 2
        self.batch = math.prod(first[: len(first) - last])
        size = dtype.itemsize * (2 if paired else 1)
        self.size = size
        self.inputs = [
            Matrix(_sides(x.type.shape, len(first) - last, paired), size) for x in node.inputs
        ]
        self.wanted = wanted
        self.body = Body(self.prefix, self.real_size, self.is_complex)
        self._write()

    @property
    def routines(self) -> list[str]:
        """The slots of the routines that it calls, in the order of its buffers."""
        return list(self.body.routines)

    @property
    def scratch(self) -> int:
        """Bytes of scratch for one task."""
        return max(self.body.scratch, 64)

    @property
    def tasks(self) -> int:
        """In how many tasks the matrices are factorized."""
        rows, columns = self.inputs[0].sides[-2:]
        work = self.batch * rows * columns * min(rows, columns)
        return min(self.batch, MOST_TASKS if work >= PARALLEL_FROM else 1)

    @cached_property
    def name(self) -> str:
        """A name that tells apart whatever has other code."""
        digest = hashlib.sha256(self._text("", "").encode()).hexdigest()
        return f"lapack_{self.op.name}_{digest[:16]}"

    def text(self, attributes: str) -> str:
        """Return the function."""
        return self._text(self.name, attributes)

    def _text(self, name: str, attributes: str) -> str:
        return self.body.text(name, attributes, self.batch, self.tasks)

    def _write(self) -> None:
        """Write what is done to one matrix."""
        match self.op:
            case Cholesky():
                self._cholesky()
            case TriangularSolve() as op:
                self._triangular_solve(op)
            case Lu():
                self._lu()
            case Qr() as op:
                self._qr(op)
            case Eigh() as op:
                self._eigh(op)
            case Svd() as op:
                self._svd(op)

    def _result(self, position: int, nbytes: int) -> str:
        """Return the address of a result, in scratch memory if nobody reads it."""
        if position in self.wanted:
            return self.body.item(nbytes)
        return self.body.take(nbytes)

    def _cholesky(self) -> None:
        b, n = self.body, self.inputs[0].sides[0]
        a, factor = b.item(n * n * self.size), b.item(n * n * self.size)
        b.copy(factor, a, n * n * self.size)
        # By columns this is the upper triangle of the transpose, and so is its factor.
        b.call("potrf", "U", n, factor, n, b.info)
        b.nan_if_failed(factor, n * n)
        b.zero_above(factor, n)

    def _triangular_solve(self, op: TriangularSolve) -> None:
        b, (rows, columns) = self.body, self.inputs[1].sides
        n, many = self.inputs[0].sides[0], columns if op.left_side else rows
        row = columns * self.size
        pieces = 2 if self.batch == 1 and many >= 2 * SIDE and n * n * many >= SPLIT_FROM else 1
        if pieces == 1:
            a, right, found = (b.item(k) for k in (n * n * self.size, rows * row, rows * row))
            b.copy(found, right, rows * row)
            sides: tuple[Any, Any] = columns, rows
        else:
            # The unknowns of each half, columns or rows, are found by themselves.
            self.batch, share = pieces, -(-many // pieces)
            length, address = b.length(share, many - share * (pieces - 1), pieces)
            step = share * (self.size if op.left_side else row)
            a, right, found = (b.item(k) for k in (0, step, step))
            if op.left_side:
                b.copy_rows(found, right, rows, b.product(length, self.size), row)
            else:
                b.copy_rows(found, right, length, row, row)
            sides = (address, rows) if op.left_side else (columns, address)
        # op(A) X = B is X^T op(A)^T = B^T, and by columns the memory holds X^T, A^T and B^T.
        turn = ("C" if op.conjugate_a else "T") if op.transpose_a else "N"
        side, triangle = "R" if op.left_side else "L", "U" if op.is_lower else "L"
        unit = "U" if op.unit_diagonal else "N"
        one = b.one()
        b.call("trsm", side, triangle, turn, unit, *sides, one, a, n, found, columns)

    def _lu(self) -> None:
        b, (rows, columns) = self.body, self.inputs[0].sides
        n = min(rows, columns)
        a, wanted = b.item(rows * columns * self.size), self.wanted
        outs = [
            self._result(i, s) for i, s in enumerate((rows * columns * self.size, 4 * n, 4 * rows))
        ]
        by_columns = b.take(rows * columns * self.size)
        b.transpose(by_columns, a, rows, columns)
        b.call("getrf", rows, columns, by_columns, rows, outs[1], b.info)
        if 0 in wanted:
            b.transpose(outs[0], by_columns, columns, rows)
        b.permutation(outs[2], outs[1], n, rows)

    def _qr(self, op: Qr) -> None:
        b, (rows, columns) = self.body, self.inputs[0].sides
        n, width = min(rows, columns), rows if op.full_matrices else min(rows, columns)
        a = b.item(rows * columns * self.size)
        q = self._result(0, rows * width * self.size)
        r = self._result(1, width * columns * self.size)
        by_columns = b.take(rows * max(columns, width) * self.size)
        scales, length = b.take(n * self.size), BLOCK * max(columns, width)
        work = b.take(length * self.size)
        b.transpose(by_columns, a, rows, columns)
        b.call("geqrf", rows, columns, by_columns, rows, scales, work, length, b.info)
        if 1 in self.wanted:
            b.upper_triangle(r, by_columns, width, columns, rows)
        if 0 in self.wanted:
            name = "ungqr" if self.is_complex else "orgqr"
            b.call(name, rows, width, n, by_columns, rows, scales, work, length, b.info)
            b.transpose(q, by_columns, width, rows)

    def _eigh(self, op: Eigh) -> None:
        b, n = self.body, self.inputs[0].sides[0]
        a = b.item(n * n * self.size)
        values, vectors = self._result(0, n * self.real_size), self._result(1, n * n * self.size)
        by_columns = b.take(n * n * self.size)
        integers = 3 + 5 * n
        whole = b.take(4 * integers)
        b.transpose(by_columns, a, n, n)
        triangle, job = "L" if op.is_lower else "U", "V" if 1 in self.wanted else "N"
        if self.is_complex:
            length, reals = 2 * n + n * n + BLOCK * n, 1 + 5 * n + 2 * n * n
            extra: list[Any] = [b.take(reals * self.real_size), reals]
        else:
            length, extra = 1 + 6 * n + 2 * n * n + BLOCK * n, []
        work = b.take(length * self.size)
        b.call(
            "heevd" if self.is_complex else "syevd", job, triangle, n, by_columns, n, values, work,
            length, *extra, whole, integers, b.info,
        )  # fmt: skip
        b.nan_if_failed(by_columns, n * n)
        b.nan_if_failed(values, n, real=True)
        if 1 in self.wanted:
            b.transpose(vectors, by_columns, n, n)

    def _svd(self, op: Svd) -> None:
        b, (rows, columns) = self.body, self.inputs[0].sides
        n, m = min(rows, columns), max(rows, columns)
        a = b.item(rows * columns * self.size)
        left, right = (rows, columns) if op.full_matrices else (n, n)
        values = self._result(0, n * self.real_size)
        wanted = [self._result(k, self._svd_bytes(op, k)) for k in (1, 2)] if op.vectors else []
        by_columns, integers = b.take(rows * columns * self.size), b.take(4 * 8 * n)
        u, vh = [b.take(self._svd_bytes(op, k)) for k in (1, 2)] if op.vectors else [by_columns] * 2
        b.transpose(by_columns, a, rows, columns)
        if self.is_complex:
            length = 2 * n * n + 4 * n + 2 * m + BLOCK * (m + n)
            reals = max(5 * n * n + 5 * n, 2 * m * n + 2 * n * n + n) + 7 * n
            extra: list[Any] = [b.take(reals * self.real_size)]
        else:
            length, extra = 8 * n * n + 7 * n + m + BLOCK * (m + n), []
        work = b.take(length * self.size)
        job = ("A" if op.full_matrices else "S") if op.vectors else "N"
        b.call(
            "gesdd", job, rows, columns, by_columns, rows, values, u, rows, vh, right, work,
            length, *extra, integers, b.info,
        )  # fmt: skip
        b.nan_if_failed(values, n, real=True)
        if op.vectors:
            b.transpose(wanted[0], u, left, rows)
            b.transpose(wanted[1], vh, columns, right)
            b.nan_if_failed(wanted[0], rows * left)
            b.nan_if_failed(wanted[1], right * columns)

    def _svd_bytes(self, op: Svd, position: int) -> int:
        """Return the bytes of U (1) or V* (2)."""
        rows, columns = self.inputs[0].sides
        n = min(rows, columns)
        other = (rows, columns)[position - 1]
        return other * (other if op.full_matrices else n) * self.size


def _sides(shape: Sequence[Any], batch: int, paired: bool) -> tuple[int, ...]:
    sides = tuple(shape[batch:])
    return sides[:-1] if paired else sides
