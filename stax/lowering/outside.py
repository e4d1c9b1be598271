"""Work of the steps of a loop that is done outside of it, all steps at once or once for all.

What a step computes from constants of the loop alone is computed before it.  A product of an
element of an input with a matrix that stays the same is computed for all steps at once, as one
larger product.  A sum to which each step adds a product, as the gradient of a weight is, becomes
one product of what the steps have multiplied, after the loop.  Results and carried values that
nobody reads are dropped, and a carried value that no step changes becomes a constant.

The order of the terms of such sums is not that of the steps; it is a function of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from stax.control import HoldsGraphs, Scan
from stax.control.held import sections
from stax.control.scan import scan
from stax.graph import Constant, Graph, Input, Node, Project, live
from stax.interpreters.batch import batch
from stax.interpreters.interpret import attributed, inline, interpret
from stax.interpreters.lengths import renewed
from stax.interpreters.simplify import simplify
from stax.lowering.decisions import decided
from stax.lowering.lanes import steps_of
from stax.lowering.unread import carried_for
from stax.op import Batch
from stax.operators.broadcast import Broadcast, ReduceSum, broadcast_in_dim
from stax.operators.contract import DotGeneral
from stax.operators.elementwise import Elementwise, add, convert
from stax.operators.reshape import Reshape, Transpose
from stax.operators.shape import Iota
from stax.trace import Proxy, Trace, bind, current_trace, full
from stax.types import ArrayType
from stax.verify import verified

# Steps, and multiplications of a step, from which a product is worth doing at once.
FEW_STEPS, FEW_TERMS = 4, 128
# Memory that may be taken for what all steps compute: bytes, or so much of what the loop has.
ALLOWED, SHARE = 1 << 24, 2
SMALL = 1 << 20


def work_outside(graph: Graph) -> Graph:
    """Return `graph` with work taken out of its loops; the calls it makes are inlined."""
    flat = inlined(graph)
    if not any(isinstance(node.op, Scan) for node in flat.nodes):
        return graph
    wanted: dict[Node, set[int]] = {node: set() for node in flat.nodes}
    for node in flat.nodes:
        if isinstance(node.op, Project):
            wanted[node.inputs[0]].add(node.op.position)

    def rule(node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op, Project) and isinstance(inputs[0], tuple):
            return inputs[0][node.op.position]
        if isinstance(node.op, Scan) and is_plain(node.op):
            return _Loop(node.op, inputs, wanted[node]).run()
        return bind(node.op, *inputs)

    with Trace(graph.name, "outside") as trace:
        args = [trace.input(x.type, x.label) for x in flat.inputs]
        return verified(trace.finish(interpret(flat, args, rule)), "outside")


def inlined(graph: Graph) -> Graph:
    """Return `graph` with calls replaced by what they apply."""
    if not any(_applied(node) for node in graph.nodes):
        return graph

    def rule(node: Node, inputs: list[Any]) -> Any:
        applied = _applied(node)
        if applied is not None:
            return tuple(inline(inlined(applied), inputs))
        if isinstance(node.op, Project) and isinstance(inputs[0], tuple):
            return inputs[0][node.op.position]
        return bind(node.op, *inputs)

    with Trace(graph.name, "outside") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        return trace.finish(interpret(graph, args, rule))


def _applied(node: Node) -> Graph | None:
    return node.op.applied if isinstance(node.op, HoldsGraphs) else None


def is_plain(op: Scan) -> bool:
    """Say whether a loop has steps of known number and sizes, and no effects."""
    types = [x.type for x in (*op.body.inputs, *op.body.outputs)]
    is_static = all(isinstance(n, int) for t in types for n in t.shape)
    return is_static and isinstance(op.length, int) and op.body.effect is None


class _Term(NamedTuple):
    """A term of a sum: a product or a sum of values of a step, and what is done to it after."""

    node: Node
    after: tuple[Node, ...]


class _Loop:
    """A loop that is being rewritten: the nodes of its body, and what becomes of each."""

    def __init__(self, op: Scan, values: Sequence[Any], wanted: set[int]) -> None:
        self.op, self.length, trace = op, steps_of(op), current_trace()
        # What is taken out must not find a length under a name that is there already.
        taken = trace.builder.opens if trace is not None else ()
        self.body = renewed(simplify(inlined(op.body)), taken)
        self.outer = dict(zip(self.body.inputs, values, strict=True))
        self.consts, self.carry, self.xs = sections(self.body.inputs, op.consts, op.carry)
        self.new, self.ys = sections(self.body.outputs, op.carry)
        self.wanted = wanted
        self.kept: list[int] = list(range(op.carry))
        self.results: dict[int, Callable[[dict[Node, Any]], Any]] = {}
        self.stacked: list[Node] = []  # factors of sums that the loop returns for all steps
        self.apart: list[Node] = []  # those that are computed outside
        self.room = max(ALLOWED, SHARE * sum(_nbytes(x.type) for x in values))

    def run(self) -> tuple[Any, ...]:
        """Record the loop and what is outside of it; returns all results, None where unread."""
        self._drop()
        self._take_sums()
        self._drop_unread()
        varying = self._dependents([*self.xs, *self._carried()])
        moving = self._dependents(self._carried())
        products = self._products(varying, moving) if self.length >= FEW_STEPS else []
        fixed = self._fixed(varying, set(products))
        before = self._before(fixed)
        operands = self._all_steps([x for node in products for x in node.inputs])
        at_once = {node: self._product(node, varying, operands) for node in products}
        factors = self._all_steps(self.apart)
        for node in products:
            decided(f"{node.op.name} of {self.length} steps at once, before the loop", node.source)
        for node in fixed:
            decided(f"{node.op.name} once, before the loop: every step has the same", node.source)
        return self._record(before, at_once, factors)

    def _carried(self) -> list[Node]:
        return [self.carry[k] for k in self.kept]

    def _wanted_ys(self) -> list[int]:
        return [j for j in range(len(self.ys)) if len(self.carry) + j in self.wanted]

    def _dependents(self, roots: Sequence[Node]) -> set[Node]:
        found = set(roots)
        for node in self.body.nodes:
            if any(x in found for x in node.inputs):
                found.add(node)
        return found

    # --- what is dropped ---

    def _drop(self) -> None:
        """Turn what is the same in every step into constants, and drop what nobody reads."""
        for x in list(self.xs):
            if (same := _repeated(self.outer[x].node)) is not None:
                self.xs.remove(x)
                self.consts.append(x)
                self.outer[x] = same(self.outer[x])
        for k in list(self.kept):
            if self.new[k] is self.carry[k]:
                decided(f"carried {self.carry[k].label}: no step changes it, so it is a constant")
                self._leave(k, _always(self.outer[self.carry[k]]))
                self.consts.append(self.carry[k])
        self._drop_unread()

    def _leave(self, k: int, result: Callable[[dict[Node, Any]], Any]) -> None:
        self.kept.remove(k)
        self.results[k] = result

    def _drop_unread(self) -> None:
        outputs = [self.ys[j] for j in self._wanted_ys()] + self.stacked
        carry = {k: self.carry[k] for k in self.kept}
        read = carried_for(
            self.body.nodes, carry, self.new, self.wanted.intersection(carry), outputs
        )
        self.kept = [k for k in self.kept if k in read]

    # --- sums ---

    def _take_sums(self) -> None:
        """Take sums of products out of the carry."""
        uses = self.body.uses()
        # Found once: of a sum that is taken out nothing else depends.
        moving = self._dependents(self._carried())
        varying = self._dependents([*self.xs, *self._carried()])
        for k in list(self.kept):
            x, out = self.carry[k], self.new[k]
            if uses[x] != 1 or uses[out] != 1 or not _is_add(out) or x not in out.inputs:
                continue
            (other,) = [y for y in out.inputs if y is not x]
            terms = self._terms(other, varying, moving)
            if terms is not None:
                names = ", ".join(dict.fromkeys(term.node.op.name for term in terms))
                what = f"sum of {names} over {self.length} steps at once, after the loop"
                decided(what, terms[0].node.source)
                self._leave(k, self._sum(self.outer[x], terms))

    def _terms(self, node: Node, varying: set[Node], moving: set[Node]) -> list[_Term] | None:
        """Return a value as a sum of products whose factors are kept for all steps, or None."""
        pending: list[tuple[Node, tuple[Node, ...]]] = [(node, ())]
        found, stacked = list[_Term](), list[Node]()
        room = self.room
        while pending:
            x, after = pending.pop()
            match x.op:
                case Elementwise("add") if not after:
                    pending += [(y, ()) for y in x.inputs]
                case Transpose() | Reshape():
                    pending.append((x.inputs[0], (x, *after)))
                case DotGeneral() | ReduceSum():
                    found.append(_Term(x, after))
                    known = {*self.stacked, *stacked, *self.xs}
                    factors = [y for y in x.inputs if y not in known]
                    if isinstance(x.op, DotGeneral):
                        few = math.prod(_terms_of(x)) < FEW_TERMS
                    else:
                        few = sum(_nbytes(y.type) for y in factors) * self.length > SMALL
                    room -= sum(_nbytes(y.type) for y in factors) * self.length
                    if few or room < 0 or not varying.issuperset(x.inputs):
                        return None
                    stacked += factors
                case _:
                    return None
        if self.length < FEW_STEPS:
            return None
        for x in stacked:
            if x in moving:
                self.stacked.append(x)
            else:
                self.apart.append(x)
        self.room, self.stacked = room, list(dict.fromkeys(self.stacked))
        return found

    def _sum(self, start: Any, terms: Sequence[_Term]) -> Callable[[dict[Node, Any]], Any]:
        def result(values: dict[Node, Any]) -> Any:
            total = start
            for node, after in terms:
                with attributed(current_trace()) as attribute:
                    attribute(node)
                    value = _over_steps(node, [values[x] for x in node.inputs])
                    for wrapper in after:
                        value = bind(wrapper.op, value)
                    total = add(total, value)
            return total

        return result

    # --- work before the loop ---

    def _products(self, varying: set[Node], moving: set[Node]) -> list[Node]:
        """Return products of what depends on inputs alone and of what no step changes."""
        found = []
        for node in self._live():
            if not isinstance(node.op, DotGeneral) or node in moving or node not in varying:
                continue
            sides = [x in varying for x in node.inputs]
            if sum(sides) != 1 or node.op.batching != ((), ()):
                continue
            free = node.op.free(*(x.type.ndim for x in node.inputs))
            size = _nbytes(node.type) * self.length
            in_order = sides[0] or not free.lhs or not free.rhs
            if in_order and math.prod(_terms_of(node)) >= FEW_TERMS and size <= self.room:
                self.room -= size
                found.append(node)
        return found

    def _live(self, known: Collection[Node] = ()) -> list[Node]:
        """Return what the loop computes, where the values of some nodes are known."""
        roots = [self.new[k] for k in self.kept] + [self.ys[j] for j in self._wanted_ys()]
        return live_until(self.body.nodes, [*roots, *self.stacked], known)

    def _fixed(self, varying: set[Node], products: Collection[Node]) -> list[Node]:
        """Return what steps read of values that are the same in every step, computed ones."""
        found: dict[Node, None] = {}
        for node in [n for n in self._live(products) if n in varying]:
            for x in node.inputs:
                while isinstance(x.op, Broadcast | Reshape) and x not in varying:
                    x = x.inputs[0]
                if x not in varying and not isinstance(x.op, Input | Constant | Iota):
                    found[x] = None
        return list(found)

    def _before(self, fixed: list[Node]) -> dict[Node, Any]:
        """Record what is the same in every step; returns the values by node."""
        once = Graph(f"{self.body.name}_once", self.consts, live(self.body.nodes, fixed), fixed)
        values = inline(once, [self.outer[x] for x in self.consts])
        return dict(zip(fixed, values, strict=True))

    def _all_steps(self, nodes: Sequence[Node]) -> dict[Node, Any]:
        """Record values that depend on no carry, for all steps if they vary between them."""
        wanted = list(dict.fromkeys(nodes))
        inputs = [*self.consts, *self.xs]
        part = Graph(f"{self.body.name}_steps", inputs, live(self.body.nodes, wanted), wanted)
        flags = [False] * len(self.consts) + [True] * len(self.xs)
        mapped, _ = batch(part, Batch(self.length), flags)
        values = inline(mapped, [self.outer[x] for x in inputs])
        return dict(zip(wanted, values, strict=True))

    def _product(self, node: Node, varying: set[Node], known: dict[Node, Any]) -> Any:
        """Record a product for all steps, of operands that are known for them."""
        assert isinstance(node.op, DotGeneral)
        side = 0 if node.inputs[0] in varying else 1
        operands = [known[x] for x in node.inputs]
        axes = list(node.op.contracting)
        axes[side] = tuple(a + 1 for a in axes[side])
        if side == 1:
            axes.reverse()
            operands.reverse()
        product = DotGeneral((axes[0], axes[1]), ((), ()), node.op.dtype, node.op.precision)
        with attributed(current_trace()) as attribute:
            attribute(node)
            return bind(product, *operands)

    # --- the loop that is left ---

    def _record(
        self, before: dict[Node, Any], at_once: dict[Node, Any], apart: dict[Node, Any]
    ) -> tuple[Any, ...]:
        ys = self._wanted_ys()
        factors = [x for x in self.stacked if x not in self.xs]
        outputs = [*(self.ys[j] for j in ys), *factors]
        returned = [*(self.new[k] for k in self.kept), *outputs]
        known = self.outer | before | at_once
        read = {x for node in self._live({*before, *at_once}) for x in node.inputs} | {*returned}
        numbers = self._numbers()
        consts = [x for x in (*self.consts, *before) if x in read and x not in numbers]
        carry, xs = self._carried(), [x for x in (*self.xs, *at_once) if x in read]
        body = self._body([*consts, *carry, *xs], returned)
        given = [[known[x] for x in part] for part in (consts, carry, xs)]
        loop = (body, given[0], given[1], given[2], self.length, self.op.reverse)
        found = list(scan(*loop)) if returned else []
        moved, elements, stacks = sections(found, len(carry), len(ys))
        values = {x: self.outer[x] for x in self.xs} | apart
        values |= zip(factors, stacks, strict=True)
        results: dict[int, Any] = dict(zip(self.kept, moved, strict=True))
        results |= {len(self.carry) + j: x for j, x in zip(ys, elements, strict=True)}
        for k, result in self.results.items():
            if k in self.wanted:
                t = self.new[k].type
                results[k] = convert(result(values), t.dtype, t.weak)
        return tuple(results.get(k) for k in range(len(self.body.outputs)))

    def _numbers(self) -> dict[Node, Constant]:
        """Return the constants of the loop that are filled with one number."""
        ops = {x: self.outer[x].node.op for x in self.consts}
        return {x: op for x, op in ops.items() if isinstance(op, Constant)}

    def _body(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
        """Return the body with nodes that are computed outside as inputs."""
        with Trace(self.body.name, "outside") as trace:
            values: dict[Node, Any] = {x: trace.input(x.type, x.label) for x in inputs}
            for x, number in self._numbers().items():
                values[x] = full(x.type.shape, number.value, x.type.dtype, x.type.weak)
            with attributed(trace) as attribute:
                for node in live_until(self.body.nodes, outputs, values):
                    attribute(node)
                    values[node] = bind(node.op, *(values[x] for x in node.inputs))
            return verified(trace.finish([values[x] for x in outputs]), "outside")


def _always(value: Any) -> Callable[[dict[Node, Any]], Any]:
    return lambda values: value


def live_until(
    nodes: Sequence[Node], outputs: Sequence[Node], known: Collection[Node]
) -> list[Node]:
    """Return the nodes that `outputs` need where the values of some are known."""
    needed = {x for x in outputs if x not in known}
    for node in reversed(nodes):
        if node in needed:
            needed.update(x for x in node.inputs if x not in known)
    return [node for node in nodes if node in needed]


def _repeated(node: Node) -> Callable[[Any], Any] | None:
    """Return what gives the element that all elements along the leading axis are, if they are."""
    shape = node.type.shape[1:]
    match node.op:
        case Constant(value=value):
            return lambda x: full(shape, value, x.type.dtype, x.type.weak)
        case Broadcast(broadcast_dimensions=dimensions) if 0 not in dimensions:
            axes = tuple(a - 1 for a in dimensions)
            return lambda x: broadcast_in_dim(Proxy(node.inputs[0], x.owner), shape, axes)
    return None


def _over_steps(node: Node, factors: Sequence[Any]) -> Any:
    """Return the sum over the leading axis of what a product or sum is for each place in it."""
    match node.op:
        case ReduceSum(axes=axes):
            return bind(ReduceSum((0, *(a + 1 for a in axes))), *factors)
        case DotGeneral(contracting, batching, dtype, precision):
            summed = tuple((0, *(a + 1 for a in axes)) for axes in contracting)
            paired = tuple(tuple(a + 1 for a in axes) for axes in batching)
            op = DotGeneral((summed[0], summed[1]), (paired[0], paired[1]), dtype, precision)
            return bind(op, *factors)
    raise AssertionError(node)


def _terms_of(node: Node) -> list[int]:
    """Return lengths whose product is the number of multiplications of a product."""
    lengths: list[int] = [node.inputs[0].type.shape[a] for a in node.op.contracting[0]]  # type: ignore[attr-defined]
    return [*node.type.shape, *lengths]


def _is_add(node: Node) -> bool:
    return isinstance(node.op, Elementwise) and node.op.name == "add"


def _nbytes(type_: ArrayType) -> int:
    return math.prod(n if isinstance(n, int) else 1 for n in type_.shape) * int(
        type_.dtype.itemsize
    )
