"""Derivatives at the level of graphs: what the tests of ops use, below the functions users see."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import value_and_pullback
from stax.op import Batch
from stax.trace import Trace, full, zeros_like
from stax.types import ArrayType

Function = Callable[..., Any]


def graph_of(function: Function, *types: ArrayType) -> Graph:
    """Return the graph of `function`, whose results are an array or a tuple of arrays."""
    with Trace("function", "test") as trace:
        out = function(*(trace.input(t, f"x{i}") for i, t in enumerate(types)))
        return trace.finish(out if isinstance(out, tuple) else (out,))


def traced(function: Function, arrays: Sequence[np.ndarray]) -> Graph:
    """Return the graph of `function` for the types of `arrays`."""
    return graph_of(function, *(ArrayType(x.dtype, x.shape) for x in arrays))


def gradient_graph(function: Function, x: np.ndarray, *fixed: np.ndarray) -> Graph:
    """Return the graph of the gradient in the first argument of a function with a scalar result."""
    graph = traced(function, [x, *fixed])
    flags = [True] + [False] * len(fixed)
    with Trace("gradient", "test") as trace:
        inputs = [trace.input(node.type) for node in graph.inputs]

        def seed(outs: Sequence[Any]) -> list[Any]:
            return [full((), 1, out.type.dtype) for out in outs]

        _, (found, *_) = value_and_pullback(trace, graph, inputs, flags, seed)
        return trace.finish([zeros_like(inputs[0]) if found is None else found])


def gradient(function: Function, x: np.ndarray, *fixed: np.ndarray) -> np.ndarray:
    """Return the gradient at `x`."""
    return evaluate(gradient_graph(function, x, *fixed), [x, *fixed])[0]


def pushed(function: Function, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return the tangent of the result for the tangent `t` of `x`."""
    graph, (has_tangent,) = jvp(traced(function, [x]), [True])
    assert has_tangent
    return evaluate(graph, [x, t])[1]


def hessian(function: Function, x: np.ndarray, *fixed: np.ndarray) -> np.ndarray:
    """Return the second derivatives at a vector `x`: forward over reverse, for a basis at once."""
    flags = [False] * len(fixed)
    forward, (has_tangent,) = jvp(gradient_graph(function, x, *fixed), [True, *flags])
    if not has_tangent:
        return np.zeros((x.size, x.size), x.dtype)
    mapped, (_, is_mapped) = batch(forward, Batch(x.size), [False, *flags, True])
    found = evaluate(mapped, [x, *fixed, np.eye(x.size, dtype=x.dtype)])[1]
    return found if is_mapped else np.stack([found] * x.size)


def batched(graph: Graph, x: np.ndarray, *fixed: np.ndarray) -> np.ndarray:
    """Return the result of `graph` for each element of the first axis of `x`."""
    mapped, _ = batch(graph, Batch(len(x)), [True] + [False] * len(fixed))
    return evaluate(mapped, [x, *fixed])[0]
