"""checkify: a graph whose checks raise becomes one that returns the first error as values.

The error so far goes from node to node; branches, calls and the steps of loops are given it and
return it.  Categories of errors that ops notice by themselves, NaN, divisions by zero and indices
out of bounds, are checked after each op that may have them.

A rule of a derivative, of custom_jvp say, is no part of what is checked; the function itself is
checked beside the call, where the compiler merges the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stax.control.call import Call
from stax.control.checkpoint import Checkpoint
from stax.control.held import (
    HoldsGraphs,
    blank,
    has_results,
    rearranged,
    sections,
    with_graphs,
    without,
)
from stax.control.scan import Scan
from stax.control.switch import Switch
from stax.control.while_loop import While
from stax.graph import Graph, Node, Project, live
from stax.interpreters.interpret import inline, interpret
from stax.op import Op
from stax.operators.check import (
    Check,
    CheckException,
    DivisionByZeroError,
    Form,
    NaNError,
    OOBError,
    State,
    Types,
    site,
)
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.dynamic import DynamicSlice, DynamicUpdateSlice
from stax.operators.elementwise import (
    Elementwise,
    IntegerPow,
    convert,
    eq,
    gt,
    like,
    lt,
    ne,
    or_,
    rem,
    select,
)
from stax.operators.fft import Fft
from stax.operators.gradient import stop_gradient
from stax.operators.index import Gather, Scatter
from stax.operators.matrices import MatrixOp
from stax.operators.reduce import CumProd, CumSum, ReduceProd, ReduceSum, argmax, reduce_or
from stax.operators.reshape import reshape
from stax.operators.shape import concatenate, slice_in_dim
from stax.trace import Trace, bind, full, project, results, type_of
from stax.tree import tree_structure
from stax.types import ArrayType, bool_, int32, is_inexact, uint8
from stax.verify import verified

Categories = frozenset[type[CheckException]]

# Element-wise ops that hand a NaN on and make none.
_EXACT = frozenset(
    (
        *("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "maximum", "minimum"),
        *("real", "imag", "conj", "complex"),
    )
)
_COMPUTING = (
    IntegerPow | ReduceSum | ReduceProd | CumSum | CumProd | DotGeneral | Convolution | Fft
    | MatrixOp
)  # fmt: skip


def makes_nan(op: Op) -> bool:
    """Say whether a result of `op` may be a NaN where no operand is."""
    if isinstance(op, Elementwise):
        return op.name not in _EXACT
    return isinstance(op, _COMPUTING) or (isinstance(op, Scatter) and op.kind in ("add", "mul"))


def run_checked(
    graph: Graph, args: Sequence[Any], categories: Categories, state: State, silent: bool = False
) -> list[Any]:
    """Return the outputs of `graph`, recorded in the current trace; errors go into `state`.

    One that is `silent` is run for its errors beside another run: it does not print, say.
    """
    run = _Run(categories, state, silent)
    return interpret(graph, args, run.rule)


def checked(
    graph: Graph, categories: Categories, groups: Sequence[Types] = (), silent: bool = False
) -> tuple[Graph, Form]:
    """Return the graph that is given an error, which shows `groups`, before its inputs.

    It returns the error, of the form that is the second result, and then the outputs.
    """
    key = ("checkify", categories, tuple(groups), silent)
    return graph.derived(key, lambda: _checked(graph, categories, tuple(groups), silent))


def _checked(
    graph: Graph, categories: Categories, groups: tuple[Types, ...], silent: bool
) -> tuple[Graph, Form]:
    with Trace(graph.name, "checkify") as trace:
        state = _given_state(trace, groups)
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        outs = run_checked(graph, args, categories, state, silent)
        result = trace.finish([*state.values, *outs])
    return verified(result, "checkify"), state.form


def _given_state(trace: Trace, groups: Sequence[Types]) -> State:
    form = Form((), tuple(groups))
    types = [ArrayType(int32, ()), *form.types]
    return State(form, [trace.input(t, "error") for t in types])


class _Run:
    """One run of the transform over a graph."""

    def __init__(self, categories: Categories, state: State, silent: bool) -> None:
        self.categories = categories
        self.state = state
        self.silent = silent

    def rule(self, node: Node, inputs: list[Any]) -> Any:
        """Return the value of a node."""
        op = node.op
        match op:
            case Project():
                return project(inputs[0], op.position)
            case Check():
                self._check(op, inputs)
                return ()
            case HoldsGraphs():
                return self._held(op, inputs)
        if self.silent and op.effect is not None and not has_results(node):
            return ()
        out = bind(op, *inputs)
        self._divisor(node, inputs)
        self._bounds(node, inputs)
        self._nan(node, out)
        return out

    def _check(self, op: Check, inputs: Sequence[Any]) -> None:
        """Take the errors of a check that are of the categories looked for; others are dropped."""
        _, code, *shown = inputs
        taken = [s for s in op.form.sites if s.category in self.categories]
        if not taken:
            return
        if len(taken) < len(op.form.sites):
            is_taken = full((), False, bool_)
            for s in taken:
                is_taken = or_(is_taken, eq(code, like(code, s.code)))
            code = select(is_taken, code, like(code, 0))
        self.state.merge(Form(tuple(taken), op.form.groups), code, shown)

    # --- ops that hold graphs ---

    def _held(self, op: HoldsGraphs, inputs: list[Any]) -> Any:
        match op:
            case Switch():
                return self._switch(op, inputs)
            case Scan():
                return self._scan(op, inputs)
            case While():
                return self._while(op, inputs)
            case Call() if type(op) in (Call, Checkpoint):
                return self._call(op, inputs)
        quiet = with_graphs(op, lambda graph: without(graph, lambda n: isinstance(n.op, Check)))
        found = results(bind(quiet, *inputs))
        if op.applied is not None:
            self._beside(op.applied, inputs)
        return found

    def _form(self, *graphs: Graph) -> Form:
        """Return the form of the error after any of these graphs."""
        groups = tuple(self.state.groups)
        forms = [checked(graph, self.categories, groups, self.silent)[1] for graph in graphs]
        shown = [types for form in forms for types in form.groups]
        return Form.of([s for form in forms for s in form.sites], [*groups, *shown])

    def _graph(self, graph: Graph, form: Form) -> Graph:
        return checked(graph, self.categories, form.groups, self.silent)[0]

    def _bound(self, op: Op, form: Form, before: Sequence[Any], after: Sequence[Any]) -> Any:
        """Return the results of an op that is given the error between operands, and returns it."""
        self.state.add_groups(form.groups)
        found = results(bind(op, *before, *self.state.values, *after))
        self.state.sites += form.sites
        error, outs = sections(found, 1 + len(form.types))
        self.state.set(form.groups, error)
        return tuple(outs)

    def _call(self, op: Call, inputs: list[Any]) -> Any:
        form = self._form(op.graph)
        if not form.sites:
            return results(bind(op, *inputs))
        return self._bound(replace(op, graph=self._graph(op.graph, form)), form, [], inputs)

    def _beside(self, graph: Graph, inputs: Sequence[Any]) -> None:
        """Run a graph for its errors alone."""
        groups = tuple(self.state.groups)
        silent, form = checked(graph, self.categories, groups, silent=True)
        if not form.sites:
            return
        found = inline(silent, [*self.state.values, *map(_held_fixed, inputs)])
        self.state.sites += form.sites
        self.state.set(form.groups, found[: 1 + len(form.types)])

    def _switch(self, op: Switch, inputs: list[Any]) -> Any:
        form = self._form(*op.branches)
        if not form.sites:
            return results(bind(op, *inputs))
        branches = tuple(self._graph(graph, form) for graph in op.branches)
        return self._bound(replace(op, branches=branches), form, inputs[:1], inputs[1:])

    def _scan(self, op: Scan, inputs: list[Any]) -> Any:
        form = self._form(op.body)
        if not form.sites:
            return results(bind(op, *inputs))
        body, count = self._graph(op.body, form), 1 + len(form.types)
        error, consts, rest = sections(body.inputs, count, op.consts)
        body = rearranged(body, [*consts, *error, *rest], body.outputs)
        new = replace(op, body=body, carry=op.carry + count)
        return self._bound(new, form, inputs[: op.consts], inputs[op.consts :])

    def _while(self, op: While, inputs: list[Any]) -> Any:
        """Check the first condition before the loop, and each of the others in the step before."""
        if not self._form(op.body, op.cond).sites:
            return results(bind(op, *inputs))
        of_cond, of_body, carry = sections(inputs, op.cond_consts, op.body_consts)
        self._beside(op.cond, [*of_cond, *carry])
        form = self._form(op.body, op.cond)
        blanks = [blank(t) for t in (ArrayType(int32, ()), *form.types)]
        quiet = self._graph(op.cond, form)
        flag = quiet.outputs[-1:]
        error, consts, rest = sections(quiet.inputs, len(blanks), op.cond_consts)
        new = replace(
            op,
            cond=Graph(quiet.name, [*consts, *error, *rest], live(quiet.nodes, flag), flag),
            body=self._step(op, form),
            body_consts=op.cond_consts + op.body_consts,
        )
        return self._bound(new, form, [*of_cond, *of_cond, *of_body], carry)

    def _step(self, op: While, form: Form) -> Graph:
        """Return the step that also checks the condition that comes after it."""
        consts, mine, carry = (
            op.cond.inputs[: op.cond_consts],
            op.body.inputs[: op.body_consts],
            op.body.inputs[op.body_consts :],
        )
        with Trace(op.body.name, "checkify") as trace:
            of_cond, of_body = ([trace.input(x.type, x.label) for x in xs] for xs in (consts, mine))
            state = _given_state(trace, form.groups)
            args = [trace.input(x.type, x.label) for x in carry]
            outs = run_checked(op.body, [*of_body, *args], self.categories, state, self.silent)
            after = [*of_cond, *outs[: op.carry]]
            run_checked(op.cond, after, self.categories, state, silent=True)
            return verified(trace.finish([*state.values, *outs]), "checkify")

    # --- errors that ops notice ---

    def _divisor(self, node: Node, inputs: Sequence[Any]) -> None:
        if DivisionByZeroError not in self.categories:
            return
        if isinstance(node.op, Elementwise) and node.op.name == "div":
            is_zero = eq(inputs[1], like(inputs[1], 0))
            where = site(DivisionByZeroError, "div", "division by zero", node.source)
            self.state.fail(_any(is_zero), where)

    def _nan(self, node: Node, out: Any) -> None:
        if NaNError not in self.categories or not makes_nan(node.op):
            return
        values = [x for x in results(out) if is_inexact(type_of(x).dtype)]
        if not values:
            return
        failed = _any(ne(values[0], values[0]))
        for x in values[1:]:
            failed = or_(failed, _any(ne(x, x)))
        message = f"nan generated by primitive: {node.op.name}."
        self.state.fail(failed, site(NaNError, node.op.name, message, node.source))

    def _bounds(self, node: Node, inputs: Sequence[Any]) -> None:
        if OOBError not in self.categories:
            return
        if not inputs:
            return
        x = type_of(inputs[0])
        match node.op:
            case DynamicSlice() as op:
                starts, sizes, axes = _stacked(inputs[1:]), op.sizes, tuple(range(len(op.sizes)))
            case DynamicUpdateSlice():
                sizes = type_of(inputs[1]).shape
                starts, axes = _stacked(inputs[2:]), tuple(range(len(sizes)))
            case Gather() as op:
                starts, sizes, axes = inputs[1], op.sizes, op.window.starts
            case Scatter() as op:
                sizes = op.sizes(x, type_of(inputs[2]))
                starts, axes = inputs[1], op.window.starts
            case _:
                return
        self._indices(node, x, starts, sizes, axes)

    def _indices(
        self, node: Node, x: Any, starts: Any, sizes: Sequence[Any], axes: Sequence[int]
    ) -> None:
        """Check starts of windows, those along `axes` of an array of type `x` in the last axis."""
        lengths = [n for a in axes for n in (x.shape[a], sizes[a])]
        every = [*type_of(starts).shape, *lengths]
        if not axes or not math.prod(n if isinstance(n, int) else 0 for n in every):
            return  # there is no start, or lengths are not known
        count = len(axes)
        rows = reshape(starts, (math.prod(type_of(starts).shape) // count, count))
        columns = [slice_in_dim(rows, k, k + 1, axis=1) for k in range(count)]
        failed = [
            or_(lt(c, like(c, 0)), gt(c, like(c, x.shape[a] - sizes[a])))
            for c, a in zip(columns, axes, strict=True)
        ]
        total = math.prod(type_of(rows).shape)
        flags = reshape(concatenate(failed, 1), (total,))
        first = argmax(convert(flags, uint8), 0)
        index = convert(_element(reshape(rows, (total,)), first), int32)
        which = rem(first, like(first, count))
        axis, size = full((), axes[0], int32), full((), x.shape[axes[0]], int32)
        for k in range(1, count):
            here = eq(which, like(which, k))
            axis = select(here, like(axis, axes[k]), axis)
            size = select(here, like(size, x.shape[axes[k]]), size)
        message = (
            f"out-of-bounds indexing for array of shape {tuple(x.shape)}: "
            "index {} is out of bounds for axis {} with size {}."
        )
        scalar = ArrayType(int32, ())
        form = tree_structure(((0, 0, 0), {}))
        where = site(OOBError, node.op.name, message, node.source, form, (scalar,) * 3)
        self.state.fail(_any(flags), where, [index, axis, size])


def _held_fixed(x: Any) -> Any:
    return stop_gradient(x) if is_inexact(type_of(x).dtype) else x


def _any(x: Any) -> Any:
    return reduce_or(x) if type_of(x).ndim else x


def _stacked(starts: Sequence[Any]) -> Any:
    """Return scalars as one array."""
    rows = [reshape(convert(x, int32), (1,)) for x in starts]
    return concatenate(rows, 0) if rows else full((0,), 0, int32)


def _element(x: Any, at: Any) -> Any:
    return reshape(bind(DynamicSlice((1,)), x, at), ())
