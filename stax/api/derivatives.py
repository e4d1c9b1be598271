"""grad, value_and_grad, vjp, jvp, linearize.

Each traces the function on the values it is called with, so Python's `if` sees numbers, transforms
the finished graph (`interpreters`), and hands the new graph to `inline`, which runs it, or records
it in the trace that is under way.  Arguments that are not differentiated are not traced at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stax import tree
from stax.api.tracing import (
    Arguments,
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    positions,
    trace_function,
)
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import Dimension
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp as jvp_graph
from stax.interpreters.lengths import matched, replaced_in
from stax.interpreters.linearize import linearize as linearize_graph, split, value_and_pullback
from stax.interpreters.remat import STANDARD, Prices, Recut, There, fewer_residuals, report
from stax.interpreters.simplify import simplify
from stax.operators.elementwise import convert
from stax.trace import Trace, full, type_of, zeros_like
from stax.types import SHORT_NAMES, ArrayType, float0, is_complex, is_inexact
from stax.verify import verified


def _positions(argnums: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """Return `argnums` as non-negative positions."""
    given = positions(argnums)
    if any(not -count <= a < count for a in given):
        raise ArgumentError(
            f"{name}: argnums={argnums} does not fit a call with {count} positional arguments.",
            advice="Arguments that are differentiated must be passed by position.",
        )
    return tuple(a % count for a in given)


class Chosen(NamedTuple):
    """The arguments that are differentiated, and the function of them alone.

    The others are not traced: they may be anything, and what the function sees is what was given.
    """

    function: Callable[..., Any]
    selected: tuple[Any, ...]
    arguments: Arguments
    names: list[str]


def choose(
    transform: str,
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Chosen:
    """Take the arguments that `argnums` names out of a call."""
    chosen = _positions(argnums, len(args), transform)

    @functools.wraps(fun)
    def of_selected(*selected: Any) -> Any:
        full_args = list(args)
        for position, value in zip(chosen, selected, strict=True):
            full_args[position] = value
        return fun(*full_args, **kwargs)

    selected = tuple(args[p] for p in chosen)
    every = iter(labels(fun, args, {}))
    by_argument = [[next(every) for _ in tree.tree_leaves(a)] for a in args]
    names = [name for p in chosen for name in by_argument[p]]
    return Chosen(of_selected, selected, flatten_arguments(transform, selected, {}, names), names)


def _with_values(
    transform: str,
    fun: Callable[..., Any],
    arguments: Arguments,
    names: Sequence[str],
    has_aux: bool,
) -> Traced:
    """Trace `fun` on the values of its arguments."""
    return trace_function(
        fun,
        arguments,
        transform,
        values=arguments.leaves,
        has_aux=has_aux,
        names=names,
        differentiated=True,
    )


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes `fun` and its gradient.

    `fun` returns a scalar of a real floating dtype (complex with `holomorphic`); the gradient has
    the structure, shapes and dtypes of the arguments in `argnums` (a tuple of them if `argnums` is
    a sequence).  With `has_aux`, `fun` returns `(value, auxiliary)` and so does the first result.
    The gradient in a complex argument x + iy is df/dx - i df/dy, as in JAX; with `holomorphic` it
    is the complex derivative.

    Raises ShapeError if the output is no scalar, DTypeError if it or an argument is no float.
    """
    check_callable("value_and_grad", fun)

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("grad", fun, argnums, args, kwargs)
        arguments = chosen.arguments
        check_inputs("grad", arguments.types, chosen.names, holomorphic, allow_int)
        traced = _with_values("grad", chosen.function, arguments, chosen.names, has_aux)
        _check_scalar(traced, function_name(fun), holomorphic)
        flags = [is_inexact(t.dtype) for t in arguments.types]
        graph = gradient_graph(traced.graph, traced.input_flags(flags))
        outs = inline(graph, [*arguments.leaves, *traced.captures])
        value, aux, found = traced.rebuilt(outs)
        gradient, _ = arguments.treedef.unflatten(_or_float0(found, flags, arguments.types))
        result = (value, aux) if has_aux else value
        return result, gradient[0] if isinstance(argnums, int) else gradient

    return value_and_gradient


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fun`; see `value_and_grad`.

    With `has_aux` it returns `(gradient, auxiliary)`.
    """
    check_callable("grad", fun)
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, result = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return gradient


def gradient_graph(graph: Graph, flags: Sequence[bool]) -> Graph:
    """Return the graph that also computes the gradient of its first output.

    Its outputs are those of `graph` and then the cotangents of the flagged inputs.
    """
    with Trace(graph.name, "grad") as trace:
        inputs = [trace.input(x.type, x.label) for x in graph.inputs]
        seed = graph.outputs[0].type

        def cts(outs: Sequence[Any]) -> list[Any]:
            return [full((), 1, seed.dtype), *(None for _ in outs[1:])]

        outs, back = value_and_pullback(trace, graph, inputs, flags, cts)
        found = [
            _as_type(zeros_like(x) if ct is None else ct, x.type)
            for x, ct, f in zip(inputs, back, flags, strict=True)
            if f
        ]
        result = trace.finish([*outs, *found])
    return simplify(verified(result, "grad"))


def _as_type(value: Any, type_: ArrayType) -> Any:
    return convert(value, type_.dtype, type_.weak)


def _or_float0(
    found: Iterable[Any], flags: Sequence[bool], types: Sequence[ArrayType]
) -> list[Any]:
    """Return a leaf of `found` where flagged, elsewhere the tangent that an integer has."""
    leaves = iter(found)
    return [
        next(leaves) if f else np.zeros(t.shape, float0) for f, t in zip(flags, types, strict=True)
    ]


def check_inputs(
    transform: str,
    types: Sequence[ArrayType],
    names: Sequence[str],
    holomorphic: bool,
    allow_int: bool,
) -> None:
    for t, name in zip(types, names, strict=True):
        if is_complex(t.dtype) and not holomorphic and transform == "jacfwd":
            raise DTypeError(
                f"jacfwd: argument {name} is complex, {t!r}.",
                values=[(name, repr(t), "")],
                advice=(
                    "Use holomorphic=True for a holomorphic function, jvp for derivatives along "
                    "real directions, or jacrev for a real function of complex numbers."
                ),
            )
        if holomorphic and not is_complex(t.dtype):
            raise DTypeError(
                f"{transform}: with holomorphic=True argument {name} must be complex, got {t!r}.",
                values=[(name, repr(t), "")],
                advice="Convert it with astype(complex), or leave out holomorphic=True.",
            )
        if not is_inexact(t.dtype) and not allow_int:
            raise DTypeError(
                f"{transform}: argument {name} has type {t!r}, and integers have no gradient.",
                values=[(name, repr(t), "")],
                advice=(
                    "Convert it with astype(float), leave it out of argnums, or use allow_int=True."
                ),
            )


def _check_scalar(traced: Traced, name: str, holomorphic: bool) -> None:
    if traced.out_tree.num_leaves != 1 or not tree.treedef_is_leaf(traced.out_tree):
        raise ArgumentError(
            f"grad needs {name} to return one scalar, and it returned {traced.out_tree}.",
            advice="Return the loss alone, or (loss, aux) with has_aux=True.",
        )
    node = traced.graph.outputs[0]
    where = [(node.op.name, repr(node.type), node.source.shown() if node.source else "")]
    if node.type.shape != ():
        raise ShapeError(
            f"grad needs {name} to return a scalar, and it returned shape {node.type.shape}.",
            values=where,
            advice="Reduce it (sum, mean), or use jacrev, jacfwd or vjp.",
        )
    check_output("grad", name, node.type, holomorphic, where)


def check_output(
    transform: str, name: str, t: ArrayType, holomorphic: bool, where: list[tuple[str, str, str]]
) -> None:
    """Raise unless a result is real, or complex with `holomorphic`; any, for jacfwd without."""
    dtype, holds = t.dtype, f"and it returned {SHORT_NAMES[t.dtype]}."
    if holomorphic and not is_complex(dtype):
        raise DTypeError(
            f"{transform} with holomorphic=True needs {name} to return complex values, {holds}",
            values=where,
            advice="Leave out holomorphic=True for a function whose result is real.",
        )
    if holomorphic or transform == "jacfwd":
        return
    if is_complex(dtype) or not is_inexact(dtype):
        raise DTypeError(
            f"{transform} needs {name} to return a real floating value, {holds}",
            values=where,
            advice=(
                "Convert it with astype(float), or use holomorphic=True for a holomorphic function."
            ),
        )


def _tangent_arguments(
    what: str, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Arguments, list[Any]]:
    """Check that tangents go with primals, and return both flattened."""
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise ArgumentError(
            f"{what}: primals and tangents are tuples or lists, one item per argument of "
            "the function.",
            advice=f"Write {what}(f, (x,), (t,)).",
        )
    arguments = flatten_arguments(what, tuple(primals), {})
    leaves, treedef = tree.tree_flatten((tuple(tangents), {}))
    if treedef != arguments.treedef:
        raise ArgumentError(
            f"{what}: primals and tangents differ in structure: {arguments.treedef} and {treedef}.",
            advice="Give one tangent for each primal, in containers of the same kind.",
        )
    return arguments, leaves


def _check_tangents(what: str, types: Sequence[ArrayType], tangents: Sequence[Any]) -> list[bool]:
    """Return which tangents count (those of integers are float0 and do not)."""
    flags = []
    for t, tangent in zip(types, tangents, strict=True):
        given = getattr(tangent, "dtype", None)
        if given == float0:
            flags.append(False)
            continue
        type_ = type_of(tangent)
        if type_.dtype != t.tangent().dtype or type_.shape != t.shape:
            kind = "cotangent" if what == "vjp" else "tangent"
            error = DTypeError if type_.shape == t.shape else ShapeError
            raise error(
                f"{what}: the {kind} of a {t!r} has type {t.tangent()!r}, got {type_!r}.",
                advice=f"A {kind} has the shape and dtype of its primal; of integers, float0.",
            )
        flags.append(True)
    return flags


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """Return `fun(*primals)` and its directional derivative along `tangents` (and aux).

    Tangents have the structure, shapes and dtypes of the primals; raises DTypeError otherwise.
    """
    check_callable("jvp", fun)
    arguments, given = _tangent_arguments("jvp", primals, tangents)
    flags = _check_tangents("jvp", arguments.types, given)
    traced = _with_values("jvp", fun, arguments, labels(fun, primals, {}), has_aux)
    graph, has_tangent = jvp_graph(traced.graph, traced.input_flags(flags))
    kept = [t for t, f in zip(given, flags, strict=True) if f]
    outs = inline(simplify(graph), [*arguments.leaves, *traced.captures, *kept])
    result, aux, found = traced.rebuilt(outs)
    tangents = _or_zero(found, has_tangent, traced.graph.output_types)
    result_tangent = traced.out_tree.unflatten(tangents[: traced.out_tree.num_leaves])
    return (result, result_tangent, aux) if has_aux else (result, result_tangent)


def _zero_tangent(type_: ArrayType) -> Any:
    if not is_inexact(type_.dtype):
        return np.zeros(type_.shape, float0)
    return full(type_.shape, 0, type_.dtype, type_.weak)


def _or_zero(found: Iterable[Any], flags: Sequence[bool], types: Sequence[ArrayType]) -> list[Any]:
    """Return a tangent of `found` where flagged, a zero one elsewhere, weak where its primal is."""
    tangents = iter(found)
    return [
        _as_type(next(tangents), t) if f else _zero_tangent(t)
        for f, t in zip(flags, types, strict=True)
    ]


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `fun(*primals)` and the linear map from tangents of primals to those of the result.

    The map is a pytree (`tree_util.Partial`) of the residuals; calling it does not run `fun`.
    """
    check_callable("linearize", fun)
    arguments = flatten_arguments("linearize", primals, {})
    traced = _with_values("linearize", fun, arguments, labels(fun, primals, {}), has_aux)
    flags = [is_inexact(t.dtype) for t in arguments.types]
    primal, linear, has_tangent = linearize_graph(traced.graph, traced.input_flags(flags))
    primal, linear, _ = _with_few_residuals(
        primal, linear, len(traced.graph.outputs), Prices(operation=_EACH_CALL)
    )
    outs = inline(simplify(primal), [*arguments.leaves, *traced.captures])
    result, aux, residuals = traced.rebuilt(outs)
    count = traced.out_tree.num_leaves
    apply = _LinearMap(
        simplify(linear),
        arguments.treedef,
        flags,
        arguments.types,
        traced.out_tree,
        has_tangent[:count],
        traced.graph.output_types[:count],
    )
    linear_map = tree.Partial(apply, residuals)
    return (result, linear_map, aux) if has_aux else (result, linear_map)


@dataclass(frozen=True, eq=False)
class _LinearMap:
    """The function of a linearized function's Partial; residuals are its first argument."""

    graph: Graph
    treedef: tree.TreeDef
    flags: Sequence[bool]
    types: Sequence[ArrayType]
    out_tree: tree.TreeDef
    has_tangent: Sequence[bool]
    out_types: Sequence[ArrayType]

    def __call__(self, _residuals: Sequence[Any], *tangents: Any) -> Any:
        leaves, treedef = tree.tree_flatten((tangents, {}))
        if treedef != self.treedef:
            raise ArgumentError(
                f"linearize: the map takes tangents of structure {self.treedef}, got {treedef}.",
                advice="Give one tangent for each argument of the function.",
            )
        lengths = _lengths(self.graph, _residuals, self.types, leaves)
        types, out_types = _of_lengths(self.types, lengths), _of_lengths(self.out_types, lengths)
        flags = _check_tangents("linearize", types, leaves)
        given = [
            t if f else _zero_tangent(type_)
            for t, f, d, type_ in zip(leaves, flags, self.flags, types, strict=True)
            if d
        ]
        count = sum(1 for h in self.has_tangent if h)
        found = inline(self.graph, [*_residuals, *given])[:count]
        return self.out_tree.unflatten(_or_zero(found, self.has_tangent, out_types))


def _lengths(
    graph: Graph, residuals: Sequence[Any], types: Sequence[ArrayType], leaves: Sequence[Any]
) -> dict[str, Dimension]:
    """Return the lengths that were open where a map was made and are known where it is applied, of
    residuals, then of `leaves` that are to have `types`."""
    if not graph.open_inputs:
        return {}
    found = matched(graph.input_types[: len(residuals)], list(map(type_of, residuals)))
    given = {
        t: type_of(x)
        for t, x in zip(types, leaves, strict=True)
        if getattr(x, "dtype", None) != float0 and np.ndim(x) == len(t.shape)
    }
    return matched(list(given), list(given.values())) | found


def _of_lengths(
    types: Sequence[ArrayType], lengths: Mapping[str, Dimension]
) -> Sequence[ArrayType]:
    """Return types with open lengths replaced by those that are known."""
    return [t.with_shape(replaced_in(t.shape, lengths)) for t in types] if lengths else types


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `fun(*primals)` and the map from cotangents of the result to those of the primals.

    The function is a pytree (`tree_util.Partial`) that holds the residuals.
    """
    check_callable("vjp", fun)
    arguments = flatten_arguments("vjp", primals, {})
    traced = _with_values("vjp", fun, arguments, labels(fun, primals, {}), has_aux)
    count = traced.out_tree.num_leaves
    flags = [is_inexact(t.dtype) for t in arguments.types]
    cut = pullback_parts(traced, flags)
    outs = inline(cut.known, [*arguments.leaves, *traced.captures])
    result, aux, residuals = traced.rebuilt(outs)
    apply = _Pullback(
        cut.unknown,
        arguments.treedef,
        flags,
        arguments.types,
        traced.out_tree,
        traced.graph.output_types[:count],
    )
    pullback = tree.Partial(apply, residuals)
    return (result, pullback, aux) if has_aux else (result, pullback)


def pullback_parts(traced: Traced, flags: Sequence[bool]) -> Recut:
    """Return what a function computes at once, and the rest of its pullback: of the residuals and
    the cotangents of its results to the cotangents of the arguments flagged."""
    graph, count = traced.graph, traced.out_tree.num_leaves
    joint = _pullback_graph(graph, traced.input_flags(flags), count)
    n, outputs = len(graph.inputs), len(graph.outputs)
    unknown = [False] * n + [True] * (len(joint.inputs) - n)
    parts = split(joint, unknown, known_outputs=outputs)
    return _with_few_residuals(parts.known, parts.unknown, outputs)


# The price of an operation that each call of a linear map repeats: only moving elements is cheap.
_EACH_CALL = 8.0


def _with_few_residuals(
    known: Graph, unknown: Graph, outputs: int, prices: Prices = STANDARD
) -> Recut:
    """Return the two parts of a function with the residuals that a caller has to hold.

    Arguments and results are held anyway.
    """
    there = dict.fromkeys(known.inputs, There("an argument", 0))
    there |= dict.fromkeys(known.outputs[:outputs], There("a result", 0))
    found = fewer_residuals(known, unknown, outputs, there, prices)
    report(known.name.removesuffix("_known"), found.cut, known.outputs[outputs:])
    return found


def _pullback_graph(graph: Graph, flags: Sequence[bool], count: int) -> Graph:
    """Return the graph from inputs and cotangents of the first `count` outputs to outputs and
    cotangents of the flagged inputs."""
    with Trace(graph.name, "vjp") as trace:
        inputs = [trace.input(x.type, x.label) for x in graph.inputs]
        given = [
            trace.input(y.type.tangent(), f"ct{i}") if is_inexact(y.type.dtype) else None
            for i, y in enumerate(graph.outputs[:count])
        ]
        rest = [None] * (len(graph.outputs) - count)
        outs, back = value_and_pullback(trace, graph, inputs, flags, lambda _: [*given, *rest])
        found = [
            _as_type(zeros_like(x) if ct is None else ct, x.type)
            for x, ct, f in zip(inputs, back, flags, strict=True)
            if f
        ]
        result = trace.finish([*outs, *found])
    return simplify(verified(result, "vjp"))


@dataclass(frozen=True, eq=False)
class _Pullback:
    """The function of a vjp's Partial; residuals are its first argument."""

    graph: Graph
    treedef: tree.TreeDef
    flags: Sequence[bool]
    types: Sequence[ArrayType]
    out_tree: tree.TreeDef
    out_types: Sequence[ArrayType]

    def __call__(self, _residuals: Sequence[Any], ct: Any) -> Any:
        leaves, treedef = tree.tree_flatten(ct)
        if treedef != self.out_tree:
            raise ArgumentValueError(
                f"vjp: the cotangent has structure {treedef}, the result {self.out_tree}.",
                advice="Give one cotangent for each result, in containers of the same kind.",
            )
        lengths = _lengths(self.graph, _residuals, self.out_types, leaves)
        _check_tangents("vjp", _of_lengths(self.out_types, lengths), leaves)
        given = [c for c, t in zip(leaves, self.out_types, strict=True) if is_inexact(t.dtype)]
        found = inline(self.graph, [*_residuals, *given])
        types = _of_lengths(self.types, lengths)
        args, _ = self.treedef.unflatten(_or_float0(found, self.flags, types))
        return args
