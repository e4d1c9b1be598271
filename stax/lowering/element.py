"""What a `lower` rule may say: one element of a result, in terms of elements of the operands.

`ElementBuilder` is the `kernel` that rules are given; it only builds expressions, apart from
`reduce`, which a kernel under construction provides (see `build`).  `Trail` runs a rule to find out
where it reads, which is how fusion tells an identity access from a shifted one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax.extent import Dimension, Extent
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.types import ArrayType, Shape

Index = tuple[ir.Expr, ...]
ALIGNMENT = 64  # of values in scratch memory, in bytes
FEWEST_TASKS = 4  # of a loop that is handed to threads; the results of fewer lie in two caches
SYMBOL_PREFIX = "n_"  # of variables that hold symbolic lengths; no loop variable starts so


def runs_alone(count: int, grain: int) -> bool:
    """Say whether one thread does a loop of `count` iterations, of which `grain` are a task."""
    return count <= grain or 1 < grain < count < FEWEST_TASKS * grain


class ElementBuilder:
    """Builds scalar and index expressions for `lower` rules."""

    def const(self, value: Any, dtype: np.dtype) -> ir.Expr:
        """Return a literal."""
        return ir.Const(value, dtype)

    def apply(self, name: str, *args: ir.Expr) -> ir.Expr:
        """Return a scalar function of expressions; a choice that is known is made."""
        if name == "select" and isinstance(args[0], ir.Const):
            return args[1 if args[0].value else 2]
        return ir.apply(name, *args)

    def convert(self, x: ir.Expr, dtype: np.dtype) -> ir.Expr:
        """Return `x` converted to `dtype`."""
        return ir.convert(x, dtype)

    def named(self, x: ir.Expr) -> ir.Expr:
        """Return `x` under a name, for a value that several others read."""
        return x

    def bitcast(self, x: ir.Expr, dtype: np.dtype) -> ir.Expr:
        """Return the bits of `x` read as `dtype`, which is as wide."""
        return ir.bitcast(x, dtype)

    def extent(self, length: Dimension) -> ir.Expr:
        """Return the length of an axis as an index expression."""
        if not isinstance(length, Extent):
            return ir.index(length)
        total: ir.Expr = ir.index(0)
        for monomial, coefficient in length.terms:
            term: ir.Expr = ir.index(coefficient)
            for name in monomial:
                term = ir.mul(symbol_var(name), term)
            total = ir.add(total, term)
        return total

    def plus(self, x: Any, y: Any) -> ir.Expr:
        """Return the sum of index expressions."""
        return ir.add(x, y)

    def minus(self, x: Any, y: Any) -> ir.Expr:
        """Return the difference of index expressions."""
        return ir.sub(x, y)

    def times(self, x: Any, y: Any) -> ir.Expr:
        """Return the product of index expressions."""
        return ir.mul(x, y)

    def over(self, x: Any, y: Any) -> ir.Expr:
        """Return the quotient of non-negative index expressions, rounded down."""
        return ir.floordiv(x, y)

    def modulo(self, x: Any, y: Any) -> ir.Expr:
        """Return the remainder of non-negative index expressions."""
        return ir.mod(x, y)

    def less(self, x: Any, y: Any) -> ir.Expr:
        """Compare index expressions."""
        a, b = ir.static(x), ir.static(y)
        if a is not None and b is not None:
            return ir.Const(a < b, ir.BOOL)
        return ir.apply("lt", ir.index(x), ir.index(y))

    def both(self, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        """Return whether both conditions hold."""
        for known, other in ((x, y), (y, x)):
            if isinstance(known, ir.Const):
                return other if known.value else known
        return ir.apply("and", x, y)

    def clamp(self, x: Any, low: Any, high: Any) -> ir.Expr:
        """Return an index limited to `low` and `high`."""
        return ir.apply("minimum", ir.apply("maximum", ir.index(x), ir.index(low)), ir.index(high))

    def as_index(self, x: ir.Expr) -> ir.Expr:
        """Return an integer element as an index."""
        return ir.convert(x, ir.INDEX)

    def reduce(
        self, kind: str, extents: Sequence[Dimension], body: Callable[..., Any], dtype: np.dtype
    ) -> ir.Expr:
        """Return `body(indices)` combined over `extents`."""
        raise NotImplementedError(f"{type(self).__name__} does not build loops")


class Trail(ElementBuilder):
    """Records which operands a rule reads, and at which index."""

    def __init__(self) -> None:
        self.reads: list[tuple[Node, Index, bool]] = []

    def operand(self, node: Node) -> Operand:
        """Return an operand whose reads are recorded; its elements are zeros."""

        def read(index: Index, mask: ir.Expr | None) -> ir.Expr:
            self.reads.append((node, index, mask is not None))
            return ir.Var("?", node.type.dtype)

        return Operand(node.type, read)


class Operand:
    """An operand of a rule: call it with an index to get the element there."""

    __slots__ = ("_read", "type")

    def __init__(self, type_: ArrayType, read: Callable[[Index, ir.Expr | None], ir.Expr]) -> None:
        self.type = type_
        self._read = read

    def __call__(self, index: Sequence[ir.Expr], mask: ir.Expr | None = None) -> ir.Expr:
        return self._read(tuple(index), mask)


def symbol_var(name: str) -> ir.Var:
    """Return the variable that holds the length named `name`."""
    return ir.Var(SYMBOL_PREFIX + name, ir.INDEX)


# How many threads share parallel loops; no name of a user begins with a digit.
THREADS = symbol_var("0threads")


def length_of(extent: Dimension) -> int | ir.Expr:
    """Return a length as a buffer or a loop has it: a number, or an expression of symbols."""
    return extent if isinstance(extent, int) else ElementBuilder().extent(extent)


def symbols_of(shape: Shape) -> list[str]:
    """Return the names of the symbols in a shape, in order."""
    return sorted({s for e in shape if isinstance(e, Extent) for s in e.symbols()})


def is_unit(extent: Dimension) -> bool:
    """Say whether a length is 1."""
    return isinstance(extent, int) and extent == 1


@functools.lru_cache(maxsize=4096)
def canonical(shape: Shape) -> Shape:
    """Return the shape without axes of length 1: what a loop nest sees of it."""
    return tuple(extent for extent in shape if not is_unit(extent))


def spread(shape: Shape, index: Sequence[ir.Expr]) -> Index:
    """Return an index of an array of `shape`, given those of its axes that are not of length 1."""
    places = iter(index)
    return tuple(ir.index(0) if is_unit(extent) else next(places) for extent in shape)


def gathered(shape: Shape, index: Index) -> Index:
    """Return the part of an index that belongs to axes that are not of length 1."""
    return tuple(place for extent, place in zip(shape, index, strict=True) if not is_unit(extent))


def aligned(nbytes: int) -> int:
    """Return a number of bytes rounded up to whole cache lines."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def static_size(shape: Shape) -> int:
    """Return the number of elements, a symbol counting as a large length."""
    size = 1
    for extent in shape:
        size *= extent if isinstance(extent, int) else 1 << 16
    return size
