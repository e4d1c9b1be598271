"""Rewriting a graph by identities that hold bit for bit.

`x + 0` is not among them (it changes -0.0), `x * 1` is; a reduction is never reassociated.  Scalar
constants are folded by the reference evaluator, so folding cannot change a result either.  Common
subexpressions and dead code need no rule: the builder merges and drops them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax.graph import Constant, Graph, Node, is_constant
from stax.interpreters.interpret import attributed
from stax.op import Op
from stax.operators.bits import Late
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.random import RandomBits, RandomUnwrap, RandomWrap
from stax.operators.shape import Broadcast, Reshape, Transpose
from stax.trace import Trace
from stax.types import is_complex, is_float, storage
from stax.verify import verified


def simplify(graph: Graph) -> Graph:
    """Return `graph` rewritten by `identity`; exact."""
    with Trace(graph.name, "simplify") as trace:
        trace.inputs = list(graph.inputs)
        new: dict[Node, Node] = {x: x for x in graph.inputs}
        with attributed(trace) as attribute:
            for node in graph.nodes:
                attribute(node)
                inputs = tuple([new[x] for x in node.inputs])
                found = identity(trace, node.op, inputs)
                if found is None:
                    unchanged = inputs == node.inputs
                    found = trace.builder.adopt(node) if unchanged else trace.apply(node.op, inputs)
                elif found.type is not node.type:
                    # An identity may drop the weak flag; types of results are part of the meaning.
                    found = trace.apply(Convert(node.type.dtype, node.type.weak), (found,))
                new[node] = found
        nodes = [new[x] for x in graph.outputs]
        result = trace.builder.finish(graph.name, trace.inputs, nodes)
    return verified(result, "simplify")


def identity(trace: Trace, op: Op, inputs: tuple[Node, ...]) -> Node | None:
    """Return a simpler node equal to `op` applied to `inputs`, or None."""
    if isinstance(op, Late) and isinstance(inputs[0].op, Constant):
        return inputs[0]
    if inputs and all(isinstance(x.op, Constant) for x in inputs):
        return _folded(trace, op, inputs)
    match op, inputs:
        case Elementwise("mul" | "div"), (x, _) if is_complex(x.type.dtype):
            return None  # an infinity, or a zero, in one part reaches the other
        case Elementwise("mul"), (x, y) if is_constant(x, 1) or is_constant(y, 1):
            return x if is_constant(y, 1) else y
        case Elementwise("div"), (x, y) if is_constant(y, 1):
            return x
        case Elementwise("mul" | "div"), (Node(Elementwise("neg"), (x,)), y):
            return _negative(trace, op, x, y)
        case Elementwise("mul"), (x, Node(Elementwise("neg"), (y,))):
            return _negative(trace, op, x, y)
        case Elementwise("sub"), (x, y) if _is_positive_zero(y):
            return x
        case Elementwise("add"), (x, y):
            return x if _is_negative_zero(y) else y if _is_negative_zero(x) else None
        case Elementwise("neg"), (Node(Elementwise("neg"), (x,)),):
            return x
        case Select(), (_, x, y) if x is y:
            return x
        case Convert(), (x,) if x.type is op.abstract_eval(x.type):
            return x
        case Reshape(), (Node(Reshape(), (x,)),):
            return _merged(trace, op, x)
        case Reshape(), (Node(RandomBits() as draw, (key,)),) if not key.type.shape:
            # Bits of one key are those of a count, whatever the shape.
            return trace.apply(RandomBits(draw.width, op.shape), (key,))
        case RandomWrap(), (Node(RandomUnwrap(), (x,)),):
            return x
        case Reshape() | Broadcast(), (x,) if x.type is op.abstract_eval(x.type):
            return x
        case Transpose(), (Node(Transpose() as inner, (x,)),):
            return _merged(trace, Transpose(tuple(inner.permutation[a] for a in op.permutation)), x)
        case Transpose(), (x,):
            return x if op.permutation == tuple(range(len(op.permutation))) else None
        case Broadcast(), (Node(Broadcast() as inner, (x,)),):
            dimensions = tuple(op.broadcast_dimensions[a] for a in inner.broadcast_dimensions)
            return _merged(trace, Broadcast(op.shape, dimensions), x)
        case _:
            return None


def _merged(trace: Trace, op: Op, *inputs: Node) -> Node:
    """Return what `op`, made of two ops, does to `inputs`; it may be nothing."""
    return identity(trace, op, inputs) or trace.apply(op, inputs)


def _negative(trace: Trace, op: Op, x: Node, y: Node) -> Node | None:
    """Return -(x op y), in which a product or quotient that is there without a sign is found."""
    if not is_float(x.type.dtype):
        return None  # the least integer is its own negative
    return _merged(trace, Elementwise("neg"), _merged(trace, op, x, y))


def _is_positive_zero(node: Node) -> bool:
    if not is_constant(node, 0):
        return False
    return not (np.signbit(np.real(_number(node))) or np.signbit(np.imag(_number(node))))


def _is_negative_zero(node: Node) -> bool:
    value = _number(node) if is_constant(node, 0) else None
    return value is not None and value.dtype.kind == "f" and bool(np.signbit(value))


def _number(node: Node) -> Any:
    assert isinstance(node.op, Constant)
    return node.op.value


def _folded(trace: Trace, op: Op, inputs: tuple[Node, ...]) -> Node | None:
    """Return the constant that an element-wise or shape op makes of constants."""
    if isinstance(op, Broadcast | Reshape | Transpose):
        value = _number(inputs[0])
    elif isinstance(op, Elementwise | Select | Convert | IntegerPow):
        value = np.asarray(op.evaluate(*(np.asarray([_number(x)]) for x in inputs)))[0]
    else:
        return None
    type_ = op.abstract_eval(*(x.type for x in inputs))
    data = np.asarray(value).astype(storage(type_.dtype)).tobytes()
    constant = Constant(data, type_.dtype, type_.shape, type_.weak)
    return trace.apply(constant, ())
