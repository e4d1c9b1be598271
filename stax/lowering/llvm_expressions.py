"""Expressions of the loop IR as values: the half of the LLVM emitter without loops.

Index arithmetic is kept as `Affine` forms and everything else is an SSA value.  What depends on
the variable of the open vector loop is a vector; all else stays a scalar and is copied to the
lanes where a vector meets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from stax.lowering.llvm_memory import Index, Memory
from stax.lowering.llvm_scalar import MathLibrary, apply, convert, literal
from stax.lowering.llvm_writer import REGISTER, Affine, Value, Writer, integer, lane_numbers
from stax.lowering.loop_ir import (
    BOOL,
    COMPARISONS,
    INDEX,
    Apply,
    Buffer,
    Const,
    Expr,
    Kernel,
    Load,
    Store,
    Var,
    index as index_of,
)
from stax.types import int32, int64

Tail = Literal["none", "shift", "both", "masked"]
# A sum of more terms is computed before it goes on.
_MOST_TERMS = 12
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


class Target(Protocol):
    """What code depends on: the width of a vector register, and the attributes of functions."""

    @property
    def vector_bytes(self) -> int: ...

    @property
    def attributes(self) -> str: ...


class Expressions:
    """Evaluates expressions where the writer stands; `env` holds the variables in scope.

    `live` is the lanes that count in this iteration of a vector loop: None for all.
    """

    def __init__(self, kernel: Kernel, math: MathLibrary, target: Target) -> None:
        self.kernel = kernel
        self.math = math
        self.target = target
        self.w = Writer(target.vector_bytes)
        # AVX-512 has both masked accesses that cost nothing and gathers that beat single loads.
        self.has_masks = target.vector_bytes == 64
        aliases: dict[str, frozenset[str]] = {}
        for a, b in kernel.aliases:
            aliases[a] = aliases.get(a, frozenset()) | {b}
            aliases[b] = aliases.get(b, frozenset()) | {a}
        # Only x86 has vectors of so many bytes; others have no such stores of one register.
        streamed = kernel.streamed if target.vector_bytes >= 32 else ()
        self.memory = Memory(self.w, aliases, self.has_masks, streamed)
        self.env: dict[str, Value | Affine] = {}
        self.tail: Tail = "none"
        self.live: Value | None = None
        # Values known to be positions or extents: far from the limits of int64.
        self.positions: set[str] = set()
        self._shapes: dict[str, list[Index]] = {}

    def local(self, name: str) -> Value:
        """Give the present value of a mutable local."""
        value = self.env[name]
        assert isinstance(value, Value)
        return value

    def value(self, root: Expr) -> Value:
        return self.w.materialize(self.evaluate(root))

    def evaluate(self, root: Expr) -> Value | Affine:
        """Write what computes an expression; with a stack of its own, as chains may be long."""
        leaf = self.leaf(root)
        if leaf is not None:
            return leaf
        leaves = [self.leaf(x) for x in _operands(root)]
        if None not in leaves:
            return self.combined(root, leaves)  # type: ignore[arg-type]
        done: dict[int, Value | Affine] = {}
        stack: list[Expr] = [root]
        while stack:
            node = stack[-1]
            if id(node) in done:
                stack.pop()
                continue
            leaf = self.leaf(node)
            if leaf is not None:
                done[id(node)] = leaf
                stack.pop()
                continue
            operands = _operands(node)
            waiting = [x for x in operands if id(x) not in done]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
            stack.pop()
            done[id(node)] = self.combined(node, [done[id(x)] for x in operands])
        return done[id(root)]

    def combined(self, node: Expr, operands: list[Value | Affine]) -> Value | Affine:
        """Write an operation or a load."""
        if isinstance(node, Apply):
            return self.apply(node, operands)
        assert isinstance(node, Load)
        return self.load(node, operands)

    def leaf(self, node: Expr) -> Value | Affine | None:
        """Give the value of a constant or a variable; None for anything else."""
        if type(node) is Var:
            return self.env[node.name]
        if type(node) is Const:
            if node.dtype == INDEX:
                return Affine({}, 0, int(node.value))
            return literal(node.value, node.dtype)
        return None

    def apply(self, node: Apply, args: list[Value | Affine]) -> Value | Affine:
        name, w = node.name, self.w
        if node.dtype == INDEX:
            if name in ("add", "sub"):
                x, y = self.bounded(args[0]), self.bounded(args[1])
                return x.plus(y, 1 if name == "add" else -1)
            if name == "mul":
                return self.located(self.memory.product(*args), args)
        elif w.lanes > 1 and name in COMPARISONS and node.args[0].dtype == INDEX:
            found = self.compare_lanes(name, args)
            if found is not None:
                return found
        elif name == "convert" and isinstance(args[0], Affine) and _is_narrow(node.dtype):
            return self.narrow(args[0], node.dtype)
        values = tuple([w.materialize(x) for x in args])
        return self.located(apply(w, self.math, name, values, node.dtype), args)

    def located(self, result: Any, args: list[Value | Affine]) -> Any:
        """Note that what is computed from positions alone is a position."""
        form = Affine.of(result) if isinstance(result, Affine) or result.dtype == INDEX else None
        if form is not None and len(form.terms) == 1:
            sources = [t for x in args for t in Affine.of(x).terms]
            if self.positions.issuperset(sources):
                self.positions.update(form.terms)
        return result

    def bounded(self, x: Value | Affine) -> Affine:
        """Give an affine form of few terms, so that long sums stay linear."""
        form = Affine.of(x)
        return form if len(form.terms) < _MOST_TERMS else Affine.of(self.w.materialize(form))

    # Index arithmetic on lanes

    def compare_lanes(self, name: str, args: list[Value | Affine]) -> Value | None:
        """Compare index expressions whose difference is the lane number and a uniform value.

        One comparison of 32-bit lane numbers instead of two of 64-bit sums.  Only for positions,
        whose difference cannot overflow as that of a user's int64 values could.
        """
        x, y = Affine.of(args[0]), Affine.of(args[1])
        if not self.positions.issuperset([*x.terms, *y.terms]):
            return None
        difference = x.plus(y, -1)
        if difference.is_vector or difference.lane not in (1, -1):
            return None
        if difference.lane == -1:
            name = _SWAPPED[name]
        bound = difference.without_lane().scaled(-difference.lane)
        limited = self.extremum("smax", self.w.materialize(bound), integer(-1))
        return self.lanes_against(name, self.extremum("smin", limited, integer(self.w.lanes)))

    def lanes_against(self, name: str, bound: Value) -> Value:
        """Compare the lane number with a uniform int64 that fits 32 bits."""
        w, lanes = self.w, self.w.lanes
        narrow = Value(bound.text, int32, 1, 0) if bound.is_constant else convert(w, bound, int32)
        numbers = Value(lane_numbers("i32", lanes), int32, lanes, 0)
        return apply(w, self.math, name, (numbers, narrow), BOOL)

    def extremum(self, name: Literal["smin", "smax"], x: Value, y: Value) -> Value:
        if x.is_constant and y.is_constant:
            choose = min if name == "smin" else max
            return integer(choose(int(x.text), int(y.text)))
        level = max(x.level, y.level)
        return self.w.op(f"call i64 @llvm.{name}.i64({x}, {y})", int64, 1, level)

    def narrow(self, x: Affine, dtype: np.dtype[Any]) -> Value:
        """Convert an index expression to a narrower integer: modulo 2**n, term by term."""
        w = self.w
        if x.is_vector:
            return convert(w, w.materialize(x), dtype)
        uniform = w.materialize(x.without_lane())
        if uniform.is_constant:
            start = literal(int(uniform.text), dtype)
        else:
            start = convert(w, uniform, dtype)
        if not x.lane:
            return start
        numbers = Value(lane_numbers(REGISTER[dtype], w.lanes, x.lane), dtype, w.lanes, 0)
        return numbers if start.text == "0" else w.binary("add", numbers, start)

    # Memory

    def load(self, node: Load, inputs: list[Value | Affine]) -> Value:
        rank = len(node.index)
        mask = None if node.mask is None else self.w.materialize(inputs[rank])
        flat = self.flat(node.buffer, inputs[:rank])
        return self.memory.load(node.buffer, flat, self.masked(mask, flat))

    def store(
        self, buffer: Buffer, index: tuple[Expr, ...], value: Expr, mask: Expr | None
    ) -> None:
        keep = None if mask is None else self.value(mask)
        result = self.value(value)
        flat = self.flat(buffer, [self.evaluate(i) for i in index])
        self.memory.store(buffer, flat, result, self.masked(keep, flat, result.lanes))

    def store_pairs(self, first: Store, second: Any) -> bool:
        """Store both numbers of pairs at once, if two stores are that; say whether they are."""
        if not _are_pairs(first, second):
            return False
        flat = self.flat(first.buffer, [self.evaluate(i) for i in first.index])
        if self.masked(None, flat, 2) is not None or not self.memory.is_half(first.buffer, flat):
            return False
        values = self.value(first.value), self.value(second.value)
        self.memory.store_pairs(first.buffer, flat, *values)
        return True

    def flat(self, buffer: Buffer, position: Sequence[Index]) -> Affine:
        """Give the offset of a position, computing a buffer's extents once."""
        extents = self._shapes.get(buffer.name)
        if extents is None:
            extents = [
                Affine({}, 0, e) if isinstance(e, int) else self.evaluate(e) for e in buffer.shape
            ]
            self._shapes[buffer.name] = extents
        return self.memory.flat(position, extents)

    def masked(self, mask: Value | None, flat: Affine, lanes: int = 1) -> Value | None:
        """Add to an access's own mask that of a masked iteration.

        Not where address, mask and value (of `lanes`) are uniform: one lane is always live.
        """
        is_uniform = flat.lane == 0 and not flat.is_vector and lanes == 1
        if self.tail != "masked" or (is_uniform and (mask is None or mask.lanes == 1)):
            return mask
        assert self.live is not None
        return self.live if mask is None else self.w.binary("and", self.live, mask)


def _are_pairs(first: Store, second: Any) -> bool:
    """Say whether two stores write the first and the second number of one pair."""
    if not isinstance(second, Store) or first.buffer is not second.buffer:
        return False
    if first.mask is not None or second.mask is not None or not first.index:
        return False
    (*place, a), (*other, b) = first.index, second.index
    return place == other and (a, b) == (index_of(0), index_of(1))


def _operands(node: Expr) -> tuple[Expr, ...]:
    if isinstance(node, Apply):
        return node.args
    assert isinstance(node, Load)
    return node.index if node.mask is None else (*node.index, node.mask)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    """Say whether converting an index to `dtype` is dropping high bits."""
    return dtype.kind in "iu" and dtype.itemsize < INDEX.itemsize
