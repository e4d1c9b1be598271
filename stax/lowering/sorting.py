"""Sorting the rows of arrays, in LLVM text.

Every element becomes a *record*: an unsigned key whose order is that of the elements, above a
payload.  The payload is the place the element came from, or, when one array is sorted by itself,
the bits of the element.  Records are sorted by key alone, stably: short rows by insertion, longer
ones by their bytes, least significant first, where bytes that all keys share are passed over.
Sorting by several keys is sorting by each of them, the last first.

The order-preserving key of a float is its bits with the sign turned, or all of them for negative
numbers; -0.0 counts as 0.0 and NaN is above everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from stax.errors import LoweringError
from stax.extent import Dimension, product
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import length_of
from stax.operators.sort import Sort
from stax.types import bfloat16, float16, float32, float64

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Rows up to this length are sorted by insertion.
INSERTION = 48
# Rows are dealt out in at most so many tasks, each with scratch for one row.
MOST_TASKS = 64
LARGE_SCRATCH, FEW_TASKS = 1 << 20, 16
# Elements below which threads are not worth their start.
PARALLEL_FROM = 1 << 12
MOST_ELEMENTS = (1 << 31) - 1

_INFINITY = {float16: 0x7C00, bfloat16: 0x7F80, float32: 0x7F800000, float64: 0x7FF0000000000000}


class Kernel(Protocol):
    """A native function for rows."""

    @property
    def name(self) -> str: ...

    def scratch(self, length: Dimension) -> Dimension:
        """Bytes of scratch for one row."""

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""


@dataclass(frozen=True, eq=False)
class SortStep:
    """Sort rows: what is read, by position, and which of the results are wanted."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    @property
    def kernel(self) -> Kernel:
        """The function that sorts."""
        op = self.node.op
        assert isinstance(op, Sort)
        dtypes = tuple(x.type.dtype for x in self.node.inputs)
        return SortKernel(dtypes, op.num_keys, tuple(i for i, _ in self.results))

    @property
    def length(self) -> Dimension:
        """The length of a row."""
        return self.node.inputs[0].type.shape[-1]

    @property
    def rows(self) -> Dimension:
        """How many rows there are."""
        return product(self.node.inputs[0].type.shape[:-1])

    @property
    def tasks(self) -> int:
        """In how many tasks the rows are sorted."""
        if not isinstance(self.rows, int) or not isinstance(self.length, int):
            return 1 if self.rows == 1 else FEW_TASKS
        if self.rows * self.length < PARALLEL_FROM:
            return min(self.rows, 1)
        large = self.kernel.scratch(self.length) > LARGE_SCRATCH
        return min(self.rows, FEW_TASKS if large else MOST_TASKS)

    @property
    def scratch_bytes(self) -> Dimension:
        """The memory that the tasks need between them."""
        return self.tasks * self.kernel.scratch(self.length)

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        pointers = [driver.scratch(self), *map(driver.pointer, self.reads_and_writes)]
        buffers = driver.table("ptr", pointers)
        sizes = (self.rows, self.length, self.tasks)
        extents = driver.table("i64", [driver.number(ir.index(length_of(n))) for n in sizes])
        name, given = self.kernel.name, f"ptr {buffers}, ptr {extents}"
        if self.tasks < 2:
            driver.do(f"call void @{name}({given}, i64 0, i64 {self.tasks})")
            return
        parallel = driver.from_context("parallel_for")
        driver.do(f"call void {parallel}(ptr @{name}, {given}, i64 {self.tasks}, i64 1)")

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions that the call needs."""
        yield from self.kernel.functions(attributes)


def sort_step(
    kind: type[SortStep],
    node: Node,
    operands: Sequence[Node],
    results: Sequence[tuple[int, Node]],
) -> SortStep:
    """Return the step, of the class `kind`, that sorts along the last axis."""
    length = node.inputs[0].type.shape[-1]
    if isinstance(length, int) and length > MOST_ELEMENTS:
        raise LoweringError(f"{node.op.name} of {node.inputs[0].type!r}: rows are too long.")
    return kind(node, tuple(operands), tuple(results))


@dataclass(frozen=True)
class SortKernel:
    """The native function for operands of given dtypes, of which some results are wanted."""

    dtypes: tuple[np.dtype, ...]
    num_keys: int
    wanted: tuple[int, ...]

    @property
    def keys(self) -> tuple[np.dtype, ...]:
        return self.dtypes[: self.num_keys]

    @property
    def half(self) -> int:
        """Bits of a key, and of a payload, in a record."""
        return 64 if max(d.itemsize for d in self.keys) > 4 else 32

    @property
    def is_alone(self) -> bool:
        """Whether an element goes along with its key, so that no place is needed."""
        return len(self.dtypes) == 1

    @property
    def name(self) -> str:
        keys = "_".join(d.name for d in self.keys)
        if self.is_alone:
            return f"sort_{keys}"
        moved = "_".join(f"{i}x{self.dtypes[i].itemsize}" for i in self.wanted)
        return f"sort_{keys}_of_{len(self.dtypes)}_moving_{moved}"

    def scratch(self, length: Dimension) -> Dimension:
        """Bytes of scratch for one row."""
        return length * (self.half // 2)

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""
        half = self.half
        yield f"insertion{half}", insertion_sort(half, attributes)
        for size in sorted({d.itemsize for d in self.keys}):
            yield f"by_bytes{half}_{size}", bytes_sort(half, size, attributes)
        first = self.keys[-1]
        yield self._begin_name, _begin(self._begin_name, half, first, self.is_alone, attributes)
        for dtype in dict.fromkeys(self.keys[:-1]):
            yield f"again{half}_{dtype.name}", _again(half, dtype, attributes)
        for i in self.wanted:
            name, size = self._end_name(i), self.dtypes[i].itemsize
            yield name, _end(name, half, size, self.is_alone, attributes)
        yield self.name, self._rows(attributes)

    @property
    def _payload(self) -> str:
        return "element" if self.is_alone else "place"

    @property
    def _begin_name(self) -> str:
        return f"begin{self.half}_{self._payload}_{self.keys[-1].name}"

    def _end_name(self, i: int) -> str:
        return f"end{self.half}_{self._payload}_{self.dtypes[i].itemsize}"

    def _rows(self, attributes: str) -> str:
        """Return the function that sorts the rows of tasks `begin` to `end`."""
        sides = [*(("in", i) for i in range(len(self.dtypes))), *(("out", i) for i in self.wanted)]
        pointers, body = [], []
        for number, name in enumerate(["scratch", *(f"{side}{i}" for side, i in sides)]):
            pointers.append(f"%{name}.at = getelementptr ptr, ptr %buffers, i64 {number}")
            pointers.append(f"%{name} = load ptr, ptr %{name}.at")
        for side, i in sides:
            element = f"i{8 * self.dtypes[i].itemsize}"
            line = f"%{side}{i}.row = getelementptr {element}, ptr %{side}{i}, i64 %first"
            body.append(line)
        body += self._one_row()
        return rows_function(self.name, attributes, self.half, pointers, body)

    def _one_row(self) -> list[str]:
        """Return the calls that sort one row, key by key."""
        last, half = self.num_keys - 1, self.half
        lines = [f"call void @{self._begin_name}(ptr %in{last}.row, ptr %a, i64 %n)"]
        records, spare = "%a", "%b"
        for key in range(last, -1, -1):
            dtype, both = self.keys[key], f"ptr {records}, ptr {spare}"
            if key != last:
                again = f"@again{half}_{dtype.name}"
                lines.append(f"call void {again}(ptr %in{key}.row, ptr {records}, i64 %n)")
            by_bytes = f"@by_bytes{half}_{dtype.itemsize}"
            lines.append(f"%r{key} = call ptr {by_bytes}({both}, i64 %n)")
            lines.append(f"%same{key} = icmp eq ptr %r{key}, {records}")
            lines.append(f"%spare{key} = select i1 %same{key}, ptr {spare}, ptr {records}")
            records, spare = f"%r{key}", f"%spare{key}"
        for i in self.wanted:
            row = f"ptr %in{i}.row, ptr %out{i}.row, ptr {records}"
            lines.append(f"call void @{self._end_name(i)}({row}, i64 %n)")
        return lines


def rows_function(
    name: str,
    attributes: str,
    half: int,
    pointers: Sequence[str],
    body: Sequence[str],
    room: str = "%n",
) -> str:
    """Return the function that does `body` for row %i of the tasks, with `room` records twice."""
    return _ROWS.format(
        name=name, attributes=attributes, record=f"i{2 * half}", room=room,
        pointers="\n  ".join(pointers), body="\n  ".join(body),
    )  # fmt: skip


_ROWS = """
define void @{name}(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
entry:
  {pointers}
  %rows = load i64, ptr %extents
  %n.at = getelementptr i64, ptr %extents, i64 1
  %n = load i64, ptr %n.at
  %tasks.at = getelementptr i64, ptr %extents, i64 2
  %tasks = load i64, ptr %tasks.at
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %task, label %exit
task:
  %t = phi i64 [%begin, %entry], [%t.next, %done]
  %t.next = add i64 %t, 1
  %place.a = mul i64 %t, {room}
  %place.b = shl i64 %place.a, 1
  %a = getelementptr {record}, ptr %scratch, i64 %place.b
  %b = getelementptr {record}, ptr %a, i64 {room}
  %from.all = mul i64 %t, %rows
  %from = udiv i64 %from.all, %tasks
  %to.all = mul i64 %t.next, %rows
  %to = udiv i64 %to.all, %tasks
  %has.rows = icmp slt i64 %from, %to
  br i1 %has.rows, label %row, label %done
row:
  %i = phi i64 [%from, %task], [%i.next, %row]
  %first = mul i64 %i, %n
  {body}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %to
  br i1 %more, label %row, label %done
done:
  %again = icmp slt i64 %t.next, %end
  br i1 %again, label %task, label %exit
exit:
  ret void
}}
"""

_LOOP = """
define internal void @{name}({parameters}, i64 %n) {attributes} {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %exit
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  {body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""


def loop_function(name: str, parameters: str, body: Sequence[str], attributes: str) -> str:
    return _LOOP.format(
        name=name, parameters=parameters, body="\n  ".join(body), attributes=attributes
    )


def ordered_key(dtype: np.dtype, lanes: int = 0) -> list[str]:
    """Return instructions that make %key, of as many bits as an element, of its %bits.

    With `lanes` both are vectors.
    """
    bits = 8 * dtype.itemsize
    kind = f"<{lanes} x i{bits}>" if lanes else f"i{bits}"
    truth = f"<{lanes} x i1>" if lanes else "i1"

    def number(value: int) -> str:
        return f"<{', '.join([f'i{bits} {value}'] * lanes)}>" if lanes else str(value)

    sign = -(1 << (bits - 1))
    if dtype not in _INFINITY:
        return [f"%key = xor {kind} %bits, {number(sign if dtype.kind == 'i' else 0)}"]
    return [
        f"%size = and {kind} %bits, {number((1 << (bits - 1)) - 1)}",
        f"%is.zero = icmp eq {kind} %size, {number(0)}",
        f"%is.nan = icmp ugt {kind} %size, {number(_INFINITY[dtype])}",
        f"%number = select {truth} %is.zero, {kind} {number(0)}, {kind} %bits",
        f"%negative = ashr {kind} %number, {number(bits - 1)}",
        f"%flip = or {kind} %negative, {number(sign)}",
        f"%ordered = xor {kind} %number, %flip",
        f"%key = select {truth} %is.nan, {kind} {number(-1)}, {kind} %ordered",
    ]


def widened(name: str, bits: int, to: int, result: str) -> str:
    if bits == to:
        return f"%{result} = or i{to} %{name}, 0"
    return f"%{result} = {'zext' if bits < to else 'trunc'} i{bits} %{name} to i{to}"


def _begin(name: str, half: int, dtype: np.dtype, is_alone: bool, attributes: str) -> str:
    """Return the function that makes records of elements."""
    bits, record = 8 * dtype.itemsize, f"i{2 * half}"
    payload = widened("bits", bits, 2 * half, "payload")
    if not is_alone:
        payload = widened("i", 64, 2 * half, "payload")
    body = [
        f"%in.at = getelementptr i{bits}, ptr %in, i64 %i",
        f"%bits = load i{bits}, ptr %in.at",
        *ordered_key(dtype),
        widened("key", bits, 2 * half, "wide"),
        f"%high = shl {record} %wide, {half}",
        payload,
        f"%record = or {record} %high, %payload",
        f"%at = getelementptr {record}, ptr %records, i64 %i",
        f"store {record} %record, ptr %at",
    ]
    return loop_function(name, "ptr %in, ptr %records", body, attributes)


def _payload(half: int) -> list[str]:
    """Return instructions that load a record, and from it the place an element came from."""
    record = f"i{2 * half}"
    return [
        f"%at = getelementptr {record}, ptr %records, i64 %i",
        f"%record = load {record}, ptr %at",
        f"%place.half = trunc {record} %record to i{half}",
        widened("place.half", half, 64, "place"),
    ]


def _again(half: int, dtype: np.dtype, attributes: str) -> str:
    """Return the function that gives records another key, of the elements at their places."""
    bits, record = 8 * dtype.itemsize, f"i{2 * half}"
    body = [
        *_payload(half),
        f"%in.at = getelementptr i{bits}, ptr %in, i64 %place",
        f"%bits = load i{bits}, ptr %in.at",
        *ordered_key(dtype),
        widened("key", bits, 2 * half, "wide"),
        f"%high = shl {record} %wide, {half}",
        widened("place", 64, 2 * half, "payload"),
        f"%new = or {record} %high, %payload",
        f"store {record} %new, ptr %at",
    ]
    return loop_function(f"again{half}_{dtype.name}", "ptr %in, ptr %records", body, attributes)


def _end(name: str, half: int, size: int, is_alone: bool, attributes: str) -> str:
    """Return the function that writes elements in the order of the records."""
    bits = 8 * size
    if is_alone:
        found = [widened("record", 2 * half, bits, "bits")]
    else:
        found = [
            f"%in.at = getelementptr i{bits}, ptr %in, i64 %place",
            f"%bits = load i{bits}, ptr %in.at",
        ]
    body = [
        *_payload(half),
        *found,
        f"%out.at = getelementptr i{bits}, ptr %out, i64 %i",
        f"store i{bits} %bits, ptr %out.at",
    ]
    return loop_function(name, "ptr %in, ptr %out, ptr %records", body, attributes)


def insertion_sort(half: int, attributes: str) -> str:
    """Return the function that sorts short rows of records in place."""
    return _INSERTION.format(half=half, record=f"i{2 * half}", attributes=attributes)


_INSERTION = """
define internal void @insertion{half}(ptr %a, i64 %n) {attributes} {{
entry:
  %any = icmp sgt i64 %n, 1
  br i1 %any, label %next, label %exit
next:
  %i = phi i64 [1, %entry], [%i.next, %put]
  %at = getelementptr {record}, ptr %a, i64 %i
  %x = load {record}, ptr %at
  %x.key = lshr {record} %x, {half}
  br label %look
look:
  %j = phi i64 [%i, %next], [%before, %move]
  %is.first = icmp eq i64 %j, 0
  br i1 %is.first, label %put, label %compare
compare:
  %before = sub i64 %j, 1
  %before.at = getelementptr {record}, ptr %a, i64 %before
  %y = load {record}, ptr %before.at
  %y.key = lshr {record} %y, {half}
  %is.greater = icmp ugt {record} %y.key, %x.key
  br i1 %is.greater, label %move, label %put
move:
  %j.at = getelementptr {record}, ptr %a, i64 %j
  store {record} %y, ptr %j.at
  br label %look
put:
  %place = phi i64 [0, %look], [%j, %compare]
  %place.at = getelementptr {record}, ptr %a, i64 %place
  store {record} %x, ptr %place.at
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %next, label %exit
exit:
  ret void
}}
"""


def _key_of(name: str, half: int) -> list[str]:
    """Return instructions that take the key out of a record."""
    record = f"i{2 * half}"
    return [
        f"%{name}.high = lshr {record} %{name}, {half}",
        widened(f"{name}.high", 2 * half, 64, f"{name}.key"),
    ]


def bytes_sort(half: int, size: int, attributes: str) -> str:
    """Return the function that sorts records by the `size` low bytes of their keys.

    It gives the one of its two buffers in which the sorted records are.
    """
    record = f"i{2 * half}"
    counting = _key_of("x", half) + [
        line
        for byte in range(size)
        for line in (
            f"%low{byte} = lshr i64 %x.key, {8 * byte}",
            f"%digit{byte} = and i64 %low{byte}, 255",
            f"%slot{byte} = add i64 %digit{byte}, {256 * byte}",
            f"%count{byte}.at = getelementptr i32, ptr %counts, i64 %slot{byte}",
            f"%count{byte} = load i32, ptr %count{byte}.at",
            f"%count{byte}.more = add i32 %count{byte}, 1",
            f"store i32 %count{byte}.more, ptr %count{byte}.at",
        )
    ]
    return _BY_BYTES.format(
        half=half, size=size, record=record, attributes=attributes, insertion=INSERTION,
        counters=256 * size, counting="\n  ".join(counting),
        first_key="\n  ".join(_key_of("r0", half)), next_key="\n  ".join(_key_of("y", half)),
    )  # fmt: skip


# Counts become the places where the next record with that byte goes.
_BY_BYTES = """
define internal ptr @by_bytes{half}_{size}(ptr %a, ptr %b, i64 %n) {attributes} {{
entry:
  %counts = alloca [{size} x [256 x i32]], align 64
  %is.short = icmp sle i64 %n, {insertion}
  br i1 %is.short, label %short, label %long
short:
  call void @insertion{half}(ptr %a, i64 %n)
  ret ptr %a
long:
  br label %clear
clear:
  %z = phi i64 [0, %long], [%z.next, %clear]
  %z.at = getelementptr i32, ptr %counts, i64 %z
  store <8 x i32> zeroinitializer, ptr %z.at, align 32
  %z.next = add i64 %z, 8
  %z.left = icmp slt i64 %z.next, {counters}
  br i1 %z.left, label %clear, label %count
count:
  %i = phi i64 [0, %clear], [%i.next, %count]
  %at = getelementptr {record}, ptr %a, i64 %i
  %x = load {record}, ptr %at
  {counting}
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %n
  br i1 %i.more, label %count, label %pass
pass:
  %from = phi ptr [%a, %count], [%from.next, %finished]
  %to = phi ptr [%b, %count], [%to.next, %finished]
  %byte = phi i64 [0, %count], [%byte.next, %finished]
  %byte.bits = shl i64 %byte, 3
  %column.first = shl i64 %byte, 8
  %column = getelementptr i32, ptr %counts, i64 %column.first
  %r0 = load {record}, ptr %from
  {first_key}
  %r0.low = lshr i64 %r0.key, %byte.bits
  %r0.digit = and i64 %r0.low, 255
  %r0.at = getelementptr i32, ptr %column, i64 %r0.digit
  %r0.count = load i32, ptr %r0.at
  %r0.wide = zext i32 %r0.count to i64
  %is.shared = icmp eq i64 %r0.wide, %n
  br i1 %is.shared, label %finished, label %sum
sum:
  %v = phi i64 [0, %pass], [%v.next, %sum]
  %total = phi i32 [0, %pass], [%total.next, %sum]
  %v.at = getelementptr i32, ptr %column, i64 %v
  %v.count = load i32, ptr %v.at
  store i32 %total, ptr %v.at
  %total.next = add i32 %total, %v.count
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, 256
  br i1 %v.more, label %sum, label %deal
deal:
  %k = phi i64 [0, %sum], [%k.next, %deal]
  %k.at = getelementptr {record}, ptr %from, i64 %k
  %y = load {record}, ptr %k.at
  {next_key}
  %y.low = lshr i64 %y.key, %byte.bits
  %y.digit = and i64 %y.low, 255
  %place.at = getelementptr i32, ptr %column, i64 %y.digit
  %place = load i32, ptr %place.at
  %place.next = add i32 %place, 1
  store i32 %place.next, ptr %place.at
  %place.wide = zext i32 %place to i64
  %target = getelementptr {record}, ptr %to, i64 %place.wide
  store {record} %y, ptr %target
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %n
  br i1 %k.more, label %deal, label %finished
finished:
  %from.next = phi ptr [%from, %pass], [%to, %deal]
  %to.next = phi ptr [%to, %pass], [%from, %deal]
  %byte.next = add i64 %byte, 1
  %byte.more = icmp slt i64 %byte.next, {size}
  br i1 %byte.more, label %pass, label %end
end:
  ret ptr %from.next
}}
"""
