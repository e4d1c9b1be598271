"""custom_jvp and custom_vjp: functions with derivative rules of their own."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from stax import tree
from stax.api.custom_rules import Signature, forward, prepared, pushed, zero_from_primal
from stax.api.tracing import (
    Arguments,
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    positional_names,
    positions,
    trace_function,
)
from stax.control.held import rearranged, unused
from stax.custom import CustomJvp, CustomVjp, Rule
from stax.errors import ArgumentError, MissingRule, UnsupportedError
from stax.graph import Graph
from stax.operators.gradient import stop_gradient
from stax.trace import Proxy, bind, recorder, results


class CustomFunction:
    """What both kinds share: which arguments the rule differentiates, and how a call is read."""

    kind: str
    symbolic_zeros = False
    closes_over_nothing = False  # a rule, traced once, that needs nothing of where it is applied
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        check_callable(self.kind, fun)
        # A function with a rule keeps its rule in its attributes: no copies of those.
        functools.update_wrapper(self, fun, updated=())
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

    def __getattr__(self, name: str) -> Any:
        if name == "fun":  # not there yet, while an object is unpickled
            raise AttributeError(name)
        return getattr(self.fun, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function; inside of a trace, as one op that has the rule."""
        self._check_rule()
        given = self._positional(args, kwargs)
        fixed = self._fixed(given)
        others = [x for i, x in enumerate(given) if i not in fixed]
        arguments = flatten_arguments(self.kind, others, {})
        if recorder(arguments.leaves) is None:
            return self.fun(*given)
        fixed = {i: self._held(x) for i, x in fixed.items()}
        fun = self._of_others(self.fun, given, fixed)
        traced = trace_function(fun, arguments, self.kind, values=arguments.leaves)
        return self._bound(given, fixed, arguments, traced)

    def _check_rule(self) -> None:
        """Raise MissingRule if no rule was set."""
        raise NotImplementedError

    def _held(self, value: Any) -> Any:
        """Return an argument that is not differentiated as the function and its rule get it."""
        return value

    def _bound(
        self, given: Sequence[Any], fixed: dict[int, Any], arguments: Arguments, traced: Traced
    ) -> Any:
        """Return the results of the op."""
        raise NotImplementedError

    def _signature(self, arguments: Arguments, traced: Traced) -> Signature:
        return Signature(
            function_name(self.fun),
            arguments.types,
            arguments.treedef,
            traced.out_tree,
            traced.graph.output_types,
            self.symbolic_zeros,
        )

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

    def _fixed(self, args: Sequence[Any]) -> dict[int, Any]:
        """Return the arguments that are not differentiated, by position."""
        for a in self.nondiff:
            if not -len(args) <= a < len(args):
                raise ArgumentError(
                    f"{self.kind}: {function_name(self.fun)} was given {len(args)} arguments, and "
                    f"nondiff_argnums names argument {a}.",
                    advice="Positions count from 0.",
                )
        return {a % len(args): args[a] for a in self.nondiff}

    def _of_others(
        self, fun: Callable[..., Any], args: Sequence[Any], fixed: dict[int, Any]
    ) -> Callable[..., Any]:
        """Return `fun` of the arguments that are differentiated."""

        @functools.wraps(fun)
        def of_others(*others: Any) -> Any:
            rest = iter(others)
            return fun(*(fixed[i] if i in fixed else next(rest) for i in range(len(args))))

        return of_others


class custom_jvp(CustomFunction):
    """A function with a rule for its tangents, set by `defjvp` or `defjvps`.

    Arguments named by `nondiff_argnums` or `nondiff_argnames` are handed to the rule as they are,
    before the others; no derivative passes through them.  What the function closes over has no
    derivative either: it is an error to differentiate it.  A rule may close over anything.
    """

    kind = "custom_jvp"
    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule `jvp(*nondiff, primals, tangents) -> (result, tangent of the result)`.

        Tangents that are zero come as arrays, or with `symbolic_zeros` as
        `custom_derivatives.SymbolicZero`, which the rule may return too.
        """
        check_callable("defjvp", jvp)
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        self.closes_over_nothing = False
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set a rule `jvp(tangent, result, *primals)` for each argument; None: no derivative."""
        if self.nondiff:
            raise ArgumentError(
                "defjvps: rules by argument do not go with nondiff_argnums.", advice="Use defjvp."
            )

        @functools.wraps(self.fun)
        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            if len(jvps) != len(primals):
                raise ArgumentError(
                    f"defjvps: {len(jvps)} rules for the {len(primals)} arguments of "
                    f"{function_name(self.fun)}.",
                    advice="Give one for each argument, None for one without derivative.",
                )
            out = self(*primals)
            terms = [
                rule(t, out, *primals)
                for rule, t in zip(jvps, tangents, strict=True)
                if rule is not None
            ]
            return out, functools.reduce(_sum, terms) if terms else zero_from_primal(out)

        self.defjvp(jvp)

    def _check_rule(self) -> None:
        if self.jvp is None:
            raise MissingRule(
                f"custom_jvp: {function_name(self.fun)} has no rule.",
                advice="Set one with defjvp, before the first call.",
            )

    def _held(self, value: Any) -> Any:
        return tree.tree_map(lambda x: stop_gradient(x) if type(x) is Proxy else x, value)

    def _bound(
        self, given: Sequence[Any], fixed: dict[int, Any], arguments: Arguments, traced: Traced
    ) -> Any:
        assert self.jvp is not None
        signature = self._signature(arguments, traced)
        nondiff = [fixed[a % len(given)] for a in self.nondiff]
        jvp = functools.partial(self.jvp, *nondiff)
        rule, closed = prepared(
            function_name(self.jvp),
            [self.jvp, *nondiff],
            arguments.leaves,
            functools.partial(pushed, signature, jvp),
            None if self.symbolic_zeros else signature.moving,
            lambda rule: rule(signature.moving),
            None if nondiff else self,
        )
        graph = with_unused(traced.graph, closed)
        op = CustomJvp(graph, rule, len(arguments.leaves), len(closed))
        operands = [*arguments.leaves, *traced.captures, *closed]
        return traced.out_tree.unflatten(results(bind(op, *operands)))


class custom_vjp(CustomFunction):
    """A function with a rule for its cotangents, set by `defvjp`.

    Arguments named by `nondiff_argnums` or `nondiff_argnames` are handed to the rule as they are.
    What the function closes over has no derivative: it is an error to differentiate it.  A rule may
    close over anything.

    In forward mode the rule is transposed, which works if `bwd` is linear in its cotangents; what
    it prints or checks is of cotangents, and does not happen then.  If the function has a rule for
    tangents too, because `fun` is a `custom_jvp`, that is used there.
    """

    kind = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    optimize_remat = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rule: `fwd(*args) -> (result, residuals)`, `bwd(*nondiff, residuals, cotangent)
        -> a tuple of cotangents`, one for each argument that is differentiated, None for zero.

        With `symbolic_zeros`, leaves of the arguments of `fwd` are
        `custom_derivatives.CustomVJPPrimal`, which say whether they are differentiated, and
        cotangents that are zero are `SymbolicZero`.  Residuals that are Python values, not arrays,
        reach `bwd` as they are.  `optimize_remat` changes nothing here: what of `fwd` is not needed
        again is never computed again.
        """
        check_callable("defvjp", fwd)
        check_callable("defvjp", bwd)
        if symbolic_zeros and optimize_remat:
            raise UnsupportedError(
                "defvjp: optimize_remat does not go with symbolic_zeros.",
                advice="Leave out optimize_remat.",
            )
        self.fwd, self.bwd = fwd, bwd
        self.closes_over_nothing = False
        self.symbolic_zeros, self.optimize_remat = symbolic_zeros, optimize_remat

    def _check_rule(self) -> None:
        if self.fwd is None or self.bwd is None:
            raise MissingRule(
                f"custom_vjp: {function_name(self.fun)} has no rule.",
                advice="Set one with defvjp, before the first call.",
            )

    def _bound(
        self, given: Sequence[Any], fixed: dict[int, Any], arguments: Arguments, traced: Traced
    ) -> Any:
        assert self.fwd is not None and self.bwd is not None
        signature = self._signature(arguments, traced)
        nondiff = [fixed[a % len(given)] for a in self.nondiff]
        fwd = self._of_others(self.fwd, given, fixed)
        bwd = functools.partial(self.bwd, *nondiff)
        count = sum(signature.out_moving)

        def explore(rule: Rule) -> None:
            rule(signature.moving).backward([True] * count)

        rule, closed = prepared(
            function_name(self.fwd),
            [self.fwd, self.bwd, *nondiff],
            arguments.leaves,
            functools.partial(forward, signature, fwd, bwd),
            None if self.symbolic_zeros else signature.moving,
            explore,
            None if nondiff else self,
        )
        graph = with_unused(traced.graph, closed)
        has_jvp = isinstance(self.fun, custom_jvp)
        op = CustomVjp(graph, rule, len(arguments.leaves), len(closed), has_jvp)
        operands = [*arguments.leaves, *traced.captures, *closed]
        return traced.out_tree.unflatten(results(bind(op, *operands)))


def _sum(a: Any, b: Any) -> Any:
    return tree.tree_map(operator.add, a, b)


def with_unused(graph: Graph, closed: Sequence[Proxy]) -> Graph:
    """Return `graph` with further inputs that only its rule reads."""
    inputs = [*graph.inputs, *(unused(x.node) for x in closed)]
    return rearranged(graph, inputs, graph.outputs) if closed else graph
