"""LLVM IR text with code motion and value numbering built into the act of writing a line.

No LLVM pass runs over what is emitted, so the writer does the three that matter.  Each open loop
is a level; a pure instruction is written at the deepest level among its operands, which is the
block before the loops it does not depend on (loop-invariant code motion).  A line is looked up
before it is written (common subexpressions).  Loop counters and mutable locals are phis from the
start, so nothing has to be promoted from the stack.

Index arithmetic stays symbolic as `Affine` forms until an address is needed: the coefficient of
the lane number is then plain to see, and terms are added to the base pointer level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.types import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

# How an element lives in a register.  The 16-bit floats are kept as float32 values that are
# rounded after each operation, which is exact (24 >= 2 * 11 + 2) and what the hardware does best.
REGISTER = {
    bool_: "i1", int8: "i8", int16: "i16", int32: "i32", int64: "i64",
    uint8: "i8", uint16: "i16", uint32: "i32", uint64: "i64",
    float16: "float", bfloat16: "float", float32: "float", float64: "double",
}  # fmt: skip
# How an element lies in memory.
MEMORY = {**REGISTER, bool_: "i8", float16: "half", bfloat16: "i16"}

_WRAP = 1 << 64
# As many multiples of one loop counter are counted themselves, rather than computed in each trip.
_COUNTED_MULTIPLES = 4


class Value:
    """An SSA value or a literal: text, type, number of lanes, and the level that defines it."""

    __slots__ = ("dtype", "lanes", "level", "text")

    def __init__(self, text: str, dtype: np.dtype[Any], lanes: int, level: int) -> None:
        self.text = text
        self.dtype = dtype
        self.lanes = lanes
        self.level = level

    @property
    def type(self) -> str:
        element = REGISTER[self.dtype]
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    @property
    def is_constant(self) -> bool:
        return self.text[0] != "%"

    def as_type(self, dtype: np.dtype[Any]) -> Value:
        """Give the same bits as a value of a dtype with the same register type."""
        return self if self.dtype is dtype else Value(self.text, dtype, self.lanes, self.level)

    def __str__(self) -> str:
        """Give the value as an operand, type first."""
        return f"{self.type} {self.text}"


def integer(value: int, dtype: np.dtype[Any] = int64) -> Value:
    """Make a scalar integer literal."""
    return Value(str(value), dtype, 1, 0)


def vector_type(element: str, lanes: int) -> str:
    """Spell the type of `lanes` elements."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def lane_numbers(element: str, lanes: int, step: int = 1, offset: int = 0) -> str:
    """Spell the constant vector offset, offset + step, ..."""
    return "<" + ", ".join([f"{element} {offset + step * i}" for i in range(lanes)]) + ">"


class Affine:
    """sum of value * coefficient + lane * (lane number in the vector) + const, modulo 2**64."""

    __slots__ = ("const", "lane", "terms")

    def __init__(self, terms: dict[str, tuple[Value, int]], lane: int, const: int) -> None:
        self.terms = terms
        self.lane = lane
        self.const = const

    @staticmethod
    def of(x: Value | Affine) -> Affine:
        if isinstance(x, Affine):
            return x
        if x.is_constant and x.lanes == 1 and x.dtype.kind in "iu":
            return Affine({}, 0, int(x.text))
        return Affine({x.text: (x, 1)}, 0, 0)

    @property
    def is_constant(self) -> bool:
        return not self.terms and self.lane == 0

    @property
    def is_vector(self) -> bool:
        """Say whether it has a term that varies between lanes other than as lane * number."""
        return any(value.lanes > 1 for value, _ in self.terms.values())

    def without_lane(self) -> Affine:
        return Affine(self.terms, 0, self.const) if self.lane else self

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        terms = dict(self.terms)
        for text, (value, coefficient) in other.terms.items():
            total = sign * coefficient + (terms[text][1] if text in terms else 0)
            if total:
                terms[text] = (value, total)
            else:
                terms.pop(text, None)
        return Affine(
            terms, self.lane + sign * other.lane, _signed(self.const + sign * other.const)
        )

    def scaled(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return Affine({}, 0, 0)
        terms = {t: (v, _signed(c * factor)) for t, (v, c) in self.terms.items()}
        return Affine(terms, _signed(self.lane * factor), _signed(self.const * factor))


def _signed(x: int) -> int:
    x %= _WRAP
    return x - _WRAP if x >= _WRAP >> 1 else x


class Level:
    """A region of the program text that new lines can still be added to, and what it defines."""

    __slots__ = ("label", "lines", "memo")

    def __init__(self, label: str, lines: list[str]) -> None:
        self.label = label
        self.lines = lines
        self.memo: dict[Any, Any] = {}


class Loop:
    """An open loop: where its phis go once the values of the last line are known."""

    __slots__ = ("counter", "entry", "head", "multiples", "phis", "start", "starts")

    def __init__(self, entry: str, head: list[str], start: Value, starts: list[Value]) -> None:
        self.entry = entry
        self.head = head
        self.start = start
        self.starts = starts
        self.counter = ""
        self.multiples: dict[int, str] = {}  # of the counter, by factor
        self.phis: list[Value] = []


class Writer:
    """The text of one function as it grows; `lanes` is the width of the open vector loop, or 1.

    That loop makes `trips` trips or more, of so many `operations`, repetitions included.
    """

    def __init__(self, vector_bytes: int) -> None:
        self.vector_bytes = vector_bytes
        self.entry: list[str] = []
        self.levels = [Level("entry", [])]
        self.text: list[list[str]] = [self.entry, self.levels[0].lines]
        self.lanes = 1
        self.trips = 1
        self.operations = 0
        self._counting: dict[str, Loop] = {}  # open loops from a constant on, by their counters
        self._names = 0
        self._labels = 0

    # Lines

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def op(self, line: str, dtype: np.dtype[Any], lanes: int, level: int) -> Value:
        """Write a pure instruction at `level`, or find it there."""
        scope = self.levels[level]
        name = scope.memo.get(line)
        if name is None:
            self._names += 1
            name = scope.memo[line] = f"%v{self._names}"
            scope.lines.append(f"  {name} = {line}")
        return Value(name, dtype, lanes, level)

    def raw(self, line: str, level: int) -> str:
        """Write a pure instruction whose type is not an element's, and give its name."""
        return self.op(line, int64, 1, level).text

    def do(self, line: str) -> None:
        """Write an instruction with an effect, here."""
        self.levels[-1].lines.append("  " + line)

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    def fills_a_register(self, size: int) -> bool:
        """Say whether a vector of elements of `size` bytes is one whole register."""
        return self.lanes * size == self.vector_bytes

    # Lanes

    def splat(self, x: Value, lanes: int) -> Value:
        """Copy a scalar to all lanes, at the level where it is defined."""
        if x.lanes == lanes:
            return x
        if x.is_constant:
            return Value(f"splat ({x})", x.dtype, lanes, 0)
        vector = vector_type(REGISTER[x.dtype], lanes)
        one = self.raw(f"insertelement {vector} poison, {x}, i64 0", x.level)
        line = f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer"
        return self.op(line, x.dtype, lanes, x.level)

    def same_lanes(self, *args: Value) -> tuple[Sequence[Value], int, int]:
        """Bring values to one number of lanes; give them, that number and their level."""
        lanes = max([x.lanes for x in args])
        level = max([x.level for x in args])
        if lanes > 1:
            args = tuple([x if x.lanes == lanes else self.splat(x, lanes) for x in args])
        return args, lanes, level

    def binary(self, instruction: str, x: Value, y: Value) -> Value:
        """Write a two-operand instruction whose result has the type of its operands."""
        (x, y), lanes, level = self.same_lanes(x, y)
        return self.op(f"{instruction} {x}, {y.text}", x.dtype, lanes, level)

    def materialize(self, x: Value | Affine) -> Value:
        """Compute an affine form, operands of outer levels first so that sums stay outside."""
        if isinstance(x, Value):
            return x
        total: Value | None = None
        for value, coefficient in sorted(x.terms.values(), key=lambda term: term[0].level):
            if coefficient == -1 and total is not None:
                total = self.binary("sub", total, value)
                continue
            term = value if coefficient == 1 else self._multiple(value, coefficient)
            total = term if total is None else self.binary("add", total, term)
        if total is None:
            total = integer(x.const)
        elif x.const:
            total = self.binary("add", total, integer(x.const))
        if x.lane:
            if total.text == "0":
                return Value(lane_numbers("i64", self.lanes, x.lane), int64, self.lanes, 0)
            numbers = Value(lane_numbers("i64", self.lanes, x.lane), int64, self.lanes, 0)
            total = self.binary("add", self.splat(total, self.lanes), numbers)
        return total

    def _multiple(self, x: Value, factor: int) -> Value:
        """Multiply; a counter by adding in each trip, which takes one instruction and no wait.

        Twice is part of an address.
        """
        loop = self._counting.get(x.text)
        name = None if loop is None else loop.multiples.get(factor)
        if name is None:
            if loop is None or factor == 2 or len(loop.multiples) == _COUNTED_MULTIPLES:
                return self.binary("mul", x, integer(factor))
            name = loop.multiples[factor] = self.name()
        return Value(name, int64, 1, x.level)

    # Blocks

    def label(self) -> str:
        self._labels += 1
        return f"b{self._labels}"

    def _start(self, label: str) -> list[str]:
        lines: list[str] = []
        self.text += [[f"{label}:"], lines]
        return lines

    def _resume(self, label: str) -> None:
        """Go on writing the innermost open level in a new block."""
        scope = self.levels[-1]
        scope.label, scope.lines = label, self._start(label)

    def open_loop(self, start: Value, starts: list[Value]) -> Loop:
        """Begin a loop of at least one trip; `starts` are the locals it changes."""
        entry, label = self.levels[-1].label, self.label()
        head = [f"  br label %{label}", f"{label}:"]
        body: list[str] = []
        self.text += [head, body]
        self.levels.append(Level(label, body))
        loop = Loop(entry, head, start, starts)
        loop.counter = self.name()
        if start.is_constant:
            self._counting[loop.counter] = loop
        loop.phis = [Value(self.name(), x.dtype, x.lanes, self.depth) for x in starts]
        return loop

    def close_loop(
        self, loop: Loop, step: int, stop: Value, finals: list[Value], going: Value | None = None
    ) -> list[Value]:
        """End a loop; give the final values of its locals as values of the level around it."""
        scope, after, following = self.levels.pop(), self.label(), self.name()
        again, label = self.name(), loop.head[1][:-1]
        self._counting.pop(loop.counter, None)
        multiples = {name: (self.name(), k) for k, name in loop.multiples.items()}
        scope.lines += [
            *(f"  {then} = add i64 {now}, {step * k}" for now, (then, k) in multiples.items()),
            f"  {following} = add i64 {loop.counter}, {step}",
            f"  {again} = icmp slt i64 {following}, {stop.text}",
        ]
        if going is not None:
            both = self.name()
            scope.lines.append(f"  {both} = and i1 {again}, {going.text}")
            again = both
        scope.lines.append(f"  br i1 {again}, label %{label}, label %{after}")
        back, entry = f"%{scope.label}", f"%{loop.entry}"
        loop.head.append(
            f"  {loop.counter} = phi i64 [ {loop.start.text}, {entry} ], [ {following}, {back} ]"
        )
        for now, (then, k) in multiples.items():
            begin = int(loop.start.text) * k
            loop.head.append(f"  {now} = phi i64 [ {begin}, {entry} ], [ {then}, {back} ]")
        for phi, first, last in zip(loop.phis, loop.starts, finals, strict=True):
            loop.head.append(
                f"  {phi.text} = phi {phi.type} [ {first.text}, {entry} ], [ {last.text}, {back} ]"
            )
        self._resume(after)
        return [Value(x.text, x.dtype, x.lanes, min(x.level, self.depth)) for x in finals]

    def open_branch(self, condition: Value) -> tuple[str, str, str]:
        """Begin the text that runs if `condition` holds; give entry, other and end labels."""
        entry, then, other, end = self.levels[-1].label, self.label(), self.label(), self.label()
        self.text.append([f"  br {condition}, label %{then}, label %{other}"])
        self.levels.append(Level(then, self._start(then)))
        return entry, other, end

    def other_branch(self, branch: tuple[str, str, str]) -> str:
        """End the first text and begin the one that runs otherwise; give the first's label."""
        scope = self.levels.pop()
        scope.lines.append(f"  br label %{branch[2]}")
        self.levels.append(Level(branch[1], self._start(branch[1])))
        return scope.label

    def close_branch(
        self, branch: tuple[str, str, str], first: str, pairs: list[tuple[Value, Value]]
    ) -> list[Value]:
        """Join both texts; of each pair of values the one whose text ran."""
        scope = self.levels.pop()
        scope.lines.append(f"  br label %{branch[2]}")
        self._resume(branch[2])
        joined = []
        for x, y in pairs:
            if x.text == y.text:
                joined.append(x)
                continue
            name = self.name()
            self.do(f"{name} = phi {x.type} [ {x.text}, %{first} ], [ {y.text}, %{scope.label} ]")
            joined.append(Value(name, x.dtype, x.lanes, self.depth))
        return joined
