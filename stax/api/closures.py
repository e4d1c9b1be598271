"""Functions whose closures become arguments: custom_gradient, closure_convert, linear_call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stax import tree
from stax.api.abstract import ShapeDtypeStruct
from stax.api.custom import custom_vjp
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    trace_function,
)
from stax.control.held import blank, rearranged
from stax.custom import LinearCall
from stax.errors import ArgumentError, DTypeError
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.trace import Proxy, bind, results, type_of
from stax.types import ArrayType, is_inexact


@dataclass(frozen=True, eq=False)
class _Closed:
    """A traced function of one tree, as a function of what it closes over and of the tree."""

    graph: Graph
    out_tree: tree.TreeDef

    def __call__(self, *values: Any) -> Any:
        *closed, given = values
        leaves = tree.tree_leaves(given)
        return self.out_tree.unflatten(inline(self.graph, [*leaves, *closed]))


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a gradient of its own, which `fun` returns beside the result.

    `fun(*args) -> (result, pullback)`, and `pullback` takes the cotangent of the result and returns
    a tuple of cotangents of the arguments, or the one of a single argument.  It may close over any
    value that `fun` computes.  As with `custom_vjp`, forward mode transposes the pullback.

    Raises ArgumentError unless `fun` returns a pair.
    """
    check_callable("custom_gradient", fun)
    name = function_name(fun)

    @functools.wraps(fun)
    def result(*args: Any) -> Any:
        return _pair(name, fun(*args))[0]

    def fwd(*args: Any) -> Any:
        out, pullback = _pair(name, fun(*args))
        structs = tree.tree_map(lambda y: ShapeDtypeStruct.of(_cotangent(type_of(y))), out)
        traced = _traced("custom_gradient", pullback, structs)
        apply = _Closed(traced.graph, traced.out_tree)
        return out, tree.Partial(apply, *traced.captures)

    def bwd(pullback: Any, ct: Any) -> Any:
        found = pullback(ct)
        return found if isinstance(found, tuple | list) else (found,)

    made = custom_vjp(result)
    made.defvjp(fwd, bwd)
    return made


def _pair(name: str, found: Any) -> tuple[Any, Any]:
    if not (isinstance(found, tuple | list) and len(found) == 2 and callable(found[1])):
        raise ArgumentError(
            f"custom_gradient: {name} has to return a pair (result, function of the cotangent).",
            advice="Return (y, lambda ct: (ct * dy_dx,)).",
        )
    return found[0], found[1]


def _cotangent(type_: ArrayType) -> ArrayType:
    return type_.tangent() if is_inexact(type_.dtype) else type_


def _traced(name: str, f: Callable[..., Any], *args: Any) -> Traced:
    return trace_function(f, flatten_arguments(name, args, {}), name)


def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """Return `fun` as a function of more arguments, and the values of these.

    They are the traced values that `fun` closes over and that may be differentiated: a function
    with a rule is then given them as arguments, `converted(*args, *values)`.  `fun` is traced once,
    on arguments like `example_args`; arrays and integers that it closes over stay where they are.

    Raises ArgumentError, when it is called, for arguments of another structure.
    """
    check_callable("closure_convert", fun)
    traced = _traced("closure_convert", fun, *example_args)
    in_tree = tree.tree_structure(tuple(example_args))
    is_hoisted = [type(x) is Proxy and is_inexact(x.dtype) for x in traced.captures]
    hoisted = [x for x, h in zip(traced.captures, is_hoisted, strict=True) if h]

    @functools.wraps(fun)
    def converted(*args: Any) -> Any:
        own = args[: len(args) - len(hoisted)] if hoisted else args
        leaves, given_tree = tree.tree_flatten(own)
        if given_tree != in_tree:
            raise ArgumentError(
                f"closure_convert: {function_name(fun)} was converted for other arguments.",
                values=[("converted for", "", str(in_tree)), ("called with", "", str(given_tree))],
                advice="Call it with arguments like the examples, and then the hoisted values.",
            )
        values = iter(args[len(own) :])
        closed = [
            next(values) if h else x for x, h in zip(traced.captures, is_hoisted, strict=True)
        ]
        return traced.out_tree.unflatten(inline(traced.graph, [*leaves, *closed]))

    return converted, hoisted


def linear_call(
    fun: Callable[[Any, Any], Any],
    fun_transpose: Callable[[Any, Any], Any],
    residual_args: Any,
    linear_args: Any,
) -> Any:
    """Return `fun(residual_args, linear_args)`, which is linear in its second argument.

    Its transpose is `fun_transpose(residual_args, cotangent)`, whose transpose is `fun` again.
    Residual arguments are not differentiated.

    Raises ArgumentError if the transpose returns another tree than that of `linear_args`, and
    DTypeError if it returns other types.
    """
    check_callable("linear_call", fun)
    check_callable("linear_call", fun_transpose)
    ahead = _traced("linear_call", fun, residual_args, linear_args)
    structs = tree.tree_map(ShapeDtypeStruct.of, list(ahead.graph.output_types))
    back = _traced("linear_call", fun_transpose, residual_args, ahead.out_tree.unflatten(structs))
    leaves, linear_tree = tree.tree_flatten(linear_args)
    _check_transpose(back, function_name(fun_transpose), linear_tree, leaves)
    known = tree.tree_leaves(residual_args)
    closed = [*ahead.captures, *back.captures]
    op = LinearCall(
        _known_first(ahead, closed, 0),
        _known_first(back, closed, len(ahead.captures)),
        len(closed) + len(known),
    )
    return ahead.out_tree.unflatten(results(bind(op, *closed, *known, *leaves)))


def _known_first(traced: Traced, closed: Sequence[Any], first: int) -> Graph:
    """Return a graph of all that is closed over, its own from `first` on, and then arguments."""
    graph, count = traced.graph, len(traced.captures)
    own = graph.inputs[: len(graph.inputs) - count]
    mine = dict(zip(range(first, first + count), graph.inputs[len(own) :], strict=True))
    every = [mine.get(i) or blank(type_of(x)) for i, x in enumerate(closed)]
    return rearranged(graph, [*every, *own], graph.outputs)


def _check_transpose(
    back: Traced, name: str, linear_tree: tree.TreeDef, leaves: Sequence[Any]
) -> None:
    if back.out_tree != linear_tree:
        raise ArgumentError(
            f"linear_call: {name} returns another tree than that of the linear arguments.",
            values=[("needed", "", str(linear_tree)), ("returned", "", str(back.out_tree))],
            advice="Return one cotangent for each linear argument.",
        )
    for given, x in zip(back.graph.output_types, leaves, strict=True):
        wanted = type_of(x)
        if given.strong() is not wanted.strong():
            raise DTypeError(
                f"linear_call: {name} returns {given} where {wanted} is needed.",
                advice="A cotangent has the shape and dtype of its argument.",
            )
