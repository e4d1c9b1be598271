"""Splitting complex values into real ones: afterwards no value of a graph is complex.

Each complex value becomes two real values, its *planes*.  Complex numbers lie in memory as pairs,
so a complex input of shape S is a real input of shape S + (2,) over the same memory, and a complex
output likewise; whoever calls the program hands over the same pointers.  Ops that move or add
elements apply to each plane, arithmetic and functions are written out (`complex_math`), products
become real products, and reductions that are not sums are composed of what their elements do.

Calls are inlined on the way, as in `prepare`, which this comes before.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from stax.control import HoldsGraphs, with_graphs
from stax.errors import LoweringError
from stax.extent import product
from stax.graph import Constant, Graph, Node, Project, held_graphs
from stax.interpreters.lengths import renewed
from stax.lowering import complex_math
from stax.lowering.complex_math import Planes, choose, is_nan, multiply, number
from stax.lowering.paired import is_library_op, joined, on_pairs, taken_apart
from stax.op import Op
from stax.operators.bits import Late, late
from stax.operators.broadcast import LinearOp, Reduction, broadcast_in_dim
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.dynamic import DynamicSlice, DynamicUpdateSlice
from stax.operators.elementwise import (
    Convert,
    Elementwise,
    IntegerPow,
    Select,
    add,
    convert,
    eq,
    like,
    ne,
    select,
    sub,
)
from stax.operators.gradient import StopGradient
from stax.operators.index import (
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    Scatter,
    ScatterDimensionNumbers,
    scatter,
)
from stax.operators.matrices import Carried
from stax.operators.reduce import (
    CumProd,
    Cumulative,
    Extreme,
    ReduceProd,
    reduce_or,
    running,
)
from stax.operators.reshape import reshape, rev, transpose
from stax.operators.shape import Iota, concatenate, iota, pad, slice_in_dim
from stax.operators.sort import Sort, sort
from stax.trace import Trace, bind, full, results, type_of
from stax.types import (
    SHORT_NAMES,
    ArrayType,
    Shape,
    TupleType,
    bool_,
    int32,
    is_complex,
    real_part,
)
from stax.verify import verified


def split_complex(graph: Graph) -> Graph:
    """Return `graph` over real values; raises LoweringError for an op that has no such form."""
    if not _has_complex(graph):
        return graph
    with Trace(graph.name, "planes") as trace:
        args = [_input(trace, x) for x in graph.inputs]
        outputs = _walk(trace, graph, args)
        outputs = [joined(x) if isinstance(x, Planes) else x for x in outputs]
        return verified(trace.finish(outputs), "planes")


def _has_complex(graph: Graph) -> bool:
    """Say whether a value of `graph`, or of a graph that it calls or holds, is complex."""
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in (*current.inputs, *current.nodes):
            if _is_complex(node.type):
                return True
            if isinstance(node.op, HoldsGraphs):
                called = node.op.applied
                pending += [called] if called else held_graphs(node.op)
    return False


def _is_complex(type_: Any) -> bool:
    items = type_.items if isinstance(type_, TupleType) else (type_,)
    return any(is_complex(t.dtype) for t in items)


def _input(trace: Trace, x: Node) -> Any:
    """Return an input; the planes of a complex one are every other number of its memory."""
    if not _is_complex(x.type):
        return trace.input(x.type, x.label, source=x.source)
    pairs = ArrayType(real_part(x.type.dtype), (*x.type.shape, 2))
    return taken_apart(trace.input(pairs, x.label, source=x.source))


def _walk(trace: Trace, graph: Graph, args: list[Any]) -> list[Any]:
    """Record `graph` in `trace`; the depth of recursion is that of nested calls."""
    values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    for node in graph.nodes:
        inputs = [values[x] for x in node.inputs]
        trace.source, trace.scope = node.source, node.scope
        if isinstance(node.op, HoldsGraphs) and node.op.applied:
            inner = renewed(node.op.applied, trace.builder.opens)
            values[node] = tuple(_walk(trace, inner, inputs))
        elif isinstance(node.op, Project):
            values[node] = results(inputs[0])[node.op.position]
        elif isinstance(node.op, HoldsGraphs):
            values[node] = _held(node.op, node, inputs)
        elif _is_complex(node.type) or any(isinstance(x, Planes) for x in inputs):
            values[node] = _split(node, inputs)
        else:
            values[node] = bind(node.op, *inputs)
    trace.source, trace.scope = None, None
    return [values[x] for x in graph.outputs]


def _split(node: Node, inputs: list[Any]) -> Any:
    """Return what `node` is for planes: planes, a real value, or a tuple of them."""
    match node.op:
        case Constant(value=value, shape=shape):
            dtype = real_part(node.type.dtype)
            return Planes(full(shape, value.real, dtype), full(shape, value.imag, dtype))
        case Iota(dtype=dtype, shape=shape, axis=axis):
            counts = iota(real_part(dtype), shape, axis)
            return Planes(counts, like(counts, 0))
        case Elementwise(name) if name in complex_math.FUNCTIONS:
            return complex_math.FUNCTIONS[name](*_conjugable(name, inputs))
        case Convert(dtype=dtype):
            return _converted(inputs[0], dtype)
        case IntegerPow() as op:
            (x,) = inputs
            return op.repeated(x, number(x, 1), multiply, complex_math.divide)
        case LinearOp() | StopGradient() | Select() | DynamicSlice() | DynamicUpdateSlice():
            return _planewise(node.op, inputs)
        case Late():
            x, after = inputs
            after = after.real if isinstance(after, Planes) else after
            return _planewise(Late(), [x, after]) if isinstance(x, Planes) else late(x, after)
        case Scatter(kind="set" | "add"):
            return _planewise(node.op, inputs)
        case Scatter(kind="mul") as op:
            return _scattered_product(op, *inputs)
        case Gather() as op:
            return _gathered(op, *inputs)
        case Reduction() | Cumulative():
            return _reduced(node.op, inputs[0])
        case DotGeneral() | Convolution() as op:
            return _product(op, node, inputs)
        case Sort() as op:
            return _sorted(op, inputs)
        case Carried():
            return inputs[0]
        case op if is_library_op(op):
            return on_pairs(op, inputs)
    raise _no_form(node)


def _held(op: HoldsGraphs, node: Node, inputs: list[Any]) -> Any:
    """Apply an op that holds graphs: it is handed complex values as pairs, as programs are."""
    given = [joined(x) if isinstance(x, Planes) else x for x in inputs]
    found = results(bind(with_graphs(op, split_complex), *given))
    pairs = zip(found, node.type.items, strict=True)
    return tuple(taken_apart(y) if _is_complex(t) else y for y, t in pairs)


def _no_form(node: Node) -> LoweringError:
    types = [t for t in (*(x.type for x in node.inputs), node.type) if _is_complex(t)]
    items = types[0].items if isinstance(types[0], TupleType) else types
    found = next(t for t in items if is_complex(t.dtype))
    return LoweringError(
        f"{node.op.name}: values of type {SHORT_NAMES[found.dtype]} are not compiled for the CPU.",
        values=[(node.op.name, repr(node.type), node.source.shown() if node.source else "")],
        advice="Outside of jit, the op runs on the reference evaluator.",
    )


def _conjugable(name: str, inputs: list[Any]) -> list[Any]:
    """Return the operands of an element-wise op; `conj` takes real ones too."""
    if name == "conj" and not isinstance(inputs[0], Planes):
        return [Planes(inputs[0], like(inputs[0], 0))]
    return inputs


def _converted(x: Any, dtype: np.dtype) -> Any:
    """Convert to another complex type; to a real one by the real part; or from a real one."""
    wanted = real_part(dtype)
    if isinstance(x, Planes):
        real = convert(x.real, wanted)
        return Planes(real, convert(x.imag, wanted)) if is_complex(dtype) else real
    real = convert(x, wanted)
    return Planes(real, like(real, 0))


def _planewise(op: Op, inputs: list[Any]) -> Planes:
    """Apply `op` to each plane; operands that are not complex serve both."""
    return Planes(
        *(bind(op, *(x[i] if isinstance(x, Planes) else x for x in inputs)) for i in (0, 1))
    )


def _gathered(op: Gather, x: Planes, indices: Any) -> Planes:
    fill = None if op.fill_value is None else complex(op.fill_value)
    fills = (None, None) if fill is None else (fill.real, fill.imag)
    return Planes(
        *(
            bind(Gather(op.numbers, op.sizes, op.mode, value, op.unique), plane, indices)
            for plane, value in zip(x, fills, strict=True)
        )
    )


# --- reductions that are not sums ---


def _reduced(op: Any, x: Planes) -> Planes:
    match op:
        case ReduceProd():
            return _reduced_product(op, x)
        case Extreme():
            return _reduced_extreme(op, x)
        case Cumulative():
            join = multiply if isinstance(op, CumProd) else complex_math.FUNCTIONS[op.combine]
            return _running(op, join, x)
    raise LoweringError(f"{op.name}: complex values are not compiled for the CPU.")


def _reduced_product(op: ReduceProd, x: Planes) -> Planes:
    """Multiply halves until one factor is left."""
    shape = type_of(x.real).shape
    _check_known(op, tuple(shape[a] for a in op.axes))
    kept = op.kept(len(shape))
    merged = (*(shape[a] for a in kept), product(tuple(shape[a] for a in op.axes)))
    x = Planes(*(reshape(transpose(plane, [*kept, *op.axes]), merged) for plane in x))
    if isinstance(merged[-1], int) and merged[-1] == 0:
        one = full(merged[:-1], 1, type_of(x.real).dtype)
        return Planes(one, like(one, 0))
    while (n := type_of(x.real).shape[-1]) != 1:
        if n % 2:
            x = Planes(_padded(x.real, 1), _padded(x.imag, 0))
        half = (n + 1) // 2
        first, last = (
            Planes(*(slice_in_dim(plane, start, start + half, axis=-1) for plane in x))
            for start in (0, half)
        )
        x = multiply(first, last)
    return Planes(*(reshape(plane, merged[:-1]) for plane in x))


def _check_known(op: Op, lengths: Shape) -> None:
    """Raise unless the lengths are numbers."""
    if not all(isinstance(n, int) for n in lengths):
        raise LoweringError(
            f"{op.name}: complex numbers along symbolic lengths are not compiled.",
            advice="Compile it for each length: leave out dynamic=.",
        )


def _padded(x: Any, value: float) -> Any:
    config = [(0, 0, 0)] * (type_of(x).ndim - 1)
    return pad(x, full((), value, type_of(x).dtype), [*config, (0, 1, 0)])


def _reduced_extreme(op: Extreme, x: Planes) -> Planes:
    """Find the extreme real part, then the extreme imaginary part that goes with it."""
    shape = type_of(x.real).shape
    kept = op.kept(len(shape))
    real = bind(op, x.real)
    reached = eq(x.real, broadcast_in_dim(real, shape, kept))
    beyond = -math.inf if op.combine == "maximum" else math.inf
    imag = bind(op, select(reached, x.imag, like(x.imag, beyond)))
    lost, nan = reduce_or(is_nan(x), op.axes), like(real, math.nan)
    return Planes(select(lost, nan, real), select(lost, nan, imag))


def _running(op: Cumulative, join: Any, x: Planes) -> Planes:
    _check_known(op, type_of(x.real).shape[op.axis : op.axis + 1])
    if op.reverse:
        x = Planes(*(rev(plane, op.axis) for plane in x))
    found = Planes(*running(lambda a, b: join(Planes(*a), Planes(*b)), x, op.axis))
    return Planes(*(rev(plane, op.axis) for plane in found)) if op.reverse else found


# --- products ---


def _product(op: DotGeneral | Convolution, node: Node, inputs: list[Any]) -> Any:
    """Return a product as real products: four of them, or two if an operand is real."""
    dtype = node.type.dtype
    real_op = replace(op, dtype=None if op.dtype is None else real_part(dtype))
    lhs, rhs = inputs
    if not isinstance(lhs, Planes) and not isinstance(rhs, Planes):
        real = bind(real_op, lhs, rhs)
        return Planes(real, like(real, 0))
    if not isinstance(lhs, Planes):
        found = Planes(*(bind(real_op, lhs, plane) for plane in rhs))
    elif not isinstance(rhs, Planes):
        found = Planes(*(bind(real_op, plane, rhs) for plane in lhs))
    else:
        found = Planes(
            sub(bind(real_op, lhs.real, rhs.real), bind(real_op, lhs.imag, rhs.imag)),
            add(bind(real_op, lhs.real, rhs.imag), bind(real_op, lhs.imag, rhs.real)),
        )
    return found if is_complex(dtype) else found.real


# --- order ---


def _sorted(op: Sort, inputs: list[Any]) -> Any:
    """Sort all planes along; a complex key is two keys, of which the real part is the foremost."""
    flat = [plane for x in inputs for plane in (x if isinstance(x, Planes) else (x,))]
    keys = op.num_keys + sum(isinstance(x, Planes) for x in inputs[: op.num_keys])
    found = iter(sort(flat, op.axis, keys, op.is_stable))
    moved = tuple(
        Planes(next(found), next(found)) if isinstance(x, Planes) else next(found) for x in inputs
    )
    return moved if len(moved) > 1 else moved[0]


# --- scattered products ---


def _scattered_product(op: Scatter, operand: Planes, indices: Any, updates: Planes) -> Planes:
    """Multiply updates into the operand.

    Updates are sorted by the element that they go to, those of one element are multiplied by a
    running product that starts again at each element, and the last one of each is put in place.
    """
    shape = type_of(operand.real).shape
    size, count = product(shape), product(type_of(updates.real).shape)
    _check_known(op, (size, count))
    assert isinstance(size, int)
    if not size or not count:
        return operand
    places = reshape(_places(op, shape, indices, type_of(updates.real)), (count,))
    flat = [reshape(plane, (count,)) for plane in updates]
    place, real, imag = sort((places, *flat), 0, 1)
    total = _segmented(place, Planes(real, imag))
    ahead = concatenate([slice_in_dim(place, 1, None), full((1,), size + 1, int32)], 0)
    # What is not the last of its element, and what is dropped, goes behind the end.
    last = select(ne(place, ahead), place, like(place, size))
    numbers = ScatterDimensionNumbers((), (0,), (0,))

    def put(x: Any) -> Any:
        blank = full((size,), 0, type_of(x).dtype)
        return reshape(scatter(blank, reshape(last, (count, 1)), x, numbers), shape)

    is_hit = put(full((count,), True, bool_))
    return choose(is_hit, multiply(operand, Planes(*map(put, total))), operand)


def _places(op: Scatter, shape: Any, indices: Any, updates: ArrayType) -> Any:
    """Return for each update the number of the element it goes to, or one past the last."""
    size = product(shape)
    numbering = reshape(iota(int32, (size,)), shape)
    sizes = op.sizes(type_of(numbering), updates)
    mode = op.mode if op.mode is GatherScatterMode.CLIP else GatherScatterMode.FILL_OR_DROP
    read = Gather(GatherDimensionNumbers(*op.numbers), sizes, mode, size, op.unique)
    return bind(read, numbering, indices)


def _segmented(place: Any, x: Planes) -> Planes:
    """Return the running products of stretches of equal `place`, by doubling."""
    (count,) = type_of(place).shape
    step = 1
    while step < count:
        config = [(step, -step, 0)]
        before = pad(place, full((), -1, int32), config)
        same = eq(before, place)
        other = Planes(*(pad(plane, full((), 0, type_of(plane).dtype), config) for plane in x))
        x = choose(same, multiply(other, x), x)
        step *= 2
    return x
