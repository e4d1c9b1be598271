"""vmap: a function of one example becomes a function of a batch of them.

The function is traced on the types of one example; the graph is then mapped over a leading axis
(`interpreters.batch`), so all that is done here is to find the axes and to move them to the front
and back.  Axes are pytrees that are prefixes of the arguments, as in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stax import tree
from stax.api.tracing import (
    Arguments,
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    trace_function,
    whole_number,
)
from stax.control.held import marked, rearranged
from stax.control.scan import scan
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.extent import Extent, same_shape
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.interpret import inline
from stax.interpreters.simplify import simplify
from stax.named_axes import bound
from stax.op import Batch
from stax.operators.reshape import reshape, squeeze
from stax.operators.shape import concatenate, expand_leading, move_axis, slice_in_dim
from stax.trace import type_of
from stax.types import ArrayType, canonical_axis

Axis = int | None


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
    *,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """Return `fun` mapped over an axis of its arguments.

    `in_axes` is an axis, None (not mapped), or a pytree of them that is a prefix of the positional
    arguments; keyword arguments are mapped over axis 0.  `out_axes` is one for the result.  Ops
    inside refer to the axis by `axis_name` (see `stax.lax.psum`), which hides that of an enclosing
    vmap.  `axis_size` is needed only if no argument is mapped; `spmd_axis_name` and `sum_match` are
    accepted for JAX programs and change nothing here.

    With `chunk` so many elements are mapped at a time, in a loop, which bounds the memory that
    intermediate values take.  Reverse mode through the loop keeps residuals of all elements; map a
    gradient, or `checkpoint(fun)`, to bound those too.

    Raises ShapeError when sizes of mapped axes differ, ArgumentValueError when nothing is mapped,
    or for `chunk` below 1 or together with `axis_name`, ArgumentError for a name that is not
    hashable.
    """
    check_callable("vmap", fun)
    _check_name(axis_name)
    chunk = _checked_chunk(chunk, axis_name)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        arguments = flatten_arguments("vmap", args, kwargs)
        names = labels(fun, args, kwargs)
        axes = _canonical(_in_axes(in_axes, args, kwargs), arguments.types, names)
        size = _mapped_size(arguments, axes, names, axis_size)
        flags = [a is not None for a in axes]
        types = [_without(t, a) for t, a in zip(arguments.types, axes, strict=True)]
        values = [None if f else x for x, f in zip(arguments.leaves, flags, strict=True)]
        with bound(axis_name, size):
            traced = trace_function(
                fun, arguments, "vmap", values=values, mapped=True, types=types, names=names
            )
        leaves = [
            x if a is None else move_axis(x, a, 0)
            for x, a in zip(arguments.leaves, axes, strict=True)
        ]
        operands, flags = [*leaves, *traced.captures], traced.input_flags(flags)
        if chunk is None:
            outs, batched = _whole(traced.graph, Batch(size, axis_name), flags, operands)
        else:
            outs, batched = _in_chunks(traced.graph, size, chunk, flags, operands)
        name = function_name(fun)
        wanted = _out_axes(out_axes, traced.out_tree, name)
        return traced.out_tree.unflatten(
            [_place(y, f, a, size, name) for y, f, a in zip(outs, batched, wanted, strict=True)]
        )

    return mapped


def _whole(
    graph: Graph, axis: Batch, flags: Sequence[bool], operands: Sequence[Any]
) -> tuple[list[Any], list[bool]]:
    """Return the results of `graph` mapped over operands that are flagged, and flags of them."""
    mapped, batched = batch(graph, axis, flags)
    return inline(simplify(mapped), operands), batched


def _in_chunks(
    graph: Graph, size: Any, chunk: int, flags: Sequence[bool], operands: Sequence[Any]
) -> tuple[list[Any], list[bool]]:
    """Return the same from a loop over chunks, and of what is left after the last."""
    if isinstance(size, Extent):
        raise ArgumentValueError(
            f"vmap: chunk needs a size that is known, not {size}.",
            advice="Leave out dynamic=, or chunk.",
        )
    if size <= chunk:
        return _whole(graph, Batch(size), flags, operands)
    mapped, batched = batch(graph, Batch(chunk), flags)
    count, left = divmod(size, chunk)
    end = count * chunk
    chunks = [
        reshape(slice_in_dim(x, 0, end), (count, chunk, *x.shape[1:]))
        for x in marked(operands, flags)
    ]
    body = simplify(mapped)
    fixed = [not f for f in flags]
    inputs = [*marked(body.inputs, fixed), *marked(body.inputs, flags)]
    body = rearranged(body, inputs, body.outputs)
    found = scan(body, marked(operands, fixed), [], chunks, count)
    outs = [
        reshape(y, (end, *y.shape[2:])) if f else squeeze(slice_in_dim(y, 0, 1), 0)
        for y, f in zip(found, batched, strict=True)
    ]
    if not left:
        return outs, batched
    rest = [slice_in_dim(x, end, size) if f else x for x, f in zip(operands, flags, strict=True)]
    others, _ = _whole(graph, Batch(left), flags, rest)
    outs = [concatenate([a, b]) if f else a for a, b, f in zip(outs, others, batched, strict=True)]
    return outs, batched


def _checked_chunk(chunk: Any, axis_name: Any) -> int | None:
    if chunk is None:
        return None
    if axis_name is not None:
        raise ArgumentValueError(
            f"vmap: chunk={chunk} cannot be given with axis_name={axis_name!r}: a collective needs "
            "all elements of the axis at once.",
            advice="Leave out one of them.",
        )
    return whole_number("vmap: chunk", chunk, 1)


def _check_name(axis_name: Any) -> None:
    try:
        hash(axis_name)
    except TypeError:
        raise ArgumentError(
            f"vmap: the axis_name {axis_name!r} is not hashable.", advice="Use a string."
        ) from None


def _in_axes(in_axes: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Axis]:
    """Return the axis of each leaf of `(args, kwargs)`."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not isinstance(in_axes, int | tuple | type(None)):
        raise ArgumentError(
            f"vmap: in_axes is an axis, None, or a tuple or list of them, got {in_axes!r}.",
            advice="Give one entry per positional argument; None means not mapped.",
        )
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ArgumentValueError(
            f"vmap: in_axes has {len(in_axes)} entries and the function was called with "
            f"{len(args)} positional arguments.",
            advice="Give one entry per positional argument; None means not mapped.",
        )
    axes: list[Axis] = []
    for i, arg in enumerate(args):
        prefix = in_axes[i] if isinstance(in_axes, tuple) else in_axes
        try:
            axes += tree.broadcast_prefix(prefix, arg, is_leaf=lambda x: x is None)
        except ValueError:
            raise ArgumentValueError(
                f"vmap: in_axes for argument {i}, {prefix!r}, does not go with its structure, "
                f"{tree.tree_structure(arg)}.",
                advice="Give an axis or None for the argument, or for each part of it.",
            ) from None
    return axes + [0] * len(tree.tree_leaves(kwargs))


def _canonical(
    axes: Sequence[Axis], types: Sequence[ArrayType], names: Sequence[str]
) -> list[Axis]:
    """Return axes counted from the front; raises ShapeError when one is out of range."""
    return [
        None if a is None else canonical_axis(a, t.ndim, f"vmap: in_axes of {n}:")
        for a, t, n in zip(axes, types, names, strict=True)
    ]


def _out_axes(out_axes: Any, out_tree: tree.TreeDef, name: str) -> list[Axis]:
    """Return the axis of each leaf of the result."""
    skeleton = out_tree.unflatten([0] * out_tree.num_leaves)
    try:
        return list(tree.broadcast_prefix(out_axes, skeleton, is_leaf=lambda x: x is None))
    except ValueError:
        raise ArgumentValueError(
            f"vmap: out_axes, {out_axes!r}, does not go with the structure of what {name} "
            f"returns, {out_tree}.",
            advice="Give an axis or None for the result, or for each part of it.",
        ) from None


def _mapped_size(
    arguments: Arguments, axes: Sequence[Axis], names: Sequence[str], axis_size: int | None
) -> Any:
    """Return the common size of the mapped axes."""
    found = [
        (n, t, a, t.shape[a])
        for n, t, a in zip(names, arguments.types, axes, strict=True)
        if a is not None
    ]
    if not found:
        if axis_size is not None:
            return axis_size
        raise ArgumentValueError(
            "vmap: no argument is mapped, so the size of the axis is unknown.",
            advice="Map an argument with in_axes, or give axis_size.",
        )
    size = found[0][3] if axis_size is None else axis_size
    if any(not same_shape((size,), (s,)) for _, _, _, s in found):
        raise ShapeError(
            "vmap: sizes of mapped axes differ"
            + (f" from axis_size={axis_size}." if axis_size is not None else "."),
            values=[(n, repr(t), f"axis {a} has size {s}") for n, t, a, s in found],
            advice=(
                "Mapped axes have one size; use in_axes to choose axes, None for arguments "
                "not mapped."
            ),
        )
    return size


def _without(type_: ArrayType, axis: Axis) -> ArrayType:
    if axis is None:
        return type_
    return type_.with_shape(type_.shape[:axis] + type_.shape[axis + 1 :])


def _place(y: Any, batched: bool, axis: Axis, size: Any, name: str) -> Any:
    """Put the batch axis of a result where `out_axes` asks for it."""
    if axis is None:
        if batched:
            raise ArgumentValueError(
                f"vmap: out_axes=None for a result of {name} that depends on a mapped argument.",
                values=[("result", repr(type_of(y)), "")],
                advice="Give the axis where the mapped axis goes.",
            )
        return y
    full = y if batched else expand_leading(y, size)
    return move_axis(full, 0, canonical_axis(axis, type_of(full).ndim, "vmap: out_axes"))
