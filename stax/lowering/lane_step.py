"""The step of a program that runs a loop by lanes (see `lanes`).

A loop that takes little is one call of its kernel.  A long one is several, each of some of the
steps, and between them the program looks whether Ctrl-C was pressed; the carry then goes through
memory, in turns that of the results and a spare one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.control import Scan, While
from stax.graph import Constant, Node
from stax.lowering.element import aligned, runs_alone, static_size
from stax.lowering.lane_kernel import VECTOR, LaneBuilder, LaneKernel
from stax.lowering.lanes import Counted, Lanes, counted_of, lanes_of, steps_of
from stax.types import ArrayType

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Operations on vectors that one call does at most, some milliseconds, and by how much those of
# loops that go through memory are slower.
POLL_AFTER, MEMORY = 1 << 24, 8


def steps_at_once(op: Scan, lanes: Lanes) -> int | None:
    """Return how many steps one call does, or None for all of them."""
    most = steps_of_call(lanes)
    return None if most >= steps_of(op) else most


def steps_of_call(lanes: Lanes) -> int:
    """Return how many steps one call does at most."""
    vectors = -(-lanes.count // VECTOR) if lanes.lengths else 1
    work = vectors * lanes.operations * (MEMORY if lanes.streams else 1)
    return max(1, POLL_AFTER // work)


def operands_in_memory(node: Node) -> list[Node]:
    """Return which operands of a loop have to be in memory for it to run."""
    assert isinstance(node.op, Scan)
    lanes = lanes_of(node.op)
    if isinstance(lanes, str) or steps_at_once(node.op, lanes) is not None:
        return list(node.inputs)
    return [x for x in node.inputs if not isinstance(x.op, Constant)]


@dataclass(frozen=True, eq=False)
class LaneStep:
    """Run a loop by its kernel, all at once or `chunk` steps at a time.

    Where the number of steps is computed, `counted` says how.
    """

    node: Node
    op: Scan
    lanes: Lanes
    built: LaneKernel
    sources: tuple[Node, ...]
    results: dict[int, Node]
    chunk: int | None
    counted: Counted | None = None

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        roles = self.built.roles
        read = [self.sources[role] for role in roles if role >= 0]
        bounds = [] if self.counted is None else list(self.sources)
        return tuple(dict.fromkeys([*read, *bounds, *self.results.values()]))

    @property
    def moving(self) -> list[int]:
        """Which of the carried values go from call to call."""
        return [k for k in range(self.op.carry) if k not in self.lanes.counters]

    @property
    def scratch_bytes(self) -> int:
        """Memory for the carry between calls."""
        if self.chunk is None:
            return 0
        return sum(2 * _nbytes(self.node.type.items[k]) for k in self.moving)

    def call(self, driver: DriverWriter) -> None:
        """Write the call, or the loop of calls."""
        if self.chunk is None:
            pointers = [self._pointer(driver, role) for role in self.built.roles]
            self._run(driver, driver.kernel_table(pointers), "null")
        else:
            self._loop(driver, self.chunk)

    def _pointer(self, driver: DriverWriter, role: int) -> str:
        return driver.pointer(self.sources[role] if role >= 0 else self.results[~role])

    def _run(self, driver: DriverWriter, buffers: str, extents: str) -> None:
        tasks, grain = self.built.tasks, self.built.grain
        several = None if runs_alone(tasks, grain) else grain
        driver.run_kernel(self.built.kernel, buffers, extents, str(tasks), several)

    def _loop(self, driver: DriverWriter, chunk: int) -> None:
        """Call the kernel for `chunk` steps after the other; the last call writes the results."""
        op, roles = self.op, self.built.roles
        length, name = self._length(driver), driver.new("add i64 0, 0")[1:]
        homes = self._homes(driver)
        first = {k: driver.pointer(self.sources[op.consts + k]) for k in self.moving}
        fixed = {
            role: self._pointer(driver, role)
            for role in roles
            if not (~role in homes if role < 0 else role - op.consts in homes)
        }
        buffers = driver.kernel_table([fixed.get(role, "null") for role in roles])
        extents = driver.table("i64", ["0", "0"])
        poll = driver.from_context("poll")
        driver.from_context("parallel_for")
        up = driver.new(f"add i64 {length}, {chunk - 1}")
        calls = driver.new(f"sdiv i64 {up}, {chunk}")
        if self.counted is not None:
            self._skip(driver, length, name)
        driver.do(f"br label %{name}.begin")
        driver.lines.append(f"{name}.begin:")
        driver.do(f"br label %{name}.loop")
        driver.lines.append(f"{name}.loop:")
        driver.do(f"%{name}.n = phi i64 [0, %{name}.begin], [%{name}.after, %{name}.next]")
        for k in self.moving:
            places = f"[{first[k]}, %{name}.begin], [%{name}.to{k}, %{name}.next]"
            driver.do(f"%{name}.from{k} = phi ptr {places}")
        left = driver.new(f"sub i64 {calls}, %{name}.n")
        is_even = driver.new(f"icmp eq i64 {driver.new(f'and i64 {left}, 1')}, 1")
        for k, (home, spare) in homes.items():
            driver.do(f"%{name}.to{k} = select i1 {is_even}, ptr {home}, ptr {spare}")
        for position, role in enumerate(roles):
            if role not in fixed:
                where = f"to{~role}" if role < 0 else f"from{role - op.consts}"
                at = driver.new(f"getelementptr ptr, ptr {buffers}, i64 {position}")
                driver.do(f"store ptr %{name}.{where}, ptr {at}")
        begin = driver.new(f"mul i64 %{name}.n, {chunk}")
        rest = driver.new(f"sub i64 {length}, {begin}")
        count = driver.new(f"call i64 @llvm.smin.i64(i64 {rest}, i64 {chunk})")
        driver.do(f"store i64 {begin}, ptr {extents}")
        at = driver.new(f"getelementptr i64, ptr {extents}, i64 1")
        driver.do(f"store i64 {count}, ptr {at}")
        self._run(driver, buffers, extents)
        asked = driver.new(f"call i32 {poll}()")
        driver.branch(driver.new(f"icmp ne i32 {asked}, 0"), "ret i32 -1")
        driver.do(f"br label %{name}.next")
        driver.lines.append(f"{name}.next:")
        driver.do(f"%{name}.after = add i64 %{name}.n, 1")
        more = driver.new(f"icmp slt i64 %{name}.after, {calls}")
        driver.do(f"br i1 {more}, label %{name}.loop, label %{name}.end")
        driver.lines.append(f"{name}.end:")

    def _length(self, driver: DriverWriter) -> str:
        """Return the number of steps."""
        counted = self.counted
        if counted is None:
            return str(steps_of(self.op))

        def number(operand: int) -> str:
            dtype = self.node.inputs[operand].type.dtype
            bits = 8 * dtype.itemsize
            loaded = driver.new(f"load i{bits}, ptr {driver.pointer(self.sources[operand])}")
            extend = "zext" if dtype.kind == "u" else "sext"
            return loaded if bits == 64 else driver.new(f"{extend} i{bits} {loaded} to i64")

        begin = number(self.op.consts + counted.counter)
        end = str(counted.value) if counted.end is None else number(counted.end)
        difference = driver.new(f"sub i64 {end}, {begin}")
        return driver.new(f"call i64 @llvm.smax.i64(i64 {difference}, i64 0)")

    def _skip(self, driver: DriverWriter, length: str, name: str) -> None:
        """Where there are no steps, the results are what is carried at first."""
        pairs = [
            (driver.pointer(x), driver.pointer(self.sources[self.op.consts + k]), x.type)
            for k, x in self.results.items()
        ]
        none = driver.new(f"icmp eq i64 {length}, 0")
        driver.do(f"br i1 {none}, label %{name}.none, label %{name}.some")
        driver.lines.append(f"{name}.none:")
        for place, first, t in pairs:
            size = static_size(t.shape) * int(t.dtype.itemsize)
            given = f"ptr {place}, ptr {first}, i64 {size}, i1 false"
            driver.do(f"call void @llvm.memmove.p0.p0.i64({given})")
        driver.do(f"br label %{name}.end")
        driver.lines.append(f"{name}.some:")

    def _homes(self, driver: DriverWriter) -> dict[int, tuple[str, str]]:
        """Return two places for each carried value, the first its result's where that is read."""
        scratch, start = driver.scratch(self), 0
        homes = {}
        for k in self.moving:
            size = _nbytes(self.node.type.items[k])
            both = [
                driver.new(f"getelementptr i8, ptr {scratch}, i64 {start + n * size}")
                for n in (0, 1)
            ]
            start += 2 * size
            home = driver.pointer(self.results[k]) if k in self.results else both[0]
            homes[k] = home, both[1]
        return homes


def _nbytes(type_: ArrayType) -> int:
    return aligned(static_size(type_.shape) * int(type_.dtype.itemsize))


def lane_step(
    name: str,
    node: Node,
    sources: Sequence[Node],
    results: Mapping[int, Node],
    labels: Mapping[Node, str],
) -> LaneStep | None:
    """Return the step that runs a loop by lanes, or None where its steps mix elements."""
    if isinstance(node.op, While):
        counted = counted_of(node.op)
        if isinstance(counted, str):
            return None
        given = (node, counted.lanes, sources, results, name, labels, None)
        kernel = LaneBuilder(counted.step, *given).build()
        values = kernel, tuple(sources), dict(results), steps_of_call(counted.lanes)
        return LaneStep(node, counted.step, counted.lanes, *values, counted)
    if not isinstance(node.op, Scan):
        return None
    lanes = lanes_of(node.op)
    if isinstance(lanes, str):
        return None
    chunk = steps_at_once(node.op, lanes)
    steps = steps_of(node.op) if chunk is None else None
    kernel = LaneBuilder(node.op, node, lanes, sources, results, name, labels, steps).build()
    return LaneStep(node, node.op, lanes, kernel, tuple(sources), dict(results), chunk)
