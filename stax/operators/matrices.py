"""Matrices: the base of ops that work on the last two axes, and what their derivatives are made of.

The axes before the last two are a batch: an op does the same to each of its matrices, so a batch
axis of vmap is one more of them.  `item` is what an op does to one matrix, in NumPy; the base class
does the loop.

A `Carried` op gives a value that other ops computed a derivative rule of its own.  It returns its
first operand; the others are there for the rule.  Lowering drops it.

    inverse(a) = carried(triangular solves with the factors of a; the rule needs a and its factors)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import DTypeError, ShapeError
from stax.extent import same_shape
from stax.op import Batch, Linear, Op
from stax.operators import contract, elementwise as ops
from stax.operators.broadcast import broadcast_in_dim, lead_all, reduce_sum
from stax.operators.elementwise import convert, like, select
from stax.operators.index import GatherDimensionNumbers, gather
from stax.operators.reshape import expand_dims, transpose
from stax.operators.shape import iota, slice_
from stax.trace import Proxy, bind, full, type_of
from stax.types import ArrayType, TupleType, Type

# What LAPACK computes with.
FACTORED = (types.float32, types.float64, types.complex64, types.complex128)


class MatrixOp(Op):
    """Base of ops on matrices, or on vectors that belong to them; other axes are a batch.

    `ranks` says how many axes of each operand belong to one item.
    """

    ranks: ClassVar[tuple[int, ...]]
    accepts: ClassVar[tuple[np.dtype, ...]] = FACTORED

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        """Return the types of the results for one item; raises ShapeError."""
        raise NotImplementedError

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        """Return the results for one item, none of whose operands is empty."""
        raise NotImplementedError

    def nothing(self, *results: ArrayType) -> Sequence[np.ndarray]:
        """Return the results for one item with an empty operand: what is square is orthogonal."""
        shapes: list[Any] = [t.shape for t in results]
        return [
            np.eye(*s, dtype=t.dtype) if t.ndim == 2 else np.zeros(s, t.dtype)
            for s, t in zip(shapes, results, strict=True)
        ]

    def batch_shape(self, operands: Sequence[ArrayType]) -> types.Shape:
        """Return the axes that are a batch, the same for all operands; raises ShapeError."""
        found = []
        for t, rank in zip(operands, self.ranks, strict=True):
            if t.ndim < rank:
                what = {1: "vectors", 2: "matrices"}[rank]
                raise ShapeError(
                    f"{self.name} takes {what}, in the last {rank} axes, not {t}.",
                    advice="Reshape the operand, or add an axis.",
                )
            found.append(t.shape[: t.ndim - rank])
        for other in found[1:]:
            if not same_shape(other, found[0]):
                raise ShapeError(
                    f"{self.name}: leading axes {found[0]} and {other} differ.",
                    advice="Broadcast the operands to one batch first.",
                )
        return found[0]

    def abstract_eval(self, *operands: ArrayType) -> Type:
        for t in operands:
            if t.dtype not in self.accepts and t.dtype != types.int32:
                shown = ", ".join(types.SHORT_NAMES[d] for d in self.accepts)
                raise DTypeError(
                    f"{self.name} does not accept {t}.",
                    advice=f"It accepts {shown}; convert with astype.",
                )
        if len({t.dtype for t in operands if t.dtype != types.int32}) > 1:
            raise DTypeError(
                f"{self.name}: matrices must have one dtype, got {', '.join(map(str, operands))}.",
                advice="Convert them with astype.",
            )
        batch = self.batch_shape(operands)
        found = [
            ArrayType(t.dtype, (*batch, *t.shape)) for t in self.item_types(*self._items(operands))
        ]
        return found[0] if len(found) == 1 else TupleType(found)

    def _items(self, operands: Sequence[ArrayType]) -> list[ArrayType]:
        """Return the types of the operands for one item."""
        return [
            ArrayType(t.dtype, t.shape[t.ndim - rank :])
            for t, rank in zip(operands, self.ranks, strict=True)
        ]

    def evaluate(self, *arrays: np.ndarray) -> Any:
        kinds = [ArrayType(x.dtype, x.shape) for x in arrays]
        batch: Any = self.batch_shape(kinds)
        items: Any = self._items(kinds)
        results: Any = self.item_types(*items)
        count = math.prod(batch)
        flat = [x.reshape(count, *t.shape) for x, t in zip(arrays, items, strict=True)]
        out = [np.empty((count, *t.shape), t.dtype) for t in results]
        empty = any(0 in t.shape for t in items)
        for i in range(count):
            with np.errstate(all="ignore"):
                row = self.nothing(*results) if empty else self.item(*(x[i] for x in flat))
            for target, value in zip(out, row, strict=True):
                target[i] = value
        found = tuple(y.reshape(*batch, *y.shape[1:]) for y in out)
        return found[0] if len(found) == 1 else found

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))


class Carried(Op):
    """Base of ops that return their first operand and have a derivative rule of their own."""

    def abstract_eval(self, *operands: ArrayType) -> Type:
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        # What is linear here was computed from the tangents, and is the first operand.
        return [ct if i == 0 and isinstance(x, Linear) else None for i, x in enumerate(inputs)]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


def check_square(name: str, x: ArrayType) -> None:
    """Raise unless matrices of type `x` are square."""
    if x.ndim < 2 or not same_shape(x.shape[-1:], x.shape[-2:-1]):
        raise ShapeError(
            f"{name} takes square matrices, not {x}.",
            advice="The last two axes must have one length.",
        )


# --- what derivative rules are written in ---


def extents(x: Any) -> Any:
    """Return the shape; the last two are known numbers where there are factors."""
    return type_of(x).shape


def real(x: Any) -> Any:
    """Return the real part, which is `x` itself where it is real."""
    return ops.real(x) if types.is_complex(type_of(x).dtype) else x


def conj(x: Any) -> Any:
    """Return the conjugate, which is `x` itself where it is real."""
    return ops.conj(x) if types.is_complex(type_of(x).dtype) else x


def transposed(x: Any) -> Any:
    """Return the matrices with rows and columns exchanged."""
    n = type_of(x).ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """Return the conjugate transposes."""
    return conj(transposed(x))


def symmetrized(x: Any) -> Any:
    """Return the symmetric (Hermitian) part."""
    return ops.mul(ops.add(x, adjoint(x)), like(x, 0.5))


def matmul(x: Any, y: Any) -> Any:
    """Return the products of matrices."""
    return contract.matmul(x, y)


def _places(x: Any) -> tuple[Any, Any]:
    """Return for each element the row and the column that it is in."""
    shape, n = type_of(x).shape, type_of(x).ndim
    return iota(types.int32, shape, n - 2), iota(types.int32, shape, n - 1)


def on_diagonal(x: Any) -> Any:
    """Return where an element is on the diagonal."""
    return ops.eq(*_places(x))


def lower_part(x: Any, strict: bool = False) -> Any:
    """Return the matrices with zeros above the diagonal, and on it where `strict`."""
    return select((ops.gt if strict else ops.ge)(*_places(x)), x, like(x, 0))


def upper_part(x: Any, strict: bool = False) -> Any:
    """Return the matrices with zeros below the diagonal, and on it where `strict`."""
    return select((ops.lt if strict else ops.le)(*_places(x)), x, like(x, 0))


def diagonal(x: Any) -> Any:
    """Return the diagonals of matrices."""
    *batch, rows, columns = type_of(x).shape
    n = min(rows, columns)
    if rows != columns:
        x = slice_(x, [0] * (len(batch) + 2), [*batch, n, n])
    return reduce_sum(select(on_diagonal(x), x, like(x, 0)), (len(batch) + 1,))


def with_diagonal(x: Any) -> Any:
    """Return matrices that have the vectors `x` as diagonals, zero elsewhere."""
    wide = columns_by(x, type_of(x).shape[-1])
    return select(on_diagonal(wide), wide, like(wide, 0))


def identity_like(x: Any) -> Any:
    """Return identity matrices of the shape and dtype of `x`."""
    return convert(on_diagonal(x), type_of(x).dtype)


def columns_by(x: Any, rows: Any) -> Any:
    """Return matrices of so many equal rows `x`: column `j` is filled with element `j`."""
    *batch, n = type_of(x).shape
    return broadcast_in_dim(x, (*batch, rows, n), (*range(len(batch)), len(batch) + 1))


def rows_by(x: Any, columns: Any) -> Any:
    """Return matrices of so many equal columns `x`: row `i` is filled with element `i`."""
    return broadcast_in_dim(x, (*type_of(x).shape, columns), range(type_of(x).ndim))


def scale_columns(x: Any, s: Any) -> Any:
    """Return the matrices with column `j` multiplied by element `j` of the vectors `s`."""
    wide = columns_by(s, type_of(x).shape[-2])
    return ops.mul(x, convert(wide, type_of(x).dtype))


def scale_rows(x: Any, s: Any) -> Any:
    """Return the matrices with row `i` multiplied by element `i` of the vectors `s`."""
    wide = rows_by(s, type_of(x).shape[-1])
    return ops.mul(x, convert(wide, type_of(x).dtype))


def block(x: Any, rows: Any, columns: Any) -> Any:
    """Return the upper left corner of matrices."""
    batch = type_of(x).shape[:-2]
    return slice_(x, [0] * (len(batch) + 2), [*batch, rows, columns])


def permuted_rows(x: Any, order: Any) -> Any:
    """Return the matrices whose row `i` is row `order[i]` of `x`."""
    *batch, _, columns = type_of(x).shape
    if 0 in type_of(x).shape:
        return x
    n = len(batch)
    numbers = GatherDimensionNumbers((n + 1,), (n,), (n,), tuple(range(n)), tuple(range(n)))
    places = expand_dims(order, n + 1)
    sizes = (*[1] * (n + 1), columns)
    return gather(x, places, numbers, sizes, unique_indices=True, mode="clip")


def inverse_permutation(order: Any) -> Any:
    """Return the permutations that undo `order`."""
    n = type_of(order).shape[-1]
    there = ops.eq(columns_by(order, n), iota(types.int32, (*type_of(order).shape, n), -2))
    counts = iota(types.int32, (*type_of(order).shape, n), -1)
    return reduce_sum(select(there, counts, like(counts, 0)), (type_of(order).ndim,))


def zeros_of(x: Any, rows: Any, columns: Any) -> Any:
    """Return matrices of zeros, as many as there are in `x`, of its dtype."""
    return full((*type_of(x).shape[:-2], rows, columns), 0, type_of(x).dtype)
