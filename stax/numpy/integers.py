"""Functions of integers: divisors, multiples, bits that are set."""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.arguments import numeric
from stax.operators import bits, elementwise as ops
from stax.operators.arithmetic import absolute, promote_operands
from stax.operators.elementwise import convert, like, select


def _integers(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    x1, x2 = promote_operands(name, x1, x2)
    if not types.is_integer(x1.dtype):
        raise ArgumentValueError(
            f"{name} takes integers, not {x1.type} and {x2.type}.",
            advice="Convert them to an integer dtype.",
        )
    return absolute(x1), absolute(x2)


def gcd(x1: Any, x2: Any) -> Any:
    """Return the greatest number that divides both; `gcd(x, 0)` is `abs(x)`.

    Raises ArgumentValueError for other than integers.
    """
    return bits.gcd(*_integers("gcd", x1, x2))


def lcm(x1: Any, x2: Any) -> Any:
    """Return the least number that both divide; 0 if one of them is 0.

    Raises ArgumentValueError for other than integers.
    """
    x1, x2 = _integers("lcm", x1, x2)
    common = bits.gcd(x1, x2)
    none = ops.eq(common, like(common, 0))
    multiple = ops.mul(x1, ops.div(x2, select(none, like(common, 1), common)))
    return select(none, like(common, 0), multiple)


def bitwise_count(x: Any, /) -> Any:
    """Return how many bits of the absolute value are set, as uint8."""
    x = numeric("bitwise_count", x)
    return convert(bits.population_count(absolute(x)), types.uint8)
