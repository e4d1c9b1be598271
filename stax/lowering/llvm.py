"""Kernels of the loop IR as LLVM functions `void k(ptr buffers, ptr extents, i64 begin, i64 end)`.

Statements are written in order through a `Writer`, which moves and shares code; this module
decides what a loop becomes.  A vector loop has one body, of W lanes.  When W does not divide the
extent the last iteration is moved back to end at the extent and computes some elements twice
("shift"), or, where that would be seen, touches only the lanes that are left ("masked").

The order of a reduction is a function of extent and target.  Lane j of W takes elements j, j + W,
... in order; unrolled, four sets of lanes take every fourth group, and are combined 0 with 1, 2
with 3, and those with each other.  Then lane j is combined with lane j + W/2 until one is left,
and last the value from before the loop with the result.  A vector loop directly inside serial
loops, whose sum is not looked at in between, keeps its lanes until the outermost of them ends.
"""

from __future__ import annotations

import itertools
import math as pymath
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stax.errors import LoweringError
from stax.lowering.decisions import decided
from stax.lowering.llvm_expressions import Expressions, Tail, Target
from stax.lowering.llvm_scalar import MathLibrary, apply, identity, part, select
from stax.lowering.llvm_writer import Affine, Value, integer
from stax.lowering.loop_facts import LoopFacts, loop_facts
from stax.lowering.loop_ir import (
    Alloc,
    Buffer,
    For,
    Init,
    Kernel,
    Let,
    Load,
    Set,
    Stmt,
    Store,
    Update,
    Var,
    static,
    walk,
)
from stax.types import bool_, int64

# A reduction whose body has at most this many operations is repeated, so that additions that
# wait for each other do not set the pace.
_UNROLL = 4
_UNROLL_OPERATIONS = 8
# Vectors from which on it pays to begin at an aligned place, and in loops of unknown length.
_LONG, _LIKELY = 8, 64
# Bytes of what does not stay in a cache of one processor, and rows of more than a tile.
_LARGE, _MANY_ROWS = 1 << 20, 96


def emit_kernel(kernel: Kernel, math: MathLibrary, target: Target) -> str:
    """Write a kernel as one LLVM function; `math` collects the functions that it calls."""
    return _Emitter(kernel, math, target).emit()


@dataclass(slots=True)
class _Reduction:
    """A local held as lane accumulators: its operation and its value before."""

    op: str
    before: Value


class _Emitter(Expressions):
    def __init__(self, kernel: Kernel, math: MathLibrary, target: Target) -> None:
        super().__init__(kernel, math, target)
        self.reductions: dict[str, _Reduction] = {}
        self._facts: dict[int, LoopFacts] = {}
        # How many vector loops have read a buffer, and the trips of the serial loops that are open.
        self.reads: Counter[str] = Counter()
        self.rows = 1

    def emit(self) -> str:
        # A dot, which no identifier has, keeps the kernel's names apart from the writer's.
        kernel, lines = self.kernel, self.w.levels[0].lines
        for i, buffer in enumerate(kernel.params):
            pointer = self.memory.pointers[buffer.name] = f"%{buffer.name}.data"
            lines.append(f"  {pointer}.at = getelementptr ptr, ptr %buffers, i64 {i}")
            lines.append(f"  {pointer} = load ptr, ptr {pointer}.at")
        for i, extent in enumerate(kernel.extents):
            name = f"%{extent.name}.extent"
            lines.append(f"  {name}.at = getelementptr i64, ptr %extents, i64 {i}")
            lines.append(f"  {name} = load i64, ptr {name}.at")
            self.env[extent.name] = Value(name, int64, 1, 0)
            self.positions.add(name)
        self.statements(kernel.body)
        if self.memory.streamed:
            # Such stores are not ordered among others: they end before the task does.
            self.w.do("call void @llvm.x86.sse.sfence()")
        self.w.do("ret void")
        header = f"define void @{kernel.name}(ptr %buffers, ptr %extents, i64 %begin, i64 %end)"
        body = "\n".join(["\n".join(block) for block in self.w.text if block])
        return f"{header} {self.target.attributes} {{\nentry:\n{body}\n}}\n"

    def facts(self, loop: For) -> LoopFacts:
        known = self._facts.get(id(loop))
        if known is None:
            known = self._facts[id(loop)] = loop_facts(loop, self.facts)
        return known

    # Statements

    def statements(self, body: Sequence[Stmt]) -> None:
        done: Stmt | None = None
        for stmt, after in itertools.zip_longest(body, body[1:]):
            if stmt is done:
                continue
            match stmt:
                case Let(var, value):
                    self.env[var.name] = self.evaluate(value)
                case Store() if self.store_pairs(stmt, after):
                    done = after
                case Store(buffer, index, value, mask):
                    self.store(buffer, index, value, mask)
                case Update(op, var, value):
                    self.update(op, var, self.value(value))
                case Init(var, value):
                    self.env[var.name] = self.w.splat(self.value(value), self.w.lanes)
                case Set(var, value):
                    self.assign(var, self.value(value))
                case For():
                    self.loop(stmt)
                case Alloc(buffer):
                    self.allocate(buffer)

    def assign(self, var: Var, value: Value) -> None:
        """Assign, keeping a local as wide as it was begun."""
        now = self.local(var.name)
        if value.lanes > now.lanes:
            raise LoweringError(
                f"set {var.name}: the value depends on the variable of a vector loop that "
                "the local was begun outside of.",
                advice="Use an Update, or begin the local inside the loop.",
            )
        self.env[var.name] = self.w.splat(value, now.lanes)

    def update(self, op: str, var: Var, value: Value) -> None:
        if var.name in self.reductions and self.live is not None:
            value = select(self.w, self.live, value, identity(op, var.dtype))
        self.env[var.name] = self.apply_to(op, self.local(var.name), value)

    def apply_to(self, op: str, x: Value, y: Value) -> Value:
        return apply(self.w, self.math, op, (x, y), x.dtype)

    def allocate(self, buffer: Buffer) -> None:
        sizes = [static(extent) for extent in buffer.shape]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            raise LoweringError(f"alloc {buffer.name}: scratch must have a static shape.")
        self.memory.allocate(buffer, max(1, pymath.prod(known)))

    # Loops

    def loop(self, stmt: For) -> None:
        match stmt.kind:
            case "parallel":
                begin, end = Value("%begin", int64, 1, 0), Value("%end", int64, 1, 0)
                self.guarded(stmt, begin, end, lambda: self.trips(stmt, begin, end))
            case "vector":
                self.vector_loop(stmt)
            case "unroll":
                self.unrolled_loop(stmt)
            case _:
                self.serial_loop(stmt)

    def unrolled_loop(self, stmt: For) -> None:
        count = static(stmt.extent)
        if count is None:
            raise LoweringError(f"for {stmt.var.name}: an unrolled loop needs a static extent.")
        if self.stores_turned(stmt, count):
            return
        for i in range(count):
            self.env[stmt.var.name] = Affine({}, 0, i)
            self.statements(stmt.body)

    def stores_turned(self, stmt: For, count: int) -> bool:
        """Write an unrolled loop that stores successive elements of a row for each lane.

        Square blocks of them are transposed in registers.  Says whether the loop is one.
        """
        *lets, store = stmt.body
        w, facts = self.w, self.facts(stmt)
        if not isinstance(store, Store) or store.mask is not None or self.tail == "masked":
            return False
        is_alone = all(isinstance(s, Let) for s in lets) and not self.is_in_place(stmt)
        if w.lanes == 1 or count % w.lanes or not is_alone or facts.loops:
            return False
        before, rows = dict(self.env), []
        for i in range(count):
            self.env[stmt.var.name] = Affine({}, 0, i)
            for let in lets:
                self.env[let.var.name] = self.evaluate(let.value)  # type: ignore[union-attr]
            flat = self.flat(store.buffer, [self.evaluate(x) for x in store.index])
            rows.append((flat, self.value(store.value)))
        first = rows[0][0]
        is_row = [
            (f.terms, f.lane, f.const) == (first.terms, first.lane, first.const + i)
            for i, (f, _) in enumerate(rows)
        ]
        if first.is_vector or first.lane in (0, 1, -1) or not all(is_row):
            self.env = before
            return False
        for i in range(0, count, w.lanes):
            values = [value for _, value in rows[i : i + w.lanes]]
            self.memory.store_turned(store.buffer, rows[i][0], values)
        return True

    def serial_loop(self, stmt: For) -> None:
        extent = self.value(stmt.extent)
        kept = self.kept_in_lanes(stmt) if self.w.lanes == 1 else {}
        opened = self.begin_reductions({name: ops for name, (ops, _) in kept.items()})
        for name, (_, lanes) in kept.items():
            self.env[name] = self.w.splat(self.local(name), lanes)
        if not extent.is_constant:
            zero = integer(0)
            self.guarded(stmt, zero, extent, lambda: self.trips(stmt, zero, extent))
        elif int(extent.text) == 1:
            self.env[stmt.var.name] = Affine({}, 0, 0)
            self.statements(stmt.body)
        elif int(extent.text) > 1:
            self.trips(stmt, integer(0), extent)
        self.end_reductions(opened)

    def trips(self, stmt: For, start: Value, stop: Value) -> None:
        def body(counter: Value) -> None:
            self.env[stmt.var.name] = counter
            self.statements(stmt.body)

        before = self.rows
        if stmt.kind != "parallel":
            self.rows *= static(stmt.extent) or _MANY_ROWS
        self.counted(stmt, start, stop, 1, self.facts(stmt).changed(), body)
        self.rows = before

    def counted(
        self,
        stmt: For,
        start: Value,
        stop: Value,
        step: int,
        names: list[str],
        body: Callable[[Value], None],
    ) -> None:
        """Run `body` for start, start + step, ... below stop, at least once."""
        w = self.w
        with self.memory.storing(self.facts(stmt).stores):
            loop = w.open_loop(start, [self.local(name) for name in names])
            self.env.update(zip(names, loop.phis, strict=True))
            self.positions.add(loop.counter)
            body(Value(loop.counter, int64, 1, w.depth))
            going = None if stmt.going is None else self.value(stmt.going)
            finals = w.close_loop(loop, step, stop, [self.local(name) for name in names], going)
        self.env.update(zip(names, finals, strict=True))

    def guarded(self, stmt: For, low: Value, high: Value, body: Callable[[], None]) -> None:
        """Run `body` if low < high."""
        condition = self.w.op(f"icmp slt {low}, {high.text}", bool_, 1, max(low.level, high.level))
        self.branch(stmt, condition, body, lambda: None)

    def branch(
        self,
        stmt: For,
        condition: Value,
        then: Callable[[], None],
        otherwise: Callable[[], None],
    ) -> None:
        """Run one of two texts for a loop and join the locals that it changes.

        Loads are not moved out of it: their addresses may not be valid otherwise.
        """
        w, floor, names = self.w, self.memory.floor, self.facts(stmt).changed()
        before = dict(self.env)
        opened = w.open_branch(condition)
        self.memory.floor = w.depth
        then()
        firsts = [self.local(name) for name in names]
        label = w.other_branch(opened)
        self.env = dict(before)
        otherwise()
        pairs = list(zip(firsts, [self.local(name) for name in names], strict=True))
        self.env = {**before, **dict(zip(names, w.close_branch(opened, label, pairs), strict=True))}
        self.memory.floor = floor

    # Reductions

    def begin_reductions(self, updates: dict[str, set[str]]) -> dict[str, _Reduction]:
        """Turn locals into lane accumulators, unless an outer loop has; give those turned here."""
        opened = {}
        for name, ops in updates.items():
            if name in self.reductions:
                continue
            if len(ops) > 1:
                raise LoweringError(f"update {name}: {' and '.join(sorted(ops))} in one loop.")
            (op,) = ops
            opened[name] = _Reduction(op, self.local(name))
            self.env[name] = identity(op, opened[name].before.dtype)
        self.reductions.update(opened)
        return opened

    def end_reductions(self, opened: dict[str, _Reduction]) -> None:
        """Combine the lanes of accumulators and the values from before."""
        for name, reduction in opened.items():
            del self.reductions[name]
            total = self.local(name)
            while total.lanes > 1:
                half = total.lanes // 2
                low, high = part(self.w, total, 0, half), part(self.w, total, half, half)
                total = self.apply_to(reduction.op, low, high)
            self.env[name] = self.apply_to(reduction.op, reduction.before, total)

    def kept_in_lanes(self, stmt: For) -> dict[str, tuple[set[str], int]]:
        """Name the locals that a serial loop changes only in vector loops of one width.

        Their lanes need not be combined before it ends.
        """
        facts = self.facts(stmt)
        inner = [loop for loop in facts.loops if loop.kind == "vector"]
        counts = [static(loop.extent) for loop in inner]
        if None in counts or not facts.updates:
            return {}
        kept = {}
        for name in facts.changed():
            if name in facts.sets or name in facts.reads or name in self.reductions:
                continue
            within = [loop for loop in inner if name in self.facts(loop).updates]
            widths = {self.lanes(loop, static(loop.extent) or 0) for loop in within}
            if len(widths) == 1 and widths != {1} and not _is_updated_outside(stmt, name):
                kept[name] = (facts.updates[name], widths.pop())
        return kept

    # Vector loops

    def lanes(self, stmt: For, count: int | None) -> int:
        lanes = self.facts(stmt).lanes(self.target.vector_bytes)
        while count is not None and lanes > max(count, 1):
            lanes //= 2
        return lanes

    def vector_loop(self, stmt: For) -> None:
        if self.w.lanes > 1:
            raise LoweringError(f"for {stmt.var.name}: a vector loop inside a vector loop.")
        extent = self.value(stmt.extent)
        count = int(extent.text) if extent.is_constant else None
        lanes = self.lanes(stmt, count)
        if count is None:
            self.dynamic_vector_loop(stmt, extent, lanes)
        elif lanes == 1:
            self.serial_loop(stmt)
        elif count:
            self.vectors(stmt, extent, lanes)

    def dynamic_vector_loop(self, stmt: For, extent: Value, lanes: int) -> None:
        """Choose when running: vectors if there are enough elements for one, else one by one."""
        zero = integer(0)
        if self.is_in_place(stmt) or self.has_masks:
            self.guarded(stmt, zero, extent, lambda: self.vectors(stmt, extent, lanes))
            return
        condition = self.w.op(f"icmp sge {extent}, {lanes}", bool_, 1, extent.level)

        def one_by_one() -> None:
            self.guarded(stmt, zero, extent, lambda: self.trips(stmt, zero, extent))

        self.branch(stmt, condition, lambda: self.vectors(stmt, extent, lanes), one_by_one)

    def is_in_place(self, stmt: For) -> bool:
        facts = self.facts(stmt)
        return not self.memory.same_memory(facts.stores).isdisjoint(facts.loads)

    def vectors(self, stmt: For, extent: Value, lanes: int) -> None:
        """Write a vector loop of at least one trip, and combine its reductions after it."""
        facts = self.facts(stmt)
        names = facts.changed()
        opened = self.begin_reductions({n: facts.updates[n] for n in names if n in facts.updates})
        for name in opened:
            self.env[name] = self.w.splat(self.local(name), lanes)
        self.w.lanes = lanes
        self.w.trips = -(-int(extent.text) // lanes) if extent.is_constant else _LIKELY
        repeated = pymath.prod([static(loop.extent) or 1 for loop in facts.loops])
        self.w.operations = facts.operations * repeated * (_UNROLL if opened else 1)
        self.memory.ahead, self.memory.is_down = self.wanted_ahead(facts), self.rows > 1
        for name in sorted(self.memory.ahead):
            how = "read down columns" if self.memory.is_down else "rows that are read twice"
            decided(f"{self.kernel.name} asks ahead for memory of {name}: {how}")
        if extent.is_constant:
            self.static_vectors(stmt, int(extent.text), names)
        else:
            tail: Tail = "masked" if self.is_in_place(stmt) or self.has_masks else "shift"
            self.vectors_between(stmt, integer(0), extent, tail, names)
        self.w.lanes, self.memory.ahead = 1, ()
        self.end_reductions(opened)

    def wanted_ahead(self, facts: LoopFacts) -> set[str]:
        """Name the large buffers of which memory had better be asked for what follows.

        Those that a loop over a row is the second to read: the row is in a cache then, and memory
        idle.  And those that are read down columns, a few lines of the cache at each row, which no
        processor foresees.  Not where memory is busy with writing more than is read.
        """
        large = {b.name for b in self.kernel.params if _is_large(b)}
        if 2 * len(large.intersection(self.kernel.outputs)) > len(large):
            return set()
        names = large & facts.loads
        if self.rows > 1:
            return names if self.rows >= _MANY_ROWS else set()
        self.reads.update(names)
        return {name for name in names if self.reads[name] == 2}

    def static_vectors(self, stmt: For, count: int, names: list[str]) -> None:
        lanes, done = self.w.lanes, 0
        facts = self.facts(stmt)
        if facts.operations <= _UNROLL_OPERATIONS and any([n in self.reductions for n in names]):
            done = count // (lanes * _UNROLL) * lanes * _UNROLL
            if done:
                self.unrolled_vectors(stmt, done, names)
        if done == count:
            return
        tail: Tail = "none"
        if (count - done) % lanes:
            tail = "masked" if self.is_in_place(stmt) else "shift"
        before = self.before_a_line(stmt) if tail != "masked" and count >= _LONG * lanes else None
        if before is not None:
            start = self.w.binary("sub", integer(0), before)
            self.vectors_between(stmt, start, integer(count), "both", names)
            return
        self.vectors_between(stmt, integer(done), integer(count), tail, names)

    def before_a_line(self, stmt: For) -> Value | None:
        """Give how far the first store past the caches is behind an aligned place, in elements.

        None if there is no such store in a loop that may compute elements twice.
        """
        w, places = self.w, {s.var: s.value for s in stmt.body if isinstance(s, Let)}
        needed: set[Var] = set()
        stores = (s for s in stmt.body if isinstance(s, Store) and s.mask is None)
        store = next((s for s in stores if s.buffer.name in self.memory.streamed), None)
        if store is None or self.reductions or not w.fills_a_register(store.buffer.dtype.itemsize):
            return None
        pending = list(store.index)
        while pending:
            for node in walk(pending.pop()):
                if isinstance(node, Load):
                    return None
                if isinstance(node, Var) and node in places and node not in needed:
                    needed.add(node)
                    pending.append(places[node])
        before, lanes = dict(self.env), w.lanes
        w.lanes = 1
        self.env[stmt.var.name] = Affine({}, 0, 0)
        for var in [v for v in places if v in needed]:
            self.env[var.name] = self.evaluate(places[var])
        flat = self.flat(store.buffer, [self.evaluate(i) for i in store.index])
        rest = self.memory.behind_a_line(store.buffer, flat)
        self.env, w.lanes = before, lanes
        return rest

    def vectors_between(
        self, stmt: For, start: Value, stop: Value, tail: Tail, names: list[str]
    ) -> None:
        """Run the body from start to stop, one vector at a time."""
        lanes = self.w.lanes
        is_static = start.is_constant and stop.is_constant
        if is_static and int(stop.text) - int(start.text) <= lanes:
            self.trip(stmt, start, stop, tail)
        else:
            self.counted(stmt, start, stop, lanes, names, lambda i: self.trip(stmt, i, stop, tail))
        self.live, self.tail = None, "none"

    def trip(self, stmt: For, counter: Value, stop: Value, tail: Tail) -> None:
        """Write one iteration, which if it is the last may be moved back or masked."""
        w, lanes, first = self.w, self.w.lanes, counter
        self.tail = tail
        if tail == "masked":
            left = w.materialize(Affine.of(stop).plus(Affine.of(counter), -1))
            self.live = self.lanes_against("lt", self.extremum("smin", left, integer(lanes)))
        elif tail in ("shift", "both"):
            last = w.materialize(Affine.of(stop).plus(Affine({}, 0, -lanes)))
            first = self.extremum("smin", counter, last)
            if tail == "both":
                first = self.extremum("smax", first, integer(0))
            self.positions.add(first.text)
            if self.reductions:
                skipped = Affine.of(counter).plus(Affine.of(first), -1)
                self.live = self.lanes_against("ge", w.materialize(skipped))
        self.env[stmt.var.name] = Affine.of(first).plus(Affine({}, 1, 0))
        self.statements(stmt.body)

    def unrolled_vectors(self, stmt: For, stop: int, names: list[str]) -> None:
        """Run the body on four vectors a trip, each with accumulators of its own."""
        lanes, step = self.w.lanes, self.w.lanes * _UNROLL
        reduced = [name for name in names if name in self.reductions]
        copies = {name: [name, *[f"{name}#{u}" for u in range(1, _UNROLL)]] for name in reduced}
        for name in reduced:
            start = identity(self.reductions[name].op, self.local(name).dtype)
            self.env.update(dict.fromkeys(copies[name][1:], self.w.splat(start, lanes)))

        def body(counter: Value) -> None:
            for u in range(_UNROLL):
                self.swap(copies, u)
                self.env[stmt.var.name] = Affine.of(counter).plus(Affine({}, 1, u * lanes))
                self.statements(stmt.body)
                self.swap(copies, u)

        if stop == step:
            body(integer(0))
        else:
            carried = [name for name in names if name not in copies]
            carried += [copy for name in reduced for copy in copies[name]]
            self.counted(stmt, integer(0), integer(stop), step, carried, body)
        for name in reduced:
            op, parts = self.reductions[name].op, [self.local(copy) for copy in copies[name]]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [self.apply_to(op, *pair) for pair in pairs]
            self.env[name] = parts[0]

    def swap(self, copies: dict[str, list[str]], u: int) -> None:
        """Exchange the first accumulator of each reduction with its copy u."""
        for name, copy in copies.items():
            self.env[name], self.env[copy[u]] = self.env[copy[u]], self.env[name]


def _is_updated_outside(stmt: For, name: str) -> bool:
    """Say whether a serial loop updates a local other than in a vector loop."""
    stack: list[Stmt] = list(stmt.body)
    while stack:
        node = stack.pop()
        if isinstance(node, Update) and node.var.name == name:
            return True
        if isinstance(node, For) and node.kind != "vector":
            stack += node.body
    return False


def _is_large(buffer: Buffer) -> bool:
    """Say whether a buffer does not fit a cache of one processor."""
    lengths = [static(extent) for extent in buffer.shape]
    known = [n for n in lengths if n is not None]
    return len(known) == len(lengths) and pymath.prod(known) * buffer.dtype.itemsize >= _LARGE
