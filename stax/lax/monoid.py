"""The monoid that a user's function of two values is, found by tracing it on scalars.

A function that is one known operation of its arguments (`lambda a, b: a + b`) is that operation,
with its reductions and derivatives; any other is mapped over arrays.  It must be associative, and
its initial value neutral, as JAX demands; operands stay in order, so it need not commute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stax import tree
from stax.api.mapping import vmap
from stax.array import asarray
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import product, same_shape
from stax.graph import Graph, Node
from stax.lowering.loop_ir import identity_value
from stax.operators import reduce as reductions
from stax.operators.broadcast import ReduceSum, Reduction, splat
from stax.operators.elementwise import Elementwise, convert
from stax.operators.reshape import reshape
from stax.trace import Proxy, Trace, bind, full, is_array, type_of
from stax.types import ArrayType

Arrays = list[Any]

REDUCTIONS: dict[str, type[Reduction]] = {
    "add": ReduceSum,
    "mul": reductions.ReduceProd,
    "maximum": reductions.ReduceMax,
    "minimum": reductions.ReduceMin,
    "and": reductions.ReduceAnd,
    "or": reductions.ReduceOr,
    "xor": reductions.ReduceXor,
}


class Monoid(NamedTuple):
    """An associative function of two lists of arrays; `name` is that of the op it is, or empty."""

    function: Callable[[Arrays, Arrays], Arrays]
    name: str

    @property
    def reduction(self) -> type[Reduction] | None:
        """The built-in reduction with this function, if there is one."""
        return REDUCTIONS.get(self.name)

    def neutral(self, dtype: np.dtype) -> Any:
        """Return the neutral number of a function that is an op."""
        return identity_value(self.name, dtype)

    def join(self, left: Arrays, right: Arrays) -> Arrays:
        """Return the function of two lists of arrays of one shape, element by element."""
        if self.name:
            return [bind(Elementwise(self.name), left[0], right[0])]
        shape = left[0].shape
        flat = [reshape(x, (product(shape),)) for x in (*left, *right)]
        count = len(left)
        joined = vmap(lambda *xs: self.function(list(xs[:count]), list(xs[count:])))(*flat)
        return [reshape(x, shape) for x in joined]


def monoid_of(
    name: str,
    computation: Callable[..., Any],
    structure: tree.TreeDef,
    scalars: Sequence[ArrayType],
) -> Monoid:
    """Return the monoid of a function of two pytrees of scalars; `name` is for errors."""

    def function(left: Arrays, right: Arrays) -> Arrays:
        out = computation(structure.unflatten(left), structure.unflatten(right))
        leaves, found = tree.tree_flatten(out)
        if found != structure:
            raise ArgumentError(
                f"{name}: the function returns {found} where it is given {structure}.",
                advice="It returns the same structure of arrays as each of its arguments.",
            )
        arrays = [x if is_array(x) else asarray(x) for x in leaves]
        for x, kind in zip(arrays, scalars, strict=True):
            if x.dtype != kind.dtype or x.shape:
                raise DTypeError(
                    f"{name}: the function returns {x.type} where it is given {kind}.",
                    advice="Convert its result with astype, and do not change its shape.",
                )
        return arrays

    with Trace(getattr(computation, "__name__", "function"), name) as trace:
        left, right = ([trace.input(t.strong()) for t in scalars] for _ in range(2))
        graph = trace.finish(function(left, right))
    return Monoid(function, _op_of(graph))


def _op_of(graph: Graph) -> str:
    """Return the name of the op that a function of two scalars is, or an empty text."""
    if len(graph.outputs) != 1 or len(graph.inputs) != 2:
        return ""
    match graph.outputs[0]:
        case Node(Elementwise(name), inputs) if set(inputs) == set(graph.inputs):
            kind = REDUCTIONS.get(name)
            return name if kind and kind.accepts(graph.inputs[0].type.dtype) else ""
    return ""


def initial_values(name: str, operands: Arrays, init_values: Sequence[Any]) -> Arrays:
    """Return the initial values as scalars of the operands' dtypes; raises if they differ."""
    found = []
    for x, init in zip(operands, init_values, strict=True):
        kind = type_of(init)
        if kind.shape or (kind.dtype != x.dtype and not kind.weak):
            raise DTypeError(
                f"{name}: the initial value {kind} is not a scalar of the dtype of {x.type}.",
                advice="Convert it with astype.",
            )
        if not same_shape(x.shape, operands[0].shape):
            raise ShapeError(
                f"{name}: operands {operands[0].type} and {x.type} differ in shape.",
                advice="Broadcast them to one shape first.",
            )
        value = splat(init) if is_array(init) else np.asarray(init)[()]
        found.append(convert(init, x.dtype) if value is None else full((), value, x.dtype))
    return found


def is_neutral(init: Any, value: Any) -> bool:
    """Say whether an initial value is known to be a number that changes nothing."""
    known = splat(init) if type(init) is Proxy else np.asarray(init)
    return known is not None and bool(known == value)
