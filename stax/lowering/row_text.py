"""LLVM text that functions for the rows of arrays share: loops, keys that are in order, records.

A *record* is an unsigned key whose order is that of the elements, above the place that an element
came from.  The order-preserving key of a float is its bits with the sign turned, or all of them for
negative numbers; -0.0 counts as 0.0 and NaN is above everything.

Records are sorted by key alone, stably: few by insertion, more by their bytes, least significant
first, where bytes that all keys share are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stax.types import bfloat16, float16, float32, float64

# Rows up to this length are sorted by insertion.
INSERTION = 48

INFINITY = {float16: 0x7C00, bfloat16: 0x7F80, float32: 0x7F800000, float64: 0x7FF0000000000000}


def rows_function(
    name: str,
    attributes: str,
    row_bytes: int,
    pointers: Sequence[str],
    body: Sequence[str],
    room: str = "%n",
    on_stack: bool = False,
) -> str:
    """Return the function that does `body` for row %i of the tasks from `%begin` to `%end`.

    The row begins at element %first, and its elements are %stride apart.  Each task has scratch
    %a, of its own, of `row_bytes` for each of `room` elements.
    """
    lines = [f"%task.bytes = mul i64 {room}, {row_bytes}"]
    scratch = [
        "%a.first = mul i64 %t, %task.bytes",
        "%a = getelementptr i8, ptr %scratch, i64 %a.first",
    ]
    if on_stack:
        lines.append("%a = alloca i8, i64 %task.bytes, align 64")
        scratch = []
    return _ROWS.format(
        name=name, attributes=attributes, pointers="\n  ".join(pointers),
        sizes="\n  ".join(lines), scratch="\n  ".join(scratch), body="\n  ".join(body),
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
  %stride.at = getelementptr i64, ptr %extents, i64 3
  %stride = load i64, ptr %stride.at
  {sizes}
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %task, label %exit
task:
  %t = phi i64 [%begin, %entry], [%t.next, %done]
  %t.next = add i64 %t, 1
  {scratch}
  %from.all = mul i64 %t, %rows
  %from = udiv i64 %from.all, %tasks
  %to.all = mul i64 %t.next, %rows
  %to = udiv i64 %to.all, %tasks
  %has.rows = icmp slt i64 %from, %to
  br i1 %has.rows, label %row, label %done
row:
  %i = phi i64 [%from, %task], [%i.next, %row.done]
  %outer = udiv i64 %i, %stride
  %inner = urem i64 %i, %stride
  %outer.n = mul i64 %outer, %n
  %outer.first = mul i64 %outer.n, %stride
  %first = add i64 %outer.first, %inner
  {body}
  br label %row.done
row.done:
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
    if dtype not in INFINITY:
        return [f"%key = xor {kind} %bits, {number(sign if dtype.kind == 'i' else 0)}"]
    return [
        f"%size = and {kind} %bits, {number((1 << (bits - 1)) - 1)}",
        f"%is.zero = icmp eq {kind} %size, {number(0)}",
        f"%is.nan = icmp ugt {kind} %size, {number(INFINITY[dtype])}",
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


def payload(half: int) -> list[str]:
    """Return instructions that load a record, and from it the place an element came from."""
    record = f"i{2 * half}"
    return [
        f"%at = getelementptr {record}, ptr %records, i64 %i",
        f"%record = load {record}, ptr %at",
        f"%place.half = trunc {record} %record to i{half}",
        widened("place.half", half, 64, "place"),
    ]


def end_function(name: str, half: int, size: int, attributes: str) -> str:
    """Return the function that writes elements in the order of the records, or their places.

    The places are written where the elements have no size.
    """
    bits = 8 * (size or 4)
    found = [widened("place", 64, bits, "bits")]
    if size:
        found = [
            "%in.i = mul i64 %place, %stride",
            f"%in.at = getelementptr i{bits}, ptr %in, i64 %in.i",
            f"%bits = load i{bits}, ptr %in.at",
        ]
    body = [
        *payload(half),
        *found,
        "%out.i = mul i64 %i, %stride",
        f"%out.at = getelementptr i{bits}, ptr %out, i64 %out.i",
        f"store i{bits} %bits, ptr %out.at",
    ]
    parameters = "ptr %in, ptr %out, ptr %records, i64 %stride"
    return loop_function(name, parameters, body, attributes)


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
