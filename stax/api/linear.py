"""linear_transpose: the transpose of a function that is linear, without a point to linearize at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stax import tree
from stax.api.tracing import (
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    trace_function,
)
from stax.control.linearity import is_zero
from stax.errors import ArgumentError, DTypeError, MissingRule, UnsupportedError
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.interpreters.simplify import simplify
from stax.interpreters.transpose import dependents, transpose
from stax.trace import full, type_of
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
    _check_linear(graph, flags, name)
    try:
        back, found = transpose(graph, flags)
    except (MissingRule, ArgumentError) as error:
        # A rule that is handed two linear operands takes one of them for a value.
        raise MissingRule(
            f"linear_transpose: {name} is not linear in its arguments.",
            values=error.values,
            doing=error.doing,
            advice="Close over what it multiplies by, or linearize it first.",
        ) from error
    apply = _Transposed(
        simplify(back), found, arguments.treedef, arguments.types, traced.out_tree,
        graph.output_types,
    )  # fmt: skip
    return tree.Partial(apply, traced.captures)


def _check_linear(graph: Graph, flags: Sequence[bool], name: str) -> None:
    """Raise MissingRule if an output does not depend on the flagged inputs and is not zero there.

    What is not linear inside has no transpose rule, which is noticed later; a constant that is
    returned has one, of no inputs.
    """
    linear = [x for x, f in zip(graph.inputs, flags, strict=True) if f]
    depends = dependents(graph.nodes, linear)
    for node in graph.outputs:
        if node not in depends and not is_zero(node):
            raise MissingRule(
                f"linear_transpose: {name} is not linear: a result does not depend on an argument.",
                values=[
                    (node.op.name, repr(node.type), node.source.shown() if node.source else "")
                ],
                advice="Return only what is linear in the arguments.",
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
