"""Products of arrays under the names that they have in `linalg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.errors import ArgumentValueError, ShapeError
from stax.numpy import linear
from stax.numpy.arguments import array, arrays
from stax.numpy.einsum import einsum
from stax.numpy.linalg.solutions import inv
from stax.numpy.linear import vecdot as vecdot
from stax.numpy.manipulation import matrix_transpose as matrix_transpose
from stax.numpy.taking import diagonal as _diagonal, trace as _trace
from stax.operators.matrices import identity_like


def matrix_power(a: Any, n: int) -> Any:
    """Return the matrices in the last two axes raised to the power `n`; negative ones invert."""
    a = array("matrix_power", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ArgumentValueError(
            f"matrix_power takes square matrices, not {a.type}.",
            advice="Its last two axes must have one length.",
        )
    if n == 0:
        return identity_like(a)
    if n < 0:
        a, n = inv(a), -n
    result, square = None, a
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        square = matmul(square, square) if n else square
    return result


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """Return the product of two or more matrices, in the order of products that is cheapest.

    The first and the last may be vectors.
    """
    factors = [array("multi_dot", x) for x in arrays]
    if len(factors) < 2:
        raise ArgumentValueError(
            f"multi_dot multiplies two or more arrays, got {len(factors)}.",
            advice="Pass a list of matrices.",
        )
    ends = factors[0].ndim in (1, 2) and factors[-1].ndim in (1, 2)
    if not ends or any(x.ndim != 2 for x in factors[1:-1]):
        raise ShapeError(
            f"multi_dot takes matrices, not {', '.join(str(x.type) for x in factors)}.",
            advice="Only the first and the last may be vectors.",
        )
    labels = [chr(ord("a") + i) + chr(ord("a") + i + 1) for i in range(len(factors))]
    labels[0] = labels[0][-factors[0].ndim :]
    labels[-1] = labels[-1][: factors[-1].ndim]
    return einsum(f"{','.join(labels)}->{_ends(labels)}", *factors, precision=precision)


def _ends(labels: Sequence[str]) -> str:
    return labels[0][:-1] + labels[-1][1:]


def matmul(
    x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the matrix product; see `stax.numpy.matmul`."""
    return linear.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the product summed over `axes`; see `stax.numpy.tensordot`."""
    return linear.tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type
    )


def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of each element of the vector `x1` with each of `x2`."""
    x1, x2 = arrays("outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(
            f"linalg.outer takes vectors, not {x1.type} and {x2.type}.",
            advice="stax.numpy.outer flattens its arguments.",
        )
    return linear.outer(x1, x2)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross products of the vectors of length 3 along `axis`."""
    x1, x2 = arrays("cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(
            f"linalg.cross takes vectors of length 3 along {axis=}, not {x1.type} and {x2.type}.",
            advice="stax.numpy.cross also takes vectors of length 2.",
        )
    return linear.cross(x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonals of the matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of the diagonals of the matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)
