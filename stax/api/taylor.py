"""Taylor mode as users call it: `jet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import tree
from stax.api.tracing import check_callable, flatten_arguments, labels, trace_function
from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.interpreters.interpret import inline
from stax.interpreters.jet import jet as jet_graph
from stax.interpreters.simplify import simplify
from stax.operators.elementwise import convert, div, like, mul
from stax.trace import Proxy, as_array, type_of, zeros
from stax.types import ArrayType, float0, is_inexact


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Any],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """Return `fun` along a curve, and its derivatives, from those of its arguments.

    Argument i moves as the curve that starts at `primals[i]` and has the derivatives `series[i]`, a
    list of as many arrays for each argument.  The result is `fun(*primals)` and a list of
    derivatives of the same length; in place of each array of a result that is a container, and of
    an argument that is one, there is such a list.  Without `factorial_scaled`, derivatives are
    divided by the factorial of their order: they are coefficients of powers.

    The cost grows with the square of the order, where nested `jvp` doubles with each; functions
    with derivative rules of the user's are taken by their rules.

        >>> _, (first, second) = jet(sin, (0.5**3,), ((3 * 0.5**2, 6 * 0.5),))  # z**3 at 0.5
        >>> print(f"{first:.5f} {second:.5f}")
        0.74415 2.90646

    Raises ArgumentValueError if lengths differ, ShapeError or DTypeError if a derivative does not
    fit its primal, MissingRule for an op that has no derivative.
    """
    check_callable("jet", fun)
    arguments = flatten_arguments("jet", tuple(primals), {})
    names = labels(fun, primals, {})
    order, terms = _terms(primals, series)
    flags = [_moves(*row) for row in zip(names, arguments.types, terms, strict=True)]
    kept = [
        _coefficient(name, t, value, k, factorial_scaled)
        for name, t, values, f in zip(names, arguments.types, terms, flags, strict=True)
        if f
        for k, value in enumerate(values, 1)
    ]
    traced = trace_function(
        fun,
        arguments,
        "jet",
        values=arguments.leaves,
        names=names,
        differentiated=True,
    )
    graph, moved = jet_graph(traced.graph, traced.input_flags(flags), order)
    outs = inline(simplify(graph), [*arguments.leaves, *traced.captures, *kept])
    result, _aux, found = traced.rebuilt(outs)
    lists = _by_output(traced.graph.output_types, moved, found, order, factorial_scaled)
    return result, traced.out_tree.unflatten(lists)


def _terms(primals: Sequence[Any], series: Sequence[Any]) -> tuple[int, list[list[Any]]]:
    """Return the order, and for each leaf of the primals its derivatives."""
    if len(primals) != len(series):
        raise ArgumentValueError(
            f"jet: {len(primals)} primals and {len(series)} series.",
            advice="Give one list of derivatives for each argument.",
        )
    found: list[list[Any]] = []
    for i, (primal, lists) in enumerate(zip(primals, series, strict=True)):
        treedef = tree.tree_structure(primal)
        try:
            found += [list(values) for values in treedef.flatten_up_to(lists)]
        except (TypeError, ValueError) as error:
            raise ArgumentValueError(
                f"jet: the series of argument {i} is not made as the argument is, {treedef}.",
                advice="Give the containers of the argument, with a list in place of each array.",
            ) from error
    lengths = sorted({len(values) for values in found})
    if len(lengths) != 1:
        raise ArgumentValueError(
            f"jet: series of different lengths: {', '.join(map(str, lengths)) or 'none'}.",
            advice="Give as many derivatives for each argument, zeros if need be.",
        )
    return lengths[0], found


def _moves(name: str, type_: ArrayType, values: Sequence[Any]) -> bool:
    """Say whether a leaf has a series: an integer has none, its derivatives are zero."""
    if is_inexact(type_.dtype):
        return bool(values)
    for value in values:
        if type(value) is Proxy or (np.asarray(value).dtype != float0 and np.any(value)):
            raise DTypeError(
                f"jet: {name} is a {type_!r}, which does not move along a curve.",
                values=[(name, repr(type_), "")],
                advice="Pass a floating number, or zeros as its derivatives.",
            )
    return False


def _coefficient(name: str, type_: ArrayType, value: Any, order: int, scaled: bool) -> Any:
    """Return derivative number `order` of a leaf of type `type_` as a coefficient."""
    given = type_of(value)
    if given.shape != type_.shape:
        raise ShapeError(
            f"jet: derivative {order} of {name} has shape {given.shape}, {name} {type_.shape}.",
            values=[(name, repr(type_), ""), (f"derivative {order}", repr(given), "")],
            advice="Every derivative has the shape of its primal.",
        )
    wanted = type_.tangent()
    found = convert(as_array(value), wanted.dtype, given.weak and wanted.weak)
    return div(found, like(found, math.factorial(order))) if scaled and order > 1 else found


def _by_output(
    types: Sequence[ArrayType],
    moved: Sequence[bool],
    found: Sequence[Any],
    order: int,
    scaled: bool,
) -> list[list[Any]]:
    """Return the list of derivatives of each output, of coefficients of those that moved."""
    given, lists = iter(found), []
    for t, m in zip(types, moved, strict=True):
        terms = [next(given) if m else zeros(t) for _ in range(order)]
        if scaled:
            terms = [
                y if k < 2 else mul(y, like(y, math.factorial(k))) for k, y in enumerate(terms, 1)
            ]
        lists.append(terms)
    return lists
