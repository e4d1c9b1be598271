"""Modified Bessel functions, the exponential integral and Dawson's integral, piece by piece.

The polynomials are those of `operators.special_tables`; pieces far out are skipped where no lane
needs them.  Everything is in double.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import Emitter, Value
from stax.lowering.vector_math.external import external
from stax.operators import special_tables as tables

_EULER_GAMMA = 0.5772156649015329


def _piece(k: Emitter, x: Value, piece: tables.Piece) -> Value:
    return k.polynomial_on(x, *piece)


def bessel_i0e(k: Emitter, x: Value) -> Value:
    a = k.absolute(k.widen(x))
    near = _piece(k, a, tables.I0E)
    far = a > tables.BESSEL_NEAR
    return k.narrow(k.when(far, lambda: _piece(k, 1.0 / a, tables.I0E_FAR) / k.sqrt(a), near))


def bessel_i1e(k: Emitter, x: Value) -> Value:
    a = k.absolute(k.widen(x))
    near = a * _piece(k, a, tables.I1E)
    far = a > tables.BESSEL_NEAR
    y = k.when(far, lambda: _piece(k, 1.0 / a, tables.I1E_FAR) / k.sqrt(a), near)
    return k.copysign(k.narrow(y), x)


def expi(k: Emitter, x: Value) -> Value:
    """Ei(x); below 0 it is -E_1(-x), from a C function."""
    x = k.widen(x)
    root = k.call("exp", x * 0.5)
    near = k.call("log", x) + _EULER_GAMMA + x * root * _piece(k, x, tables.EXPI_NEAR)

    def far() -> Value:
        inverse = 1.0 / x
        middle = _piece(k, inverse, tables.EXPI_MIDDLE)
        scaled = k.select(x < 20.0, middle, _piece(k, inverse, tables.EXPI_FAR))
        return k.select(x < math.inf, root * (root * (inverse * scaled)), x)

    y = k.when(x >= 8.0, far, near)
    negative = x < 0.0
    return k.narrow(k.when(negative, lambda: external(k, "expi", x), y))


def dawsn(k: Emitter, x: Value) -> Value:
    x = k.widen(x)
    square, inverse = x * x, 1.0 / x
    z = inverse * inverse
    near = x * _piece(k, square, tables.DAWSN_NEAR)

    def far() -> Value:
        middle = _piece(k, z, tables.DAWSN_MIDDLE)
        scaled = k.select(square < 36.0, middle, _piece(k, z, tables.DAWSN_FAR))
        return inverse * scaled * 0.5

    return k.narrow(k.when(square >= 9.0, far, near))
