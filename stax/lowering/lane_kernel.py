"""The kernel of a loop that runs by lanes (see `lanes`), which one call or several run.

Where the steps touch no memory that differs between lanes, all steps of some vectors of lanes run
with the carry in registers; a few vectors at a time, so that operations that wait for each other do
not set the pace.  Else the steps run over a block of lanes whose carry is in scratch, so that
memory is read and written in stretches.  Blocks are handed out to threads; none waits for another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stax.control import Scan
from stax.graph import Constant, Graph, Input, Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import Index, Operand
from stax.lowering.lanes import (
    Demands,
    Folding,
    Lanes,
    lane_var,
    merged_at,
    placed,
    points,
    steps_of,
)

# Lanes of a vector, about; blocks are made of whole ones.
VECTOR = 16
# Blocks of lanes that there should be, and the bytes of carry that a block may have in scratch.
BLOCKS = 16
SCRATCH_BYTES = 16 << 10
LONGEST_BLOCK, SHORTEST_STREAM = 1024, 256
# Carried numbers per lane that fit registers.
IN_REGISTERS = 24
# Vectors that are worked on at a time, by operations per step and by carried numbers of all.
AT_A_TIME = ((16, 96, 4), (96, 12, 3), (96, 48, 2))
# Simple operations that make a task worth handing out.
TASK = 60_000

# Letters and a number, as no label of a buffer is.
_STEP = ir.Var("step0", ir.INDEX)
_FIRST, _COUNT = ir.Var("first0", ir.INDEX), ir.Var("count0", ir.INDEX)
# Loops from the outside: blocks, and then lanes and steps or steps and lanes.
_BLOCK = 1


@dataclass(frozen=True)
class _Shape:
    """How lanes are cut: their axes as loops see them, blocks of the last, vectors at a time."""

    lengths: tuple[int, ...]
    block: int
    copies: int
    in_registers: bool

    @property
    def blocks(self) -> int:
        """How many blocks the last axis has."""
        return -(-self.lengths[-1] // self.block) if self.lengths else 1

    @property
    def tasks(self) -> int:
        """The length of the parallel loop."""
        return math.prod(self.lengths[:-1]) * self.blocks


def _shape_of(lanes: Lanes, op: Scan) -> _Shape:
    lengths = (lanes.count,) if lanes.is_flat and lanes.lengths else lanes.lengths
    if not lengths:
        return _Shape((), 1, 1, True)
    carry = op.body.inputs[op.consts : op.consts + op.carry]
    moving = [k for k in range(op.carry) if k not in lanes.counters]
    sizes = [
        math.prod(n for a, n in enumerate(carry[k].type.shape) if a not in lanes.carried[k])
        for k in moving
    ]
    last, total = lengths[-1], math.prod(lengths)
    in_registers = sum(sizes) <= IN_REGISTERS and not (lanes.streams and total > VECTOR)
    copies, shortest, longest = 1, SHORTEST_STREAM, LONGEST_BLOCK
    if in_registers:
        fitting = [
            n
            for most, carried, n in AT_A_TIME
            if lanes.operations <= most and n * sum(sizes) <= carried
        ]
        copies = fitting[0] if fitting and last >= 2 * VECTOR * fitting[0] else 1
        shortest = VECTOR
    else:
        nbytes = sum(n * carry[k].type.dtype.itemsize for n, k in zip(sizes, moving, strict=True))
        longest = min(longest, max(VECTOR, SCRATCH_BYTES // max(1, nbytes)))
    unit = VECTOR * copies
    wanted = min(longest, max(shortest, last * math.prod(lengths[:-1]) // BLOCKS))
    blocks = max(1, -(-last // max(unit, wanted)))
    block = -(-last // (blocks * unit)) * unit
    if block >= last:
        return _Shape(lengths, last, 1 if last % copies else copies, in_registers)
    return _Shape(lengths, block, copies, in_registers)


@dataclass(frozen=True)
class LaneKernel:
    """A kernel, what each of its buffers is, and how its parallel loop is handed out.

    The roles of buffers are numbers of operands of the loop, or ~numbers of its results.
    """

    kernel: ir.Kernel
    roles: tuple[int, ...]
    tasks: int
    grain: int


class LaneBuilder(Folding):
    """Builds the kernel of a loop; `steps` is their number where one call does them all."""

    def __init__(
        self, op: Scan, node: Node, lanes: Lanes, sources: Sequence[Node],
        results: Mapping[int, Node], name: str, labels: Mapping[Node, str], steps: int | None,
    ) -> None:  # fmt: skip
        self.op, self.node, self.lanes, self.name, self.labels = op, node, lanes, name, labels
        self.sources, self.results, self.steps = sources, results, steps
        self.shape = _shape_of(lanes, op)
        self.body = op.body
        self.step_level, self.lane_level = (3, 2) if self.shape.in_registers else (2, 3)
        self.scopes: list[list[ir.Stmt]] = [[], [], [], []]
        self.depth: dict[str, int] = {_STEP.name: self.step_level}
        self.buffers: dict[Any, tuple[ir.Buffer, int]] = {}
        self.stored: set[str] = set()
        self.count = 0
        self.copy = 0
        self.values: dict[tuple[Node, Index], ir.Expr] = {}
        self.state: Mapping[tuple[int, Index], ir.Expr] = {}
        self.loaded: dict[Any, tuple[ir.Expr, list[ir.Stmt]]] = {}

    # --- names and places ---

    def let(self, value: ir.Expr, prefix: str = "v") -> ir.Expr:
        """Name a value in the outermost loop in which it is known."""
        if isinstance(value, ir.Const):
            return value
        deepest = _BLOCK
        for e in ir.walk(value):
            if isinstance(e, ir.Var):
                deepest = max(deepest, self.depth.get(e.name, 0))
        self.count += 1
        var = ir.Var(f"{prefix}{self.count}", value.dtype)
        self.depth[var.name] = deepest
        self.scopes[deepest].append(ir.Let(var, value))
        return var

    def named(self, x: ir.Expr) -> ir.Expr:
        return x if isinstance(x, ir.Var | ir.Const) else self.let(x)

    def lane(self, number: int) -> ir.Var:
        """Return the variable of a lane axis in the vector that is worked on."""
        return ir.Var(f"lane{chr(ord('a') + number)}{self.copy}", ir.INDEX)

    def here(self, index: Index) -> Index:
        """Return an index in terms of the vector that is worked on."""
        count = len(self.lanes.lengths)
        mine = {lane_var(k): self.lane(k) for k in range(count)}
        return tuple(ir.substitute(i, mine) for i in index)

    def access(self, role: int, type_: Any, index: Index) -> tuple[ir.Buffer, Index]:
        """Return the buffer of an operand, or of result ~role, and an index as that is laid out.

        Where the lane axes are taken as one, so are those of the buffer.
        """
        shape, count = type_.shape, len(self.lanes.lengths)
        if self.lanes.is_flat and count > 1:
            known = {self.lane(k): lane_var(k) for k in range(count)}
            at = merged_at(tuple(ir.substitute(i, known) for i in index), count)
            if at is not None:
                shape = (*shape[:at], self.lanes.count, *shape[at + count :])
                index = (*index[:at], self.lane(0), *index[at + count :])
        root = self.sources[role] if role >= 0 else self.results.get(~role)
        # Between calls the carry moves to other memory than that of its operand.
        moves = role >= 0 and self.steps is None and self.is_carried(role)
        key = role if moves or root is None else root, shape
        if key not in self.buffers:
            label = self.labels.get(root, "t") if root is not None else "t"
            taken = {buffer.name for buffer, _ in self.buffers.values()}
            names = (f"{label}_view{n}" if n else label for n in itertools.count())
            name = next(name for name in names if name not in taken)
            self.buffers[key] = ir.Buffer(name, type_.dtype, shape), role
        return self.buffers[key][0], index

    def is_carried(self, number: int) -> bool:
        """Say whether an operand is the first value of what is carried, and no counter."""
        k = number - self.op.consts
        return 0 <= k < self.op.carry and k not in self.lanes.counters

    def load(self, number: int, index: Index, mask: ir.Expr | None = None) -> ir.Expr:
        """Return an element of an operand of the loop."""
        x = self.node.inputs[number]
        if isinstance(x.op, Constant) and not (self.steps is None and self.is_carried(number)):
            return ir.Const(x.op.value, x.type.dtype)
        load = ir.Load(*self.access(number, x.type, index), mask)
        known = self.loaded.get(load)
        if known is None or not any(known[1] is scope for scope in self.scopes):
            value = self.let(load)
            assert isinstance(value, ir.Var)
            known = self.loaded[load] = value, self.scopes[self.depth[value.name]]
        return known[0]

    def store(self, number: int, index: Index, value: ir.Expr, level: int) -> None:
        """Store an element of a result of the loop, if somebody reads it."""
        if number in self.results or (self.steps is None and number < self.op.carry):
            buffer, index = self.access(~number, self.node.type.items[number], index)
            self.stored.add(buffer.name)
            self.scopes[level].append(ir.Store(buffer, index, value))

    # --- values ---

    def compute(self, body: Graph, demands: Demands) -> None:
        """Name every value that a step needs, in the vector that is worked on."""
        self.body = body
        for node in body.nodes:
            for symbolic in demands.get(node, ()):
                index = self.here(symbolic)
                result = node.op.lower(self, index, *map(self.operand, node.inputs))
                self.values[node, index] = self.named(result)

    def operand(self, node: Node) -> Operand:
        """Return the operand of a rule that reads `node`."""
        number = self.body.inputs.index(node) if isinstance(node.op, Input) else None

        def read(index: Index, mask: ir.Expr | None) -> ir.Expr:
            if isinstance(mask, ir.Const):
                if not mask.value:
                    return ir.Const(0, node.type.dtype)
                mask = None
            if number is None:
                return self.values[node, index]
            return self.given(number, index, mask)

        return Operand(node.type, read)

    def given(self, number: int, index: Index, mask: ir.Expr | None) -> ir.Expr:
        """Return an element of what a step is given: a constant, the carry, or of an input."""
        first = self.op.consts
        place = tuple(i if isinstance(i, ir.Const | ir.Var) else self.let(i, "j") for i in index)
        mask = None if mask is None else self.named(mask)
        if number < first:
            return self.load(number, place, mask)
        if number < first + self.op.carry:
            return self.carried(number - first, index)
        return self.load(number, (self.position(), *place), mask)

    def carried(self, k: int, index: Index) -> ir.Expr:
        """Return an element of the carry at the beginning of a step."""
        if k in self.lanes.counters:
            return self.counter(k, _STEP)
        found: ir.Expr = self.state[k, index]
        return found

    def counter(self, k: int, steps: ir.Expr) -> ir.Expr:
        """Return a counter after some steps."""
        by, first = self.lanes.counters[k], self.load(self.op.consts + k, ())
        grown = self.convert(ir.mul(steps, by), first.dtype)
        return self.let(ir.apply("add", first, grown))

    def position(self) -> ir.Expr:
        """Return which element of the inputs and results a step has."""
        return self.let(ir.sub(steps_of(self.op) - 1, _STEP), "at") if self.op.reverse else _STEP

    def reduce(self, kind: str, extents: Sequence[Any], body: Any, dtype: Any) -> ir.Expr:
        """Combine terms one after the other."""
        total: ir.Expr | None = None
        for place in points(extents):
            term = body(place)
            total = term if total is None else self.let(ir.apply(kind, total, term))
        assert total is not None
        return total

    # --- loops ---

    def build(self) -> LaneKernel:
        """Return the kernel."""
        shape = self.shape
        with self.tasks():
            self.begin_lanes()
            if shape.in_registers:
                self.registers()
            else:
                self.scratch()
        buffers = [buffer for buffer, _ in self.buffers.values()]
        kernel = ir.Kernel(
            self.name,
            tuple(buffers),
            () if self.steps is not None else (_FIRST, _COUNT),
            tuple(self.scopes[0]),
            tuple(b.name for b in buffers if b.name in self.stored),
        )
        steps = steps_of(self.op) if self.steps is None else self.steps
        work = shape.block * self.lanes.operations * steps
        roles = tuple(role for _, role in self.buffers.values())
        return LaneKernel(kernel, roles, shape.tasks, max(1, -(-TASK // work)))

    @contextmanager
    def tasks(self) -> Iterator[None]:
        """Open the parallel loop."""
        p = ir.Var("p0", ir.INDEX)
        self.depth[p.name] = _BLOCK
        self.task = p
        yield
        self.scopes[0].append(
            ir.For(p, ir.index(self.shape.tasks), "parallel", tuple(self.scopes[1]))
        )

    def begin_lanes(self) -> None:
        """Name the lanes of the vectors that are worked on at a time."""
        shape = self.shape
        if not shape.lengths:
            return
        start: ir.Expr = ir.mul(ir.mod(self.task, shape.blocks), shape.block)
        if shape.lengths[-1] % shape.block:
            start = ir.apply("minimum", start, ir.index(shape.lengths[-1] - shape.block))
        start, last = self.let(start, "base"), len(shape.lengths) - 1
        self.depth[_X.name] = self.lane_level
        for copy in range(shape.copies):
            self.copy = copy
            place = ir.add(ir.add(start, copy * self.width), _X)
            self.name_lane(last, place, self.lane_level)
            rest: ir.Expr = ir.floordiv(self.task, shape.blocks)
            for k in range(last - 1, -1, -1):
                self.name_lane(k, ir.mod(rest, shape.lengths[k]) if k else rest, _BLOCK)
                rest = ir.floordiv(rest, shape.lengths[k])

    def name_lane(self, number: int, place: ir.Expr, level: int) -> None:
        """Give a place on a lane axis the name of that axis."""
        var = self.lane(number)
        self.depth[var.name] = level
        self.scopes[level].append(ir.Let(var, place))

    @property
    def width(self) -> int:
        """How many lanes the vector loop takes, of each of the vectors at a time."""
        return self.shape.block // self.shape.copies

    def moving(self) -> Iterator[tuple[int, Index]]:
        """Yield what is carried in locals or scratch, element by element."""
        for k, axes in enumerate(self.lanes.carried):
            if k not in self.lanes.counters:
                for index in placed(self.body.outputs[k].type.shape, axes):
                    yield k, self.here(index)

    def registers(self) -> None:
        """All steps of some vectors of lanes."""
        level, first = self.lane_level, self.op.consts
        states: list[dict[tuple[int, Index], ir.Var]] = []
        for copy in range(self.shape.copies):
            self.copy = copy
            states.append({})
            for k, index in self.moving():
                name = f"c{copy * len(states[0]) + len(states[-1])}"
                var = states[-1][k, index] = ir.Var(name, self.body.outputs[k].type.dtype)
                self.scopes[level].append(ir.Init(var, self.load(first + k, index)))
                self.depth[var.name] = self.step_level
        changing = {var for state in states for var in state.values()}
        moves = []
        for copy, state in enumerate(states):
            self.copy, self.state = copy, state
            self.compute(self.op.body, self.lanes.demands)
            self.store_elements()
            for (k, index), var in state.items():
                value = self.after(k, index)
                # What another local holds now is named before that changes.
                moves.append((var, self.let(value) if value in changing else value))
        self.scopes[self.step_level] += [ir.Set(var, value) for var, value in moves]
        self.scopes[level].append(self.loop_over_steps())
        for copy, state in enumerate(states):
            self.copy = copy
            self.finish(state)
        if self.shape.lengths:
            self.scopes[1].append(self.loop_over_lanes(self.scopes[level]))
        else:
            self.scopes[1] += self.scopes[level]

    def scratch(self) -> None:
        """All steps of a block of lanes, the carry in scratch."""
        buffers: dict[tuple[int, Index], ir.Buffer] = {}
        for n, (k, index) in enumerate(self.moving()):
            dtype = self.body.outputs[k].type.dtype
            buffer = buffers[k, index] = ir.Buffer(f"c{n}", dtype, (self.width,))
            self.scopes[1].append(ir.Alloc(buffer))
        begin, inner = list(self.scopes[self.lane_level]), self.scopes[self.lane_level]
        for (k, index), buffer in buffers.items():
            inner.append(ir.Store(buffer, (_X,), self.load(self.op.consts + k, index)))
        start = self.loop_over_lanes(inner)
        self.scopes[self.lane_level] = inner = list(begin)
        self.state = {key: self.let(ir.Load(b, (_X,))) for key, b in buffers.items()}
        self.compute(self.op.body, self.lanes.demands)
        self.store_elements()
        for (k, index), buffer in buffers.items():
            value = self.after(k, index)
            if value is not self.state[k, index]:
                inner.append(ir.Store(buffer, (_X,), value))
        self.scopes[self.step_level].append(self.loop_over_lanes(inner))
        self.scopes[1] += [start, self.loop_over_steps()]
        self.scopes[self.lane_level] = inner = list(begin)
        self.finish({key: self.let(ir.Load(b, (_X,))) for key, b in buffers.items()})
        self.scopes[1].append(self.loop_over_lanes(inner))

    def after(self, k: int, index: Index) -> ir.Expr:
        """Return an element of the carry at the end of a step."""
        return self.operand(self.body.outputs[k])(index)

    def store_elements(self) -> None:
        """Store what a step returns beside the carry."""
        count = self.op.carry
        level = max(self.step_level, self.lane_level)
        for j, axes in enumerate(self.lanes.stacked, count):
            out = self.body.outputs[j]
            for symbolic in placed(out.type.shape, axes):
                index = self.here(symbolic)
                self.store(j, (self.position(), *index), self.operand(out)(index), level)

    def finish(self, state: Mapping[tuple[int, Index], ir.Expr]) -> None:
        """Store the carry after all steps."""
        for k, index in self.moving():
            if k in self.results or self.steps is None:
                self.store(k, index, state[k, index], self.lane_level)
        for k in self.lanes.counters:
            if k in self.results:
                done = ir.index(self.steps) if self.steps else ir.add(_FIRST, _COUNT)
                self.store(k, (), self.counter(k, done), self.lane_level)

    def loop_over_steps(self) -> ir.For:
        """Return the loop over what is in the scope of a step."""
        n: ir.Expr = _COUNT if self.steps is None else ir.index(self.steps)
        body = tuple(self.scopes[self.step_level])
        if self.steps is None:
            t = ir.Var("t0", ir.INDEX)
            return ir.For(t, n, "serial", (ir.Let(_STEP, ir.add(_FIRST, t)), *body))
        return ir.For(_STEP, n, "serial", body)

    def loop_over_lanes(self, body: Sequence[ir.Stmt]) -> ir.For:
        """Return the vector loop over `body`."""
        return ir.For(_X, ir.index(self.width), "vector", tuple(body))


_X = ir.Var("x0", ir.INDEX)
