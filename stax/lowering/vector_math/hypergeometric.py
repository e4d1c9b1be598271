"""Derivatives of the hypergeometric series 1F1 and 2F1 by a parameter.

As in `operators.special_numeric`: the recurrence of the terms is differentiated.  A lane whose
terms have become negligible is left as it is, so that its result does not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stax.lowering.vector_math.emit import Emitter, Value
from stax.operators import special_numeric as numeric


def slope(count: int, number: int, *, below: bool = False) -> Callable[..., Value]:
    """Return the formula of the derivative by parameter `number` of `count` ones in the numerator,
    or by the one in the denominator."""

    def formula(k: Emitter, *arguments: Value) -> Value:
        *parameters, x = (k.widen(v) for v in arguments)
        top, bottom = parameters[:count], parameters[count:]
        rest = [c for i, c in enumerate(top) if below or i != number]
        chosen = bottom[0] if below else top[number]
        y = _series(k, rest, bottom, chosen, x, below)
        if count > len(bottom):
            y = k.select(k.absolute(x) < 1.0, y, math.nan)
        return k.narrow(y)

    return formula


def _series(
    k: Emitter, rest: Sequence[Value], bottom: Sequence[Value], chosen: Value, x: Value, below: bool
) -> Value:
    zero, one = k.constant(0.0, "double"), k.constant(1.0, "double")

    def step(i: str, *state: Value) -> tuple[Value, ...]:
        n, term, by_chosen, total, done = state
        ratio = x / (n + 1.0)
        for c in rest:
            ratio = ratio * (c + n)
        for c in bottom:
            ratio = ratio / (c + n)
        factor = chosen + n
        if below:
            following = term * ratio
            by_chosen = by_chosen * ratio - following / factor
        else:
            by_chosen = k.fma(by_chosen, factor, term) * ratio
            following = term * factor * ratio
        total = k.select(done > 0.0, total, total + by_chosen)
        size = k.absolute(total)
        small = k.absolute(by_chosen) <= size * numeric.NEGLIGIBLE
        small = small & (k.absolute(following) <= (size + 1.0) * numeric.NEGLIGIBLE)
        # A NaN is final.
        done = k.select(small | ~total.equals(total), 1.0, done)
        return n + 1.0, following, by_chosen, total, done

    start = (zero, one, zero, zero, zero)
    found = k.repeat(numeric.HYPERGEOMETRIC_TERMS, start, step, lambda *state: state[4] > 0.0)
    return found[3]
