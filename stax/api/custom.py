"""custom_jvp and custom_vjp: functions with derivative rules of their own."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from stax import tree
from stax.api.tracing import (
    Arguments,
    check_callable,
    flatten_arguments,
    function_name,
    positional_names,
    positions,
    trace_function,
)
from stax.control.held import marked, spread
from stax.custom import Closed, CustomJvp, CustomVjp, Rule
from stax.errors import ArgumentError, DTypeError, MissingRule, ShapeError, UnsupportedError
from stax.graph import Graph
from stax.trace import Trace, bind, current_trace, results, type_of, zeros
from stax.types import ArrayType, float0, is_inexact


class _Custom:
    """What both kinds share: which arguments the rule differentiates, and how a call is read."""

    kind: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        check_callable(self.kind, fun)
        self.fun = fun
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else nondiff_argnames
        known = positional_names(fun)
        for name in names:
            if name not in known:
                raise ArgumentError(
                    f"{self.kind}: {function_name(fun)} has no parameter {name}.",
                    advice=f"It has {', '.join(known)}.",
                )
        self.nondiff = tuple(sorted({*positions(nondiff_argnums), *map(known.index, names)}))
        functools.update_wrapper(self, fun)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arguments by position, defaults filled in."""
        try:
            bound = inspect.signature(self.fun).bind(*args, **kwargs)
        except (TypeError, ValueError):
            if kwargs:
                raise
            return list(args)
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentError(
                f"{self.kind}: {function_name(self.fun)} takes {', '.join(bound.kwargs)} by name "
                "only.",
                advice="Arguments of a function with a rule can be given by position.",
            )
        return list(bound.args)

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the arguments that are not differentiated, and the others."""
        fixed = [a % len(args) for a in self.nondiff] if args else []
        return [args[i] for i in fixed], [x for i, x in enumerate(args) if i not in fixed]

    def _of_others(self, fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
        """Return `fun` of the arguments that are differentiated."""
        fixed = {a % len(args): args[a] for a in self.nondiff}

        @functools.wraps(fun)
        def of_others(*others: Any) -> Any:
            rest = iter(others)
            return fun(*(fixed[i] if i in fixed else next(rest) for i in range(len(args))))

        return of_others


class custom_jvp(_Custom):
    """A function with a rule for its tangents, set by `defjvp` or `defjvps`.

    Arguments named by `nondiff_argnums` or `nondiff_argnames` are handed to the rule as they are,
    before the others.  Values that the function or its rule close over have no derivative: it is an
    error to differentiate them.
    """

    kind = "custom_jvp"
    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule `jvp(*nondiff, primals, tangents) -> (result, tangent of the result)`."""
        check_callable("defjvp", jvp)
        if symbolic_zeros:
            raise UnsupportedError(
                "defjvp: symbolic_zeros is not supported.", advice="Zeros come as arrays."
            )
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set a rule `jvp(tangent, result, *primals)` for each argument; None: no derivative."""
        if self.nondiff:
            raise ArgumentError(
                "defjvps: rules by argument do not go with nondiff_argnums.", advice="Use defjvp."
            )

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            out = self(*primals)
            terms = [
                rule(t, out, *primals)
                for rule, t in zip(jvps, tangents, strict=True)
                if rule is not None
            ]
            if not terms:
                return out, tree.tree_map(lambda y: zeros(type_of(y).tangent()), out)
            return out, functools.reduce(_sum, terms)

        self.jvp = jvp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise MissingRule(
                f"custom_jvp: {function_name(self.fun)} has no rule.",
                advice="Set one with defjvp, before the first call.",
            )
        given = self._positional(args, kwargs)
        nondiff, others = self._split(given)
        arguments = flatten_arguments(self.kind, others, {})
        traced = trace_function(self._of_others(self.fun, given), arguments, self.kind)
        jvp = functools.partial(self.jvp, *nondiff)

        def make() -> list[tuple[Graph, list[Any]]]:
            return [_jvp_graph(jvp, arguments, traced.out_tree, traced.graph.output_types)]

        rule, closed = _prepared(make, (self.jvp, nondiff), len(traced.graph.inputs))
        op = CustomJvp(_with_unused(traced.graph, closed), rule, len(arguments.leaves))
        operands = [*arguments.leaves, *traced.captures, *closed]
        return traced.out_tree.unflatten(results(bind(op, *operands)))


class custom_vjp(_Custom):
    """A function with a rule for its cotangents, set by `defvjp`.

    Arguments named by `nondiff_argnums` or `nondiff_argnames` are handed to the rule as they are.
    """

    kind = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rule: `fwd(*args) -> (result, residuals)`, `bwd(*nondiff, residuals, cotangent)
        -> a tuple of cotangents`, one for each argument that is differentiated, None for zero."""
        check_callable("defvjp", fwd)
        check_callable("defvjp", bwd)
        if symbolic_zeros:
            raise UnsupportedError(
                "defvjp: symbolic_zeros is not supported.", advice="Zeros come as arrays."
            )
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None or self.bwd is None:
            raise MissingRule(
                f"custom_vjp: {function_name(self.fun)} has no rule.",
                advice="Set one with defvjp, before the first call.",
            )
        given = self._positional(args, kwargs)
        nondiff, others = self._split(given)
        arguments = flatten_arguments(self.kind, others, {})
        traced = trace_function(self._of_others(self.fun, given), arguments, self.kind)
        fwd = self._of_others(self.fwd, given)
        bwd = functools.partial(self.bwd, *nondiff)

        def make() -> list[tuple[Graph, list[Any]]]:
            return _vjp_graphs(fwd, bwd, others, arguments, traced.out_tree, traced.graph)

        functions = (self.fwd, self.bwd, nondiff)
        rule, closed = _prepared(make, functions, len(traced.graph.inputs))
        op = CustomVjp(_with_unused(traced.graph, closed), rule, len(arguments.leaves))
        operands = [*arguments.leaves, *traced.captures, *closed]
        return traced.out_tree.unflatten(results(bind(op, *operands)))


def _sum(a: Any, b: Any) -> Any:
    return tree.tree_map(operator.add, a, b)


# --- rules as graphs ---


# Rules that are being traced: a rule may well apply the function that it belongs to.
_under_way: ContextVar[tuple[Any, ...]] = ContextVar("stax_rules", default=())


def _prepared(
    make: Callable[[], list[tuple[Graph, list[Any]]]], functions: Any, start: int
) -> tuple[Rule, list[Any]]:
    """Return the rule, and values that it closes over which have to be operands.

    Inside of a trace a rule is traced at once, as what it closes over may be traced; one that fails
    there is traced again, and fails, when it is needed.
    """
    under_way = _under_way.get()
    if functions[0] in under_way or current_trace() is None:
        return Rule(make), []
    closed: list[Any] = []
    numbered: list[tuple[Graph, Sequence[Closed]]] = []
    token = _under_way.set((*under_way, functions[0]))
    try:
        made = make()
    except Exception:
        return Rule(make), []
    finally:
        _under_way.reset(token)
    for graph, captures in made:
        first = start + len(closed)
        numbered.append((graph, range(first, first + len(captures))))
        closed += captures
    return Rule(lambda: numbered), closed


def _with_unused(graph: Graph, closed: Sequence[Any]) -> Graph:
    """Return `graph` with further inputs that only its rule reads."""
    if not closed:
        return graph
    with Trace(graph.name, "custom") as trace:
        extra = [trace.input(type_of(x)).node for x in closed]
    return Graph(graph.name, [*graph.inputs, *extra], graph.nodes, graph.outputs)


def _moving(types: Sequence[ArrayType]) -> list[bool]:
    return [is_inexact(t.dtype) for t in types]


def _jvp_graph(
    jvp: Callable[..., Any],
    arguments: Arguments,
    out_tree: tree.TreeDef,
    out_types: Sequence[ArrayType],
) -> tuple[Graph, list[Any]]:
    """Trace a rule `jvp(primals, tangents)`: from leaves and tangents to results and tangents."""
    moving = _moving(arguments.types)
    name = function_name(jvp)
    with Trace(name, "custom_jvp") as trace:
        primals = [trace.input(t, "primal") for t in arguments.types]
        dots = [trace.input(t.tangent(), "tangent") for t in marked(arguments.types, moving)]
        every = [
            np.zeros(t.shape, float0) if d is None else d
            for t, d in zip(arguments.types, spread(dots, moving), strict=True)
        ]
        (args, _), (tangents, _) = (arguments.treedef.unflatten(x) for x in (primals, every))
        found = jvp(args, tangents)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise ArgumentError(
                f"custom_jvp: the rule {name} has to return a pair (result, tangent).",
                advice="Return (primal_out, tangent_out).",
            )
        outs = _leaves_like(found[0], out_tree, name, "result")
        out_dots = _leaves_like(found[1], out_tree, name, "tangent")
        _check_types(name, "result", outs, out_types)
        kept = [d for d, t in zip(out_dots, out_types, strict=True) if is_inexact(t.dtype)]
        _check_types(name, "tangent", kept, [t for t in out_types if is_inexact(t.dtype)])
        return trace.finish([*outs, *kept]), trace.captures


def _vjp_graphs(
    fwd: Callable[..., Any],
    bwd: Callable[..., Any],
    others: Sequence[Any],
    arguments: Arguments,
    out_tree: tree.TreeDef,
    graph: Graph,
) -> list[tuple[Graph, list[Any]]]:
    """Trace both parts of a rule for cotangents."""
    name = function_name(fwd)
    with Trace(name, "custom_vjp") as trace:
        args, _ = arguments.treedef.unflatten([trace.input(t, "primal") for t in arguments.types])
        found = fwd(*args)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise ArgumentError(
                f"custom_vjp: {name} has to return a pair (result, residuals).",
                advice="Return what the function returns, and what bwd needs.",
            )
        outs = _leaves_like(found[0], out_tree, name, "result")
        _check_types(name, "result", outs, graph.output_types)
        residuals, kept_tree = tree.tree_flatten(found[1])
        ahead = trace.finish([*outs, *residuals])
        closed = trace.captures
    kept_types = ahead.output_types[len(outs) :]
    return [(ahead, closed), _bwd_graph(bwd, kept_tree, kept_types, out_tree, graph, others)]


def _bwd_graph(
    bwd: Callable[..., Any],
    kept_tree: tree.TreeDef,
    kept_types: Sequence[ArrayType],
    out_tree: tree.TreeDef,
    graph: Graph,
    others: Sequence[Any],
) -> tuple[Graph, list[Any]]:
    """Trace the part of a rule that pulls cotangents back."""
    name, types = function_name(bwd), graph.output_types
    with Trace(name, "custom_vjp") as trace:
        residuals = kept_tree.unflatten([trace.input(t, "residual") for t in kept_types])
        cts = [trace.input(t.tangent(), "ct") for t in types if is_inexact(t.dtype)]
        every = [
            np.zeros(t.shape, float0) if c is None else c
            for t, c in zip(types, spread(cts, _moving(types)), strict=True)
        ]
        found = bwd(residuals, out_tree.unflatten(every))
        if not isinstance(found, tuple | list) or len(found) != len(others):
            shown = len(found) if isinstance(found, tuple | list) else type(found).__name__
            raise ArgumentError(
                f"custom_vjp: {name} has to return a tuple of {len(others)} cotangents, got "
                f"{shown}.",
                advice="Return one for each argument that is differentiated, None for zero.",
            )
        result = [
            leaf for x, ct in zip(others, found, strict=True) for leaf in _cotangents(name, x, ct)
        ]
        return trace.finish(result), trace.captures


def _cotangents(name: str, x: Any, ct: Any) -> list[Any]:
    """Return the cotangents of the leaves of an argument that have derivatives."""
    leaves, treedef = tree.tree_flatten(x)
    types = [type_of(leaf) for leaf in leaves]
    if ct is None:
        return [zeros(t.tangent()) for t in types if is_inexact(t.dtype)]
    found, out_tree = tree.tree_flatten(ct, is_leaf=lambda y: y is None)
    if len(found) != len(leaves):
        raise ArgumentError(
            f"custom_vjp: {name} returns a cotangent of another tree than its argument.",
            values=[("argument", "", str(treedef)), ("cotangent", "", str(out_tree))],
            advice="Return the same containers.",
        )
    result = []
    for c, t in zip(found, types, strict=True):
        if is_inexact(t.dtype):
            c = zeros(t.tangent()) if c is None else c
            _check_types(name, "cotangent", [c], [t])
            result.append(c)
    return result


def _leaves_like(value: Any, out_tree: tree.TreeDef, name: str, what: str) -> list[Any]:
    leaves, found = tree.tree_flatten(value)
    if found != out_tree:
        raise ArgumentError(
            f"{name}: the {what} of the rule has another tree than the function's.",
            values=[("function", "", str(out_tree)), ("rule", "", str(found))],
            advice="Return the same containers.",
        )
    return leaves


def _check_types(name: str, what: str, values: Sequence[Any], types: Sequence[ArrayType]) -> None:
    for x, t in zip(values, types, strict=True):
        given = type_of(x)
        if given.shape != t.shape:
            raise ShapeError(
                f"{name}: the {what} of the rule is {given} where {t} is needed.",
                advice="It has the shape of what it belongs to.",
            )
        if given.dtype != t.dtype:
            raise DTypeError(
                f"{name}: the {what} of the rule is {given} where {t} is needed.",
                advice="Convert it with astype.",
            )
