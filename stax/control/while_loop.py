"""`while_loop`: a graph applied as long as another says so.

In reverse mode the primal loop *records*: what each step leaves behind for the backward loop is
stacked along an axis whose length, a symbol, is the number of steps, known when the loop has run.
The linear part is a `scan` along those arrays, so the rules of `scan` are all it takes to transpose
it, to map it, and to differentiate it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from stax.control.held import (
    HoldsGraphs,
    check_arguments,
    fixed_point,
    instantiated,
    leading,
    marked,
    rearranged,
    sections,
    spread,
    unused,
)
from stax.control.lanes import by_lane, taking_part
from stax.control.ragged import closed
from stax.control.scan import Scan
from stax.errors import DTypeError, MissingRule, ShapeError, StepLimitError
from stax.extent import Extent
from stax.graph import Graph, Input, Node
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.lengths import new_length
from stax.interpreters.linearize import split
from stax.interpreters.masks import Masked
from stax.op import Batch, Linear
from stax.operators.reduce import reduce_or
from stax.operators.reshape import move_axis
from stax.trace import Trace, bind, results, zeros
from stax.types import ArrayType, TupleType, bool_, storage

_BOOL = ArrayType(bool_, ())


@dataclass(frozen=True)
class Limit:
    """The steps that a loop may take; `shown` is what the user said, of which each step is one or
    several."""

    steps: int
    shown: int

    def exceeded(self, where: str = "") -> NoReturn:
        """Raise the error of a loop that has not ended after its last step; `where` is its line."""
        raise StepLimitError(
            f"while_loop: the condition still holds after max_steps={self.shown} steps.",
            values=[("while_loop", "", where)] if where else (),
            advice="Raise max_steps, or look at the condition: does every step come closer to it?",
        )


@dataclass(frozen=True, eq=False)
class While(HoldsGraphs):
    """Apply `body` to the carry while `cond` of it holds.

    Operands are `cond_consts` values for `cond`, `body_consts` values for `body`, which each takes
    before the carry, and the initial carry.

    With a `length`, a symbol, the loop records: after the carry it returns a bool for each step,
    true, and stacked along its axis the results of `body` beyond the carry.  Each application has a
    symbol of its own.
    """

    cond: Graph
    body: Graph
    cond_consts: int
    body_consts: int
    limit: Limit | None = None
    length: Extent | None = None
    name: ClassVar[str] = "while"
    loops: ClassVar[bool] = True
    ends: ClassVar[bool] = False

    @property
    def opens(self) -> str:  # type: ignore[override]
        return "" if self.length is None else self.length.symbols()[0]

    @property
    def carry(self) -> int:
        """How many values are carried."""
        return len(self.body.inputs) - self.body_consts

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        of_cond, of_body, carry = self._parts(types)
        check_arguments("while", self.cond, [*of_cond, *carry])
        check_arguments("while", self.body, [*of_body, *carry])
        if [t.strong() for t in self.cond.output_types] != [_BOOL]:
            raise DTypeError(f"while: the condition is a bool[], got {self.cond.output_types}.")
        new, stacked = sections(self.body.output_types, self.carry)
        for before, after in zip(carry, new, strict=True):
            if before.strong() is not after.strong():
                raise ShapeError(f"while: a step carries {after} where it was given {before}.")
        if self.length is None:
            return TupleType(new)
        each = [_BOOL, *stacked]
        return TupleType([*new, *(t.with_leading(self.length) for t in each)])

    def evaluate(self, *arrays: Any) -> Any:
        carry, kept, _ = self.some_steps(arrays, None)
        return (*carry, *self.stacked(kept))

    def some_steps(
        self, arrays: Sequence[Any], most: int | None
    ) -> tuple[list[Any], list[Any], bool]:
        """Take `most` steps at most; returns the carry, what is kept, and whether it ended."""
        of_cond, of_body, carry = self._parts(arrays)
        kept: list[Any] = []
        steps = 0
        while steps != most:
            if not evaluate(self.cond, [*of_cond, *carry])[0]:
                return carry, kept, True
            if self.limit is not None and steps == self.limit.steps:
                self.limit.exceeded()
            found = evaluate(self.body, [*of_body, *carry])
            carry, stacked = sections(found, self.carry)
            if self.length is not None:
                kept.append([np.True_, *stacked])
            steps += 1
        return carry, kept, False

    def after(self, steps: int) -> While:
        """Return the loop that goes on where this one has taken `steps` steps."""
        left = None if self.limit is None else Limit(self.limit.steps - steps, self.limit.shown)
        return While(self.cond, self.body, self.cond_consts, self.body_consts, left, self.length)

    def stacked(self, kept: Sequence[Sequence[Any]]) -> list[np.ndarray]:
        """Return what each step left behind as arrays."""
        if self.length is None:
            return []
        if kept:
            return [np.stack(column) for column in zip(*kept, strict=True)]
        types = [_BOOL, *self.body.output_types[self.carry :]]
        shapes = [tuple(n if isinstance(n, int) else 0 for n in t.shape) for t in types]
        return [
            np.empty((0, *shape), storage(t.dtype)) for t, shape in zip(types, shapes, strict=True)
        ]

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        of_cond, of_body, carry = self._parts(primals)
        flags, wanted = self._moving(tangents)
        graph, has_tangent = jvp(self.body, flags, wanted)
        moved = flags[self.body_consts :]
        inner, c_dot, k_dot = sections(graph.inputs, len(flags), sum(flags) - sum(moved))
        consts, carried = sections(inner, self.body_consts)
        new, ys, new_dot, ys_dot = sections(
            graph.outputs, len(carry), len(self.body.outputs) - len(carry), sum(moved)
        )
        body = rearranged(
            graph, [*consts, *c_dot, *carried, *k_dot], [*new, *new_dot, *ys, *ys_dot]
        )
        cond = rearranged(self.cond, [*self.cond.inputs, *map(unused, k_dot)], self.cond.outputs)
        dots = instantiated(primals[self.cond_consts :], tangents[self.cond_consts :], flags)
        c_dot, k_dot = sections(dots, len(c_dot))
        found = self._again(cond, body, of_cond, [*of_body, *c_dot], [*carry, *k_dot])
        new, new_dot, going, ys, ys_dot = sections(
            found, len(carry), len(k_dot), self.length is not None, len(ys)
        )
        marks = [*has_tangent[: len(carry)], *[False] * len(going), *has_tangent[len(carry) :]]
        return (*new, *going, *ys), spread([*new_dot, *ys_dot], marks)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        of_cond, of_body, carry = self._parts(primals)
        flags, wanted = self._moving(tangents)
        if not any(jvp(self.body, flags, wanted)[1]):
            outs = results(bind(self, *primals))
            return outs, [None] * len(outs)
        steps = self._counted()
        kept, has_tangent = steps.residuals([*flags, False], [*of_body, *carry, None])
        body = rearranged(kept.primal, kept.primal.inputs[:-1], kept.primal.outputs)
        found = self._again(self.cond, body, of_cond, of_body, carry, records=True)
        new, going, stacked = sections(found, len(carry), 1)
        dots = steps.dots(
            [*of_body, *carry, None], [*tangents[self.cond_consts :], None], [*flags, False]
        )
        moved = steps.linear_loop(kept, stacked, dots, going)
        marks = has_tangent[: len(carry)]
        if self.length is None:
            return tuple(new), spread(moved, marks)
        ys = stacked[: len(self.body.outputs) - len(carry)]
        return (*new, *going, *ys), spread(moved, [*marks, False, *has_tangent[len(carry) :]])

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        """Transpose a loop that is linear in some operands, of which the condition reads none.

        It is cut in two: a loop over the other values, which records, and a linear one.
        """
        of_cond, of_body, carry = self._parts(inputs)
        steps = self._counted()
        flags = steps.linear_flags([isinstance(x, Linear) for x in (*of_body, *carry)] + [False])
        linear, known = steps.parts(flags), steps.parts([not f for f in flags])
        cut = split(self.body, flags[:-1])
        early, late = closed(cut.known, sum(cut.is_known), cut.unknown)
        found = self._again(
            self._condition_of(known.carry),
            early,
            of_cond,
            marked(of_body, known.consts),
            marked(carry, known.carry),
            records=True,
        )
        _, going, residuals = sections(found, sum(known.carry), 1)
        residuals = residuals[sum(cut.is_known) - sum(known.carry) :]
        kept, c, k = sections(late.inputs, len(residuals), sum(linear.consts))
        body = rearranged(late, [*c, *k, Node(Input("going"), (), _BOOL), *kept], late.outputs)
        rest = Scan(body, None, False, len(c), len(k))
        operands = [*marked(of_body, linear.consts), *marked(carry, linear.carry)]
        cts = [*cts[: len(carry)], *cts[len(carry) + (self.length is not None) :]]
        cts = marked(cts, [not f for f in cut.is_known])
        care = marked(care[len(of_cond) :], flags[:-1]) + [False] * (1 + len(residuals))
        back = rest.pull(cts, care, *operands, *going, *residuals)
        return [*[None] * len(of_cond), *spread(back[: len(operands)], flags[:-1])]

    def masks_matter(self, flags: Sequence[bool], care: Sequence[bool]) -> Sequence[bool]:
        parts = ([*x[self.cond_consts :], False] for x in (flags, care))
        new, ys = sections(self._counted().masks_matter(*parts), self.carry)
        return [*new, *([] if self.length is None else [False]), *ys]

    def _condition_of(self, known: Sequence[bool]) -> Graph:
        """Return the condition as a graph of those carried values that are flagged alone."""
        consts, carry = sections(self.cond.inputs, self.cond_consts)
        uses = self.cond.uses()
        if any(uses[x] for x, f in zip(carry, known, strict=True) if not f):
            raise MissingRule(
                f"while: the condition {self.cond.name} depends on what the loop is linear in.",
                advice="Linearize the function first: stax.linearize, stax.vjp or stax.grad.",
            )
        return rearranged(self.cond, [*consts, *marked(carry, known)], self.cond.outputs)

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
        rest = [False] * (len(self.body.outputs) - len(carry))
        body, batched = batch(self.body, batch_, flags, [*moved, *rest])
        carry = leading(batch_, carry, starts, moved)
        found = self._again(cond, body, of_cond, of_body, carry)
        if self.length is None:
            return found, moved
        new, going, ys = sections(found, len(carry), 1)
        marks = batched[len(carry) :]
        ys = [move_axis(y, 1, 0) if f else y for y, f in zip(ys, marks, strict=True)]
        return (*new, *going, *ys), [*moved, False, *marks]

    def _batch_lanes(
        self, axis: Batch, flags: Sequence[bool], starts: Sequence[bool], inputs: Sequence[Any]
    ) -> Any:
        """Run until the last lane ends; the carry of lanes that ended stays as it is.

        The loop carries which lanes go on, so that the condition is evaluated once a step; it
        records which lanes a step counts for, and zeros for the others.
        """
        of_cond, of_body, carry = self._parts(inputs)
        count, ys = len(carry), len(self.body.outputs) - len(carry)
        cond_flags, body_flags, _ = self._parts(flags)
        cond, _ = batch(self.cond, axis, [*cond_flags, *[True] * count])
        body, _ = batch(self.body, axis, [*body_flags, *[True] * count], [True] * (count + ys))
        carry = leading(axis, carry, starts, [True] * count)
        lanes = inline(cond, [*of_cond, *carry])
        found = self._again(
            _any_lane(cond.outputs[0].type, body.output_types[:count]),
            _step_of_lanes(cond, body, cond_flags, body_flags, self.length is not None),
            [],
            [*of_cond, *of_body],
            [*lanes, *carry],
        )
        _, new, _, stacked = sections(found, 1, count, self.length is not None)
        outs = [*new, *(move_axis(y, 1, 0) for y in stacked)]
        return tuple(outs), [True] * len(outs)

    def _moving(self, tangents: Sequence[Any]) -> tuple[list[bool], list[bool]]:
        """Return which operands of the body have tangents, and which of its results are to."""
        flags = fixed_point(
            [t is not None for t in tangents[self.cond_consts :]],
            self.body_consts,
            self.carry,
            lambda f: jvp(self.body, f)[1],
        )
        rest = [False] * (len(self.body.outputs) - self.carry)
        return flags, [*flags[self.body_consts :], *rest]

    def _counted(self) -> Scan:
        """Return the loop as one whose steps are counted, by a bool that each of them is given."""
        body = rearranged(
            self.body, [*self.body.inputs, Node(Input("going"), (), _BOOL)], self.body.outputs
        )
        return Scan(body, None, False, self.body_consts, self.carry)

    def _again(
        self,
        cond: Graph,
        body: Graph,
        of_cond: Sequence[Any],
        of_body: Sequence[Any],
        carry: Sequence[Any],
        records: bool = False,
    ) -> tuple[Any, ...]:
        """Apply a loop of as many steps, which records if this one does, or is told to."""
        length = new_length() if records or self.length is not None else None
        op = While(cond, body, len(of_cond), len(of_body), self.limit, length)
        return results(bind(op, *of_cond, *of_body, *carry))

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


def _step_of_lanes(
    cond: Graph,
    body: Graph,
    cond_flags: Sequence[bool],
    body_flags: Sequence[bool],
    records: bool,
) -> Graph:
    """Return the step that changes the carry of lanes that go on, and says which still do.

    The flags say which constants of the condition and of the body have lanes.
    """
    with Trace(body.name, "vmap") as trace:
        of_cond = [trace.input(x.type, x.label) for x in cond.inputs[: len(cond_flags)]]
        of_body = [trace.input(x.type, x.label) for x in body.inputs[: len(body_flags)]]
        lanes = trace.input(cond.outputs[0].type, "lanes")
        carry = [trace.input(x.type, x.label) for x in body.inputs[len(body_flags) :]]
        every = [True] * len(carry)
        given = taking_part(lanes, body, [*of_body, *carry], [*body_flags, *every])
        moved = inline(body, given)
        old = [*carry, *(zeros(y.type) for y in moved[len(carry) :])]
        new = [by_lane(lanes, y, x) for x, y in zip(old, moved, strict=True)]
        asked = [*of_cond, *new[: len(carry)]]
        (going,) = inline(cond, taking_part(lanes, cond, asked, [*cond_flags, *every]))
        kept = [lanes, *new[len(carry) :]] if records else []
        return trace.finish([lanes & going, *new[: len(carry)], *kept])


def while_loop(
    cond: Graph,
    body: Graph,
    cond_consts: Sequence[Any],
    body_consts: Sequence[Any],
    carry: Sequence[Any],
    limit: Limit | None = None,
) -> tuple[Any, ...]:
    """Apply `body` to `carry` while `cond` holds, as one node; returns the last carry."""
    op = While(cond, body, len(cond_consts), len(body_consts), limit)
    return results(bind(op, *cond_consts, *body_consts, *carry))
