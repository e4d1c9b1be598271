"""The inverse of the error function, and the quantiles of the normal distribution.

erf_inv x = x G(w) with w = -log(1 - x^2), as in M. Giles, Approximating the erfinv function (GPU
Computing Gems 2, 2012): G is nearly linear in w near 0, and in sqrt w far out.  1 - x^2 is rounded
once, so that no digit is lost where |x| is nearly 1.  The quantile of p is sqrt 2 erf_inv(2 p - 1),
with 1 - (2 p - 1)^2 = 4 p (1 - p) taken from p itself where that is small.

Each piece is a polynomial in u, which goes from -1 to 1 on the piece: interpolation at Chebyshev's
points in 45-digit arithmetic, then rounded to the format.  Pieces far out are skipped where no
lane needs them.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import Emitter, Value
from stax.lowering.vector_math.logarithm import log

# G(w) on [0, 5] and, in sqrt w, on [sqrt 5, 4]: 2^-24.5 and 2^-24.7.
_CENTRE_FLOAT = (
    1.5014094114303589,
    0.616600751876831,
    -0.02610868588089943,
    -0.01957419328391552,
    0.008529176004230976,
    -0.0004843499627895653,
    -0.0008455459610559046,
    0.0002840751549229026,
    3.553137867129408e-05,
    -3.333980930619873e-05,
)
_TAIL_FLOAT = (
    2.9513285160064697,
    0.8851584792137146,
    0.005570271518081427,
    -0.003709597745910287,
    0.0023417153861373663,
    -0.0013758764835074544,
    0.0006244457326829433,
    -0.00012848785263486207,
    -6.66981068206951e-05,
    4.10266438848339e-05,
)
# On [0, 6.25] and, in sqrt w, on [2.5, 4] and [4, 6.0625]: 2^-53.6, 2^-53.5, 2^-53.4.
_CENTRE_DOUBLE = (
    1.6536545626831027,
    0.7504943200799635,
    -0.058922567103787134,
    -0.022604447453450232,
    0.01780836181873851,
    -0.004137314377403391,
    -0.0012716922767024804,
    0.001232485568550093,
    -0.0002643935887486061,
    -0.00011688883906368398,
    9.336693850145469e-05,
    -1.5027713926607673e-05,
    -1.12556848303199e-05,
    7.130066374076713e-06,
    -6.875976604490698e-07,
    -1.0593369313279506e-06,
    5.455731449441764e-07,
    -1.0167881522841083e-08,
    -1.050986356032909e-07,
    3.9142671001329127e-08,
    9.050516362783967e-09,
    -8.557984074478427e-09,
    -8.186442916601386e-11,
    7.680990475575188e-10,
)
_MIDDLE_DOUBLE = (
    3.0838856104922208,
    0.753944225770624,
    0.003021139436383993,
    -0.0015825410894071102,
    0.0007883078510001966,
    -0.00040063569835709886,
    0.0001696650258988731,
    -4.739182728807125e-05,
    2.405839302031157e-06,
    5.12731666449741e-06,
    -2.664698628136375e-06,
    5.264624728714587e-07,
    9.267697270993584e-08,
    -9.468994570246937e-08,
    2.6703450893214863e-08,
    -3.686244821266703e-10,
    -2.7192930488742553e-09,
    9.889115389827993e-10,
    3.864597530875882e-12,
    -6.466960514925309e-11,
)
_TAIL_DOUBLE = (
    4.8814781489772106,
    1.041862773311057,
    -0.000168496215742536,
    -0.00022561542645434813,
    8.254503816749671e-05,
    -2.1988872898289305e-05,
    5.189885084529816e-06,
    -1.1635087126621886e-06,
    2.701626301967925e-07,
    -7.815772011643024e-08,
    3.3155640325965595e-08,
    -1.765396738556467e-08,
    9.14630150116423e-09,
    -4.363675902612615e-09,
    2.012785965133941e-09,
    -6.44674595349111e-10,
    -1.0870438230641712e-11,
    5.6699986087431485e-11,
)
# G(w) / sqrt w in 1 / sqrt w on [1 / 27.5, 1 / 6], as far as the least subnormal p: 2^-54.9.
_FAR_DOUBLE = (
    0.9888039234196565,
    -0.011084606872057793,
    -0.0014534783445635396,
    0.00044605012134475334,
    -7.356010105679242e-05,
    1.8266340984334024e-05,
    -5.989427382707317e-06,
    2.208625409861033e-06,
    -8.854056146877235e-07,
    3.7861754633006733e-07,
    -1.699500829004115e-07,
    7.925423487448344e-08,
    -3.850778240259635e-08,
    1.9162068519550966e-08,
    -8.583741424919365e-09,
    4.069797037174298e-09,
    -4.276903526951653e-09,
    2.7555649321567206e-09,
    1.484099023224015e-09,
    -1.2886204093324299e-09,
    -2.036866967628501e-09,
    1.4262879054731694e-09,
    8.462429153557485e-10,
    -5.834698519046289e-10,
    -2.4166274768543984e-10,
    1.54276308092739e-10,
)


def _ratio(k: Emitter, w: Value) -> Value:
    """Return G(w) for w < 16 in float and w < 36.75 in double."""
    if w.kind == "float":
        centre = k.polynomial_on(w, 0.0, 5.0, _CENTRE_FLOAT)

        def far() -> Value:
            return k.polynomial_on(k.sqrt(w), math.sqrt(5.0), 4.0, _TAIL_FLOAT)

        return k.when(w >= 5.0, far, centre)
    centre = k.polynomial_on(w, 0.0, 6.25, _CENTRE_DOUBLE)

    def tail() -> Value:
        root = k.sqrt(w)
        middle = k.polynomial_on(root, 2.5, 4.0, _MIDDLE_DOUBLE)
        return k.select(w < 16.0, middle, k.polynomial_on(root, 4.0, 6.0625, _TAIL_DOUBLE))

    return k.when(w >= 6.25, tail, centre)


def erf_inv(k: Emitter, x: Value) -> Value:
    w = -log(k, k.fma(-x, x, 1.0))
    y = x * _ratio(k, w)
    return k.select(k.absolute(x).equals(1.0), k.copysign(math.inf, x), y)


def ndtri(k: Emitter, p: Value) -> Value:
    """In double; the last piece serves for p below the least 1 - |x| of a double."""
    p = k.widen(p)
    x = k.fma(p, 2.0, -1.0)
    small = p < 0.25
    w = -log(k, k.select(small, p * 4.0 * (1.0 - p), k.fma(-x, x, 1.0)))

    def far() -> Value:
        root = k.sqrt(w)
        return root * k.polynomial_on(1.0 / root, 1.0 / 27.5, 1.0 / 6.0, _FAR_DOUBLE)

    ratio = k.when(w >= 36.5, far, _ratio(k, w))
    y = x * ratio * math.sqrt(2.0)
    end = p.equals(0.0) | p.equals(1.0)
    return k.narrow(k.select(end, k.copysign(math.inf, x), y))
