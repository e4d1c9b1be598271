"""Taylor mode: pushing truncated power series through a graph.

A value is a `Series`, whose coefficients are made on demand.  An op needs no rule of its own here:
along a curve u(s) a result v = f(u) changes by v' = J(u, v) u', which is what the jvp rule of the
op computes.  So the graph of that rule, applied to the series of u, of v itself and of u', gives
the series of v', coefficient by coefficient, each from earlier ones of v.  Equal ops of equal
series are one series, which ties sin to cos.  For exp this is the well-known recurrence

    v' = v u'      k v[k] = sum of j u[j] v[k - j] for j from 1 to k

and for a composition as Cholesky's it is as right as the rule.  Three kinds of op take a shorter
way, which is seen in the graph of the rule or in the table below: those that are linear where they
are evaluated (their rule reads no value that moves) map each coefficient alone, products are
convolutions, and a quotient is divided term by term.  Ops that hold graphs transform them, by
`held_rules`.

Coefficients are those of powers of s: derivatives over factorials.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stax.errors import MissingRule
from stax.graph import Graph, Node, Project
from stax.interpreters.interpret import interpret
from stax.op import Op
from stax.operators.elementwise import ROWS, Elementwise, add, div, like, mul, sub
from stax.trace import Trace, bind, doing, results, zeros
from stax.types import ArrayType, TupleType, is_inexact
from stax.verify import verified


class Series:
    """A value and the coefficients that follow it, made on demand; None stands for zero.

    `make` gives coefficient k from 1 on; without it, the series is a constant.
    """

    __slots__ = ("_make", "terms")

    def __init__(self, head: Any, make: Callable[[int], Any] | None = None) -> None:
        self.terms = [head]
        self._make = make

    @property
    def moves(self) -> bool:
        """Whether it is more than a constant."""
        return self._make is not None

    def term(self, k: int) -> Any:
        """Return coefficient `k`, or None if it is zero."""
        while len(self.terms) <= k:
            self.terms.append(None if self._make is None else self._make(len(self.terms)))
        return self.terms[k]


Held = Callable[[Any, Sequence[Series]], tuple[Series, ...]]
held_rules: dict[type[Op], Held] = {}  # for ops that hold graphs: control.taylor


def jet(
    graph: Graph, flags: Sequence[bool], order: int, wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """Return the graph that also pushes series forward, and which outputs have one.

    Its inputs are those of `graph` and then the coefficients 1 to `order` of each flagged one; its
    outputs are those of `graph` and then the coefficients of each output that has a series.
    Outputs that are `wanted` have one in any case: zeros.
    """
    key = ("jet", tuple(flags), order, None if wanted is None else tuple(wanted))
    return graph.derived(key, lambda: _jet(graph, flags, order, wanted))


def _jet(
    graph: Graph, flags: Sequence[bool], order: int, wanted: Sequence[bool] | None
) -> tuple[Graph, list[bool]]:
    orders = range(1, order + 1)
    expansion = Expansion()

    def rule(node: Node, inputs: list[Any]) -> Any:
        found = expansion.apply(node.op, inputs)
        for series in found if isinstance(found, tuple) else (found,):
            series.term(order)  # in program order, so that nothing recurs deeply
        return found

    with Trace(graph.name, "jet") as trace:
        heads = [trace.input(x.type, x.label) for x in graph.inputs]
        args = []
        for x, head, f in zip(graph.inputs, heads, flags, strict=True):
            terms = [trace.input(x.type.tangent(), f"{x.label}_{k}") for k in orders if f]
            args.append(given_series(head, terms))
        outs = interpret(graph, args, rule)
        every = wanted or [False] * len(outs)
        pairs = zip(outs, every, strict=True)
        moved = [w or any(y.term(k) is not None for k in orders) for y, w in pairs]
        kept = [t for y, m in zip(outs, moved, strict=True) if m for t in instantiated(y, order)]
        result = trace.finish([*(y.term(0) for y in outs), *kept])
    return verified(result, "jet"), moved


def given_series(head: Any, terms: Sequence[Any]) -> Series:
    """Return the series of a value and the coefficients from 1 on; a constant without those."""
    found = Series(head, lambda k: terms[k - 1]) if terms else Series(head)
    found.terms += terms
    return found


def instantiated(series: Series, order: int) -> list[Any]:
    """Return the coefficients 1 to `order`, with zeros in place of None."""
    head, found = series.term(0), [series.term(k) for k in range(1, order + 1)]
    return [zeros(head.type.tangent()) if t is None else t for t in found]


class _Rule(NamedTuple):
    """The graph of a jvp rule, of operands, results, and tangents of the operands that move."""

    graph: Graph
    has_tangent: list[bool]
    kind: str  # "linear", "product" or "general"
    captures: Sequence[Any]  # values from outside, the last inputs of the graph


class Expansion:
    """Applies ops to series; equal ops of the same series give the same series."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, Sequence[Series]]] = {}
        self._rules: dict[Any, _Rule] = {}

    def apply(self, op: Op, operands: Sequence[Any]) -> Any:
        """Return the series of the result, or a tuple of those of several."""
        if isinstance(op, Project):
            return operands[0][op.position]
        key = op, tuple(map(id, operands))
        if op.effect is not None or key not in self._known:
            self._known[key] = self._applied(op, operands), operands  # who keep their ids
        return self._known[key][0]

    def expand(self, graph: Graph, inputs: Sequence[Series]) -> list[Series]:
        """Return the series of the outputs of `graph`."""
        values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            values[node] = self.apply(node.op, [values[x] for x in node.inputs])
        return [values[x] for x in graph.outputs]

    def _applied(self, op: Op, operands: Sequence[Series]) -> Any:
        moves = any(x.moves for x in operands)
        if moves and type(op) in held_rules:
            return held_rules[type(op)](op, operands)
        out = bind(op, *(x.term(0) for x in operands))
        several = isinstance(out, tuple) or isinstance(out.type, TupleType)
        if moves and any(is_inexact(y.type.dtype) for y in results(out)):
            found = self._moving(op, operands, results(out))
        else:
            found = tuple(map(Series, results(out)))
        return found if several else found[0]

    def _moving(
        self, op: Op, operands: Sequence[Series], heads: tuple[Any, ...]
    ) -> tuple[Series, ...]:
        rule = self._rule(op, operands, heads)
        if rule.kind == "linear":
            return _linear(op, operands, heads, rule)
        if rule.kind == "product":
            return (_product(op, *operands),)
        if isinstance(op, Elementwise) and op.name == "div":
            return (_quotient(*operands),)
        return self._general(operands, heads, rule)

    def _general(
        self, operands: Sequence[Series], heads: tuple[Any, ...], rule: _Rule
    ) -> tuple[Series, ...]:
        """Return the series whose derivative is what the rule makes of them and of `operands`."""
        slopes: list[Series] = []

        def term(place: int, k: int) -> Any:
            if not slopes:
                moving = [_derivative(x) for x in operands if x.moves]
                outside = map(Series, rule.captures)
                slopes.extend(self.expand(rule.graph, [*operands, *found, *moving, *outside]))
            slope = slopes[place].term(k - 1)
            return slope if slope is None or k == 1 else div(slope, like(slope, k))

        found, places = [], iter(range(len(rule.graph.outputs)))
        for head, has in zip(heads, rule.has_tangent, strict=True):
            found.append(
                Series(head, functools.partial(term, next(places))) if has else Series(head)
            )
        return tuple(found)

    def _rule(self, op: Op, operands: Sequence[Series], heads: tuple[Any, ...]) -> _Rule:
        types = tuple(x.term(0).type for x in operands)
        flags = tuple(x.moves for x in operands)
        key = op, types, flags
        if key not in self._rules:
            try:
                self._rules[key] = _traced_rule(op, types, [y.type for y in heads], flags)
            except MissingRule as error:
                raise _without_series(op, types, error) from error
        return self._rules[key]


def _without_series(op: Op, types: Sequence[ArrayType], error: MissingRule) -> MissingRule:
    return MissingRule(
        f"jet: {op.name} has no series, which is made from its jvp rule. {error.rule}",
        values=[(f"operand {i}", repr(t), "") for i, t in enumerate(types)],
        doing=doing(),
        advice=error.advice or "Use functions that can be differentiated.",
    )


def _traced_rule(
    op: Op, types: Sequence[ArrayType], outs: Sequence[ArrayType], flags: Sequence[bool]
) -> _Rule:
    with Trace(op.name, "jet") as trace:
        primals = [trace.input(t) for t in types]
        heads = tuple(trace.input(t) for t in outs)
        tangents = [
            trace.input(t.tangent()) if f else None for t, f in zip(types, flags, strict=True)
        ]
        dots = _pushed(op, heads, primals, tangents)
        has = [d is not None and is_inexact(d.type.dtype) for d in dots]
        graph = trace.finish([d for d, h in zip(dots, has, strict=True) if h])
    given = [x for x, f in zip(graph.inputs, flags, strict=False) if f]
    moving = [*given, *graph.inputs[len(types) : len(types) + len(outs)]]
    if not any(y in _dependents(graph, moving) for y in graph.outputs):
        kind = "linear"
    else:
        kind = "product" if _is_product(op, graph, flags) else "general"
    return _Rule(graph, has, kind, trace.captures)


def _pushed(
    op: Any, heads: tuple[Any, ...], primals: Sequence[Any], tangents: Sequence[Any | None]
) -> list[Any | None]:
    """Return the tangents of the results, given those of the operands."""
    if op.holds_graph:
        return list(op.pushforward(primals, tangents)[1])
    dots = op.jvp(heads if len(heads) > 1 else heads[0], primals, tangents)
    if dots is None:
        return [None] * len(heads)
    return list(dots) if isinstance(dots, list | tuple) else [dots]


def _dependents(graph: Graph, roots: Sequence[Node]) -> set[Node]:
    """Return what changes with `roots` other than by jumps."""
    found = {x for x in roots if _changes(x)}
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs) and _changes(node):
            found.add(node)
    return found


def _changes(node: Node) -> bool:
    if isinstance(node.op, Elementwise) and not any(ROWS[node.op.name].partials):
        return False
    discrete = isinstance(node.type, ArrayType) and not is_inexact(node.type.dtype)
    return not discrete and not node.op.stops_tangent


def _is_product(op: Op, graph: Graph, flags: Sequence[bool]) -> bool:
    """Say whether the rule is that of a product: op(x', y) + op(x, y')."""
    if len(flags) != 2 or not all(flags) or len(graph.inputs) != 5:
        return False
    x, y, _, x_dot, y_dot = graph.inputs
    (out,) = graph.outputs
    terms = [(n.op, n.inputs) for n in out.inputs]
    is_sum = isinstance(out.op, Elementwise) and out.op.name == "add"
    return is_sum and terms == [(op, (x_dot, y)), (op, (x, y_dot))]


def _linear(
    op: Any, operands: Sequence[Series], heads: tuple[Any, ...], rule: _Rule
) -> tuple[Series, ...]:
    """Return each coefficient as the rule maps those of the operands."""
    values = [x.term(0) for x in operands]
    made: dict[int, list[Any | None]] = {}

    def term(place: int, k: int) -> Any:
        if k not in made:
            tangents = [x.term(k) for x in operands]
            still = all(t is None for t in tangents)
            made[k] = [None] * len(heads) if still else _pushed(op, heads, values, tangents)
        return made[k][place]

    return tuple(
        Series(head, functools.partial(term, i)) if has else Series(head)
        for i, (head, has) in enumerate(zip(heads, rule.has_tangent, strict=True))
    )


def _product(op: Op, x: Series, y: Series) -> Series:
    """Return the convolution of two series."""
    return Series(
        bind(op, x.term(0), y.term(0)),
        lambda k: _sum(
            [_of_terms(lambda a, b: bind(op, a, b), x, j, y, k - j) for j in range(k + 1)]
        ),
    )


def _quotient(x: Series, y: Series) -> Series:
    """Return the series whose product with `y` is `x`."""

    def term(k: int) -> Any:
        known = _sum([_of_terms(mul, found, j, y, k - j) for j in range(k)])
        if known is None:
            top = x.term(k)
        else:
            top = sub(like(known, 0) if x.term(k) is None else x.term(k), known)
        return None if top is None else div(top, y.term(0))

    found = Series(div(x.term(0), y.term(0)), term)
    return found


def _of_terms(product: Callable[..., Any], x: Series, i: int, y: Series, j: int) -> Any:
    a, b = x.term(i), y.term(j)
    return None if a is None or b is None else product(a, b)


def _sum(terms: Sequence[Any]) -> Any:
    total = None
    for t in terms:
        if t is not None:
            total = t if total is None else add(total, t)
    return total


def _derivative(x: Series) -> Series:
    """Return the series of the derivative, whose head is there even if it is zero."""

    def term(k: int) -> Any:
        t = x.term(k + 1)
        return t if t is None or not k else mul(t, like(t, k + 1))

    head = term(0)
    return Series(zeros(x.term(0).type.tangent()) if head is None else head, term)
