"""Loops turned inside out: which axes of what a loop carries its steps never mix.

A step that works on each element of its state by itself, as one of an ODE does for each of many
trajectories, need not be finished for all elements before the next begins.  The axes along which
nothing is mixed are *lanes*: the loop is run for some lanes at a time, all steps inside, so that
the state stays in registers or in the first cache and nobody waits between steps.

The analysis follows `lower` rules, which say at which index an op reads its operands.  A lane is a
variable in an index; what the step reads of the carry must be at the lane itself, while constants
of the loop and elements of its inputs may be read anywhere, for no step changes them.  Axes that
are no lanes are written out, element by element, so they have to be short.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stax.control import Scan, While
from stax.control.held import rearranged, unused
from stax.extent import Extent
from stax.graph import Constant, Graph, Input, Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import ElementBuilder, Index, Operand
from stax.lowering.split import Copy
from stax.op import Op, has_rule
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.random import Draw
from stax.types import ArrayType

# Operations per lane and step that are written out; LLVM's time grows faster than their number.
MOST_OPERATIONS = 384
MOST_NODES = 200
# The same where there are no lanes to fill vectors.
MOST_OPERATIONS_OF_ONE = 128
MOST_POINTS = 64
MATH_OPERATIONS = 16
DRAW_OPERATIONS = 100
# An axis that is shorter fills no vector.
SHORT = 8

Axes = tuple[int, ...]
Demands = dict[Node, dict[Index, None]]
_MATH = frozenset(ir.MATH)
_UNKNOWN = "?"


class NotLanes(Exception):
    """Why a loop is not turned inside out, as a person reads it."""


def lane_var(number: int) -> ir.Var:
    """Return the variable of a lane axis."""
    return ir.Var(f"lane{number}", ir.INDEX)


@dataclass(frozen=True, eq=False)
class Lanes:
    """How a loop runs by lanes.

    `lengths` are those of the lane axes; `carried` and `stacked` say which axes of each value that
    is carried, and of each element of a result, they are (none: the value is the same in all
    lanes).  `counters` are carried integers that grow by a number each step.  `is_flat` says that
    the lane axes are next to each other wherever they occur, so that they are one axis; `streams`
    that each step reads or writes memory that differs between lanes.
    """

    lengths: tuple[int, ...]
    carried: tuple[Axes, ...]
    stacked: tuple[Axes, ...]
    counters: dict[int, int]
    demands: Demands
    operations: int
    is_flat: bool
    streams: bool

    @property
    def count(self) -> int:
        """The number of lanes."""
        total = 1
        for n in self.lengths:
            total *= n
        return total

    @property
    def is_wide(self) -> bool:
        """Say whether lanes fill vectors."""
        return not self.lengths or (self.count if self.is_flat else self.lengths[-1]) >= SHORT


class Folding(ElementBuilder):
    """Builds expressions, and computes those of constants, as places in short axes are."""

    def apply(self, name: str, *args: ir.Expr) -> ir.Expr:
        known: list[Any] = [x.value for x in args if isinstance(x, ir.Const)]
        if len(known) == len(args) and args[0].dtype == ir.INDEX:
            match name:
                case "lt":
                    return ir.Const(bool(known[0] < known[1]), ir.BOOL)
                case "minimum" | "maximum":
                    return ir.index((min if name == "minimum" else max)(known))
        match name, args:
            case "and", (ir.Const(value), x) | (x, ir.Const(value)) if x.dtype == ir.BOOL:
                return x if value else ir.Const(False, ir.BOOL)
            case "select", (ir.Const(condition), x, y):
                return x if condition else y
        return super().apply(name, *args)

    def less(self, x: Any, y: Any) -> ir.Expr:
        return self.apply("lt", ir.index(x), ir.index(y))

    def both(self, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        return self.apply("and", x, y)

    def clamp(self, x: Any, low: Any, high: Any) -> ir.Expr:
        limited = self.apply("maximum", ir.index(x), ir.index(low))
        return self.apply("minimum", limited, ir.index(high))


class _Reads(Folding):
    """Records what a rule reads; loops are written out."""

    def __init__(self, room: int) -> None:
        self.found: list[tuple[Node, Index, bool]] = []
        self.room = room

    def operand(self, node: Node) -> Operand:
        def read(index: Index, mask: ir.Expr | None) -> ir.Expr:
            if isinstance(mask, ir.Const):
                if not mask.value:
                    return ir.Const(0, node.type.dtype)
                mask = None
            self.found.append((node, index, mask is not None))
            return ir.Var(_UNKNOWN, node.type.dtype)

        return Operand(node.type, read)

    def reduce(self, kind: str, extents: Sequence[Any], body: Any, dtype: Any) -> ir.Expr:
        for place in points(extents):
            self.room -= 1
            if self.room < 0:
                raise NotLanes("a step sums many terms for each lane")
            body(place)
        return ir.Var(_UNKNOWN, dtype)


def points(extents: Sequence[Any]) -> Iterator[Index]:
    """Yield the places of an array, in order."""
    if len(extents) == 1:  # which may be long: product would list it
        return ((ir.index(i),) for i in range(extents[0]))
    ranges = [range(n) for n in extents]
    return (tuple(map(ir.index, place)) for place in itertools.product(*ranges))


def placed(shape: Sequence[int], axes: Axes) -> Iterator[Index]:
    """Yield the indices of a value whose lane axes are `axes`: one for each place in the others."""
    number = {a: k for k, a in enumerate(axes)}
    others = [1 if a in number else n for a, n in enumerate(shape)]
    for place in points(others):
        yield tuple(lane_var(number[a]) if a in number else i for a, i in enumerate(place))


def steps_of(op: Scan) -> int:
    """Return the number of steps of a loop that has a known one."""
    assert isinstance(op.length, int)
    return op.length


def lanes_of(op: Scan) -> Lanes | str:
    """Return how a loop whose body is prepared runs by lanes, or why it does not."""
    if not isinstance(op.length, int):
        return "the number of steps is not known"
    shapes = [x.type.shape for x in op.body.inputs if isinstance(x.type, ArrayType)]
    if not isinstance(op.length, int) or any(isinstance(n, Extent) for s in shapes for n in s):
        return "a length is symbolic"
    key = "lanes", op.consts, op.carry
    found: Lanes | str = op.body.derived(key, lambda: _lanes(op))
    return found


def _lanes(op: Scan) -> Lanes | str:
    body, reason = op.body, "nothing is carried"
    try:
        _check(body)
        counters = _counters(op)
        fallback: Lanes | None = None
        for seed, axes in _candidates(op, counters):
            try:
                found = _Analysis(op, counters, seed, axes).run()
            except NotLanes as problem:
                reason = str(problem)
                continue
            if found.is_wide:
                return found
            fallback = fallback or found
        if fallback is not None:
            return fallback
    except NotLanes as problem:
        reason = str(problem)
    return reason


@dataclass(frozen=True, eq=False)
class Counted:
    """A loop with bounds that are computed: its step, and the counter that goes up to an end.

    The step takes all operands of the loop, of which the end is number `end`, or else `value`.
    """

    step: Scan
    lanes: Lanes
    counter: int
    end: int | None
    value: int


def counted_of(op: While) -> Counted | str:
    """Return how a while loop that counts its steps runs by lanes, or why it does not."""
    if op.limit is not None or op.length is not None:
        return "the steps are recorded"
    key = "counted", op.cond, op.cond_consts, op.body_consts
    found: Counted | str = op.body.derived(key, lambda: _counted(op))
    return found


def _counted(op: While) -> Counted | str:
    consts, (asked,) = op.cond_consts, op.cond.outputs
    inputs = [*map(unused, op.cond.inputs[:consts]), *op.body.inputs]
    body, first = rearranged(op.body, inputs, op.body.outputs), consts + op.body_consts
    step = Scan(body, 1, False, first, op.carry)
    if not (isinstance(asked.op, Elementwise) and asked.op.name == "lt"):
        return "the condition is not that a counter has not reached its end"
    counter, end = map(_bare, asked.inputs)
    number = op.cond.inputs.index(counter) - consts if isinstance(counter.op, Input) else -1
    if _counters(step).get(number) != 1 or not isinstance(end.op, Input | Constant):
        return "the condition is not that a counter has not reached its end"
    lanes = lanes_of(step)
    if isinstance(lanes, str):
        return lanes
    if isinstance(end.op, Constant):
        return Counted(step, lanes, number, None, int(end.op.value))
    place = op.cond.inputs.index(end)
    return Counted(step, lanes, number, place, 0) if place < consts else "the end changes"


@dataclass(frozen=True, eq=False)
class Ending:
    """A loop that ends by a condition, and carries little: its step, written out, and `cond`.

    Both graphs take all operands of the loop.
    """

    step: Scan
    lanes: Lanes
    cond: Graph
    demands: Demands


def ending_of(op: While) -> Ending | str:
    """Return how a while loop whose graphs are prepared is written out, or why it is not."""
    if op.limit is not None or op.length is not None:
        return "the steps are counted or recorded"
    if not op.carry:
        return "nothing is carried"
    key = "ending", op.cond, op.cond_consts, op.body_consts
    found: Ending | str = op.body.derived(key, lambda: _ending(op))
    return found


def _ending(op: While) -> Ending | str:
    consts, count = op.cond_consts, op.body_consts
    of_cond, carry = op.cond.inputs[:consts], op.cond.inputs[consts:]
    of_body = op.body.inputs[:count]
    inputs = [*map(unused, of_cond), *op.body.inputs]
    step = Scan(rearranged(op.body, inputs, op.body.outputs), 1, False, consts + count, op.carry)
    inputs = [*of_cond, *map(unused, of_body), *carry]
    asked = Scan(rearranged(op.cond, inputs, op.cond.outputs), 1, False, consts + count, op.carry)
    try:
        for loop in (step, asked):
            _check(loop.body)
        lanes = _Analysis(step, {}, 0, ()).run()
        analysis = _Analysis(asked, {}, 0, ())
        demands = analysis.demands([(asked.body.outputs[0], ())])
    except NotLanes as problem:
        return str(problem)
    if lanes.operations + analysis.operations > MOST_OPERATIONS_OF_ONE:
        return "a step has many operations"
    return Ending(step, lanes, asked.body, demands)


def _check(body: Graph) -> None:
    if body.effect is not None:
        raise NotLanes("a step has an effect")
    if len(body.nodes) > MOST_NODES:
        raise NotLanes("a step has many operations")
    for node in (*body.inputs, *body.nodes):
        shape = getattr(node.type, "shape", ())
        if not all(isinstance(n, int) and n for n in shape):
            raise NotLanes("a length is symbolic, or zero")
        if not isinstance(node.op, Input) and not has_rule(type(node.op), "lower"):
            raise NotLanes(f"a step does {node.op.name}, which takes whole arrays")


def _counters(op: Scan) -> dict[int, int]:
    """Return which carried integers grow by a fixed number each step, and by which."""
    found: dict[int, int] = {}
    for k, x in enumerate(op.body.inputs[op.consts : op.consts + op.carry]):
        out = _bare(op.body.outputs[k])
        if x.type.shape or x.type.dtype.kind not in "iu":
            continue
        if isinstance(out.op, Elementwise) and out.op.name == "add":
            terms = [_bare(y) for y in out.inputs]
            others = [y for y in terms if y is not x]
            if len(others) == 1 and isinstance(others[0].op, Constant):
                found[k] = int(others[0].op.value)
    return found


def _bare(node: Node) -> Node:
    """Look through copies, and changes of the weak flag."""
    while isinstance(node.op, Convert | Copy) and node.type.dtype == node.inputs[0].type.dtype:
        node = node.inputs[0]
    return node


def _candidates(op: Scan, counters: dict[int, int]) -> Iterator[tuple[int, Axes]]:
    """Yield a carried value and which of its axes may be lanes, many lanes first."""
    carry = op.body.inputs[op.consts : op.consts + op.carry]
    free = [k for k in range(op.carry) if k not in counters]
    if not free:
        return
    seed = max(free, key=lambda k: _size(carry[k].type.shape))
    shape = carry[seed].type.shape
    long_axes = [a for a, n in enumerate(shape) if n != 1]
    subsets = [
        axes for r in range(len(long_axes) + 1) for axes in itertools.combinations(long_axes, r)
    ]
    subsets.sort(key=lambda axes: (_size([shape[a] for a in axes]), axes), reverse=True)
    if _size(shape) < SHORT // 2:
        subsets.insert(0, ())
    for axes in subsets:
        if _size(shape) <= MOST_POINTS * _size([shape[a] for a in axes]):
            yield seed, axes


def _size(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


class _Analysis:
    """Finds the lane axes of all carried values from those of one, and checks every read."""

    def __init__(self, op: Scan, counters: dict[int, int], seed: int, axes: Axes) -> None:
        self.op = op
        self.counters = counters
        inputs = op.body.inputs[op.consts :]
        self.carry = {x: k for k, x in enumerate(inputs[: op.carry])}
        self.xs = frozenset(inputs[op.carry :])
        self.axes: dict[int, Axes] = {seed: axes, **dict.fromkeys(counters, ())}
        shape = inputs[seed].type.shape
        self.lengths = tuple(shape[a] for a in axes)
        self.is_flat = True
        self.operations = 0

    def run(self) -> Lanes:
        self._spread([k for k in self.axes if k not in self.counters])
        for k in range(self.op.carry):
            if k not in self.axes:
                self.axes[k] = self._matching(self.op.body.outputs[k].type.shape)[0]
                self._spread([k])
        carried = tuple(self.axes[k] for k in range(self.op.carry))
        stacked = tuple(map(self._axes_of_result, self.op.body.outputs[self.op.carry :]))
        wanted = [
            (node, index)
            for k, (node, axes) in enumerate(
                zip(self.op.body.outputs, (*carried, *stacked), strict=True)
            )
            if k not in self.counters
            for index in _few(placed(node.type.shape, axes))
        ]
        demands = self.demands(wanted)
        self._check_carry(demands)
        accessed = [(x, i) for x in self.op.body.inputs for i in demands.get(x, ())]
        self.is_flat = self.is_flat and all(
            self._is_merged(node, i)
            for node, i in (*((n, i) for n, found in demands.items() for i in found), *wanted)
        )
        streams = any(x in self.xs and _has_lane(i) for x, i in accessed) or any(stacked)
        return Lanes(
            self.lengths, carried, stacked, self.counters, demands, max(1, self.operations),
            self.is_flat, streams,
        )  # fmt: skip

    def _spread(self, pending: list[int]) -> None:
        """Find the lane axes of values that those `pending` are computed from."""
        while pending:
            k = pending.pop()
            node = self.op.body.outputs[k]
            index = next(placed(node.type.shape, self.axes[k]))
            for x, found in self.demands([(node, index)]).items():
                number = self.carry.get(x)
                if number is None or number in self.counters:
                    continue
                for i in found:
                    axes = self._lane_axes(x, i)
                    if number not in self.axes:
                        self.axes[number] = axes
                        pending.append(number)
                    elif self.axes[number] != axes:
                        raise NotLanes("a step moves elements along every axis")

    def _lane_axes(self, x: Node, index: Index) -> Axes:
        """Return at which axes a carried value is read at its lane; it must be read so."""
        lanes = [lane_var(k) for k in range(len(self.lengths))]
        axes = tuple(a for a, i in enumerate(index) if isinstance(i, ir.Var) and i in lanes)
        fixed = all(isinstance(i, ir.Const) for a, i in enumerate(index) if a not in axes)
        if not fixed or [index[a] for a in axes] not in (lanes, []):
            raise NotLanes(f"a step reads {x.label or 'its state'} across every axis")
        if tuple(x.type.shape[a] for a in axes) not in (self.lengths, ()):
            raise NotLanes(f"a step reads a part of {x.label or 'its state'} along every axis")
        return axes

    def _check_carry(self, demands: Demands) -> None:
        for x, k in self.carry.items():
            for index in demands.get(x, ()):
                if self._lane_axes(x, index) != self.axes[k]:
                    raise NotLanes("a step moves elements along every axis")

    def _matching(self, shape: Sequence[int]) -> list[Axes]:
        """Return which axes have the lengths of the lanes, the last first; at the end, none."""
        found = [
            axes
            for axes in itertools.combinations(range(len(shape)), len(self.lengths))
            if tuple(shape[a] for a in axes) == self.lengths
        ]
        return [*reversed(found), ()] if self.lengths else [()]

    def _axes_of_result(self, node: Node) -> Axes:
        """Return which axes of an element of a result are lanes: those that fit what it reads."""
        problem = NotLanes("a step returns values that mix all axes")
        for axes in self._matching(node.type.shape):
            try:
                index = next(placed(node.type.shape, axes))
                self._check_carry(self.demands([(node, index)]))
            except NotLanes as found:
                problem = found
                continue
            return axes
        raise problem

    def demands(self, wanted: Sequence[tuple[Node, Index]]) -> Demands:
        """Return at which indices each value of a step is needed."""
        found: Demands = {}
        for node, index in wanted:
            found.setdefault(node, {})[index] = None
        room, self.operations = MOST_OPERATIONS, 0
        for node in reversed(self.op.body.nodes):
            indices, begun = found.get(node, ()), room
            for number, index in enumerate(indices):
                if number == 1 and room < (begun - room) * (len(indices) - 1):
                    # All elements of a value are as many operations as the first.
                    raise NotLanes("a step has many operations for each lane")
                work = work_of(node.op)
                self.operations += work
                room -= max(1, work)
                reads = _Reads(room)
                result = node.op.lower(reads, index, *map(reads.operand, node.inputs))
                if room < 0:
                    raise NotLanes("a step has many operations for each lane")
                self.is_flat = self.is_flat and not _has_lane((result,))
                for x, place, is_masked in reads.found:
                    self._check_read(x, place, is_masked)
                    found.setdefault(x, {})[place] = None
                self.operations += room - reads.room
                room = reads.room
        return found

    def _check_read(self, x: Node, place: Index, is_masked: bool) -> None:
        """Values that are computed in the step are read at known places that exist."""
        if isinstance(x.op, Input) and x not in self.carry:
            return
        if any(v.name == _UNKNOWN for v in _variables(place)):
            raise NotLanes("a step reads its values at places that it computes")
        if not is_masked:
            return
        lanes = {lane_var(k) for k in range(len(self.lengths))}
        inside = all(
            (isinstance(i, ir.Var) and i in lanes) or (isinstance(i, ir.Const) and 0 <= i.value < n)
            for i, n in zip(place, x.type.shape, strict=True)
        )
        if not inside:
            raise NotLanes("a step shifts what it computes along every axis")

    def _is_merged(self, node: Node, index: Index) -> bool:
        """Say whether an index names no lane, or all of them one after the other."""
        if not _has_lane(index):
            return True
        at = merged_at(index, len(self.lengths))
        return at is not None and self.lengths == tuple(
            node.type.shape[at : at + len(self.lengths)]
        )


def merged_at(index: Index, count: int) -> int | None:
    """Return the place of the first of `count` lanes that follow each other in an index."""
    lanes = tuple(lane_var(k) for k in range(count))
    for at in range(len(index) - count + 1):
        rest = (*index[:at], *index[at + count :])
        if index[at : at + count] == lanes and not _has_lane(rest):
            return at
    return None


def _has_lane(expressions: Sequence[ir.Expr]) -> bool:
    return any(v.name.startswith("lane") for v in _variables(expressions))


def _variables(expressions: Sequence[ir.Expr]) -> Iterator[ir.Var]:
    """Yield the variables in expressions, most of which are variables and constants."""
    for e in expressions:
        if type(e) is ir.Var:
            yield e
        elif type(e) is not ir.Const:
            yield from (v for v in ir.walk(e) if isinstance(v, ir.Var))


def _few(indices: Iterator[Index]) -> list[Index]:
    found = list(itertools.islice(indices, MOST_POINTS + 1))
    if len(found) > MOST_POINTS:
        raise NotLanes("a step has many values for each lane")
    return found


def work_of(op: Op) -> int:
    """Return how many operations an element of a result is, not counting terms of sums."""
    if isinstance(op, Elementwise) and op.name in _MATH:
        return MATH_OPERATIONS
    return DRAW_OPERATIONS if isinstance(op, Draw) else int(is_pointwise(op))


def is_pointwise(op: Op) -> bool:
    """Say whether an op computes each element from those at its place."""
    return isinstance(op, Elementwise | Select | Convert | IntegerPow)
