"""`while_loop`: a graph applied as long as another says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.held import (
    HoldsGraphs,
    check_arguments,
    fixed_point,
    instantiated,
    leading,
    rearranged,
    sections,
    spread,
    unused,
)
from stax.errors import DTypeError, MissingRule, ShapeError
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.op import Batch
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import select
from stax.operators.reduce import reduce_or
from stax.trace import Trace, bind, results
from stax.types import ArrayType, TupleType, bool_


@dataclass(frozen=True, eq=False)
class While(HoldsGraphs):
    """Apply `body` to the carry while `cond` of it holds.

    Operands are `cond_consts` values for `cond`, `body_consts` values for `body`, which each takes
    before the carry, and the initial carry.
    """

    cond: Graph
    body: Graph
    cond_consts: int
    body_consts: int
    name: ClassVar[str] = "while"

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        of_cond, of_body, carry = self._parts(types)
        check_arguments("while", self.cond, [*of_cond, *carry])
        check_arguments("while", self.body, [*of_body, *carry])
        if self.cond.output_types != (ArrayType(bool_, ()),):
            raise DTypeError(f"while: the condition is a bool[], got {self.cond.output_types}.")
        for before, after in zip(carry, self.body.output_types, strict=True):
            if before.strong() is not after.strong():
                raise ShapeError(f"while: a step carries {after} where it was given {before}.")
        return TupleType(self.body.output_types)

    def evaluate(self, *arrays: Any) -> Any:
        of_cond, of_body, carry = self._parts(arrays)
        while evaluate(self.cond, [*of_cond, *carry])[0]:
            carry = evaluate(self.body, [*of_body, *carry])
        return tuple(carry)

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        of_cond, of_body, carry = self._parts(primals)
        flags = [t is not None for t in tangents[self.cond_consts :]]
        flags = fixed_point(flags, self.body_consts, len(carry), lambda f: jvp(self.body, f)[1])
        moved = flags[self.body_consts :]
        graph, _ = jvp(self.body, flags, moved)
        inner, c_dot, k_dot = sections(graph.inputs, len(flags), sum(flags) - sum(moved))
        consts, carried = sections(inner, self.body_consts)
        body = rearranged(graph, [*consts, *c_dot, *carried, *k_dot], graph.outputs)
        cond = rearranged(self.cond, [*self.cond.inputs, *map(unused, k_dot)], self.cond.outputs)
        dots = instantiated(primals[self.cond_consts :], tangents[self.cond_consts :], flags)
        c_dot, k_dot = sections(dots, len(c_dot))
        found = while_loop(cond, body, of_cond, [*of_body, *c_dot], [*carry, *k_dot])
        return found[: len(carry)], spread(found[len(carry) :], moved)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise MissingRule(
            "while_loop has no reverse mode: the number of its steps is not known.",
            advice="Use fori_loop with fixed bounds, or scan; or forward mode: jvp and jacfwd.",
        )

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        given = list(flags)
        cond_flags, _, starts = self._parts(given)
        of_cond, of_body, carry = self._parts(inputs)
        flags = fixed_point(
            flags[self.cond_consts :],
            self.body_consts,
            len(carry),
            lambda f: batch(self.body, batch_, f)[1],
        )
        moved = flags[self.body_consts :]
        cond, (by_lane,) = batch(self.cond, batch_, [*cond_flags, *moved])
        if by_lane:
            return self._batch_lanes(batch_, [*cond_flags, *flags], starts, inputs)
        body, _ = batch(self.body, batch_, flags, moved)
        carry = leading(batch_, carry, starts, moved)
        return while_loop(cond, body, of_cond, of_body, carry), moved

    def _batch_lanes(
        self, axis: Batch, flags: Sequence[bool], starts: Sequence[bool], inputs: Sequence[Any]
    ) -> Any:
        """Run until the last lane ends; the carry of lanes that ended stays as it is.

        The loop carries which lanes go on, so that the condition is evaluated once a step.
        """
        of_cond, of_body, carry = self._parts(inputs)
        every = [True] * len(carry)
        cond_flags, body_flags, _ = self._parts(flags)
        cond, _ = batch(self.cond, axis, [*cond_flags, *every])
        body, _ = batch(self.body, axis, [*body_flags, *every], every)
        carry = leading(axis, carry, starts, every)
        lanes = inline(cond, [*of_cond, *carry])
        found = while_loop(
            _any_lane(cond.outputs[0].type, body.output_types),
            _step_of_lanes(cond, body, len(of_cond), len(of_body)),
            [],
            [*of_cond, *of_body],
            [*lanes, *carry],
        )
        return found[1:], every

    def _parts(self, values: Sequence[Any]) -> list[list[Any]]:
        """Return operands, or flags of them: of the condition, of the body, and carried."""
        return sections(values, self.cond_consts, self.body_consts)


def _any_lane(lanes: ArrayType, carry: Sequence[ArrayType]) -> Graph:
    """Return the condition that a lane goes on, of the lanes and the carry."""
    with Trace("any_lane", "vmap") as trace:
        going = trace.input(lanes, "lanes")
        for t in carry:
            trace.input(t)
        return trace.finish([reduce_or(going, (0,))])


def _step_of_lanes(cond: Graph, body: Graph, cond_consts: int, body_consts: int) -> Graph:
    """Return the step that changes the carry of lanes that go on, and says which still do."""
    with Trace(body.name, "vmap") as trace:
        of_cond = [trace.input(x.type, x.label) for x in cond.inputs[:cond_consts]]
        of_body = [trace.input(x.type, x.label) for x in body.inputs[:body_consts]]
        lanes = trace.input(cond.outputs[0].type, "lanes")
        carry = [trace.input(x.type, x.label) for x in body.inputs[body_consts:]]
        moved = inline(body, [*of_body, *carry])
        carry = [
            select(broadcast_in_dim(lanes, y.type.shape, (0,)), y, x)
            for x, y in zip(carry, moved, strict=True)
        ]
        (going,) = inline(cond, [*of_cond, *carry])
        return trace.finish([lanes & going, *carry])


def while_loop(
    cond: Graph,
    body: Graph,
    cond_consts: Sequence[Any],
    body_consts: Sequence[Any],
    carry: Sequence[Any],
) -> tuple[Any, ...]:
    """Apply `body` to `carry` while `cond` holds, as one node; returns the last carry."""
    op = While(cond, body, len(cond_consts), len(body_consts))
    return results(bind(op, *cond_consts, *body_consts, *carry))
