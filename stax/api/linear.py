"""linear_transpose: the transpose of a function that is linear, without a point to linearize at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax import tree
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    trace_function,
)
from stax.array import Array, value_of
from stax.control.linearity import offence
from stax.errors import ArgumentError, DTypeError, MissingRule, UnsupportedError, Value
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.interpreters.simplify import simplify
from stax.interpreters.transpose import transpose
from stax.trace import Trace, full, type_of, zeros
from stax.types import ArrayType, is_inexact, is_integer


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Any:
    """Return the transpose of `fun`, a function that is linear in all its arguments.

    Of `primals` only shapes and dtypes count.  The result takes a cotangent of the structure, shape
    and dtype of what `fun` returns, and returns a tuple of those of the primals; it is a pytree of
    what `fun` closes over.

    Raises MissingRule where `fun` is not linear (a result that is zero is), DTypeError if floats
    and integers are mixed.
    """
    check_callable("linear_transpose", fun)
    if reduce_axes:
        raise UnsupportedError(
            "linear_transpose: reduce_axes is not supported.", advice="Sum over the axes after."
        )
    arguments = flatten_arguments("linear_transpose", primals, {})
    names = labels(fun, primals, {})
    traced = trace_function(fun, arguments, "linear_transpose", names=names)
    graph, name = traced.graph, function_name(fun)
    kinds = [t.dtype for t in (*arguments.types, *graph.output_types)]
    if not all(map(is_inexact, kinds)) and not all(map(is_integer, kinds)):
        raise DTypeError(
            f"linear_transpose: {name} mixes floats and integers: {', '.join(map(str, kinds))}.",
            advice="Convert its arguments and its result to floats.",
        )
    count = len(arguments.types)
    flags = [i < count for i in range(len(graph.inputs))]
    wrong = offence(graph, flags)
    if wrong is not None:
        graph = _with_known_zeros(traced)
        wrong = offence(graph, flags)
    if wrong is not None:
        raise _not_linear(name, f": {wrong.node.op.name} {wrong.reason}", [wrong.row])
    try:
        back, found = transpose(graph, flags)
    except MissingRule as error:
        raise _not_linear(name, "", error.values) from error
    apply = _Transposed(
        simplify(back), found, arguments.treedef, arguments.types, traced.out_tree,
        graph.output_types,
    )  # fmt: skip
    return tree.Partial(apply, traced.captures)


def _with_known_zeros(traced: Traced) -> Graph:
    """Return a traced function that knows which of the arrays it closes over are zero: what starts
    from one, or adds it, may be linear."""
    count = len(traced.graph.inputs) - len(traced.captures)
    values = [None] * count + [x if type(x) is Array else None for x in traced.captures]
    with Trace(traced.graph.name, "linear_transpose") as trace:
        args = [trace.input(x.type, x.label, source=x.source) for x in traced.graph.inputs]
        known = [
            x if value is None or np.any(value_of(value)) else zeros(x.type)
            for x, value in zip(args, values, strict=True)
        ]
        return trace.finish(inline(traced.graph, known))


def _not_linear(name: str, why: str, values: Sequence[Value]) -> MissingRule:
    return MissingRule(
        f"linear_transpose: {name} is not linear in its arguments{why}.",
        values=values,
        advice="Close over what it adds or multiplies by, or linearize it first.",
    )


@dataclass(frozen=True, eq=False)
class _Transposed:
    """The function of a transposed function's Partial; captures are its first argument."""

    graph: Graph
    found: Sequence[bool]
    treedef: tree.TreeDef
    types: Sequence[ArrayType]
    out_tree: tree.TreeDef
    out_types: Sequence[ArrayType]

    def __call__(self, _captures: Sequence[Any], out_cotangent: Any) -> Any:
        leaves, treedef = tree.tree_flatten(out_cotangent)
        if treedef != self.out_tree:
            raise ArgumentError(
                f"linear_transpose: the cotangent has structure {treedef}, the result "
                f"{self.out_tree}.",
                advice="Give one cotangent for each result, in containers of the same kind.",
            )
        for leaf, wanted in zip(leaves, self.out_types, strict=True):
            given = type_of(leaf)
            if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
                raise DTypeError(
                    f"linear_transpose: the cotangent of a {wanted!r} is a {given!r}.",
                    advice="A cotangent has the shape and dtype of its result.",
                )
        cts = iter(inline(self.graph, [*_captures, *leaves]))
        back = [
            next(cts) if f else full(t.shape, 0, t.dtype, t.weak)
            for f, t in zip(self.found, self.types, strict=True)
        ]
        args, _ = self.treedef.unflatten(back)
        return args
