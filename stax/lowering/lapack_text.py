"""LLVM text around calls of LAPACK: the loop over a batch, scratch memory, moves of elements.

Routines take every argument by address: numbers and letters are put on the stack at the entry of
the function, once for each value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stax.lowering.element import ALIGNMENT, aligned


class Body:
    """What is done to one matrix, written line by line.

    Addresses are names of values, given by `item` (the next buffer, at the matrix that the loop is
    at) and `take` (scratch memory of the task).
    """

    def __init__(self, prefix: str, real_size: int, is_complex: bool) -> None:
        self.prefix = prefix
        self.real = {4: "float", 8: "double"}[real_size]
        self.is_complex = is_complex
        self.size = real_size * (2 if is_complex else 1)
        self.routines: dict[str, str] = {}  # slots to the names of their addresses
        self.scratch = 0
        self.info = "%info"
        self._items: list[int] = []
        self._offsets: list[int] = []
        self._constants: dict[tuple[str, Any], str] = {}
        self._lines: list[str] = []
        self._count = 0
        self._has_length = False

    def item(self, nbytes: int) -> str:
        """Return the address of the matrix in the next buffer, of which it is so many bytes."""
        self._items.append(nbytes)
        return f"%item{len(self._items) - 1}"

    def take(self, nbytes: int) -> str:
        """Return the address of scratch memory."""
        self._offsets.append(self.scratch)
        self.scratch += max(ALIGNMENT, aligned(nbytes))
        return f"%scratch{len(self._offsets) - 1}"

    def do(self, line: str) -> None:
        """Append an instruction."""
        self._lines.append(line)

    def _constant(self, kind: str, value: Any) -> str:
        return self._constants.setdefault((kind, value), f"%constant{len(self._constants)}")

    def one(self) -> str:
        """Return the address of the number 1 in the type of an element."""
        return self._constant(self.real, "1.0")

    def call(self, routine: str, *arguments: Any) -> None:
        """Call a routine with addresses, and numbers and letters (of length 1) by address."""
        function = self.routines.setdefault(self.prefix + routine, f"%routine{len(self.routines)}")
        given = []
        for x in arguments:
            if isinstance(x, int):
                x = self._constant("i32", x)
            elif len(x) == 1:
                x = self._constant("i8", ord(x))
            given.append(f"ptr {x}")
        self.do(f"call void {function}({', '.join(given)})")

    def copy(self, to: str, source: str, nbytes: int) -> None:
        """Copy memory."""
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)")

    def copy_rows(self, to: str, source: str, rows: Any, nbytes: Any, apart: int) -> None:
        """Copy so many bytes of each of some rows."""
        sizes = f"i64 {rows}, i64 {nbytes}, i64 {apart}"
        self.do(f"call void @lapack_copy_rows(ptr {to}, ptr {source}, {sizes})")

    def length(self, common: int, last: int, items: int) -> tuple[str, str]:
        """Return a number that is another for the last item, and its address."""
        self._has_length = True
        self.do(f"%is.last = icmp eq i64 %i, {items - 1}")
        self.do(f"%length = select i1 %is.last, i64 {last}, i64 {common}")
        self.do("%length.short = trunc i64 %length to i32")
        self.do("store i32 %length.short, ptr %length.at")
        return "%length", "%length.at"

    def product(self, number: str, factor: int) -> str:
        """Return a number times a constant."""
        self.do(f"{number}.times = mul i64 {number}, {factor}")
        return f"{number}.times"

    def transpose(self, to: str, source: str, rows: int, columns: int) -> None:
        """Store a matrix of so many rows and columns, by rows, by columns."""
        bits = 8 * self.size
        self.do(
            f"call void @lapack_transpose{bits}(ptr {to}, ptr {source}, i64 {rows}, i64 {columns})"
        )

    def upper_triangle(self, to: str, source: str, rows: int, columns: int, stride: int) -> None:
        """Store by rows the upper triangle of a matrix by columns, zeros below it."""
        name = f"lapack_upper{8 * self.size}"
        sizes = f"i64 {rows}, i64 {columns}, i64 {stride}"
        self.do(f"call void @{name}(ptr {to}, ptr {source}, {sizes})")

    def zero_above(self, matrix: str, n: int) -> None:
        """Set what is above the diagonal, by rows, to zero."""
        self.do(f"call void @lapack_zero_above(ptr {matrix}, i64 {n}, i64 {self.size})")

    def nan_if_failed(self, to: str, count: int, real: bool = False) -> None:
        """Set so many numbers to NaN if the last routine failed."""
        total = count * (2 if self.is_complex and not real else 1)
        name = f"lapack_nan_{self.real}"
        self.do(f"call void @{name}(ptr {self.info}, ptr {to}, i64 {total})")

    def permutation(self, to: str, pivots: str, exchanges: int, rows: int) -> None:
        """Count pivots from 0, and store the order of rows that they make."""
        sizes = f"i64 {exchanges}, i64 {rows}"
        self.do(f"call void @lapack_permutation(ptr {to}, ptr {pivots}, {sizes})")

    def text(self, name: str, attributes: str, batch: int, tasks: int) -> str:
        """Return the function that does this to each matrix of a batch, dealt out in tasks.

        Its buffers are the scratch memory of all tasks, the routines, and what `item` gave.
        """
        loads = ["%scratch = load ptr, ptr %buffers"]
        names = [*self.routines.values(), *(f"%buffer{i}" for i in range(len(self._items)))]
        for i, value in enumerate(names, 1):
            loads.append(f"{value}.at = getelementptr ptr, ptr %buffers, i64 {i}")
            loads.append(f"{value} = load ptr, ptr {value}.at")
        if self._has_length:
            loads.append("%length.at = alloca i32")
        loads.append("%info = alloca i32")
        loads.append("store i32 0, ptr %info")
        for (kind, number), value in self._constants.items():
            wide = kind in ("float", "double") and self.is_complex
            loads.append(f"{value} = alloca {f'[2 x {kind}]' if wide else kind}")
            if wide:
                loads.append(f"store [2 x {kind}] zeroinitializer, ptr {value}")
            loads.append(f"store {kind} {number}, ptr {value}")
        places = [
            f"%scratch{i} = getelementptr i8, ptr %mine, i64 {offset}"
            for i, offset in enumerate(self._offsets)
        ]
        items = []
        for i, nbytes in enumerate(self._items):
            items.append(f"%offset{i} = mul i64 %i, {nbytes}")
            items.append(f"%item{i} = getelementptr i8, ptr %buffer{i}, i64 %offset{i}")
        return _FUNCTION.format(
            name=name, attributes=attributes, batch=batch, tasks=max(tasks, 1),
            scratch=max(self.scratch, ALIGNMENT), loads="\n  ".join(loads),
            places="\n  ".join(places), body="\n  ".join([*items, *self._lines]),
        )  # fmt: skip


_FUNCTION = """
define void @{name}(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
entry:
  {loads}
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %task, label %exit
task:
  %t = phi i64 [%begin, %entry], [%t.next, %done]
  %t.next = add i64 %t, 1
  %t.bytes = mul i64 %t, {scratch}
  %mine = getelementptr i8, ptr %scratch, i64 %t.bytes
  {places}
  %from.all = mul i64 %t, {batch}
  %from = udiv i64 %from.all, {tasks}
  %to.all = mul i64 %t.next, {batch}
  %to = udiv i64 %to.all, {tasks}
  br label %matrix
matrix:
  %i = phi i64 [%from, %task], [%i.next, %matrix]
  {body}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %to
  br i1 %more, label %matrix, label %done
done:
  %again = icmp slt i64 %t.next, %end
  br i1 %again, label %task, label %exit
exit:
  ret void
}}
"""

# Blocks of 16 by 16 elements, so that what is read and written by short steps stays in the cache.
_TRANSPOSE = """
define internal void @lapack_transpose{bits}(ptr %to, ptr %source, i64 %rows, i64 %columns)
    {attributes} {{
entry:
  br label %block.row
block.row:
  %bi = phi i64 [0, %entry], [%bi.next, %block.row.end]
  %bi.next = add i64 %bi, 16
  %bi.more = icmp slt i64 %bi.next, %rows
  %i.end = select i1 %bi.more, i64 %bi.next, i64 %rows
  br label %block
block:
  %bj = phi i64 [0, %block.row], [%bj.next, %block.end]
  %bj.next = add i64 %bj, 16
  %bj.more = icmp slt i64 %bj.next, %columns
  %j.end = select i1 %bj.more, i64 %bj.next, i64 %columns
  br label %row
row:
  %i = phi i64 [%bi, %block], [%i.next, %row.end]
  %i.next = add i64 %i, 1
  %first = mul i64 %i, %columns
  %row.from = getelementptr i{bits}, ptr %source, i64 %first
  %other = mul i64 %bj, %rows
  %there = add i64 %other, %i
  %first.at = getelementptr i{bits}, ptr %to, i64 %there
  br label %element
element:
  %j = phi i64 [%bj, %row], [%j.next, %element]
  %at = phi ptr [%first.at, %row], [%at.next, %element]
  %j.next = add i64 %j, 1
  %at.next = getelementptr i{bits}, ptr %at, i64 %rows
  %from = getelementptr i{bits}, ptr %row.from, i64 %j
  %value = load i{bits}, ptr %from, align {align}
  store i{bits} %value, ptr %at, align {align}
  %j.more = icmp slt i64 %j.next, %j.end
  br i1 %j.more, label %element, label %row.end
row.end:
  %i.more = icmp slt i64 %i.next, %i.end
  br i1 %i.more, label %row, label %block.end
block.end:
  br i1 %bj.more, label %block, label %block.row.end
block.row.end:
  br i1 %bi.more, label %block.row, label %exit
exit:
  ret void
}}
"""

_UPPER = """
define internal void @lapack_upper{bits}(ptr %to, ptr %source, i64 %rows, i64 %columns, i64 %stride)
    {attributes} {{
entry:
  br label %row
row:
  %i = phi i64 [0, %entry], [%i.next, %row.end]
  %i.next = add i64 %i, 1
  %first = mul i64 %i, %columns
  %row.at = getelementptr i{bits}, ptr %to, i64 %first
  %row.from = getelementptr i{bits}, ptr %source, i64 %i
  br label %element
element:
  %j = phi i64 [0, %row], [%j.next, %element]
  %from = phi ptr [%row.from, %row], [%from.next, %element]
  %j.next = add i64 %j, 1
  %from.next = getelementptr i{bits}, ptr %from, i64 %stride
  %value = load i{bits}, ptr %from, align {align}
  %is.upper = icmp sge i64 %j, %i
  %kept = select i1 %is.upper, i{bits} %value, i{bits} 0
  %at = getelementptr i{bits}, ptr %row.at, i64 %j
  store i{bits} %kept, ptr %at, align {align}
  %j.more = icmp slt i64 %j.next, %columns
  br i1 %j.more, label %element, label %row.end
row.end:
  %i.more = icmp slt i64 %i.next, %rows
  br i1 %i.more, label %row, label %exit
exit:
  ret void
}}
"""

_ZERO_ABOVE = """
define internal void @lapack_zero_above(ptr %matrix, i64 %n, i64 %size) {attributes} {{
entry:
  br label %row
row:
  %i = phi i64 [0, %entry], [%i.next, %row]
  %i.next = add i64 %i, 1
  %first = mul i64 %i, %n
  %place = add i64 %first, %i.next
  %offset = mul i64 %place, %size
  %at = getelementptr i8, ptr %matrix, i64 %offset
  %count = sub i64 %n, %i.next
  %bytes = mul i64 %count, %size
  call void @llvm.memset.p0.i64(ptr %at, i8 0, i64 %bytes, i1 false)
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %row, label %exit
exit:
  ret void
}}
"""

_COPY_ROWS = """
define internal void @lapack_copy_rows(ptr %to, ptr %source, i64 %rows, i64 %bytes, i64 %apart)
    {attributes} {{
entry:
  br label %row
row:
  %i = phi i64 [0, %entry], [%i.next, %row]
  %i.next = add i64 %i, 1
  %offset = mul i64 %i, %apart
  %from = getelementptr i8, ptr %source, i64 %offset
  %at = getelementptr i8, ptr %to, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %at, ptr %from, i64 %bytes, i1 false)
  %more = icmp slt i64 %i.next, %rows
  br i1 %more, label %row, label %exit
exit:
  ret void
}}
"""

_NAN = """
define internal void @lapack_nan_{real}(ptr %info, ptr %to, i64 %count) {attributes} {{
entry:
  %status = load i32, ptr %info
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fill, label %exit
fill:
  %i = phi i64 [0, %entry], [%next, %fill]
  %at = getelementptr {real}, ptr %to, i64 %i
  store {real} 0x7FF8000000000000, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %fill, label %exit
exit:
  ret void
}}
"""

_PERMUTATION = """
define internal void @lapack_permutation(ptr %to, ptr %pivots, i64 %exchanges, i64 %rows)
    {attributes} {{
entry:
  br label %count
count:
  %i = phi i64 [0, %entry], [%i.next, %count]
  %at = getelementptr i32, ptr %to, i64 %i
  %number = trunc i64 %i to i32
  store i32 %number, ptr %at
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %rows
  br i1 %i.more, label %count, label %exchange
exchange:
  %j = phi i64 [0, %count], [%j.next, %exchange]
  %pivot.at = getelementptr i32, ptr %pivots, i64 %j
  %from.one = load i32, ptr %pivot.at
  %pivot = sub i32 %from.one, 1
  store i32 %pivot, ptr %pivot.at
  %other = sext i32 %pivot to i64
  %first.at = getelementptr i32, ptr %to, i64 %j
  %second.at = getelementptr i32, ptr %to, i64 %other
  %first = load i32, ptr %first.at
  %second = load i32, ptr %second.at
  store i32 %second, ptr %first.at
  store i32 %first, ptr %second.at
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %exchanges
  br i1 %j.more, label %exchange, label %exit
exit:
  ret void
}}
"""

_DECLARATIONS = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def helpers(attributes: str, body: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the functions that a body calls."""
    yield "lapack_declarations", _DECLARATIONS
    for name, text in _helpers(attributes):
        if f"@{name}(" in body:
            yield name, text


def _helpers(attributes: str) -> Iterator[tuple[str, str]]:
    for bits in (32, 64, 128):
        sizes = {"bits": bits, "align": min(bits // 8, 8), "attributes": attributes}
        yield f"lapack_transpose{bits}", _TRANSPOSE.format(**sizes)
        yield f"lapack_upper{bits}", _UPPER.format(**sizes)
    for real in ("float", "double"):
        yield f"lapack_nan_{real}", _NAN.format(real=real, attributes=attributes)
    yield "lapack_copy_rows", _COPY_ROWS.format(attributes=attributes)
    yield "lapack_zero_above", _ZERO_ABOVE.format(attributes=attributes)
    yield "lapack_permutation", _PERMUTATION.format(attributes=attributes)
