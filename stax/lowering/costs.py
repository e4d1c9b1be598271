"""How much a graph computes, counted as XLA's cost analysis counts.

An arithmetic operation on one element is one flop, a multiplication with an addition two; the
elementary functions, square roots among them, are transcendentals and no flops.  A Fourier
transform of n points is 5 n log2 n, as is the custom.  What only moves elements is free.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stax.control import Scan, Switch
from stax.graph import Graph, Node, held_graphs
from stax.lowering import loop_ir as ir
from stax.lowering.element import static_size
from stax.operators.broadcast import Reduction
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.fft import Fft
from stax.operators.reduce import ArgExtreme, Cumulative
from stax.operators.sort import Sort, TopK
from stax.types import ArrayType

_TRANSCENDENTAL = frozenset((*ir.MATH, "sqrt", "rsqrt"))


class Cost(NamedTuple):
    """Arithmetic operations, and elementary functions, of one run."""

    flops: int = 0
    transcendentals: int = 0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """Return the cost together with that of running something else so many `times`."""
        return Cost(
            self.flops + times * other.flops,
            self.transcendentals + times * other.transcendentals,
        )


def cost_of(graph: Graph) -> Cost:
    """Return what one run of `graph` computes.

    A scan counts each of its steps, a choice its dearest branch; a loop whose number of steps only
    running tells counts one.  A symbolic length counts as a large one.
    """
    total = Cost()
    for node in graph.nodes:
        held = list(map(cost_of, held_graphs(node.op)))
        if isinstance(node.op, Switch):
            total = total.plus(max(held))
        else:
            times = _steps(node) if isinstance(node.op, Scan) else 1
            for cost in held:
                total = total.plus(cost, times)
        total = total.plus(_cost_of_op(node))
    return total


def _steps(node: Node) -> int:
    assert isinstance(node.op, Scan)
    steps = node.op.steps([x.type for x in node.inputs])
    return static_size((steps,))


def _cost_of_op(node: Node) -> Cost:
    if isinstance(node.op, Sort | TopK):
        return Cost(_comparisons(node))
    if not isinstance(node.type, ArrayType):
        return Cost()
    size = static_size(node.type.shape)
    match node.op:
        case Elementwise(name) if name in _TRANSCENDENTAL:
            return Cost(0, size)
        case Elementwise() | Select() | Convert() | Cumulative():
            return Cost(size)
        case IntegerPow(n):
            squares, products = abs(n).bit_length() - 1, abs(n).bit_count() - 1
            return Cost(size * max(1, squares + products))
        case Reduction() | ArgExtreme():
            return Cost(max(0, static_size(node.inputs[0].type.shape) - size))
        case DotGeneral(contracting=(axes, _)):
            return Cost(2 * size * static_size(tuple(node.inputs[0].type.shape[a] for a in axes)))
        case Convolution():
            # Each result sums over the window and the channels that a filter takes.
            return Cost(2 * size * static_size(node.inputs[1].type.shape[:-1]))
        case Fft(lengths=lengths):
            return Cost(round(5 * size * math.log2(max(math.prod(lengths), 2))))
    return Cost()


def _comparisons(node: Node) -> int:
    shape = node.inputs[0].type.shape
    length = shape[node.op.axis if isinstance(node.op, Sort) else -1]
    return static_size(shape) * math.ceil(math.log2(max(static_size((length,)), 2)))
