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
)
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.extent import same_shape
from stax.interpreters.batch import batch
from stax.interpreters.interpret import inline
from stax.interpreters.simplify import simplify
from stax.op import Batch
from stax.operators.shape import expand_leading, move_axis
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
) -> Callable[..., Any]:
    """Return `fun` mapped over an axis of its arguments.

    `in_axes` is an axis, None (not mapped), or a pytree of them that is a prefix of the positional
    arguments; keyword arguments are mapped over axis 0.  `out_axes` is one for the result.  Ops
    inside refer to the axis by `axis_name`.  `axis_size` is needed only if no argument is mapped;
    `spmd_axis_name` and `sum_match` are accepted for JAX programs and change nothing here.

    Raises ShapeError when sizes of mapped axes differ, ArgumentValueError when nothing is mapped.
    """
    check_callable("vmap", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        arguments = flatten_arguments("vmap", args, kwargs)
        axes = _in_axes(in_axes, args, kwargs)
        names = labels(fun, args, kwargs)
        axes = [
            None if a is None else canonical_axis(a, t.ndim, f"vmap: in_axes of {n}:")
            for a, t, n in zip(axes, arguments.types, names, strict=True)
        ]
        size = _mapped_size(arguments, axes, names, axis_size)
        flags = [a is not None for a in axes]
        types = [_without(t, a) for t, a in zip(arguments.types, axes, strict=True)]
        values = [None if f else x for x, f in zip(arguments.leaves, flags, strict=True)]
        traced = trace_function(
            fun, arguments, "vmap", values=values, mapped=True, types=types, names=names
        )
        graph, batched = batch(
            traced.graph, Batch(size, axis_name), flags + [False] * len(traced.captures)
        )
        leaves = [
            x if a is None else move_axis(x, a, 0)
            for x, a in zip(arguments.leaves, axes, strict=True)
        ]
        outs = inline(simplify(graph), [*leaves, *traced.captures])
        name = function_name(fun)
        wanted = _out_axes(out_axes, traced.out_tree, name)
        return traced.out_tree.unflatten(
            [_place(y, f, a, size, name) for y, f, a in zip(outs, batched, wanted, strict=True)]
        )

    return mapped


def _in_axes(in_axes: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Axis]:
    """Return the axis of each leaf of `(args, kwargs)`."""
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
