"""make_graph and eval_shape: what a function does, and what it returns, without running it.

Both trace without values, so a function that asks for one (`if x > 0`) raises as it does in jit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from stax.api.abstract import ShapeDtypeStruct
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    labels,
    positions,
    trace_function,
    with_static,
)
from stax.named_axes import bound
from stax.trace import type_of
from stax.types import ArrayType


def make_graph(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives the operator graph of `fun` for its arguments.

    Arguments are arrays, numbers or ShapeDtypeStructs; those in `static_argnums` are handed to
    `fun` as they are.  What `fun` closes over are trailing inputs.  With `return_shape`, the
    function returns the graph and what `eval_shape` returns.  `axis_env` has pairs of a name and a
    size: axes that `fun` may name as if vmap mapped them.
    """
    check_callable("make_graph", fun)

    @functools.wraps(fun)
    def graph(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        fixed = {p % count: args[p] for p in positions(static_argnums) if -count <= p < count}
        rest = [a for i, a in enumerate(args) if i not in fixed]
        with ExitStack() as names:
            for axis_name, size in axis_env or ():
                names.enter_context(bound(axis_name, size))
            traced = _traced("make_graph", with_static(fun, fixed, {}), rest, kwargs)
        return (traced.graph, _structs(traced)) if return_shape else traced.graph

    return graph


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the shapes and dtypes that `fun` returns, as ShapeDtypeStructs, without computing."""
    check_callable("eval_shape", fun)
    return _structs(_traced("eval_shape", fun, args, kwargs))


def typeof(x: Any) -> ArrayType:
    """Return the type of an array or a number: its dtype, shape and weak flag."""
    return type_of(x)


def _traced(
    transform: str, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Traced:
    arguments = flatten_arguments(transform, args, kwargs)
    return trace_function(fun, arguments, transform, names=labels(fun, args, kwargs))


def _structs(traced: Traced) -> Any:
    return traced.out_tree.unflatten(map(ShapeDtypeStruct.of, traced.graph.output_types))
