"""Special functions of a complex number as pairs of real ops: the real and the imaginary part.

Each op takes the parts x and y of z = x + iy.  A function f = u + iv is analytic, so that its parts
have the derivatives u_x = v_y = Re f' and v_x = -u_y = Im f' (Cauchy and Riemann), which each pair
is given as one function.  Values are SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from stax.operators import special
from stax.operators.complex import join
from stax.operators.elementwise import ROWS as ROWS, add, complex_, imag, like, mul, neg, real, sub

Function = Callable[..., Any]
Pair = tuple[Any, Any]


def _part(function: Function, part: Function) -> Function:
    return lambda x, y: part(function(join(x, y)))


def _pair(name: str, function: Function, slope: Callable[..., Pair] | None) -> tuple[Any, Any]:
    """Add the rows `name_real` and `name_imag`; `slope` gives the parts of f' from x, y, u, v."""

    def parts_of_slope(x: Any, y: Any) -> Pair:
        assert slope is not None
        return slope(x, y, first(x, y), second(x, y))

    along: list[Any] = [special.fixed(name, "its argument")] * 4
    if slope is not None:
        along = [
            lambda t, _, x, y: mul(t, parts_of_slope(x, y)[0]),
            lambda t, _, x, y: neg(mul(t, parts_of_slope(x, y)[1])),
            lambda t, _, x, y: mul(t, parts_of_slope(x, y)[1]),
            lambda t, _, x, y: mul(t, parts_of_slope(x, y)[0]),
        ]
    first = special.row(f"{name}_real", _part(function, np.real), *along[:2])
    second = special.row(f"{name}_imag", _part(function, np.imag), *along[2:])
    return first, second


def _wofz_slope(x: Any, y: Any, u: Any, v: Any) -> Pair:
    """Return the parts of -2 z w(z) + 2 i / sqrt(pi) (DLMF 7.10.3)."""
    two = like(x, 2)
    real_part = mul(two, sub(mul(y, v), mul(x, u)))
    return real_part, sub(like(x, 2 / math.sqrt(math.pi)), mul(two, add(mul(x, v), mul(y, u))))


_WOFZ = _pair("wofz", scipy.special.wofz, _wofz_slope)
_DIGAMMA = _pair("complex_digamma", scipy.special.psi, None)
_LOGGAMMA = _pair(
    "loggamma", scipy.special.loggamma, lambda x, y, u, v: (_DIGAMMA[0](x, y), _DIGAMMA[1](x, y))
)


def _of_complex(pair: tuple[Function, Function], z: Any) -> Any:
    x, y = real(z), imag(z)
    return complex_(pair[0](x, y), pair[1](x, y))


def wofz(z: Any) -> Any:
    """Return the Faddeeva function exp(-z^2) erfc(-iz) of complex numbers."""
    return _of_complex(_WOFZ, z)


def loggamma(z: Any) -> Any:
    """Return log Gamma of complex numbers, with its branch cut along the negative real axis."""
    return _of_complex(_LOGGAMMA, z)
