"""The reference evaluator: what a graph means, in NumPy, one op at a time.

It is the eager mode of the library and the measure for every backend.  Values are dropped after
their last use, so a graph needs no more memory than it has to.  In eager mode, which begins with
`run`, `run_graph` and `evaluate_nodes`, loops are programs (see `runtime.loops`); `evaluate` by
itself runs them step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from stax.array import Array, array_from_numpy, value_of
from stax.config import config
from stax.errors import StaxError
from stax.extent import Extent
from stax.graph import Graph, Node
from stax.interpreters.lengths import fitted, op_with_lengths
from stax.interpreters.nonfinite import check_result, check_values, is_bad
from stax.op import Op
from stax.trace import doing, links, operand_rows
from stax.types import ArrayType, TupleType, storage

_eager: ContextVar[bool] = ContextVar("stax_eager", default=False)


@contextmanager
def _eagerly() -> Iterator[None]:
    """Let loops run as programs, for a `with` block."""
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


@functools.lru_cache(maxsize=512)
def _keep(op: Op) -> None:
    """Keep the ops that ran last, which eager calls would make again and again."""


def run(op: Op, args: Sequence[Any], operands: ArrayType | None = None) -> Any:
    """Apply `op` to concrete arrays; several results come as a tuple of arrays.

    With `operands`, the op is element-wise on operands of that type, and `args` are numbers and
    arrays of its dtype, which NumPy broadcasts.
    """
    if op.is_plain:
        _keep(op)
    if operands is None:
        args = [x if type(x) is Array else links.as_array(x) for x in args]
        kinds = [x.type for x in args]
    else:
        kinds = [operands] * len(args)
    try:
        type_ = op.result_type(*kinds)
    except StaxError as error:
        rows = operand_rows(kinds, [""] * len(kinds))
        raise error.located(rows, doing()) from None
    if operands is None:
        values = list(map(value_of, args))
    else:
        dtype = storage(operands.dtype)
        values = [value_of(x) if type(x) is Array else np.asarray(x).astype(dtype) for x in args]
    if op.holds_graph or op.loops:
        with _eagerly():
            value = links.run_loop(op, kinds, values) if op.loops else op.evaluate(*values)
    else:
        value = op.evaluate(*values)
    if config.watches():
        check_result(op, kinds, value)
    if isinstance(type_, TupleType):
        return tuple(map(array_from_numpy, value, type_.items))
    return array_from_numpy(np.asarray(value), type_)


def evaluate_nodes(nodes: Sequence[Node], known: dict[Node, Any]) -> None:
    """Add the values of `nodes`, given in program order, to `known`."""
    lengths: dict[str, int] = {}
    with _eagerly():
        for node in nodes:
            value = known.get(node)
            if not isinstance(value, np.ndarray | tuple):
                known[node] = _apply(node, [known[x] for x in node.inputs], lengths)
            if node.op.opens:
                _find(node, known[node], lengths)


def evaluate(graph: Graph, args: Sequence[np.ndarray], inner: bool = True) -> list[np.ndarray]:
    """Return the outputs of `graph`, which is held in another one if it is `inner`.

    `args` are NumPy arrays of its input types.
    """
    if graph.open_inputs:
        shapes = zip(graph.input_types, map(np.shape, args), strict=True)
        graph = fitted(graph, [t.with_shape(shape) for t, shape in shapes])
    values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    remaining = graph.uses()
    lengths: dict[str, int] = {}
    watching = config.watches()
    bad = {x: is_bad(value) for x, value in values.items()} if watching else {}
    for node in graph.nodes:
        values[node] = _apply(node, [values[x] for x in node.inputs], lengths)
        if node.op.opens:
            _find(node, values[node], lengths)
        if watching:
            bad[node] = is_bad(values[node])
        for x in node.inputs:
            remaining[x] -= 1
            if not remaining[x]:
                del values[x]
    if watching:
        check_values(graph, bad, inner)
    return [values[x] for x in graph.outputs]


def _find(node: Node, value: Sequence[Any], lengths: dict[str, int]) -> None:
    """Add the length that a node found to `lengths`, by its symbol."""
    for t, found in zip(node.type.items, value, strict=True):
        if t.shape and isinstance(t.shape[0], Extent) and t.shape[0].symbols() == (node.op.opens,):
            lengths[node.op.opens] = len(found)
            return


def _apply(node: Node, args: list[Any], lengths: Mapping[str, int]) -> Any:
    """Return the value of a node; `lengths` are those that others before it have found."""
    if node.op.loops and _eager.get():
        value = links.run_loop(node.op, [x.type for x in node.inputs], args)
    else:
        op: Any = op_with_lengths(node.op, lengths) if lengths else node.op
        value = op.evaluate(*args)
    return value if isinstance(node.type, TupleType) else np.asarray(value)


def run_graph(graph: Graph, args: Sequence[Any]) -> list[Array]:
    """Return the outputs of `graph` as arrays, for arrays or what can become one."""
    arrays = [value_of(x if type(x) is Array else links.as_array(x)) for x in args]
    with _eagerly():
        values = evaluate(graph, arrays, inner=False)
    return list(map(array_from_numpy, values, found_types(graph, values)))


def found_types(graph: Graph, values: Sequence[Any]) -> Sequence[ArrayType]:
    """Return the types of the outputs with the lengths that they have in `values`."""
    if not (graph.opens or graph.open_inputs):
        return graph.output_types
    pairs = zip(graph.output_types, values, strict=True)
    return [t.with_shape(y.shape) if t.shape else t for t, y in pairs]


links.run = run
links.run_graph = run_graph
links.evaluate = evaluate_nodes
