"""jacfwd, jacrev and hessian: all derivatives at once, by vmap over the rows of an identity."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import tree
from stax.api.derivatives import check_inputs, check_output, choose, jvp, vjp
from stax.api.mapping import vmap
from stax.api.tracing import check_callable, function_name
from stax.array import asarray
from stax.extent import product
from stax.operators.shape import reshape
from stax.trace import type_of


def _basis(leaves: Sequence[Any]) -> list[Any]:
    """Return, for each leaf, the rows of the identity over all elements of all leaves."""
    sizes = [operator.index(type_of(x).size) for x in leaves]
    rows, start = [], 0
    for x, size in zip(leaves, sizes, strict=True):
        t = type_of(x)
        block = np.zeros((sum(sizes), size), t.dtype)
        block[start : start + size] = np.eye(size, dtype=t.dtype)
        rows.append(asarray(block.reshape(sum(sizes), *t.shape), dtype=t.dtype))
        start += size
    return rows


def _check_outputs(transform: str, name: str, out: Any, holomorphic: bool) -> None:
    for leaf in tree.tree_leaves(out):
        t = type_of(leaf)
        check_output(transform, name, t, holomorphic, [("result", repr(t), "")])


def _unpack(leaf: Any, axis: int, like: Any) -> list[Any]:
    """Cut the axis of all input elements of a Jacobian into the leaves of `like`."""
    shape, pieces, start = type_of(leaf).shape, [], 0
    axis = axis % len(shape)
    for x in like:
        inner = type_of(x).shape
        size = operator.index(product(inner))
        index = (*(slice(None) for _ in range(axis)), slice(start, start + size))
        pieces.append(reshape(leaf[index], (*shape[:axis], *inner, *shape[axis + 1 :])))
        start += size
    return pieces


def jacfwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return the Jacobian of `fun` by forward mode: output shape followed by input shape.

    Good where there are fewer inputs than outputs.  `argnums` and `has_aux` are as in `grad`;
    raises DTypeError if an argument is no float, or complex without `holomorphic`.
    """
    check_callable("jacfwd", fun)

    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        partial, selected, arguments, names = choose("jacfwd", fun, argnums, args, kwargs)
        check_inputs("jacfwd", arguments.types, names, holomorphic, allow_int=False)
        leaves, treedef = tree.tree_flatten(selected)
        push = functools.partial(jvp, partial, selected, has_aux=has_aux)
        pushed = vmap(
            lambda *basis: push(treedef.unflatten(basis)),
            out_axes=(None, -1, None) if has_aux else (None, -1),
        )
        out = pushed(*_basis(leaves))
        _check_outputs("jacfwd", function_name(fun), out[0], holomorphic)

        def rows(y: Any) -> Any:
            parts = treedef.unflatten(_unpack(y, -1, leaves))
            return parts[0] if isinstance(argnums, int) else parts

        result = tree.tree_map(rows, out[1])
        return (result, out[2]) if has_aux else result

    return jacobian


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Return the Jacobian of `fun` by reverse mode: output shape followed by input shape.

    Good where there are fewer outputs than inputs.  `argnums` and `has_aux` are as in `grad`;
    raises DTypeError if an argument is no float, or the result complex without `holomorphic`.
    """
    check_callable("jacrev", fun)

    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        partial, selected, arguments, names = choose("jacrev", fun, argnums, args, kwargs)
        check_inputs("jacrev", arguments.types, names, holomorphic, allow_int)
        out, pull, *aux = vjp(partial, *selected, has_aux=has_aux)
        _check_outputs("jacrev", function_name(fun), out, holomorphic)
        leaves, treedef = tree.tree_flatten(out)
        columns = vmap(lambda *basis: pull(treedef.unflatten(basis)))(*_basis(leaves))
        per_input = tree.tree_map(lambda x: _unpack(x, 0, leaves), columns)
        structure = tree.tree_structure(tuple(selected))
        inner = tree.tree_structure([0] * len(leaves))
        by_output = tree.tree_transpose(structure, inner, per_input)
        if isinstance(argnums, int):
            by_output = [parts[0] for parts in by_output]
        result = treedef.unflatten(by_output)
        return (result, aux[0]) if has_aux else result

    return jacobian


jacobian = jacrev


def hessian(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return the Hessian of `fun`, forward over reverse: output shape, then input shape twice."""
    check_callable("hessian", fun)
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
