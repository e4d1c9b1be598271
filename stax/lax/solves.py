"""Solutions of equations, differentiated by the implicit function theorem.

How an equation is solved does not matter for its derivatives, and need not be differentiable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stax import tree
from stax.api.custom import custom_jvp
from stax.api.custom_rules import zero_from_primal
from stax.api.derivatives import jvp, linearize
from stax.api.linear import linear_transpose
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    trace_function,
)
from stax.control.held import rearranged
from stax.control.linear_solve import LinearSolve
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.operators.elementwise import convert, neg
from stax.trace import as_array, bind, results, type_of
from stax.types import ArrayType

__all__ = ["custom_linear_solve", "custom_root"]

Solver = Callable[[Callable[[Any], Any], Any], Any]


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Solver,
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return `solve(matvec, b)`, the x for which `matvec(x)` is `b`, a tree of arrays.

    Derivatives are those of the solution, found by solving again: `solve` itself is not
    differentiated.  `matvec` is linear and may close over differentiated values.  Reverse mode
    calls `transpose_solve(vecmat, b)` for the transposed equation; with `symmetric` it is the same
    one.  With `has_aux` both solvers return `(x, auxiliary data)`.

    Raises ArgumentError if a function returns another tree than that of `b`, ShapeError and
    DTypeError if other types; ArgumentError in reverse mode without `transpose_solve`.
    """
    for f in (matvec, solve, *([] if transpose_solve is None else [transpose_solve])):
        check_callable("custom_linear_solve", f)
    if symmetric and transpose_solve is None:
        transpose_solve = solve
    trace = functools.partial(_traced, "custom_linear_solve", b)
    ahead = trace(matvec, "matvec")
    solved = trace(functools.partial(solve, matvec), "solve", has_aux)
    back = turned = None
    if transpose_solve is not None:
        vecmat = matvec if symmetric else _transposed(matvec, b)
        back = ahead if symmetric else trace(vecmat, "the transpose of matvec")
        turned = trace(functools.partial(transpose_solve, vecmat), "transpose_solve", has_aux)
    closed = [[] if t is None else t.captures for t in (ahead, back, solved, turned)]
    leaves = [as_array(x) for x in tree.tree_leaves(b)]
    op = LinearSolve(
        _closed_first(ahead),
        None if back is None else _closed_first(back),
        _closed_first(solved),
        None if turned is None else _closed_first(turned),
        tuple(map(len, closed)),  # type: ignore[arg-type]
    )
    found = list(results(bind(op, *(x for xs in closed for x in xs), *leaves)))
    weak = [convert(x, x.dtype, y.weak_type) for x, y in zip(found, leaves, strict=False)]
    return solved.out_tree.unflatten([*weak, *found[len(leaves) :]])


def _transposed(matvec: Callable[[Any], Any], b: Any) -> Callable[[Any], Any]:
    transpose = linear_transpose(matvec, b)
    return lambda ct: transpose(ct)[0]


def _closed_first(traced: Traced) -> Graph:
    """Return a graph of what is closed over and then the arguments."""
    graph = traced.graph
    own = len(graph.inputs) - len(traced.captures)
    return rearranged(graph, [*graph.inputs[own:], *graph.inputs[:own]], graph.outputs)


def _traced(
    transform: str, like: Any, f: Callable[[Any], Any], name: str, has_aux: bool = False
) -> Traced:
    """Trace `f`, which returns a tree of the types of `like`, its argument; with auxiliary data."""
    arguments = flatten_arguments(transform, (like,), {})
    traced = trace_function(f, arguments, transform)
    _check_like(transform, name, traced, like, arguments.types, has_aux)
    return traced


def _check_like(
    transform: str,
    name: str,
    traced: Traced,
    like: Any,
    types: Sequence[ArrayType],
    has_aux: bool,
) -> None:
    """Raise unless a function returns what it is given, or a pair of that and something else."""
    found, wanted = traced.out_tree, tree.tree_structure(like)
    if has_aux:
        if len(found.children()) != 2:
            raise ArgumentError(
                f"{transform}: with has_aux=True {name} has to return a pair (x, auxiliary data).",
                advice="Return (x, aux), or leave out has_aux.",
            )
        found = found.children()[0]
    if found != wanted:
        raise ArgumentError(
            f"{transform}: {name} returns another tree than it is given.",
            values=[("given", "", str(wanted)), ("returned", "", str(found))],
            advice="Return the same containers.",
        )
    for given, type_ in zip(traced.graph.output_types, types, strict=False):
        kind = ShapeError if given.shape != type_.shape else DTypeError
        if given.strong() is not type_.strong():
            raise kind(
                f"{transform}: {name} returns {given} where {type_} is needed.",
                advice="It returns the shapes and dtypes that it is given: convert with astype.",
            )


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool = False,
) -> Any:
    """Return `solve(f, initial_guess)`, an x for which `f(x)` is zero, a tree of arrays.

    Derivatives are taken in what `f` closes over, by the implicit function theorem:
    `tangent_solve(g, y)` solves `g(x) = y`, where `g` is `f` linearized at the root.  For a scalar
    that is `lambda g, y: y / g(1.0)`.  `solve` itself is not differentiated, and nothing depends on
    the guess.  With `has_aux`, `solve` returns `(x, auxiliary data)`.

    Raises ArgumentError if a function returns another tree than that of `initial_guess`, ShapeError
    and DTypeError if other types.
    """
    for function in (f, solve, tangent_solve):
        check_callable("custom_root", function)
    at = _traced("custom_root", initial_guess, f, "f")
    solved = _traced("custom_root", initial_guess, functools.partial(solve, f), "solve", has_aux)
    pushed = _pushed(f, initial_guess, tangent_solve)
    count = len(at.graph.outputs)

    @custom_jvp
    def root(of_f: Any, of_solve: Any, of_tangent: Any, guess: Any) -> Any:
        return inline(solved.graph, [*guess, *of_solve])

    @root.defjvp
    def _root_jvp(primals: Any, tangents: Any) -> Any:
        # f(m, x(m)) = 0 for all m, so df/dx dx = -df/dm dm.
        outs = root(*primals)
        x, aux = outs[:count], outs[count:]
        _, rhs = jvp(lambda *closed: inline(at.graph, [*x, *closed]), primals[0], tangents[0])
        dots = inline(pushed.graph, [*x, *rhs, *primals[2]])
        return outs, [*map(neg, dots), *zero_from_primal(aux)]

    guess = [as_array(x) for x in tree.tree_leaves(initial_guess)]
    found = root(at.captures, solved.captures, pushed.captures, guess)
    return solved.out_tree.unflatten(found)


def _pushed(f: Callable[[Any], Any], guess: Any, tangent_solve: Solver) -> Traced:
    """Trace the solution of the linearized equation, of a root and a right hand side."""

    def linearized(x: Any, y: Any) -> Any:
        _, push = linearize(f, x)
        return tangent_solve(push, y)

    arguments = flatten_arguments("custom_root", (guess, guess), {})
    traced = trace_function(linearized, arguments, "custom_root")
    types = [type_of(x) for x in tree.tree_leaves(guess)]
    name = f"tangent_solve, {function_name(tangent_solve)},"
    _check_like("custom_root", name, traced, guess, types, False)
    return traced
