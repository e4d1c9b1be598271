"""make_graph and eval_shape: what a function does, and what it returns, without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stax.api.abstract import ShapeDtypeStruct
from stax.api.tracing import flatten_arguments, labels, trace_function
from stax.graph import Graph


def make_graph(fun: Callable[..., Any]) -> Callable[..., Graph]:
    """Return a function that gives the operator graph of `fun` for its arguments.

    Arguments are arrays, numbers or ShapeDtypeStructs; what `fun` closes over are trailing inputs.
    """

    @functools.wraps(fun)
    def graph(*args: Any, **kwargs: Any) -> Graph:
        arguments = flatten_arguments("make_graph", args, kwargs)
        return trace_function(fun, arguments, "make_graph", names=labels(fun, args, kwargs)).graph

    return graph


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the shapes and dtypes that `fun` returns, as ShapeDtypeStructs, without computing."""
    arguments = flatten_arguments("eval_shape", args, kwargs)
    traced = trace_function(fun, arguments, "eval_shape", names=labels(fun, args, kwargs))
    return traced.out_tree.unflatten(map(ShapeDtypeStruct.of, traced.graph.output_types))
