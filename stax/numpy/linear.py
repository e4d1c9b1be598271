"""Products of arrays; those of 16-bit floats add up in float32.

All but the element-wise ones (`outer`, `kron`, `cross`) come down to one op, `dot_general`.
"""

from __future__ import annotations

from typing import Any

from stax.errors import ArgumentValueError
from stax.numpy.arguments import arrays, refuse_out
from stax.numpy.complex import conj
from stax.numpy.joining import stack
from stax.operators import contract
from stax.operators.arithmetic import multiply, subtract
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.types import canonical_axis


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sum of products over the last axis of `a` and the last but one of `b`."""
    a, b = arrays("dot", a, b)
    return contract.dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the matrix product; leading axes are stacks and broadcast, vectors lose their axis.

    Raises ShapeError if the summed axes differ in length.
    """
    a, b = arrays("matmul", a, b)
    return contract.matmul(a, b, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the product summed over `axes`: a number of adjoining axes, or (axes of a, of b)."""
    a, b = arrays("tensordot", a, b)
    return contract.tensordot(
        a, b, axes, precision=precision, preferred_element_type=preferred_element_type
    )


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sum of the products of all elements, those of `a` conjugated."""
    a, b = (reshape(x, (-1,)) for x in arrays("vdot", a, b))
    return dot(conj(a), b, precision=precision, preferred_element_type=preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the sums of products over the last axes of `a` and `b`."""
    a, b = arrays("inner", a, b)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return tensordot(
        a, b, ((-1,), (-1,)), precision=precision, preferred_element_type=preferred_element_type
    )


def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Return the products of each element of `a` with each of `b`, both flattened."""
    refuse_out("outer", out)
    a, b = (reshape(x, (-1,)) for x in arrays("outer", a, b))
    return multiply(expand_dims(a, 1), expand_dims(b, 0))


def vecdot(
    x1: Any,
    x2: Any,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the sums of products of vectors along `axis`, those of `x1` conjugated.

    The other axes broadcast.
    """
    x1, x2 = arrays("vecdot", x1, x2)
    x1 = conj(x1)
    x1, x2 = (move_axis(x, canonical_axis(axis, x.ndim), -1) for x in (x1, x2))
    row, column = expand_dims(x1, x1.ndim - 1), expand_dims(x2, x2.ndim)
    found = matmul(row, column, precision=precision, preferred_element_type=preferred_element_type)
    return reshape(found, found.shape[:-2])


def matvec(x1: Any, x2: Any, /) -> Any:
    """Return the products of matrices in `x1` and vectors in `x2`; leading axes broadcast."""
    x1, x2 = arrays("matvec", x1, x2)
    found = matmul(x1, expand_dims(x2, x2.ndim))
    return reshape(found, found.shape[:-1])


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Return the products of vectors in `x1`, conjugated, and matrices in `x2`.

    Leading axes broadcast.
    """
    x1, x2 = arrays("vecmat", x1, x2)
    x1 = conj(x1)
    found = matmul(expand_dims(x1, x1.ndim - 1), x2)
    return reshape(found, (*found.shape[:-2], found.shape[-1]))


def kron(a: Any, b: Any) -> Any:
    """Return the Kronecker product: `b` scaled by each element of `a`, put together."""
    a, b = arrays("kron", a, b)
    ndim = max(a.ndim, b.ndim)
    a, b = (expand_dims(x, range(ndim - x.ndim)) if x.ndim < ndim else x for x in (a, b))
    left = expand_dims(a, [2 * i + 1 for i in range(ndim)])
    right = expand_dims(b, [2 * i for i in range(ndim)])
    return reshape(multiply(left, right), [m * n for m, n in zip(a.shape, b.shape, strict=True)])


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Return the cross products of vectors of length 3, or of 2 (the third component is 0)."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = arrays("cross", a, b)
    u, v = _components(a, axisa), _components(b, axisb)
    if len(u) == len(v) == 2:
        return _minor(u, v, 0, 1)
    zero = multiply(u[0], 0)
    u, v = (w if len(w) == 3 else [*w, zero] for w in (u, v))
    found = [_minor(u, v, 1, 2), _minor(u, v, 2, 0), _minor(u, v, 0, 1)]
    return stack(found, axisc if axisc >= 0 else found[0].ndim + 1 + axisc)


def _components(x: Any, axis: int) -> list[Any]:
    x = move_axis(x, canonical_axis(axis, x.ndim), 0)
    if x.shape[0] not in (2, 3):
        raise ArgumentValueError(
            f"cross: vectors have length 2 or 3, got {x.shape[0]}.",
            advice="Choose their axis with axis=.",
        )
    return list(x)


def _minor(u: list[Any], v: list[Any], i: int, j: int) -> Any:
    return subtract(multiply(u[i], v[j]), multiply(u[j], v[i]))
