"""A pytree as one vector and back: the name of jax.flatten_util.

>>> vector, unravel = ravel_pytree({'a': [1.0, 2.0], 'b': snp.ones((2, 2))})
>>> vector
Array([1., 2., 1., 1., 1., 1.], dtype=float32)
>>> unravel(vector)['a']
[Array(1., dtype=float32), Array(2., dtype=float32)]
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from stax import numpy as snp, tree, types
from stax.array import asarray
from stax.errors import DTypeError, ShapeError
from stax.extent import product
from stax.operators.elementwise import convert
from stax.types import ArrayType, Shape

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the elements of all leaves as one vector, and the function that puts them back.

    The dtype of the vector is that to which the leaves are promoted.  If all leaves have one dtype,
    the function takes vectors of any dtype; otherwise only of that one, and gives each leaf its own
    dtype.  The vector of no leaves is an empty float32.

    The function raises ShapeError for a vector of another length, DTypeError for another dtype.
    """
    leaves, treedef = tree.tree_flatten(pytree)
    arrays = [asarray(leaf) for leaf in leaves]
    kinds = tuple(x.dtype for x in arrays)
    shapes = tuple(x.shape for x in arrays)
    if not arrays:
        return snp.zeros(0, types.float32), _Unravel(treedef, shapes)
    common = types.promote(*(ArrayType(kind, ()) for kind in kinds))[0]
    if all(kind == common for kind in kinds):
        vector = snp.concatenate([x.reshape(-1) for x in arrays])
        return vector, _Unravel(treedef, shapes)
    vector = snp.concatenate([convert(x, common).reshape(-1) for x in arrays])
    return vector, _Unravel(treedef, shapes, common, kinds)


@dataclass(frozen=True)
class _Unravel:
    """Puts the elements of a vector back; equal for pytrees of one structure, so it may be static.

    `common` is the dtype of the vector and `kinds` are those of the leaves, if they differ.
    """

    treedef: tree.TreeDef
    shapes: tuple[Shape, ...]
    common: Any = None
    kinds: tuple[Any, ...] = ()

    def __call__(self, vector: Any) -> Any:
        vector = asarray(vector)
        sizes = [operator.index(product(shape)) for shape in self.shapes]
        _check_length(vector, sum(sizes))
        if self.kinds and vector.dtype != self.common:
            raise DTypeError(
                f"unravel: the vector has dtype {vector.dtype}, and not that of the pytree, "
                f"{self.common}.",
                advice="Convert it with astype.",
            )
        leaves = []
        for i, (shape, end) in enumerate(zip(self.shapes, accumulate(sizes), strict=True)):
            leaf = vector[end - sizes[i] : end].reshape(shape)
            leaves.append(convert(leaf, self.kinds[i]) if self.kinds else leaf)
        return self.treedef.unflatten(leaves)


def _check_length(vector: Any, length: int) -> None:
    if vector.shape != (length,):
        raise ShapeError(
            f"unravel takes a vector of {length} elements, not an array of shape {vector.shape}.",
            advice="Give the vector that ravel_pytree returned, or one of its length.",
        )
