"""Loops whose steps treat the rows of what is carried alike: run for some rows at a time.

A step of a network that is trained on a batch multiplies matrices, so it is not run lane by lane
(see `lanes`); but each example is still by itself.  Where the leading axis of everything that is
carried, and of every element of a result, is such an axis of *rows*, the loop is cut into loops
over blocks of rows.  Threads run them side by side, and none waits for another between steps.

The analysis goes through the step op by op and says of each value whether it has rows.  Then the
step is written again for as many rows as a block has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stax.control import Scan
from stax.graph import Constant, Graph, Input, Node
from stax.interpreters.interpret import attributed
from stax.lowering.gemm import Laid
from stax.lowering.split import Copy
from stax.op import Op, has_rule
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.reduce import ArgExtreme, Cumulative
from stax.operators.reshape import Reshape, Rev, Transpose
from stax.operators.shape import Concatenate, Pad, Slice
from stax.trace import Trace, bind, full
from stax.verify import verified

# A block has at least so many rows, and there are at most so many blocks.
FEWEST_ROWS, MOST_BLOCKS = 16, 8
# Operations of all steps from which threads are worth it, and multiplications of one product up to
# which a few rows at a time are as fast as many.
MANY_OPERATIONS, LARGE_PRODUCT = 1 << 21, 1 << 20
MOST_TRIES = 8

_POINTWISE = (Elementwise, Select, Convert, IntegerPow, Copy)


class NotRows(Exception):
    """Why a loop is not cut into blocks of rows; `culprits` are inputs that may have no rows."""

    def __init__(self, reason: str, culprits: Sequence[Node] = ()) -> None:
        super().__init__(reason)
        self.culprits = culprits


@dataclass(frozen=True, eq=False)
class Blocks:
    """A loop cut into `count` blocks of `rows` rows: its body for one, and which inputs are cut."""

    body: Graph
    count: int
    rows: int
    is_cut: tuple[bool, ...]


def blocks_of(op: Scan) -> Blocks | str:
    """Return how a loop whose body is prepared is cut into blocks, or why it is not."""
    key = "blocks", op.consts, op.carry, op.length
    found: Blocks | str = op.body.derived(key, lambda: _blocks(op))
    return found


def _blocks(op: Scan) -> Blocks | str:
    try:
        return _Rows(op).blocks()
    except NotRows as reason:
        return str(reason)


class _Rows:
    """Which values of a step have rows."""

    def __init__(self, op: Scan) -> None:
        self.op, self.body = op, op.body
        carry = self.body.inputs[op.consts : op.consts + op.carry]
        types = [x.type for x in (*self.body.inputs, *self.body.outputs)]
        if not all(isinstance(n, int) for t in types for n in t.shape):
            raise NotRows("a length is symbolic")
        if not isinstance(op.length, int) or self.body.effect is not None:
            raise NotRows("the number of steps is not known, or a step has an effect")
        leading = {t.type.shape[0] if t.type.shape else 0 for t in (*carry, *self.body.outputs)}
        if len(leading) != 1 or not carry:
            raise NotRows("what is carried and returned does not have rows alike")
        (self.total,) = leading
        self.rows = self._rows_of_block()
        self.plain: set[Node] = set(self.body.inputs[: op.consts])
        self.cut: set[Node] = set()

    def _rows_of_block(self) -> int:
        fewest = max(FEWEST_ROWS, -(-self.total // MOST_BLOCKS))
        for rows in range(fewest, self.total // 2 + 1):
            if self.total % rows == 0:
                return rows
        raise NotRows("there are few rows, or no blocks of one size")

    def blocks(self) -> Blocks:
        """Return the blocks, once every value has been looked at."""
        for _ in range(MOST_TRIES):
            try:
                self._look()
                break
            except NotRows as problem:
                other = [x for x in problem.culprits if self._may_change(x)]
                if not other:
                    raise
                self.plain ^= set(other)
        else:
            raise NotRows("it is not clear which inputs have rows")
        self._check_worth()
        flags = tuple(x in self.cut for x in self.body.inputs)
        return Blocks(self._for_block(), self.total // self.rows, self.rows, flags)

    def _may_change(self, x: Node) -> bool:
        """Say whether an input may be taken the other way: with rows, or without."""
        first = self.op.consts
        is_carried = x in self.body.inputs[first : first + self.op.carry]
        return isinstance(x.op, Input) and not is_carried and self._leads(x)

    def _leads(self, x: Node) -> bool:
        return bool(x.type.shape) and x.type.shape[0] == self.total

    def _look(self) -> None:
        """Find what has rows; raises NotRows where an op mixes them."""
        self.cut = {x for x in self.body.inputs if self._leads(x) and x not in self.plain}
        for node in self.body.nodes:
            if self._has_rows(node):
                self.cut.add(node)
        if not all(x in self.cut for x in self.body.outputs):
            raise NotRows("a step returns something without rows")

    def _has_rows(self, node: Node) -> bool:
        op, inputs = node.op, node.inputs
        flags = [x in self.cut for x in inputs]
        if isinstance(op, Constant):
            return False
        if isinstance(op, Broadcast) and not any(flags):
            return self._leads(node) and 0 not in op.broadcast_dimensions
        if not any(flags):
            if has_rule(type(op), "lower"):
                return False
            raise NotRows(f"a step does {op.name}")
        if not self._keeps(op, inputs, flags) or not self._leads(node):
            by_place = isinstance(op, (*_POINTWISE, Concatenate))
            strange = [x for x in inputs if not (by_place and self._fits(x))]
            raise NotRows(f"a step mixes rows in {op.name}", self._sources(strange))
        return True

    def _sources(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the inputs that values are made of."""
        needed = {*nodes}
        for node in reversed(self.body.nodes):
            if node in needed:
                needed.update(node.inputs)
        return [x for x in self.body.inputs if x in needed]

    def _keeps(self, op: Op, inputs: Sequence[Node], flags: Sequence[bool]) -> bool:
        """Say whether an op with operands that have rows keeps them apart, and in front."""
        match op:
            case _ if isinstance(op, _POINTWISE):
                return all(self._fits(x) for x in inputs)
            case Concatenate(axis=axis):
                return axis != 0 and all(self._fits(x) for x in inputs)
            case Broadcast(broadcast_dimensions=dimensions):
                return dimensions[0] == 0
            case Reshape():
                return True
            case Transpose(permutation=permutation):
                return permutation[0] == 0
            case Reduction(axes=axes) | Rev(axes=axes):
                return 0 not in axes
            case ArgExtreme(axis=axis) | Cumulative(axis=axis):
                return axis != 0
            case Pad(config=config):
                return config[0] == (0, 0, 0) and inputs[1] not in self.cut
            case Slice(starts, limits, strides):
                return (starts[0], limits[0], strides[0]) == (0, self.total, 1)
            case Laid(order=order) if order[0] != 0:
                return False
            case DotGeneral(batching=batching):
                if all(flags):
                    return bool(batching[0]) and (batching[0][0], batching[1][0]) == (0, 0)
                free = op.free(inputs[0].type.ndim, inputs[1].type.ndim)
                first = free.lhs if flags[0] else free.rhs
                in_front = not batching[0] and (flags[0] or not free.lhs)
                return in_front and bool(first) and first[0] == 0
        return False

    def _fits(self, x: Node) -> bool:
        return x in self.cut or isinstance(x.op, Constant)

    def _check_worth(self) -> None:
        work = 0
        for node in self.body.nodes:
            terms = 1
            if isinstance(node.op, DotGeneral):
                lhs = node.inputs[0].type.shape
                terms = math.prod(lhs[a] for a in node.op.contracting[0])
                if node in self.cut and node.type.size * terms // self.total * self.rows > (
                    LARGE_PRODUCT
                ):
                    raise NotRows("a product is large enough to be cut itself")
            work += math.prod(node.type.shape) * terms
        if work * int(self.op.length or 0) < MANY_OPERATIONS:
            raise NotRows("there is little to do")

    def _for_block(self) -> Graph:
        """Return the body for the rows of one block."""
        with Trace(self.body.name, "blocks") as trace:
            values: dict[Node, Any] = {
                x: trace.input(self._type(x) if x in self.cut else x.type, x.label)
                for x in self.body.inputs
            }
            with attributed(trace) as attribute:
                for node in self.body.nodes:
                    attribute(node)
                    values[node] = self._written(node, lambda x: values[x])
            return verified(trace.finish([values[x] for x in self.body.outputs]), "blocks")

    def _type(self, x: Node) -> Any:
        return x.type.with_shape(self._shape(x))

    def _shape(self, x: Node) -> tuple[int, ...]:
        return (self.rows, *x.type.shape[1:])

    def _written(self, node: Node, value: Callable[[Node], Any]) -> Any:
        """Record a node for the rows of one block."""
        if node not in self.cut:
            return bind(node.op, *map(value, node.inputs))
        by_place = isinstance(node.op, (*_POINTWISE, Concatenate))
        inputs = [self._operand(x, value) if by_place else value(x) for x in node.inputs]
        match node.op:
            case Broadcast(broadcast_dimensions=dimensions):
                return bind(Broadcast(self._shape(node), dimensions), *inputs)
            case Reshape():
                return bind(Reshape(self._shape(node)), *inputs)
            case Slice(starts, limits, strides):
                return bind(Slice(starts, (self.rows, *limits[1:]), strides), *inputs)
        return bind(node.op, *inputs)

    def _operand(self, x: Node, value: Callable[[Node], Any]) -> Any:
        """Return an operand of a value with rows; a constant gets as many as a block has."""
        if isinstance(x.op, Constant) and self._leads(x):
            return full(self._shape(x), x.op.value, x.type.dtype, x.type.weak)
        return value(x)
