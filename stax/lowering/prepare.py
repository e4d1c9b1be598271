"""Putting a graph into the form that fusion expects.

Afterwards there are no calls (their graphs are inlined), every reduction has an axis longer than 1,
an outer product is a multiplication, a reduction of everything is done in two steps of which the
first has many independent rows, complex numbers are pairs of real ones and random keys are numbers,
sorts by several keys run along the last axis, scatters of 16-bit floats accumulate in float32, and
each output has a value of its own to be stored: an input, a constant or a value returned twice is
copied.  Exact but for the order of split reductions, which is a function of shapes alone.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from stax.control import HoldsGraphs, with_graphs
from stax.errors import LoweringError
from stax.graph import Constant, Graph, Input, Node, Project, multiple
from stax.interpreters.interpret import inline, interpret
from stax.interpreters.lengths import numbered
from stax.interpreters.simplify import simplify
from stax.lowering.choices import as_choice
from stax.lowering.decisions import decided
from stax.lowering.donated import Donated, Returned
from stax.lowering.element import is_unit, static_size
from stax.lowering.gemm import Laid, exact_float, laid_out
from stax.lowering.keys import keys_as_numbers
from stax.lowering.loops import carried_inputs
from stax.lowering.outside import work_outside
from stax.lowering.own import is_own_kernel
from stax.lowering.part_kernel import can_part
from stax.lowering.patches import as_product, form_of
from stax.lowering.planes import split_complex
from stax.lowering.split import Copy, split_reductions
from stax.lowering.transposes import undo_transposes
from stax.lowering.updates import small_updates_as_scatters
from stax.op import Op, has_rule
from stax.operators.bits import Late
from stax.operators.broadcast import Reduction, broadcast_in_dim, reduce_sum
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.elementwise import convert, mul
from stax.operators.index import Scatter
from stax.operators.matrices import Carried
from stax.operators.reshape import Reshape, Transpose, reshape
from stax.operators.sort import Sort
from stax.trace import Proxy, Trace, bind, results
from stax.types import (
    NUMERIC,
    SHORT_NAMES,
    ArrayType,
    accumulator,
    bool_,
    float0,
    float32,
    int32,
    int64,
    is_complex,
    is_float,
)
from stax.verify import verified

# A product with a vector whose sums have fewer terms is computed by a loop inside a map.
LONG_SUM = 4
# What kernels compute with.
COMPILED = frozenset(d for d in NUMERIC if not is_complex(d))


def prepare(
    graph: Graph, known: int = 0, outside: bool = True, donated: Donated | None = None
) -> Graph:
    """Return `graph` in the form that `fuse` takes; raises LoweringError where there is none.

    Lengths that its loops find are numbered from `known` on, in graphs that they hold as well.
    Work is taken out of loops only if it may be done `outside`, where it needs more memory.
    `donated` are inputs that results may be written over.
    """
    # Rewriting opens identities across what were boundaries, and an identity may turn an output
    # into an input, so outputs get memory of their own last.
    parts = split_complex(graph)
    whole = keys_as_numbers(_flat(work_outside(parts) if outside else parts))
    flat = simplify(undo_transposes(simplify(whole)))
    flat = small_updates_as_scatters(flat, donated.usable, "donated") if donated else flat
    flat, known = numbered(flat, known), known + len(flat.opens)
    laid = laid_out(_with_bodies(simplify(split_reductions(flat)), known, outside))
    prepared = _own_outputs(laid, donated or Donated())
    for node in (*prepared.inputs, *prepared.nodes):
        _check(node)
    return prepared


def _with_bodies(graph: Graph, known: int, outside: bool) -> Graph:
    """Return `graph` with the graphs that loops and choices hold prepared as well."""
    if not any(isinstance(node.op, HoldsGraphs) for node in graph.nodes):
        return graph

    def rule(node: Node, inputs: list[Any]) -> Any:
        op = node.op
        if not isinstance(op, HoldsGraphs):
            return bind(op, *inputs)
        numbers = itertools.count()

        def body(inner: Graph) -> Graph:
            carried = carried_inputs(op, next(numbers))
            return prepare(small_updates_as_scatters(inner, carried, "carried"), known, outside)

        return bind(with_graphs(op, body), *inputs)

    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        result = trace.finish(interpret(graph, args, rule))
    return verified(result, "prepare")


def _check(node: Node) -> None:
    """Raise unless kernels can hold the value of a node, and there is a kernel for its op."""
    types = node.type.items if multiple(node) else (node.type,)
    # Of inputs without memory, tangents of integers, there is nothing to read.
    fine = COMPILED | {float0} if isinstance(node.op, Input) else COMPILED
    strange = [t for t in types if t.dtype not in fine]
    has_kernel = has_rule(type(node.op), "lower") or isinstance(node.op, Input | Reduction)
    if not strange and (has_kernel or is_own_kernel(node)):
        return
    name = node.op.label if isinstance(node.op, Input) else node.op.name
    what = f"values of type {SHORT_NAMES[strange[0].dtype]} are" if strange else "the op is"
    raise LoweringError(
        f"{node.op.name}: {what} not compiled for the CPU.",
        values=[(name, repr(node.type), node.source.shown() if node.source else "")],
        advice="Outside of jit, the op runs on the reference evaluator.",
    )


def _own_outputs(graph: Graph, donated: Donated) -> Graph:
    number = {x: i for i, x in enumerate(graph.inputs)}
    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        seen: set[Node] = set()
        outs = inline(graph, args)
        for k, x in enumerate(graph.outputs):
            if x in number and donated.fits(number[x], k) and outs[k].node not in seen:
                seen.add(outs[k].node)
                outs[k] = bind(Returned(), outs[k])
        result = trace.finish([_own(x, seen) for x in outs])
    return verified(result, "prepare")


def _walk(trace: Trace, graph: Graph, args: list[Any]) -> list[Any]:
    """Record `graph` in `trace`, rewriting as it goes."""
    values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    for node in graph.nodes:
        inputs = [values[x] for x in node.inputs]
        trace.source, trace.scope = node.source, node.scope
        if isinstance(node.op, HoldsGraphs) and node.op.applied:
            values[node] = tuple(inline(_flat(node.op.applied), inputs))
        elif isinstance(node.op, Project) and isinstance(inputs[0], tuple):
            values[node] = inputs[0][node.op.position]
        else:
            values[node] = _rewritten(node.op, inputs)
    trace.source, trace.scope = None, None
    return [values[x] for x in graph.outputs]


def _flat(graph: Graph) -> Graph:
    """Return `graph` rewritten, calls inlined; the depth of recursion is that of nested calls."""
    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        return trace.finish(_walk(trace, graph, args))


def _rewritten(op: Op, inputs: list[Any]) -> Any:
    match op:
        case Carried():
            return inputs[0]
        case Laid():
            return bind(Transpose(op.order), _rewritten(op.plain(), inputs))
        case Reduction():
            return _reduction(op, inputs[0])
        case Convolution():
            return _convolution(op, *inputs)
        case DotGeneral() if _sums_nothing(op, inputs[0].type):
            return _outer_product(op, *inputs)
        case DotGeneral() if (vector := _vector_side(op, *inputs)) is not None:
            return _vector_product(op, inputs, vector)
        case DotGeneral():
            return _widened_product(op, *inputs)
        case Sort() if op.axis != inputs[0].type.ndim - 1 and not _parts(op, inputs):
            return _sort(op, inputs)
        case Scatter() if (choice := as_choice(op, *inputs)) is not None:
            return choice
        case Scatter() if op.kind in ("add", "mul"):
            return _scatter(op, inputs)
        case _:
            return bind(op, *inputs)


def _reduction(op: Any, x: Any) -> Any:
    shape = x.type.shape
    long_axes = tuple(a for a in op.axes if not is_unit(shape[a]))
    kept = tuple(shape[a] for a in range(len(shape)) if a not in op.axes)
    if not long_axes:
        return reshape(x, kept)
    return bind(op, x)


def _convolution(op: Convolution, x: Any, w: Any) -> Any:
    decided(f"{op.name} of {x.type!r} and {w.type!r}: {form_of(op, w.type)}", x.owner.source)
    with Trace("convolution", "prepare") as trace:
        trace.source, trace.scope = x.owner.source, x.owner.scope
        operand, kernel = (trace.input(t) for t in (x.type, w.type))
        product = trace.finish([as_product(op, operand, kernel, _near(x.node))])
    (result,) = inline(_flat(product), [x, w])
    return result


def _near(x: Node) -> int | None:
    """Return the axis of a transpose along which its operand lies in memory; None for others."""
    match x.op:
        case Transpose(permutation=permutation):
            return permutation.index(len(permutation) - 1)
    return None


def _sums_nothing(op: DotGeneral, lhs: ArrayType) -> bool:
    return all(is_unit(lhs.shape[a]) for a in op.contracting[0])


def _outer_product(op: DotGeneral, lhs: Any, rhs: Any) -> Any:
    """Multiply elements where nothing is summed; contracted axes have length 1."""
    out = op.abstract_eval(lhs.type, rhs.type)
    if op.contracting[0]:
        op, lhs, rhs = _without_contracted(op, lhs, rhs)
    decided(f"{op.name} sums nothing: a multiplication", lhs.owner.source)
    batches, free = len(op.batching[0]), op.free(lhs.type.ndim, rhs.type.ndim)
    places: list[Any] = []
    for x, side, first in ((lhs, 0, batches), (rhs, 1, batches + len(free.lhs))):
        target = {a: i for i, a in enumerate(op.batching[side])}
        target |= {a: first + i for i, a in enumerate(free[side])}
        wide = convert(x, out.dtype)
        places.append(_placed(wide, out.shape, [target[a] for a in range(x.type.ndim)]))
    return mul(*places)


def _without_contracted(op: DotGeneral, lhs: Any, rhs: Any) -> tuple[DotGeneral, Any, Any]:
    """Return a product without its contracted axes, which have length 1."""
    kept = [
        [a for a in range(x.type.ndim) if a not in axes]
        for x, axes in zip((lhs, rhs), op.contracting, strict=True)
    ]
    lhs, rhs = (
        reshape(x, tuple(x.type.shape[a] for a in axes))
        for x, axes in zip((lhs, rhs), kept, strict=True)
    )
    batching = [tuple(map(axes.index, b)) for axes, b in zip(kept, op.batching, strict=True)]
    return replace(op, contracting=((), ()), batching=(batching[0], batching[1])), lhs, rhs


def _vector_side(op: DotGeneral, lhs: Any, rhs: Any) -> int | None:
    """Return which operand of a product has no free axes, if one has and the sums are long."""
    terms = static_size(tuple(lhs.type.shape[a] for a in op.contracting[0]))
    if terms < LONG_SUM or op.accumulates(lhs.type.dtype, rhs.type.dtype) == bool_:
        return None
    free = op.free(lhs.type.ndim, rhs.type.ndim)
    for side, x in ((1, rhs), (0, lhs)):
        if all(is_unit(x.type.shape[a]) for a in free[side]):
            return side
    return None


def _vector_product(op: DotGeneral, operands: list[Any], side: int) -> Any:
    """Write a product with a vector as a multiplication and a sum.

    It reads the matrix once and does two operations per element, so memory sets the pace; as a
    reduction it runs along memory whichever axis is summed, and what stands around it joins it.
    """
    out = op.abstract_eval(*(x.type for x in operands))
    what = f"{op.name} with a vector: a multiplication and a sum, at the pace of memory"
    decided(what, operands[0].owner.source)
    wide = op.accumulates(*(x.type.dtype for x in operands))
    vector, matrix = (convert(operands[i], wide) for i in (side, 1 - side))
    shape, free = matrix.type.shape, op.free(*(x.type.ndim for x in operands))
    pairs = [
        pair
        for groups in (op.batching, op.contracting)
        for pair in zip(groups[side], groups[1 - side], strict=True)
    ]
    target = dict(pairs)
    kept = [a for a in range(vector.type.ndim) if a in target]
    flat = reshape(vector, tuple(vector.type.shape[a] for a in kept))
    products = mul(matrix, _placed(flat, shape, [target[a] for a in kept]))
    total = reduce_sum(products, sorted(op.contracting[1 - side]))
    left = [a for a in range(len(shape)) if a not in op.contracting[1 - side]]
    order = tuple(left.index(a) for a in (*op.batching[1 - side], *free[1 - side]))
    if order != tuple(range(len(order))):
        total = bind(Transpose(order), total)
    return convert(reshape(total, out.shape), out.dtype, out.weak)


def _widened_product(op: DotGeneral, lhs: Any, rhs: Any) -> Any:
    """Multiply floats in the type in which their products are summed, and round once."""
    out, wide = op.abstract_eval(lhs.type, rhs.type), op.accumulates(lhs.type.dtype, rhs.type.dtype)
    exact = exact_float(op, lhs.type, rhs.type)
    if exact is not None:
        decided(f"{op.name} of {lhs.type!r} and {rhs.type!r}: exact in {exact.name}, by BLAS")
        plain = DotGeneral(op.contracting, op.batching, None, op.precision)
        product = _product(plain, convert(lhs, exact), convert(rhs, exact))
        whole = convert(product, int32 if exact == float32 else int64)
        return convert(whole, out.dtype, out.weak)
    if not is_float(wide) or {lhs.type.dtype, rhs.type.dtype, out.dtype} == {wide}:
        return _product(op, lhs, rhs)
    plain = DotGeneral(op.contracting, op.batching, None, op.precision)
    product = _product(plain, convert(lhs, wide), convert(rhs, wide))
    return convert(product, out.dtype, out.weak)


def _product(op: DotGeneral, lhs: Any, rhs: Any) -> Any:
    """Give a product whose groups of axes do not merge operands that do.

    The groups are batch, free and contracted axes; matrices lie side by side in no batch axis.
    """
    free = op.free(lhs.type.ndim, rhs.type.ndim)
    groups = [(op.batching[i], free[i], op.contracting[i]) for i in (0, 1)]
    ends = (_ends_in(x.type, axes) for x, axes in zip((lhs, rhs), op.batching, strict=True))
    if all(_is_run(axes) for side in groups for axes in side) and not any(ends):
        return bind(op, lhs, rhs)
    moved = [
        bind(Transpose(tuple(a for axes in side for a in axes)), x)
        for x, side in zip((lhs, rhs), groups, strict=True)
    ]
    batch = tuple(range(len(op.batching[0])))
    summed = [tuple(range(x.type.ndim - len(op.contracting[0]), x.type.ndim)) for x in moved]
    return bind(DotGeneral((summed[0], summed[1]), (batch, batch), op.dtype, op.precision), *moved)


def _parts(op: Sort, operands: list[Any]) -> bool:
    """Say whether a sort takes rows as they lie."""
    return can_part([x.type.dtype for x in operands], op.num_keys)


def _sort(op: Sort, operands: list[Any]) -> Any:
    """Sort along the last axis."""
    last = operands[0].type.ndim - 1
    order = list(range(last + 1))
    order[op.axis], order[last] = last, op.axis
    turn = Transpose(tuple(order))  # its own inverse
    found = bind(Sort(last, op.num_keys, op.is_stable), *(bind(turn, x) for x in operands))
    if len(operands) == 1:
        return bind(turn, found)
    return tuple(bind(turn, x) for x in results(found))


def _scatter(op: Scatter, inputs: list[Any]) -> Any:
    """Accumulate in the type in which sums and products do, and round once."""
    operand, indices, updates = inputs
    dtype = operand.type.dtype
    wide = accumulator(dtype)
    if wide is dtype:
        return bind(op, *inputs)
    return convert(bind(op, convert(operand, wide), indices, convert(updates, wide)), dtype)


def _is_run(axes: tuple[int, ...]) -> bool:
    return all(b == a + 1 for a, b in itertools.pairwise(axes))


def _ends_in(type_: ArrayType, axes: tuple[int, ...]) -> bool:
    """Say whether the last axis that is longer than 1 is one of `axes`."""
    return max((a for a, n in enumerate(type_.shape) if not is_unit(n)), default=None) in axes


def _placed(x: Any, shape: Any, axes: list[int]) -> Any:
    """Broadcast `x` into `shape` with its axis i at axes[i], in any order."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    if order != list(range(len(axes))):
        x = bind(Transpose(tuple(order)), x)
    return broadcast_in_dim(x, shape, sorted(axes))


def _own(x: Proxy, seen: set[Node]) -> Proxy:
    """Return an output that is stored in memory of its own."""
    root = x.node
    while isinstance(root.op, Reshape | Late):
        root = root.inputs[0]
    if root in seen or isinstance(root.op, Input | Constant):
        x = bind(Copy(), x)
        while x.node in seen:  # a copy of the copy, which stays apart when nodes are merged
            x = bind(Copy(), x)
        root = x.node
    seen.add(root)
    return x
