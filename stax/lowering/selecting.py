"""The largest elements of rows, in LLVM text: `top_k` without sorting all of a row.

A row is read once.  Records of candidates (see `row_text`; keys are turned round, so that the
largest comes first) gather in a buffer of a few times `k`; when it is full it is sorted, all but
the first `k` are dropped, and from then on only elements that come before the last of them are
taken up.  Blocks without such an element are passed over with one comparison of vectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stax.extent import Dimension
from stax.lowering.row_text import (
    INSERTION,
    bytes_sort,
    insertion_sort,
    loop_function,
    ordered_key,
    rows_function,
    widened,
)
from stax.lowering.sorting import STACK_SCRATCH, SortStep
from stax.operators.sort import TopK

# Elements that are compared at once.
LANES = 8
# The buffer has this many times the records that are kept, and at least so many.
ROOM, LEAST_ROOM = 4, 24


@dataclass(frozen=True, eq=False)
class SelectStep(SortStep):
    """Find the largest elements of rows, and their places."""

    @property
    def kernel(self) -> SelectKernel:
        """The function that selects."""
        op = self.node.op
        assert isinstance(op, TopK)
        wanted = tuple(i for i, _ in self.results)
        return SelectKernel(self.node.inputs[0].type.dtype, op.k, wanted)


@dataclass(frozen=True)
class SelectKernel:
    """The native function for elements of a dtype; results are the values (0) and places (1)."""

    dtype: np.dtype
    k: int
    wanted: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch for one row."""
        return self.room * self.half // 2

    @property
    def on_stack(self) -> bool:
        """Whether that is little enough for the stack."""
        return self.row_bytes <= STACK_SCRATCH

    @property
    def half(self) -> int:
        """Bits of a key, and of a place, in a record."""
        return 64 if self.dtype.itemsize > 4 else 32

    @property
    def room(self) -> int:
        """The records that the buffer holds."""
        return max(ROOM * self.k, self.k + 2 * LANES, LEAST_ROOM)

    @property
    def name(self) -> str:
        return f"top_{self.k}_of_{self.dtype.name}_giving_{'_'.join(map(str, self.wanted))}"

    def scratch(self, length: Dimension) -> int:
        """Bytes of scratch for one row beside the stack."""
        return 0 if self.on_stack else self.row_bytes

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""
        half, size = self.half, self.dtype.itemsize
        yield f"insertion{half}", insertion_sort(half, attributes)
        if self.room > INSERTION:
            yield self._sorter, bytes_sort(half, size, attributes)
        else:
            yield self._sorter, _FEW.format(name=self._sorter, half=half, attributes=attributes)
        yield self._select, self._selection(attributes)
        for i in self.wanted:
            yield self._end(i), self._ending(i, attributes)
        yield self.name, self._rows(attributes)

    @property
    def _sorter(self) -> str:
        """The function that sorts what the buffer holds, which may be too little for bytes."""
        many = f"by_bytes{self.half}_{self.dtype.itemsize}"
        return many if self.room > INSERTION else f"by_insertion{self.half}"

    @property
    def _select(self) -> str:
        return f"select{self.half}_{self.dtype.name}_{self._sorter}"

    def _end(self, result: int) -> str:
        return f"{'places' if result else 'values'}{self.half}_{self.dtype.itemsize}"

    def _rows(self, attributes: str) -> str:
        """Return the function that selects in the rows of tasks `begin` to `end`."""
        bits = 8 * self.dtype.itemsize
        pointers = []
        for number, name in enumerate(["scratch", "in", *(f"out{i}" for i in self.wanted)]):
            pointers.append(f"%{name}.at = getelementptr ptr, ptr %buffers, i64 {number}")
            pointers.append(f"%{name} = load ptr, ptr %{name}.at")
        body = [
            f"%b = getelementptr i{2 * self.half}, ptr %a, i64 {self.room}",
            f"%in.row = getelementptr i{bits}, ptr %in, i64 %first",
            f"%r = call ptr @{self._select}(ptr %in.row, ptr %a, ptr %b, i64 %n, i64 {self.k}, "
            f"i64 {self.room})",
            f"%out.first = mul i64 %i, {self.k}",
        ]
        for i in self.wanted:
            kind = "i32" if i else f"i{bits}"
            row = f"%out{i}.row = getelementptr {kind}, ptr %out{i}, i64 %out.first"
            call = f"call void @{self._end(i)}(ptr %in.row, ptr %out{i}.row, ptr %r, i64 {self.k})"
            body += [row, call]
        return rows_function(
            self.name, attributes, self.half // 2, pointers, body, str(self.room), self.on_stack
        )

    def _selection(self, attributes: str) -> str:
        bits, record = 8 * self.dtype.itemsize, f"i{2 * self.half}"
        made = [
            *ordered_key(self.dtype),
            f"%falling = xor i{bits} %key, -1",
            widened("falling", bits, 2 * self.half, "wide"),
            f"%high = shl {record} %wide, {self.half}",
            widened("t", 64, 2 * self.half, "payload"),
            f"%record = or {record} %high, %payload",
        ]
        return _SELECT.format(
            name=self._select, attributes=attributes, half=self.half, size=self.dtype.itemsize,
            sorter=self._sorter, bits=bits, record=record, made="\n  ".join(made), lanes=LANES,
            vector=f"<{LANES} x i{bits}>",
            block="\n  ".join(_in_vectors(ordered_key(self.dtype, LANES))), ones=_ones(bits),
            limit_key=widened("limit.high", 2 * self.half, bits, "limit.new"),
        )  # fmt: skip

    def _ending(self, result: int, attributes: str) -> str:
        """Return the function that writes the elements, or the places, of the first records."""
        record, bits = f"i{2 * self.half}", 8 * self.dtype.itemsize
        body = [
            f"%at = getelementptr {record}, ptr %records, i64 %i",
            f"%record = load {record}, ptr %at",
            f"%place.half = trunc {record} %record to i{self.half}",
            widened("place.half", self.half, 32 if result else 64, "place"),
        ]
        kind, found = "i32", "%place"
        if not result:
            body += [
                f"%in.at = getelementptr i{bits}, ptr %in, i64 %place",
                f"%bits = load i{bits}, ptr %in.at",
            ]
            kind, found = f"i{bits}", "%bits"
        body += [
            f"%out.at = getelementptr {kind}, ptr %out, i64 %i",
            f"store {kind} {found}, ptr %out.at",
        ]
        parameters = "ptr %in, ptr %out, ptr %records"
        return loop_function(self._end(result), parameters, body, attributes)


def _in_vectors(lines: list[str]) -> list[str]:
    """Return instructions with the names of their values marked as those of vectors."""
    return [re.sub(r"%([a-z.]+)", r"%\1.v", line) for line in lines]


def _ones(bits: int) -> str:
    return f"<{', '.join([f'i{bits} -1'] * LANES)}>"


_FEW = """
define internal ptr @{name}(ptr %a, ptr %b, i64 %n) {attributes} {{
  call void @insertion{half}(ptr %a, i64 %n)
  ret ptr %a
}}
"""

# Until the buffer is full for the first time, every element is taken up.
_SELECT = """
define internal ptr @{name}(ptr %in, ptr %a, ptr %b, i64 %n, i64 %k, i64 %room) {attributes} {{
entry:
  %most = sub i64 %room, {lanes}
  %last = sub i64 %k, 1
  br label %scan
scan:
  %records = phi ptr [%a, %entry], [%records, %next], [%r, %sorted]
  %spare = phi ptr [%b, %entry], [%spare, %next], [%r.spare, %sorted]
  %j = phi i64 [0, %entry], [%j.end, %next], [%j.end, %sorted]
  %held = phi i64 [0, %entry], [%held.next, %next], [%k, %sorted]
  %limit = phi i{bits} [-1, %entry], [%limit, %next], [%limit.new, %sorted]
  %all = phi i1 [true, %entry], [%all, %next], [false, %sorted]
  %j.block = add i64 %j, {lanes}
  %is.whole = icmp sle i64 %j.block, %n
  %j.end = select i1 %is.whole, i64 %j.block, i64 %n
  %any = icmp slt i64 %j, %n
  br i1 %any, label %look, label %end
look:
  %is.partial = xor i1 %is.whole, true
  %is.sure = or i1 %is.partial, %all
  br i1 %is.sure, label %pick, label %block
block:
  %block.at = getelementptr i{bits}, ptr %in, i64 %j
  %limits.one = insertelement {vector} poison, i{bits} %limit, i64 0
  %limits = shufflevector {vector} %limits.one, {vector} poison, <{lanes} x i32> zeroinitializer
  %bits.v = load {vector}, ptr %block.at, align {size}
  {block}
  %falling.v = xor {vector} %key.v, {ones}
  %before = icmp ult {vector} %falling.v, %limits
  %before.bits = bitcast <{lanes} x i1> %before to i{lanes}
  %is.any = icmp ne i{lanes} %before.bits, 0
  br i1 %is.any, label %pick, label %next
pick:
  br label %one
one:
  %t = phi i64 [%j, %pick], [%t.next, %one]
  %h = phi i64 [%held, %pick], [%h.next, %one]
  %in.at = getelementptr i{bits}, ptr %in, i64 %t
  %bits = load i{bits}, ptr %in.at
  {made}
  %h.at = getelementptr {record}, ptr %records, i64 %h
  store {record} %record, ptr %h.at
  %is.before = icmp ult i{bits} %falling, %limit
  %is.in = or i1 %is.before, %all
  %more.h = zext i1 %is.in to i64
  %h.next = add i64 %h, %more.h
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %j.end
  br i1 %more, label %one, label %picked
picked:
  %is.full = icmp sgt i64 %h.next, %most
  br i1 %is.full, label %sorted, label %next
sorted:
  %r = call ptr @{sorter}(ptr %records, ptr %spare, i64 %h.next)
  %is.same = icmp eq ptr %r, %records
  %r.spare = select i1 %is.same, ptr %spare, ptr %records
  %last.at = getelementptr {record}, ptr %r, i64 %last
  %last.record = load {record}, ptr %last.at
  %limit.high = lshr {record} %last.record, {half}
  {limit_key}
  br label %scan
next:
  %held.next = phi i64 [%held, %block], [%h.next, %picked]
  br label %scan
end:
  %done = call ptr @{sorter}(ptr %records, ptr %spare, i64 %held)
  ret ptr %done
}}
"""
