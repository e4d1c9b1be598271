"""Activations and normalisations, each a composition of ops; derivatives at kinks are JAX's.

Where a branch that is not taken could overflow, its operand is replaced before the function is
applied (`safe`), so that neither the value nor a derivative of any order sees it.
"""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.errors import ArgumentValueError
from stax.extent import Extent, same_shape
from stax.lax import parallel
from stax.numpy import reductions
from stax.numpy.arguments import Axis, array, inexact, inexact_operands, static_int
from stax.numpy.elementwise import clip, logaddexp, tanh as tanh, where as choose
from stax.numpy.manipulation import sliced
from stax.operators import elementwise as ops
from stax.operators.arithmetic import add, divide, multiply, promote_operands, subtract
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import convert, like, select
from stax.operators.gradient import stop_gradient
from stax.operators.reshape import expand_dims
from stax.operators.shape import iota
from stax.scipy.special import log_softmax_over, logsumexp as logsumexp, softmax_over
from stax.types import canonical_axes, canonical_axis, check_dtype


def identity(x: Any) -> Any:
    """Return `x`."""
    return array("identity", x)


def relu(x: Any) -> Any:
    """Return max(x, 0); its derivative at 0 and at NaN is 0."""
    x, zero = promote_operands("relu", x, 0)
    return select(ops.gt(x, zero), x, stop_gradient(ops.maximum(x, zero)))


def relu6(x: Any) -> Any:
    """Return x limited to between 0 and 6; its derivative at both ends and at NaN is 0."""
    x, six = promote_operands("relu6", x, 6.0)
    zero = like(x, 0)
    inside = ops.and_(ops.gt(x, zero), ops.lt(x, six))
    return select(inside, x, stop_gradient(ops.minimum(ops.maximum(x, zero), six)))


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return ops.logistic(inexact("sigmoid", x))


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    return logaddexp(x, 0)


def sparse_plus(x: Any) -> Any:
    """Return 0 below -1, (x + 1)**2 / 4 up to 1, and x above."""
    x = inexact("sparse_plus", x)
    one = like(x, 1)
    middle = multiply(0.25, ops.integer_pow(ops.add(x, one), 2))
    return select(ops.le(x, ops.neg(one)), like(x, 0), select(ops.ge(x, one), x, middle))


def sparse_sigmoid(x: Any) -> Any:
    """Return (x + 1) / 2 limited to between 0 and 1."""
    return multiply(0.5, clip(add(inexact("sparse_sigmoid", x), 1.0), 0.0, 2.0))


def soft_sign(x: Any) -> Any:
    """Return x / (1 + abs(x))."""
    x = inexact("soft_sign", x)
    size = ops.abs_(x)
    return ops.div(x, convert(ops.add(size, like(size, 1)), x.dtype, x.weak_type))


def silu(x: Any) -> Any:
    """Return x * sigmoid(x)."""
    x = inexact("silu", x)
    return ops.mul(x, ops.logistic(x))


swish = silu


def mish(x: Any) -> Any:
    """Return x * tanh(softplus(x))."""
    x = inexact("mish", x)
    return ops.mul(x, ops.tanh(softplus(x)))


def squareplus(x: Any, b: Any = 4) -> Any:
    """Return (x + sqrt(x**2 + b)) / 2."""
    x, b = inexact_operands("squareplus", x, b)
    return multiply(ops.add(x, ops.sqrt(ops.add(ops.mul(x, x), b))), 0.5)


def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x))."""
    return ops.neg(softplus(ops.neg(inexact("log_sigmoid", x))))


def log1mexp(x: Any) -> Any:
    """Return log(1 - exp(-x)) for positive `x`, without cancellation."""
    x = inexact("log1mexp", x)
    small = ops.lt(x, like(x, math.log(2)))
    near = ops.log(ops.neg(ops.expm1(ops.neg(x))))
    return select(small, near, ops.log1p(ops.neg(ops.exp(ops.neg(x)))))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return x above 0, and alpha * (exp(x) - 1) below."""
    x = inexact("elu", x)
    above = ops.gt(x, like(x, 0))
    safe = select(above, like(x, 0), x)
    return choose(above, x, multiply(alpha, ops.expm1(safe)))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """Return max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    x = inexact("celu", x)
    above = ops.gt(x, like(x, 0))
    safe = select(above, like(x, 0), x)
    return choose(above, x, multiply(alpha, ops.expm1(divide(safe, alpha))))


def selu(x: Any) -> Any:
    """Return the scaled exponential linear unit, which keeps mean and variance."""
    return multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """Return x from 0 up, and negative_slope * x below."""
    x = inexact("leaky_relu", x)
    return choose(ops.ge(x, like(x, 0)), x, multiply(negative_slope, x))


def hard_tanh(x: Any) -> Any:
    """Return x limited to between -1 and 1."""
    x, one = promote_operands("hard_tanh", x, 1)
    return select(ops.gt(x, one), one, select(ops.lt(x, ops.neg(one)), ops.neg(one), x))


def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6."""
    return divide(relu6(add(inexact("hard_sigmoid", x), 3.0)), 6.0)


def hard_silu(x: Any) -> Any:
    """Return x * hard_sigmoid(x)."""
    x = inexact("hard_silu", x)
    return multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


def gelu(x: Any, approximate: bool = True) -> Any:
    """Return x times the normal distribution function of x, or its approximation by tanh."""
    x = inexact("gelu", x)
    x = convert(x, x.dtype)  # as in JAX, the result is never weak
    if not approximate:
        scaled = ops.mul(ops.neg(x), like(x, math.sqrt(0.5)))
        return ops.mul(like(x, 0.5), ops.mul(x, ops.erfc(scaled)))
    cubed = ops.integer_pow(x, 3)
    inner = ops.add(x, ops.mul(like(x, 0.044715), cubed))
    half = ops.mul(
        like(x, 0.5), ops.add(like(x, 1), ops.tanh(ops.mul(like(x, math.sqrt(2 / math.pi)), inner)))
    )
    return ops.mul(x, half)


def glu(x: Any, axis: int = -1) -> Any:
    """Return the first half of `x` along `axis` times the sigmoid of the second."""
    x = inexact("glu", x)
    where = canonical_axis(axis, x.ndim)
    length = x.shape[where]
    if length % 2:
        raise ArgumentValueError(
            f"glu: axis {axis} of {x.type} must have an even length.",
            advice="Its two halves are the value and the gate.",
        )
    first, second = sliced(x, 0, length // 2, where), sliced(x, length // 2, length, where)
    return ops.mul(first, ops.logistic(second))


# --- over an axis ---


def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return exp(x) over its sum along `axis`, of the elements selected; the others are 0."""
    x = inexact("softmax", x)
    return softmax_over(x, canonical_axes(axis, x.ndim), where)


def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Return the logarithm of `softmax`; elements that are left out are minus infinity."""
    x = inexact("log_softmax", x)
    return log_softmax_over(x, canonical_axes(axis, x.ndim), where)


def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Any:
    """Return the logarithm of the mean of exp(x) over `axis`."""
    total = logsumexp(x, axis, keepdims=keepdims, where=where)
    ones = like(inexact("logmeanexp", x), 1)
    count = reductions.sum(ones, axis, keepdims=keepdims, where=where)
    return subtract(total, ops.log(count))


def standardize(
    x: Any,
    axis: Axis = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """Return `x` less its mean over `axis`, over the square root of its variance plus `epsilon`.

    The variance is that of the distances from the mean, which does not cancel; `algorithm` names
    JAX's two ways and changes nothing here.
    """
    x = inexact("standardize", x)
    if mean is None:
        mean = reductions.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        variance = reductions.var(x, axis, keepdims=True, where=where, mean=mean)
    return multiply(subtract(x, mean), ops.rsqrt(add(inexact("standardize", variance), epsilon)))


def one_hot(x: Any, num_classes: Any, *, dtype: Any = None, axis: Any = -1) -> Any:
    """Return 1 at the place that each element of `x` names along a new axis, and 0 elsewhere.

    A place out of range gives zeros.  `axis` may be the name of an axis that vmap maps, with a lane
    for each class: the result is the element of the lane.

    Raises ArgumentValueError if the axis of that name is not `num_classes` long.
    """
    x = array("one_hot", x)
    kind = types.float_dtype() if dtype is None else check_dtype(dtype)
    count = num_classes
    if not isinstance(count, Extent):
        count = static_int("one_hot", "num_classes", count)
    if isinstance(axis, str | tuple):
        return _one_hot_lane(x, count, kind, axis)
    where = canonical_axis(axis, x.ndim + 1)
    shape = (*x.shape[:where], count, *x.shape[where:])
    places = broadcast_in_dim(expand_dims(x, where), shape, range(len(shape)))
    counts = iota(types.int_dtype() if types.is_bool(x.dtype) else x.dtype, shape, where)
    return convert(ops.eq(convert(places, counts.dtype), counts), kind)


def _one_hot_lane(x: Any, count: Any, kind: Any, axis_name: Any) -> Any:
    """Return the element of `one_hot` for the lane of a named axis."""
    lanes = parallel.axis_size(axis_name)
    if not same_shape((lanes,), (count,)):
        raise ArgumentValueError(
            f"one_hot: axis {axis_name!r} has {lanes} lanes for num_classes={count}.",
            advice="There is one lane for each class.",
        )
    place, lane = promote_operands("one_hot", x, parallel.axis_index(axis_name))
    return convert(ops.eq(place, lane), kind)
