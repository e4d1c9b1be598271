"""Loads and stores: from the position in a buffer to the cheapest access that does it.

The flat index is affine in the lane number.  Its coefficient decides: 1 is one vector access, 0 a
scalar one, -1 a vector access and a shuffle, 2 in an array of pairs (of complex numbers) two
accesses and a shuffle; anything else goes lane by lane.  Loads are pure
between the stores that could touch the same memory, so they are shared and move out of loops like
any other instruction; `aliases` says which buffers stand for the same memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stax.lowering.llvm_scalar import literal, part, select
from stax.lowering.llvm_writer import (
    MEMORY,
    Affine,
    Value,
    Writer,
    integer,
    lane_numbers,
    vector_type,
)
from stax.lowering.loop_ir import Buffer, Const
from stax.types import bfloat16, bool_, float16, int32, int64

Index = Value | Affine
# The metadata of a store that passes the caches by, and its definition.
STREAM = "!0"
STREAM_TEXT = f"{STREAM} = !{{i32 1}}"
# Bytes of a row that is still in the first cache when it is read again, at most.
_LONGEST_ROW = 32 << 10
# How many bytes ahead memory is asked for along rows and down columns.
_ALONG, _DOWN = 4096, 16384


class Memory:
    """The buffers of a kernel: their addresses, and what is known to be unchanged in them."""

    def __init__(
        self,
        w: Writer,
        aliases: Mapping[str, frozenset[str]],
        has_gather: bool,
        streamed: Collection[str] = (),
    ) -> None:
        self.w = w
        self.streamed = streamed
        self.aliases = aliases
        self.has_gather = has_gather
        self.pointers: dict[str, str] = {}
        # What memory is asked for ahead while the open vector loop reads it, and whether that loop
        # goes down columns.
        self.ahead: Collection[str] = ()
        self.is_down = False
        # Loads may not be moved out of a block that might not run.
        self.floor = 0
        self._store_floor: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self._spare: dict[str, str] = {}

    def same_memory(self, names: Iterable[str]) -> set[str]:
        """Add to the names of buffers those that may be the same memory."""
        return set(names).union(*[self.aliases.get(name, frozenset()) for name in names])

    @contextmanager
    def storing(self, names: Iterable[str]) -> Iterator[None]:
        """Note that the loop about to be opened stores to buffers: their loads stay inside."""
        touched = self.same_memory(names)
        before = dict(self._store_floor)
        self._store_floor.update(dict.fromkeys(touched, self.w.depth + 1))
        self._changed(touched)
        yield
        self._store_floor = before
        self._changed(touched)

    def _changed(self, names: Iterable[str]) -> None:
        for name in names:
            self._versions[name] = self._versions.get(name, 0) + 1

    # Addresses

    def flat(self, position: Sequence[Index], extents: Sequence[Index]) -> Affine:
        """Give the row-major offset in elements, Horner-wise from the first axis."""
        flat = Affine({}, 0, 0)
        for extent, component in zip(extents, position, strict=True):
            flat = self.product(flat, extent).plus(Affine.of(component))
        return flat

    def product(self, x: Index, y: Index) -> Affine:
        """Multiply; affine in the lane number as long as one factor is constant."""
        a, b = Affine.of(x), Affine.of(y)
        if b.is_constant:
            return a.scaled(b.const)
        if a.is_constant:
            return b.scaled(a.const)
        return Affine.of(self.w.binary("mul", self.w.materialize(a), self.w.materialize(b)))

    def _address(self, buffer: Buffer, flat: Affine) -> tuple[str, int]:
        """Add a uniform offset to the base, one level at a time from the outside in."""
        w, element = self.w, MEMORY[buffer.dtype]
        pointer, level = self.pointers[buffer.name], 0
        by_level: dict[int, dict[str, tuple[Value, int]]] = {}
        for text, (value, coefficient) in flat.terms.items():
            by_level.setdefault(value.level, {})[text] = (value, coefficient)
        for level in sorted(by_level):
            offset = w.materialize(Affine(by_level[level], 0, 0))
            pointer = w.raw(f"getelementptr {element}, ptr {pointer}, {offset}", level)
        if flat.const:
            line = f"getelementptr {element}, ptr {pointer}, i64 {flat.const}"
            pointer = w.raw(line, level)
        return pointer, level

    def _addresses(self, buffer: Buffer, flat: Affine) -> Value:
        """Give the vector of addresses of all lanes, as a value whose text is what matters."""
        w, element, lanes = self.w, MEMORY[buffer.dtype], self.w.lanes
        if flat.is_vector:
            pointer, level = self.pointers[buffer.name], 0
            offsets = w.materialize(flat)
        else:
            pointer, level = self._address(buffer, flat.without_lane())
            offsets = Value(lane_numbers("i64", lanes, flat.lane), integer(0).dtype, lanes, 0)
        level = max(level, offsets.level)
        line = f"getelementptr {element}, ptr {pointer}, <{lanes} x i64> {offsets.text}"
        return Value(w.raw(line, level), offsets.dtype, lanes, level)

    # Loads

    def load(self, buffer: Buffer, flat: Affine, mask: Value | None) -> Value:
        """Load an element for each lane, or one for all; 0 where the mask is false."""
        if mask is not None and mask.is_constant and mask.lanes == 1:
            if mask.text == "false":
                return literal(0, buffer.dtype)
            mask = None
        if mask is None and self.is_half(buffer, flat):
            return self._half(buffer, flat)
        if flat.is_vector or flat.lane not in (0, 1, -1):
            return self._gathered(buffer, flat, mask)
        if flat.lane == 0:
            return self._uniform(buffer, flat, mask)
        if mask is not None:
            mask = self.w.splat(mask, self.w.lanes)
        start = flat.without_lane()
        if flat.lane == -1:
            start = start.plus(Affine({}, 0, 1 - self.w.lanes))
        if buffer.name in self.ahead:
            self._fetch_ahead(buffer, start)
        pointer, level = self._address(buffer, start)
        if flat.lane == -1:
            mask = None if mask is None else self._reversed(mask)
            return self._reversed(self._vector(buffer, pointer, level, mask))
        return self._vector(buffer, pointer, level, mask)

    def _fetch_ahead(self, buffer: Buffer, start: Affine) -> None:
        """Ask for what lies a row or more further on, which is read soon."""
        w, size = self.w, buffer.dtype.itemsize
        steps = [c for x, c in start.terms.values() if x.level < w.depth and c > w.lanes]
        if not steps or min(steps) * size > _LONGEST_ROW:
            return
        row = min(steps)
        rows = -(-(_DOWN if self.is_down else _ALONG) // (row * size))
        pointer, _ = self._address(buffer, start.plus(Affine({}, 0, row * rows)))
        w.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def _vector(self, buffer: Buffer, pointer: str, level: int, mask: Value | None) -> Value:
        element, lanes, size = MEMORY[buffer.dtype], self.w.lanes, buffer.dtype.itemsize
        vector = vector_type(element, lanes)
        if mask is None:
            return self._read(buffer, f"load {vector}, ptr {pointer}, align {size}", lanes, level)
        line = (
            f"call {vector} @llvm.masked.load.v{lanes}{_suffix(element)}.p0"
            f"(ptr align {size} {pointer}, {mask}, {vector} zeroinitializer)"
        )
        return self._read(buffer, line, lanes, max(level, mask.level))

    def _uniform(self, buffer: Buffer, flat: Affine, mask: Value | None) -> Value:
        """Load one element for all lanes; a vector mask decides who sees it."""
        pointer, level = self._address(buffer, flat)
        element, size = MEMORY[buffer.dtype], buffer.dtype.itemsize
        if mask is None:
            return self._read(buffer, f"load {element}, ptr {pointer}, align {size}", 1, level)
        if mask.lanes == 1:
            return self._load_if(buffer, flat, mask)
        w = self.w
        line = f"call i1 @llvm.vector.reduce.or.v{mask.lanes}i1({mask})"
        wanted = w.op(line, bool_, 1, mask.level)
        value = self._load_if(buffer, flat, wanted)
        return select(w, mask, value, literal(0, buffer.dtype))

    def _load_if(self, buffer: Buffer, flat: Affine, condition: Value) -> Value:
        """Load under a scalar condition without a branch: from a spare zero otherwise."""
        pointer, level = self._address(buffer, flat)
        level = max(level, condition.level)
        line = f"select {condition}, ptr {pointer}, ptr {self._zero()}"
        pointer = self.w.raw(line, level)
        line = f"load {MEMORY[buffer.dtype]}, ptr {pointer}, align {buffer.dtype.itemsize}"
        return self._read(buffer, line, 1, level)

    def is_half(self, buffer: Buffer, flat: Affine) -> bool:
        """Say whether lanes access the first, or the second, numbers of successive pairs."""
        in_step = flat.lane == 2 and not flat.is_vector and self.w.lanes > 1
        even = all(coefficient % 2 == 0 for _, coefficient in flat.terms.values())
        return in_step and even and is_two(buffer.shape[-1])

    def _half(self, buffer: Buffer, flat: Affine) -> Value:
        """Load whole pairs, and take one number of each."""
        lanes, which = self.w.lanes, flat.const % 2
        start = flat.without_lane().plus(Affine({}, 0, -which))
        places = (self._address(buffer, start.plus(Affine({}, 0, n))) for n in (0, lanes))
        low, high = (self._vector(buffer, pointer, level, None) for pointer, level in places)
        every_other = lane_numbers("i32", lanes, 2, which)
        line = f"shufflevector {low}, {high}, <{lanes} x i32> {every_other}"
        return self.w.op(line, low.dtype, lanes, max(low.level, high.level))

    def _gathered(self, buffer: Buffer, flat: Affine, mask: Value | None) -> Value:
        w, lanes = self.w, self.w.lanes
        element, size = MEMORY[buffer.dtype], buffer.dtype.itemsize
        vector = vector_type(element, lanes)
        if mask is None and not (self.has_gather and size >= 4):
            return self._lane_by_lane(buffer, flat)
        where = self._addresses(buffer, flat)
        mask = w.splat(mask or literal(True, bool_), lanes)
        line = (
            f"call {vector} @llvm.masked.gather.v{lanes}{_suffix(element)}.v{lanes}p0"
            f"(<{lanes} x ptr> align {size} {where.text}, {mask}, {vector} zeroinitializer)"
        )
        return self._read(buffer, line, lanes, max(where.level, mask.level))

    def _lane_by_lane(self, buffer: Buffer, flat: Affine) -> Value:
        w, lanes = self.w, self.w.lanes
        element, size = MEMORY[buffer.dtype], buffer.dtype.itemsize
        vector, text, floor = vector_type(element, lanes), "poison", self._load_floor(buffer)
        for lane in range(lanes):
            pointer, level = self._lane_address(buffer, flat, lane)
            level = max(level, floor)
            line = f"load {element}, ptr {pointer}, align {size}"
            name = self._versioned(buffer, line, level)
            line = f"insertelement {vector} {text}, {element} {name}, i64 {lane}"
            text = w.raw(line, level)
        return self._from_memory(buffer, text, lanes, level)

    def _lane_address(self, buffer: Buffer, flat: Affine, lane: int) -> tuple[str, int]:
        if not flat.is_vector:
            return self._address(buffer, flat.without_lane().plus(Affine({}, 0, flat.lane * lane)))
        offset = part(self.w, self.w.materialize(flat), lane, 1)
        return self._address(buffer, Affine.of(offset))

    def _load_floor(self, buffer: Buffer) -> int:
        return max(self.floor, self._store_floor.get(buffer.name, 0))

    def _versioned(self, buffer: Buffer, line: str, level: int) -> str:
        """Write a load, or find one since which the buffer has not changed."""
        scope = self.w.levels[level]
        key = (line, self._versions.get(buffer.name, 0))
        name: str | None = scope.memo.get(key)
        if name is None:
            name = scope.memo[key] = self.w.name()
            scope.lines.append(f"  {name} = {line}")
        return name

    def _read(self, buffer: Buffer, line: str, lanes: int, level: int) -> Value:
        level = max(level, self._load_floor(buffer))
        known = self.w.levels[level].memo.get((line, self._versions.get(buffer.name, 0), "stored"))
        if known is not None:
            return known
        return self._from_memory(buffer, self._versioned(buffer, line, level), lanes, level)

    def _from_memory(self, buffer: Buffer, text: str, lanes: int, level: int) -> Value:
        """Give the register form of what was loaded."""
        w, dtype = self.w, buffer.dtype
        vector = vector_type(MEMORY[dtype], lanes)
        if dtype == bool_:
            zero = "0" if lanes == 1 else "zeroinitializer"
            return w.op(f"icmp ne {vector} {text}, {zero}", dtype, lanes, level)
        if dtype == float16:
            to = vector_type("float", lanes)
            return w.op(f"fpext {vector} {text} to {to}", dtype, lanes, level)
        if dtype == bfloat16:
            wide = vector_type("i32", lanes)
            bits = w.op(f"zext {vector} {text} to {wide}", int32, lanes, level)
            bits = w.binary("shl", bits, Value("16", int32, 1, 0))
            return w.op(f"bitcast {bits} to {vector_type('float', lanes)}", dtype, lanes, level)
        return Value(text, dtype, lanes, level)

    def _reversed(self, x: Value) -> Value:
        mask = lane_numbers("i32", x.lanes, -1, x.lanes - 1)
        line = f"shufflevector {x}, {x.type} poison, <{x.lanes} x i32> {mask}"
        return self.w.op(line, x.dtype, x.lanes, x.level)

    # Stores

    def store(self, buffer: Buffer, flat: Affine, value: Value, mask: Value | None) -> None:
        """Store an element for each lane whose mask is true, or one for all."""
        if mask is not None and mask.is_constant and mask.lanes == 1:
            if mask.text == "false":
                return
            mask = None
        self._changed(self.same_memory((buffer.name,)))
        is_uniform = value.lanes == 1 and (mask is None or mask.lanes == 1)
        if flat.is_vector or flat.lane not in (0, 1, -1) or (flat.lane == 0 and not is_uniform):
            self._scattered(buffer, flat, value, mask)
        elif flat.lane == 0:
            self._store_one(buffer, flat, value, mask)
        else:
            self._store_vector(buffer, flat, value, mask)

    def store_pairs(self, buffer: Buffer, flat: Affine, first: Value, second: Value) -> None:
        """Store both numbers of successive pairs; `flat` is the place of the first (`is_half`)."""
        w, lanes, element = self.w, self.w.lanes, MEMORY[buffer.dtype]
        self._changed(self.same_memory((buffer.name,)))
        first, second = w.splat(first, lanes), w.splat(second, lanes)
        for begin in (0, lanes // 2):
            places = [i + n for i in range(begin, begin + lanes // 2) for n in (0, lanes)]
            order = ", ".join(f"i32 {n}" for n in places)
            line = f"shufflevector {first}, {second}, <{lanes} x i32> <{order}>"
            value = w.op(line, first.dtype, lanes, max(first.level, second.level))
            start = flat.without_lane().plus(Affine({}, 0, 2 * begin))
            pointer, _ = self._address(buffer, start)
            text = f"{vector_type(element, lanes)} {self._to_memory(value)}"
            w.do(f"store {text}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def store_turned(self, buffer: Buffer, flat: Affine, values: Sequence[Value]) -> None:
        """Store successive elements from `flat` on for each lane: `values` has as many as lanes.

        Half by half, quarter by quarter, ... blocks beside the diagonal change places.
        """
        w, lanes, element = self.w, self.w.lanes, MEMORY[buffer.dtype]
        self._changed(self.same_memory((buffer.name,)))
        vector = vector_type(element, lanes)
        rows = [self._to_memory(w.splat(x, lanes)) for x in values]
        distance = lanes // 2
        while distance:
            numbers = [n + (lanes - distance) * bool(n & distance) for n in range(lanes)]
            for i in range(lanes):
                if i & distance:
                    continue
                pair = f"{vector} {rows[i]}, {vector} {rows[i + distance]}"
                for shift in (0, distance):
                    order = ", ".join([f"i32 {n + shift}" for n in numbers])
                    line = f"shufflevector {pair}, <{lanes} x i32> <{order}>"
                    rows[i + shift] = w.raw(line, w.depth)
            distance //= 2
        for lane, row in enumerate(rows):
            pointer, _ = self._lane_address(buffer, flat, lane)
            w.do(f"store {vector} {row}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def _store_one(self, buffer: Buffer, flat: Affine, value: Value, mask: Value | None) -> None:
        """Store one value to one element; where the mask is false, to a place nobody reads."""
        w = self.w
        pointer, _ = self._address(buffer, flat)
        target = pointer
        if mask is not None:
            line = f"select {mask}, ptr {pointer}, ptr {self._sink()}"
            target = w.raw(line, w.depth)
        size = buffer.dtype.itemsize
        memory_type = MEMORY[buffer.dtype]
        w.do(f"store {memory_type} {self._to_memory(value)}, ptr {target}, align {size}")
        if mask is None:
            self._remember(buffer, f"load {memory_type}, ptr {pointer}, align {size}", value)

    def _store_vector(self, buffer: Buffer, flat: Affine, value: Value, mask: Value | None) -> None:
        w, lanes, size = self.w, self.w.lanes, buffer.dtype.itemsize
        start = flat.without_lane()
        value = w.splat(value, lanes)
        mask = None if mask is None else w.splat(mask, lanes)
        if flat.lane == -1:
            start = start.plus(Affine({}, 0, 1 - lanes))
            value, mask = self._reversed(value), None if mask is None else self._reversed(mask)
        pointer, _ = self._address(buffer, start)
        element = MEMORY[buffer.dtype]
        vector, text = vector_type(element, lanes), self._to_memory(value)
        if mask is None and buffer.name in self.streamed and w.fills_a_register(size):
            self._stream(f"store {vector} {text}, ptr {pointer}", pointer, size)
            return
        if mask is None:
            w.do(f"store {vector} {text}, ptr {pointer}, align {size}")
            self._remember(buffer, f"load {vector}, ptr {pointer}, align {size}", value)
            return
        w.do(
            f"call void @llvm.masked.store.v{lanes}{_suffix(element)}.p0"
            f"({vector} {text}, ptr align {size} {pointer}, {mask})"
        )

    def _stream(self, line: str, pointer: str, size: int) -> None:
        """Store a whole register past the caches where it is aligned, as that needs."""
        w, nbytes = self.w, self.w.vector_bytes
        rest = self._behind(pointer, w.depth)
        branch = w.open_branch(w.op(f"icmp eq i64 {rest}, 0", bool_, 1, w.depth))
        w.do(f"{line}, align {nbytes}, !nontemporal {STREAM}")
        first = w.other_branch(branch)
        w.do(f"{line}, align {size}")
        w.close_branch(branch, first, [])

    def _behind(self, pointer: str, level: int) -> str:
        address = self.w.raw(f"ptrtoint ptr {pointer} to i64", level)
        return self.w.raw(f"and i64 {address}, {self.w.vector_bytes - 1}", level)

    def behind_a_line(self, buffer: Buffer, flat: Affine) -> Value:
        """Give how many elements a place is behind one where a register is aligned."""
        pointer, level = self._address(buffer, flat)
        shift = buffer.dtype.itemsize.bit_length() - 1
        line = f"lshr i64 {self._behind(pointer, level)}, {shift}"
        return self.w.op(line, int64, 1, level)

    def _scattered(self, buffer: Buffer, flat: Affine, value: Value, mask: Value | None) -> None:
        w, lanes, size = self.w, self.w.lanes, buffer.dtype.itemsize
        element, value = MEMORY[buffer.dtype], w.splat(value, lanes)
        if mask is not None:
            where = self._addresses(buffer, flat)
            w.do(
                f"call void @llvm.masked.scatter.v{lanes}{_suffix(element)}.v{lanes}p0"
                f"({vector_type(element, lanes)} {self._to_memory(value)}, "
                f"<{lanes} x ptr> align {size} {where.text}, {w.splat(mask, lanes)})"
            )
            return
        for lane in range(lanes):
            pointer, _ = self._lane_address(buffer, flat, lane)
            text = self._to_memory(part(w, value, lane, 1))
            w.do(f"store {element} {text}, ptr {pointer}, align {size}")

    def _remember(self, buffer: Buffer, line: str, value: Value) -> None:
        """Let a load of what was just stored give the value itself."""
        key = (line, self._versions[buffer.name], "stored")
        self.w.levels[-1].memo[key] = value

    def _to_memory(self, value: Value) -> str:
        """Give the memory form of a register value."""
        w, dtype, lanes = self.w, value.dtype, value.lanes
        to = vector_type(MEMORY[dtype], lanes)
        if dtype == bool_:
            return w.raw(f"zext {value} to {to}", value.level)
        if dtype == float16:
            return w.raw(f"fptrunc {value} to {to}", value.level)
        if dtype == bfloat16:
            line = f"bitcast {value} to {vector_type('i32', lanes)}"
            bits = w.op(line, int32, lanes, value.level)
            high = w.binary("lshr", bits, Value("16", int32, 1, 0))
            return w.raw(f"trunc {high} to {to}", value.level)
        return value.text

    # Spare memory for accesses that are masked off

    def _zero(self) -> str:
        return self._scratch("zero", "store i64 0, ptr {}")

    def _sink(self) -> str:
        return self._scratch("sink", None)

    def _scratch(self, name: str, setup: str | None) -> str:
        if name not in self._spare:
            pointer = f"%spare.{name}"
            self._spare[name] = pointer
            self.w.entry.append(f"  {pointer} = alloca i64")
            if setup:
                self.w.entry.append("  " + setup.format(pointer))
        return self._spare[name]

    def allocate(self, buffer: Buffer, count: int) -> None:
        """Reserve scratch on the stack, once for all iterations."""
        pointer, lines = f"%{buffer.name}.stack", self.w.entry
        lines.append(f"  {pointer} = alloca [{count} x {MEMORY[buffer.dtype]}], align 64")
        self.pointers[buffer.name] = pointer


def is_two(extent: Any) -> bool:
    """Say whether a length is known to be 2."""
    return bool(extent.value == 2) if isinstance(extent, Const) else extent == 2


def _suffix(element: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
