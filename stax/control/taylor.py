"""Power series through calls, choices and loops: the graphs they hold carry coefficients.

The same rules as for tangents, with several of them for each value: see `interpreters.jet`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from stax.control.call import Call
from stax.control.checkpoint import Checkpoint
from stax.control.held import HoldsGraphs, fixed_point, rearranged, sections, unused
from stax.control.scan import Scan
from stax.control.switch import Switch
from stax.control.while_loop import While
from stax.interpreters.jet import Series, held_rules, instantiated, jet
from stax.interpreters.lengths import new_length
from stax.trace import bind, results


class Operands(NamedTuple):
    """The operands of an op: values, coefficients 1 to `order` of those that are flagged."""

    values: list[Any]
    terms: list[list[Any]]  # an item for each operand, empty where it is not flagged
    flags: list[bool]
    order: int

    def flat(self, start: int = 0, stop: int | None = None) -> list[Any]:
        """Return the coefficients of the operands from `start` to `stop`."""
        return [t for terms in self.terms[start:stop] for t in terms]


Apply = Callable[[Any, "Moving"], tuple[Sequence[Any], Sequence[bool]]]


class Moving:
    """The operands of an op that holds graphs, as far as their coefficients are known."""

    def __init__(self, operands: Sequence[Series], order: int) -> None:
        self.series = operands
        self.flags = [x.moves for x in operands]
        self.order = order

    def with_flags(self, flags: Sequence[bool]) -> Operands:
        """Return the operands with coefficients, zeros perhaps, of those that are flagged."""
        pairs = zip(self.series, flags, strict=True)
        terms = [instantiated(x, self.order) if f else [] for x, f in pairs]
        return Operands([x.term(0) for x in self.series], terms, list(flags), self.order)


def held(apply: Apply) -> Callable[[Any, Sequence[Series]], tuple[Series, ...]]:
    """Make a rule of a function that returns all results to an order: values, then coefficients,
    and which results have those."""

    def rule(op: Any, operands: Sequence[Series]) -> tuple[Series, ...]:
        known = min(len(x.terms) - 1 for x in operands if x.moves)
        made: list[tuple[int, list[list[Any]]]] = []

        def run(order: int) -> tuple[Sequence[Any], Sequence[bool]]:
            found, moved = apply(op, Moving(operands, order))
            heads, flat = sections(found, len(moved))
            each = iter(sections(flat, *[order] * sum(moved)))
            made[:] = [(order, [next(each) if m else [] for m in moved])]
            return heads, moved

        def term(place: int, k: int) -> Any:
            if made[0][0] < k:
                run(k)
            return made[0][1][place][k - 1]

        heads, moved = run(max(known, 1))
        return tuple(
            Series(y, partial(term, i)) if m else Series(y)
            for i, (y, m) in enumerate(zip(heads, moved, strict=True))
        )

    return rule


def _call(op: Call, moving: Moving) -> tuple[Sequence[Any], Sequence[bool]]:
    graph, moved = jet(op.graph, moving.flags, moving.order)
    given = moving.with_flags(moving.flags)
    return results(bind(replace(op, graph=graph), *given.values, *given.flat())), moved


def _switch(op: Switch, moving: Moving) -> tuple[Sequence[Any], Sequence[bool]]:
    flags, order = moving.flags[1:], moving.order
    marks = [jet(graph, flags, order)[1] for graph in op.branches]
    moved = [any(column) for column in zip(*marks, strict=True)]
    branches = tuple(jet(graph, flags, order, moved)[0] for graph in op.branches)
    given = moving.with_flags(moving.flags)
    return results(bind(replace(op, branches=branches), *given.values, *given.flat())), moved


def _scan(op: Scan, moving: Moving) -> tuple[Sequence[Any], Sequence[bool]]:
    order, first, last = moving.order, op.consts, op.consts + op.carry
    flags = fixed_point(moving.flags, first, op.carry, lambda f: jet(op.body, f, order)[1])
    wanted = [*flags[first:last], *[False] * (len(op.body.outputs) - op.carry)]
    graph, moved = jet(op.body, flags, order, wanted)
    given = moving.with_flags(flags)
    inner, terms = sections(graph.inputs, len(flags))
    counts = order * sum(flags[:first]), order * sum(flags[first:last])
    (c, k, x), (c_t, k_t, x_t) = op.parts(inner), sections(terms, *counts)
    outs, out_terms = sections(graph.outputs, len(op.body.outputs))
    (new, ys), (new_t, ys_t) = sections(outs, op.carry), sections(out_terms, counts[1])
    body = rearranged(graph, [*c, *c_t, *k, *k_t, *x, *x_t], [*new, *new_t, *ys, *ys_t])
    joint = replace(op, body=body, consts=len(c) + len(c_t), carry=len(k) + len(k_t))
    c, k, x = op.parts(given.values)
    found = results(
        bind(joint, *c, *given.flat(0, first), *k, *given.flat(first, last), *x, *given.flat(last))
    )
    new, new_t, ys, ys_t = sections(found, len(k), len(k_t), len(ys))
    return [*new, *ys, *new_t, *ys_t], moved


def _while(op: While, moving: Moving) -> tuple[Sequence[Any], Sequence[bool]]:
    order, first, consts, count = moving.order, op.cond_consts, op.body_consts, op.carry
    flags = fixed_point(moving.flags[first:], consts, count, lambda f: jet(op.body, f, order)[1])
    wanted = [*flags[consts:], *[False] * (len(op.body.outputs) - count)]
    graph, moved = jet(op.body, flags, order, wanted)
    inner, c_t, k_t = sections(graph.inputs, len(flags), order * sum(flags[:consts]))
    c, k = sections(inner, consts)
    outs, out_terms = sections(graph.outputs, len(op.body.outputs))
    (new, ys), (new_t, ys_t) = sections(outs, count), sections(out_terms, len(k_t))
    joint = replace(
        op,
        cond=rearranged(op.cond, [*op.cond.inputs, *map(unused, k_t)], op.cond.outputs),
        body=rearranged(graph, [*c, *c_t, *k, *k_t], [*new, *new_t, *ys, *ys_t]),
        body_consts=len(c) + len(c_t),
        length=None if op.length is None else new_length(),
    )
    given = moving.with_flags([*[False] * first, *flags])
    split = first + consts
    operands = [*given.values[:split], *given.flat(0, split), *given.values[split:]]
    found = results(bind(joint, *operands, *given.flat(split)))
    new, new_t, going, ys, ys_t = sections(
        found, count, len(k_t), op.length is not None, len(op.body.outputs) - count
    )
    marks = [*moved[:count], *[False] * len(going), *moved[count:]]
    return [*new, *going, *ys, *new_t, *ys_t], marks


RULES: dict[type[HoldsGraphs], Apply] = {
    Call: _call,
    Checkpoint: _call,
    Switch: _switch,
    Scan: _scan,
    While: _while,
}
held_rules.update({op: held(apply) for op, apply in RULES.items()})
