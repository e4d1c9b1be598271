"""Undoing transposes that a program does around a computation.

`f(x.T).T` and `x.T.sum(0)` read memory along one axis and compute along another.  Element-wise ops,
slices, pads and broadcasts do not care about the order of axes, so the computation is written
without the transpose where that leaves none: where another one undoes it, or a reduction ends
it.  And the transpose of a product, of a gradient in weights say, is the product with its operands
exchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stax.graph import Constant, Graph, Node
from stax.lowering.decisions import decided
from stax.lowering.element import is_unit
from stax.op import Op
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.reshape import Transpose, reshape
from stax.operators.shape import Pad, Slice
from stax.trace import Trace, bind, full
from stax.verify import verified


class Bare(NamedTuple):
    """A value before its transpose: it is `value` with its axes in the order `permutation`."""

    permutation: tuple[int, ...]
    value: Any


def undo_transposes(graph: Graph) -> Graph:
    """Return `graph` with computations moved out of pairs of transposes."""
    if not any(isinstance(n.op, Transpose) for n in graph.nodes):
        return graph
    with Trace(graph.name, "transposes") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        result = trace.finish(_Rewriter(graph, args).run(trace))
    return verified(result, "transposes")


class _Rewriter:
    """Writes a graph twice where it can, with and without transposes; what is unused is dropped."""

    def __init__(self, graph: Graph, args: list[Any]) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
        self.bare: dict[Node, Bare] = {}

    def run(self, trace: Trace) -> list[Any]:
        for node in self.graph.nodes:
            trace.source, trace.scope = node.source, node.scope
            self._visit(node)
        trace.source, trace.scope = None, None
        return [self.values[x] for x in self.graph.outputs]

    def _visit(self, node: Node) -> None:
        op, inputs = node.op, node.inputs
        known = [self._bare(x) for x in inputs]
        match op:
            case Transpose() if known[0] is not None:
                total = tuple(known[0].permutation[a] for a in op.permutation)
                if total == tuple(range(len(total))):
                    decided("transpose left out: one before it undoes it", node.source)
                    self.values[node] = known[0].value
                    return
            case Reduction() if known[0] is not None and self.uses[inputs[0]] == 1:
                decided(f"{op.name} reduces what is before a transpose", node.source)
                self.values[node] = _reduced(op, known[0])
                return
        exchanged = self._exchanged(node)
        if exchanged is None:
            exchanged = bind(op, *(self.values[x] for x in inputs))
        self.values[node] = exchanged
        found: Bare | None = None
        match op:
            case Transpose():
                found = Bare(op.permutation, self.values[inputs[0]])
            case Slice() if known[0] is not None:
                found = _sliced(op, known[0])
            case Pad() if known[0] is not None:
                found = _padded(op, known[0], self.values[inputs[1]])
            case Elementwise() | Select() | Convert() | IntegerPow():
                found = self._pointwise(op, inputs, known)
        if found is not None:
            self.bare[node] = found

    def _exchanged(self, node: Node) -> Any | None:
        """Return the transpose of a product that changes the places of its operands' axes."""
        match node:
            case Node(Transpose(permutation), (Node(DotGeneral() as op, (lhs, rhs)) as product,)):
                batches = len(op.batching[0])
                rows, columns = map(len, op.free(lhs.type.ndim, rhs.type.ndim))
                first, second = (
                    range(batches, batches + rows),
                    range(batches + rows, batches + rows + columns),
                )
                if self.uses[product] == 1 and permutation == (*range(batches), *second, *first):
                    decided("transpose of a product: one of its operands exchanged", node.source)
                    exchanged = DotGeneral(
                        op.contracting[::-1], op.batching[::-1], op.dtype, op.precision
                    )
                    return bind(exchanged, self.values[rhs], self.values[lhs])
        return None

    def _bare(self, x: Node) -> Bare | None:
        """Return `x` before its transpose, unless it would be computed twice for that."""
        is_free = isinstance(x.op, Transpose | Slice | Pad)
        return self.bare.get(x) if is_free or self.uses[x] == 1 else None

    def _pointwise(self, op: Op, inputs: tuple[Node, ...], known: list[Bare | None]) -> Bare | None:
        permutations = {b.permutation for b in known if b is not None}
        if len(permutations) != 1:
            return None
        (permutation,) = permutations
        turned = [
            self._turned(x, permutation) if b is None else b.value
            for x, b in zip(inputs, known, strict=True)
        ]
        return None if None in turned else Bare(permutation, bind(op, *turned))

    def _turned(self, x: Node, permutation: tuple[int, ...]) -> Any:
        """Return `x` with the transpose undone where that needs no transpose, or None."""
        if not x.type.shape:
            return self.values[x]
        shape = _before(x.type.shape, permutation)
        match x.op:
            case Constant(value=value):
                return full(shape, value, x.type.dtype, x.type.weak)
            case Broadcast(broadcast_dimensions=dimensions):
                (source,) = x.inputs
                pairs = zip(source.type.shape, dimensions, strict=True)
                wide = [(n, permutation[d]) for n, d in pairs if not is_unit(n)]
                places = tuple(place for _, place in wide)
                if places == tuple(sorted(places)):
                    squeezed = reshape(self.values[source], tuple(n for n, _ in wide))
                    return bind(Broadcast(shape, places), squeezed)
        return None


def _before(items: tuple[Any, ...], permutation: tuple[int, ...]) -> Any:
    """Return what belongs to each axis before a transpose, given what belongs to it after."""
    found = dict(zip(permutation, items, strict=True))
    return tuple(found[a] for a in range(len(permutation)))


def _sliced(op: Slice, x: Bare) -> Bare:
    ranges = (_before(r, x.permutation) for r in (op.starts, op.limits, op.strides))
    return Bare(x.permutation, bind(Slice(*ranges), x.value))


def _padded(op: Pad, x: Bare, value: Any) -> Bare:
    return Bare(x.permutation, bind(Pad(_before(op.config, x.permutation)), x.value, value))


def _reduced(op: Any, x: Bare) -> Any:
    """Reduce the same axes before the transpose; what is left is in the order of memory."""
    axes = tuple(sorted(x.permutation[a] for a in op.axes))
    result = bind(type(op)(axes), x.value)
    left = [a for a in range(len(x.permutation)) if a not in axes]
    order = tuple(left.index(a) for a in x.permutation if a not in axes)
    return result if order == tuple(range(len(order))) else bind(Transpose(order), result)
