"""Sorting by one key, in place: what is sorted are numbers, made of elements and back.

An array that is sorted by itself becomes signed numbers whose order is that of its elements, in the
memory of the result; a float that is negative has its bits but for the sign turned.  In several
arrays, those numbers are the high half of records, whose low half is the place of the element.

Of numbers that are alike none is before the other, but -0.0 equals 0.0, and there are many NaN: in
a row that has some, they are put back at the end in the order in which they came.

A long row alone is parted around pivots, level by level, and its parts are sorted at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stax.extent import Dimension
from stax.lowering.parting import FEW, lanes_of, largest, numbered, sorting_functions
from stax.lowering.row_text import INFINITY, end_function, rows_function

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# A row of at least so many elements, if it is the only one, is sorted in that many parts.
LONG_FROM = 1 << 16
PARTS = 16
# Elements of it that become numbers in one task.
CHUNK = 1 << 14


def can_part(dtypes: Sequence[np.dtype], num_keys: int) -> bool:
    """Say whether arrays are sorted by one key that fits a number, or a half of one."""
    return num_keys == 1 and (len(dtypes) == 1 or dtypes[0].itemsize <= 4)


@dataclass(frozen=True)
class PartKernel:
    """The native function for arrays of given dtypes, the first of which is the key.

    `wanted` are the results that are read; `places` those that only count along the row, which are
    not read from memory.
    """

    dtypes: tuple[np.dtype, ...]
    wanted: tuple[int, ...]
    places: tuple[int, ...] = ()
    is_strided: bool = False
    on_stack: bool = False
    is_long: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether what is sorted are elements, and not records."""
        return len(self.dtypes) == 1 and self.dtypes[0].itemsize >= 4

    @property
    def bits(self) -> int:
        """Bits of a number that is sorted."""
        return 8 * self.dtypes[0].itemsize if self.is_alone else 64

    @property
    def is_float(self) -> bool:
        return self.dtypes[0] in INFINITY

    @property
    def name(self) -> str:
        kinds = [f"{i}x{self._moved(i)}" for i in self.wanted]
        flags = ("strided", self.is_strided), ("on_stack", self.on_stack), ("long", self.is_long)
        more = [flag for flag, holds in flags if holds]
        return "_".join(["part", self.dtypes[0].name, f"of{len(self.dtypes)}", *kinds, *more])

    def _moved(self, i: int) -> int:
        """Bytes of the elements of an array that are moved: none where they count."""
        return 0 if i in self.places else self.dtypes[i].itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch for each element of a row."""
        return self.bits // 8 if self.is_strided or not self.is_alone else 0

    def scratch(self, length: Dimension) -> Dimension:
        """Bytes of scratch for one row."""
        return 0 if self.on_stack else length * self.row_bytes

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""
        key = self.dtypes[0]
        yield from sorting_functions(self.bits, attributes)
        yield self._begin, _begin(self._begin, key, self.is_alone, self.is_strided, attributes)
        if self.is_alone:
            yield self._end(0), _back(self._end(0), key, self.is_strided, attributes)
            if self.is_float:
                yield f"restore_{key.name}", _restore(key, attributes)
        else:
            for i in self.wanted:
                yield self._end(i), end_function(self._end(i), 32, self._moved(i), attributes)
        yield self.name, self._long(attributes) if self.is_long else self._rows(attributes)

    @property
    def _begin(self) -> str:
        kind = "numbers" if self.is_alone else "records"
        return f"{kind}_of_{self.dtypes[0].name}{'_apart' if self.is_strided else ''}"

    def _end(self, i: int) -> str:
        apart = "_apart" if self.is_strided else ""
        if self.is_alone:
            return f"elements_{self.dtypes[0].name}{apart}"
        return f"moved_{self._moved(i)}"

    @property
    def inputs(self) -> list[int]:
        """The arrays that are read."""
        return [i for i in range(len(self.dtypes)) if i not in self.places]

    def _pointers(self, more: Sequence[str] = ()) -> list[str]:
        """Return instructions that load the addresses in the table of buffers."""
        names = ["scratch", *(f"in{i}" for i in self.inputs), *(f"out{i}" for i in self.wanted)]
        lines = []
        for number, name in enumerate([*names, *more]):
            lines.append(f"%{name}.at = getelementptr ptr, ptr %buffers, i64 {number}")
            lines.append(f"%{name} = load ptr, ptr %{name}.at")
        return lines

    def _from(self, side: str, i: int, place: str, name: str) -> str:
        """Return the instruction that gives the address of an element of an array."""
        if i in self.places and side == "in":
            return f"%{name} = getelementptr i8, ptr null, i64 0"
        return (
            f"%{name} = getelementptr i{8 * self.dtypes[i].itemsize}, ptr %{side}{i}, i64 {place}"
        )

    def _rows(self, attributes: str) -> str:
        """Return the function that sorts the rows of tasks `begin` to `end`."""
        used = sorted({0, *self.wanted})
        body = [self._from("in", i, "%first", f"in{i}.row") for i in used]
        body += [self._from("out", i, "%first", f"out{i}.row") for i in self.wanted]
        keys = "%a" if self.row_bytes else "%out0.row"
        body.append(
            f"%ties = call i1 @{self._begin}(ptr %in0.row, ptr {keys}, i64 0, i64 %stride, i64 %n)"
        )
        body.append(f"call void @quick{self.bits}(ptr {keys}, i64 %n)")
        for i in self.wanted:
            given = f"ptr %in{i}.row, ptr %out{i}.row, ptr {keys}, i64 %stride, i64 %n"
            body.append(f"call void @{self._end(i)}({given})")
        if self.is_alone and self.is_float:
            given = "ptr %in0.row, ptr %out0.row, i64 %stride, i64 %n"
            body += [
                "br i1 %ties, label %tied, label %untied",
                "tied:",
                f"call void @restore_{self.dtypes[0].name}({given})",
                "br label %untied",
                "untied:",
            ]
        pointers = self._pointers()
        return rows_function(
            self.name, attributes, self.row_bytes, pointers, body, on_stack=self.on_stack
        )

    # --- one long row ---

    def _long(self, attributes: str) -> str:
        """Return the functions for a row alone: its numbers, a level of parts, the end."""
        keys, bits = "%scratch" if self.row_bytes else "%out0", self.bits
        ends = []
        for i in self.wanted:
            source = "in" if i not in self.places else ""
            out = self._from("out", i, "%first", f"out{i}.part")
            given = f"ptr {f'%in{i}' if source else 'null'}, ptr %out{i}.part, ptr %keys.part"
            ends += [out, f"call void @{self._end(i)}({given}, i64 1, i64 %count)"]
        restored = []
        if self.is_alone and self.is_float:
            restored = [
                "%flag = load i8, ptr %ties",
                "%is.tied = icmp ne i8 %flag, 0",
                "br i1 %is.tied, label %tied, label %exit",
                "tied:",
                f"call void @restore_{self.dtypes[0].name}(ptr %in0, ptr %out0, i64 1, i64 %n)",
            ]
        return _LONG.format(
            name=self.name, attributes=attributes, bits=bits, keys=keys, chunk=CHUNK,
            pointers="\n  ".join(self._pointers(("bounds", "ties"))), parts=PARTS,
            begin=self._begin, key_bits=8 * self.dtypes[0].itemsize, largest=largest(bits),
            few=FEW * lanes_of(bits), ends="\n  ".join(ends), restored="\n  ".join(restored),
        )  # fmt: skip

    def call_long(self, driver: DriverWriter, pointers: Sequence[str], length: int) -> None:
        """Write the calls that sort one long row."""
        bounds = driver.table("i64", ["0"] * PARTS + [str(length)])
        ties = driver.table("i8", ["0"])
        buffers = driver.table("ptr", [*pointers, bounds, ties])
        parallel = driver.from_context("parallel_for")

        def run(part: str, count: int, distance: int = 0) -> None:
            extents = driver.table("i64", [str(length), str(distance)])
            given = f"ptr @{self.name}{part}, ptr {buffers}, ptr {extents}, i64 {count}, i64 1"
            driver.do(f"call void {parallel}({given})")

        chunks = -(-length // CHUNK)
        run("", chunks)
        distance = PARTS // 2
        while distance:
            run(".level", PARTS // (2 * distance), distance)
            distance //= 2
        run(".parts", PARTS)
        run(".end", chunks)
        run(".ties", 1)


def _signed_key(dtype: np.dtype, lanes: int, is_alone: bool) -> list[str]:
    """Return instructions that make a vector %key of %bits, and %tied: which lanes are NaN or, of
    elements alone, -0.0."""
    bits = 8 * dtype.itemsize
    kind, mask = f"<{lanes} x i{bits}>", f"<{lanes} x i1>"

    def number(value: int) -> str:
        return f"<{', '.join([f'i{bits} {value}'] * lanes)}>"

    sign, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if dtype not in INFINITY:
        flip = 0 if dtype.kind == "i" else sign
        return [
            f"%key = xor {kind} %bits, {number(flip)}",
            f"%tied = icmp ne {kind} %key, %key",
        ]
    lines = [
        f"%size = and {kind} %bits, {number(most)}",
        f"%is.nan = icmp ugt {kind} %size, {number(INFINITY[dtype])}",
        f"%is.minus = icmp eq {kind} %bits, {number(sign)}",
    ]
    source = "%bits"
    if not is_alone:
        lines.append(f"%number = select {mask} %is.minus, {kind} {number(0)}, {kind} %bits")
        source = "%number"
    return [
        *lines,
        f"%negative = ashr {kind} {source}, {number(bits - 1)}",
        f"%flip = and {kind} %negative, {number(most)}",
        f"%ordered = xor {kind} {source}, %flip",
        f"%key = select {mask} %is.nan, {kind} {number(most)}, {kind} %ordered",
        f"%tied = or {mask} %is.nan, %is.minus",
    ]


def _begin(name: str, dtype: np.dtype, is_alone: bool, is_strided: bool, attributes: str) -> str:
    """Return the function that makes numbers of elements, or records of those from %first on."""
    bits = 8 * dtype.itemsize
    lanes = lanes_of(bits if is_alone else 64)
    kind, wide, mask = f"<{lanes} x i{bits}>", f"<{lanes} x i64>", f"<{lanes} x i1>"
    body = [*_loaded("in", bits, lanes, is_strided), *_signed_key(dtype, lanes, is_alone)]
    if is_alone:
        body += [f"%numbers = or {kind} %key, zeroinitializer", *_stored(bits, lanes)]
    else:
        halves = f"<{', '.join(['i64 32'] * lanes)}>"
        body += [
            "%place = add i64 %first, %i",
            f"%place.one = insertelement {wide} poison, i64 %place, i64 0",
            f"%place.v = shufflevector {wide} %place.one, {wide} poison, "
            f"<{lanes} x i32> zeroinitializer",
            f"%places = add {wide} %place.v, {numbered(lanes, 64)}",
            f"%key.wide = sext {kind} %key to {wide}",
            f"%high = shl {wide} %key.wide, {halves}",
            f"%numbers = or {wide} %high, %places",
            *_stored(64, lanes),
        ]
    body += [
        f"%tied.live = and {mask} %tied, %live",
        f"%tied.bits = bitcast {mask} %tied.live to i{lanes}",
        f"%is.tied = icmp ne i{lanes} %tied.bits, 0",
        "%ties.next = or i1 %ties, %is.tied",
    ]
    parameters = "ptr %in, ptr %numbers.at.all, i64 %first, i64 %stride"
    return _VECTORS.format(
        name=name, attributes=attributes, parameters=parameters, lanes=lanes, kind="i1",
        wide=f"<{lanes} x i32>",
        numbers=numbered(lanes), body="\n  ".join(body), after="ret i1 %ties.all",
        ties="%ties = phi i1 [false, %entry], [%ties.next, %loop]",
        all="%ties.all = phi i1 [false, %entry], [%ties.next, %loop]",
    )  # fmt: skip


def _back(name: str, dtype: np.dtype, is_strided: bool, attributes: str) -> str:
    """Return the function that makes elements of numbers again."""
    bits = 8 * dtype.itemsize
    lanes = lanes_of(bits)
    kind = f"<{lanes} x i{bits}>"
    sign, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def number(value: int) -> str:
        return f"<{', '.join([f'i{bits} {value}'] * lanes)}>"

    if dtype in INFINITY:
        turned = [
            f"%negative = ashr {kind} %bits, {number(bits - 1)}",
            f"%flip = and {kind} %negative, {number(most)}",
            f"%numbers = xor {kind} %bits, %flip",
        ]
    else:
        turned = [f"%numbers = xor {kind} %bits, {number(0 if dtype.kind == 'i' else sign)}"]
    body = [*_loaded("keys", bits, lanes, False), *turned, *_stored(bits, lanes, is_strided)]
    parameters = "ptr %in, ptr %numbers.at.all, ptr %keys, i64 %stride"
    return _VECTORS.format(
        name=name, attributes=attributes, parameters=parameters, lanes=lanes, kind="void",
        wide=f"<{lanes} x i32>",
        numbers=numbered(lanes), body="\n  ".join(body), after="ret void", ties="", all="",
    )  # fmt: skip


def _places(bits: int, lanes: int, base: str, name: str) -> list[str]:
    """Return instructions that give the addresses of elements that are %stride apart."""
    wide = f"<{lanes} x i64>"
    zeros = f"<{lanes} x i32> zeroinitializer"
    return [
        f"%{name}.i.one = insertelement {wide} poison, i64 %i, i64 0",
        f"%{name}.i = shufflevector {wide} %{name}.i.one, {wide} poison, {zeros}",
        f"%{name}.all = add {wide} %{name}.i, {numbered(lanes, 64)}",
        f"%{name}.stride.one = insertelement {wide} poison, i64 %stride, i64 0",
        f"%{name}.stride = shufflevector {wide} %{name}.stride.one, {wide} poison, {zeros}",
        f"%{name}.far = mul {wide} %{name}.all, %{name}.stride",
        f"%{name}.at = getelementptr i{bits}, ptr %{base}, {wide} %{name}.far",
    ]


def _loaded(base: str, bits: int, lanes: int, is_strided: bool) -> list[str]:
    """Return instructions that load the vector %bits of what is left of a row."""
    kind, mask = f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    if is_strided:
        return [
            *_places(bits, lanes, base, "from"),
            f"%bits = call {kind} @llvm.masked.gather.v{lanes}i{bits}.v{lanes}p0("
            f"<{lanes} x ptr> %from.at, i32 {bits // 8}, {mask} %live, {kind} zeroinitializer)",
        ]
    return [
        f"%from.at = getelementptr i{bits}, ptr %{base}, i64 %i",
        f"%bits = call {kind} @llvm.masked.load.v{lanes}i{bits}.p0(ptr %from.at, "
        f"i32 {bits // 8}, {mask} %live, {kind} zeroinitializer)",
    ]


def _stored(bits: int, lanes: int, is_strided: bool = False) -> list[str]:
    """Return instructions that store the vector %numbers."""
    kind, mask = f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    if is_strided:
        return [
            *_places(bits, lanes, "numbers.at.all", "into"),
            f"call void @llvm.masked.scatter.v{lanes}i{bits}.v{lanes}p0({kind} %numbers, "
            f"<{lanes} x ptr> %into.at, i32 {bits // 8}, {mask} %live)",
        ]
    return [
        f"%into.at = getelementptr i{bits}, ptr %numbers.at.all, i64 %i",
        f"call void @llvm.masked.store.v{lanes}i{bits}.p0({kind} %numbers, ptr %into.at, "
        f"i32 {bits // 8}, {mask} %live)",
    ]


_VECTORS = """
define internal {kind} @{name}({parameters}, i64 %n) {attributes} {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %exit
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  {ties}
  %left = sub i64 %n, %i
  %left.some = call i64 @llvm.smin.i64(i64 %left, i64 {lanes})
  %some = trunc i64 %left.some to i32
  %some.one = insertelement {wide} poison, i32 %some, i64 0
  %some.v = shufflevector {wide} %some.one, {wide} poison, {wide} zeroinitializer
  %live = icmp ult {wide} {numbers}, %some.v
  {body}
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  {all}
  {after}
}}
"""


def _restore(dtype: np.dtype, attributes: str) -> str:
    """Return the function that writes zeros and NaN of a sorted row in the order they came in."""
    bits = 8 * dtype.itemsize
    looked = [
        "%in.i = mul i64 %i, %stride",
        f"%in.at = getelementptr i{bits}, ptr %in, i64 %in.i",
        f"%bits = load i{bits}, ptr %in.at",
        f"%size = and i{bits} %bits, {(1 << (bits - 1)) - 1}",
        f"%is.zero = icmp eq i{bits} %size, 0",
        f"%is.nan = icmp ugt i{bits} %size, {INFINITY[dtype]}",
    ]
    return _RESTORE.format(
        name=dtype.name, attributes=attributes, bits=bits, looked="\n  ".join(looked)
    )


# Places are counted first: zeros come after what is less, NaN after all numbers.
_RESTORE = """
define internal void @restore_{name}(ptr %in, ptr %out, i64 %stride, i64 %n) {attributes} {{
entry:
  br label %count
count:
  %i = phi i64 [0, %entry], [%i.next, %counted]
  %below = phi i64 [0, %entry], [%below.next, %counted]
  %numbers = phi i64 [0, %entry], [%numbers.next, %counted]
  %any = icmp slt i64 %i, %n
  br i1 %any, label %counted, label %write.begin
counted:
  {looked}
  %is.negative = icmp slt i{bits} %bits, 0
  %is.number = xor i1 %is.nan, true
  %not.zero = xor i1 %is.zero, true
  %is.less = and i1 %is.negative, %is.number
  %is.below = and i1 %is.less, %not.zero
  %below.one = zext i1 %is.below to i64
  %below.next = add i64 %below, %below.one
  %number.one = zext i1 %is.number to i64
  %numbers.next = add i64 %numbers, %number.one
  %i.next = add i64 %i, 1
  br label %count
write.begin:
  call void @restore_{name}_from(ptr %in, ptr %out, i64 %stride, i64 %below, i64 %numbers, i64 %n)
  ret void
}}

define internal void @restore_{name}_from(
    ptr %in, ptr %out, i64 %stride, i64 %below, i64 %numbers, i64 %n) {attributes} {{
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %zero = phi i64 [%below, %entry], [%zero.next, %next]
  %nan = phi i64 [%numbers, %entry], [%nan.next, %next]
  %any = icmp slt i64 %i, %n
  br i1 %any, label %one, label %exit
one:
  {looked}
  %is.either = or i1 %is.zero, %is.nan
  br i1 %is.either, label %put, label %next
put:
  %place = select i1 %is.zero, i64 %zero, i64 %nan
  %out.i = mul i64 %place, %stride
  %out.at = getelementptr i{bits}, ptr %out, i64 %out.i
  store i{bits} %bits, ptr %out.at
  br label %next
next:
  %zero.one = zext i1 %is.zero to i64
  %zero.next = add i64 %zero, %zero.one
  %nan.one = zext i1 %is.nan to i64
  %nan.next = add i64 %nan, %nan.one
  %i.next = add i64 %i, 1
  br label %look
exit:
  ret void
}}
"""

# Around a pivot that is the least, what equals it comes first; parts may be empty.
_LONG = """
define void @{name}(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
  {pointers}
  %n = load i64, ptr %extents
  %first = mul i64 %begin, {chunk}
  %end.all = mul i64 %end, {chunk}
  %last = call i64 @llvm.smin.i64(i64 %end.all, i64 %n)
  %count = sub i64 %last, %first
  %from = getelementptr i{key_bits}, ptr %in0, i64 %first
  %into = getelementptr i{bits}, ptr {keys}, i64 %first
  %any = call i1 @{begin}(ptr %from, ptr %into, i64 %first, i64 1, i64 %count)
  br i1 %any, label %tied, label %exit
tied:
  store atomic i8 1, ptr %ties monotonic, align 1
  br label %exit
exit:
  ret void
}}

define internal i64 @{name}.middle(ptr %a, i64 %n) {attributes} {{
  %is.few = icmp sle i64 %n, {few}
  br i1 %is.few, label %whole, label %part
part:
  %pivot = call i{bits} @pivot{bits}(ptr %a, i64 %n)
  %k = call i64 @part{bits}(ptr %a, i64 %n, i{bits} %pivot)
  %is.least = icmp eq i64 %k, 0
  br i1 %is.least, label %least, label %two
two:
  ret i64 %k
least:
  %is.largest = icmp eq i{bits} %pivot, {largest}
  br i1 %is.largest, label %whole, label %equal
equal:
  %above = add i{bits} %pivot, 1
  %same = call i64 @part{bits}(ptr %a, i64 %n, i{bits} %above)
  ret i64 %same
whole:
  ret i64 %n
}}

define void @{name}.level(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
entry:
  {pointers}
  %distance.at = getelementptr i64, ptr %extents, i64 1
  %distance = load i64, ptr %distance.at
  %both = shl i64 %distance, 1
  br label %one
one:
  %t = phi i64 [%begin, %entry], [%t.next, %one]
  %t.next = add i64 %t, 1
  %low.i = mul i64 %t, %both
  %high.i = mul i64 %t.next, %both
  %middle.i = add i64 %low.i, %distance
  %low.at = getelementptr i64, ptr %bounds, i64 %low.i
  %high.at = getelementptr i64, ptr %bounds, i64 %high.i
  %middle.at = getelementptr i64, ptr %bounds, i64 %middle.i
  %low = load i64, ptr %low.at
  %high = load i64, ptr %high.at
  %n = sub i64 %high, %low
  %a = getelementptr i{bits}, ptr {keys}, i64 %low
  %k = call i64 @{name}.middle(ptr %a, i64 %n)
  %middle = add i64 %low, %k
  store i64 %middle, ptr %middle.at
  %more = icmp slt i64 %t.next, %end
  br i1 %more, label %one, label %exit
exit:
  ret void
}}

define void @{name}.parts(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
entry:
  {pointers}
  br label %one
one:
  %t = phi i64 [%begin, %entry], [%t.next, %one]
  %t.next = add i64 %t, 1
  %low.at = getelementptr i64, ptr %bounds, i64 %t
  %high.at = getelementptr i64, ptr %bounds, i64 %t.next
  %low = load i64, ptr %low.at
  %high = load i64, ptr %high.at
  %n = sub i64 %high, %low
  %a = getelementptr i{bits}, ptr {keys}, i64 %low
  call void @quick{bits}(ptr %a, i64 %n)
  %more = icmp slt i64 %t.next, %end
  br i1 %more, label %one, label %exit
exit:
  ret void
}}

define void @{name}.end(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
  {pointers}
  %n = load i64, ptr %extents
  %first = mul i64 %begin, {chunk}
  %end.all = mul i64 %end, {chunk}
  %last = call i64 @llvm.smin.i64(i64 %end.all, i64 %n)
  %count = sub i64 %last, %first
  %keys.part = getelementptr i{bits}, ptr {keys}, i64 %first
  {ends}
  ret void
}}

define void @{name}.ties(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {attributes} {{
  {pointers}
  %n = load i64, ptr %extents
  {restored}
  br label %exit
exit:
  ret void
}}
"""
