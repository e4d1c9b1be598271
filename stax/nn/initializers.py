"""Initial values of parameters, as `jax.nn.initializers` makes them.

An initializer is a function of a random key, a shape and a dtype.  Most names are functions that
make one; `zeros` and `ones` are initializers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from stax import random, types
from stax.array import asarray
from stax.errors import ArgumentValueError, ShapeError
from stax.numpy import creation
from stax.numpy.manipulation import moveaxis
from stax.operators.elementwise import complex_, cos, log, neg, sin, sqrt
from stax.operators.reshape import reshape
from stax.types import canonical_axis, canonical_shape, check_dtype

Axes = int | Sequence[int]


@runtime_checkable
class Initializer(Protocol):
    """A function that makes the initial value of a parameter."""

    def __call__(self, key: Any, shape: Any, dtype: Any = None) -> Any:
        """Return an array of `shape` and `dtype`, float32 unless given."""


def zeros(key: Any, shape: Any, dtype: Any = None) -> Any:
    """Return zeros; the key is not used."""
    return creation.zeros(shape, _dtype(dtype))


def ones(key: Any, shape: Any, dtype: Any = None) -> Any:
    """Return ones; the key is not used."""
    return creation.ones(shape, _dtype(dtype))


def _dtype(dtype: Any) -> Any:
    return types.float_dtype() if dtype is None else check_dtype(dtype)


def _initializer(make: Callable[..., Any], default: Any) -> Initializer:
    """Return the initializer that calls `make(key, shape, dtype)` with what it was given."""

    def init(key: Any, shape: Any, dtype: Any = default) -> Any:
        return make(key, canonical_shape(shape), _dtype(dtype))

    return init


def constant(value: Any, dtype: Any = None) -> Initializer:
    """Make an initializer that fills with `value`, which broadcasts to the shape."""
    return _initializer(lambda key, shape, kind: creation.full(shape, value, kind), dtype)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of numbers uniform in [0, scale)."""
    return _initializer(
        lambda key, shape, kind: random.uniform(key, shape, kind) * asarray(scale, kind), dtype
    )


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of normal numbers of a standard deviation."""
    return _initializer(
        lambda key, shape, kind: random.normal(key, shape, kind) * asarray(stddev, kind), dtype
    )


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """Make an initializer of normal numbers that were between two bounds before scaling."""

    def make(key: Any, shape: Any, kind: Any) -> Any:
        return random.truncated_normal(key, lower, upper, shape, kind) * asarray(stddev, kind)

    return _initializer(make, dtype)


# --- scaled by the number of inputs and outputs ---


def _fans(shape: Any, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """Return how many inputs each output has, and how many outputs each input."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) <= 1:
        raise ShapeError(
            f"a parameter of shape {shape} has no axis of inputs.",
            advice="Name the axis with in_axis, or give it two axes.",
        )

    def size(axes: Axes) -> int:
        return math.prod(shape[a] for a in ((axes,) if isinstance(axes, int) else axes))

    inputs, outputs = size(in_axis), size(out_axis)
    receptive = math.prod(shape) / inputs / outputs / size(batch_axis)
    return inputs * receptive, outputs * receptive


_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: math.sqrt(fan_in * fan_out),
}
# The deviation of a standard normal number that is between -2 and 2, and of a complex one within 2.
_CUT, _CUT_COMPLEX = 0.87962566103423978, 0.95311164380491208


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """Make an initializer of variance `scale` over the number of inputs, outputs, or their mean.

    `mode` is "fan_in", "fan_out", "fan_avg" or "fan_geo_avg"; `distribution` "truncated_normal",
    "normal" or "uniform".  The other axes, batch axes apart, count as the field that an output
    sees.
    """
    if mode not in _MODES:
        raise ArgumentValueError(
            f"variance_scaling: no mode {mode!r}.", advice=f"Modes are {', '.join(_MODES)}."
        )
    if distribution not in _DISTRIBUTIONS:
        raise ArgumentValueError(
            f"variance_scaling: no distribution {distribution!r}.",
            advice=f"There are {', '.join(_DISTRIBUTIONS)}.",
        )

    def make(key: Any, shape: Any, kind: Any) -> Any:
        denominator = _MODES[mode](*_fans(shape, in_axis, out_axis, batch_axis))
        variance = asarray(scale / denominator, kind)
        return _DISTRIBUTIONS[distribution](key, shape, kind, variance)

    return _initializer(make, dtype)


def _scaled_truncated(key: Any, shape: Any, dtype: Any, variance: Any) -> Any:
    if not types.is_complex(dtype):
        drawn = random.truncated_normal(key, -2, 2, shape, dtype)
        return drawn * (sqrt(variance) / asarray(_CUT, dtype))
    return _complex_truncated(key, shape, dtype) * (sqrt(variance) / asarray(_CUT_COMPLEX, dtype))


def _scaled_normal(key: Any, shape: Any, dtype: Any, variance: Any) -> Any:
    return random.normal(key, shape, dtype) * sqrt(variance)


def _scaled_uniform(key: Any, shape: Any, dtype: Any, variance: Any) -> Any:
    if types.is_complex(dtype):
        return _complex_uniform(key, shape, dtype) * sqrt(variance)
    return random.uniform(key, shape, dtype, -1) * sqrt(3 * variance)


_DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "truncated_normal": _scaled_truncated,
    "normal": _scaled_normal,
    "uniform": _scaled_uniform,
}


def _complex_uniform(key: Any, shape: Any, dtype: Any) -> Any:
    """Return numbers uniform in the disk whose points have a mean square of 1."""
    first, second = random.split(key)
    radius = sqrt(2 * random.uniform(first, shape, types.real_part(dtype)))
    return _turned(radius, second)


def _complex_truncated(key: Any, shape: Any, dtype: Any) -> Any:
    """Return complex normal numbers within 2 of 0."""
    first, second = random.split(key)
    kept = (1 - math.exp(-4)) * random.uniform(first, shape, types.real_part(dtype))
    return _turned(sqrt(neg(log(1 - kept))), second)


def _turned(radius: Any, key: Any) -> Any:
    """Return complex numbers of a radius and a random angle."""
    angle = 2 * math.pi * random.uniform(key, radius.shape, radius.dtype)
    return complex_(radius * cos(angle), radius * sin(angle))


def _of_variance(name: str, scale: float, mode: str, distribution: str, use: str) -> Any:
    def maker(
        in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    maker.__name__ = maker.__qualname__ = name
    maker.__doc__ = f"Make {use}: variance_scaling({scale}, {mode!r}, {distribution!r})."
    return maker


glorot_uniform = xavier_uniform = _of_variance(
    "glorot_uniform", 1.0, "fan_avg", "uniform", "Glorot's uniform initializer"
)
glorot_normal = xavier_normal = _of_variance(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal", "Glorot's normal initializer"
)
lecun_uniform = _of_variance(
    "lecun_uniform", 1.0, "fan_in", "uniform", "LeCun's uniform initializer"
)
lecun_normal = _of_variance(
    "lecun_normal", 1.0, "fan_in", "truncated_normal", "LeCun's normal initializer"
)
he_uniform = kaiming_uniform = _of_variance(
    "he_uniform", 2.0, "fan_in", "uniform", "He's uniform initializer"
)
he_normal = kaiming_normal = _of_variance(
    "he_normal", 2.0, "fan_in", "truncated_normal", "He's normal initializer"
)


# --- orthogonal ---


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of matrices with orthonormal columns, or rows if there are fewer.

    `column_axis` is that of the columns; the other axes together are that of the rows.
    """

    def make(key: Any, shape: Any, kind: Any) -> Any:
        if len(shape) < 2:
            raise ShapeError(
                f"orthogonal: a parameter of shape {shape} is no matrix.",
                advice="Its shape has two axes at least.",
            )
        if 0 in shape:
            return creation.zeros(shape, kind)
        axis = canonical_axis(column_axis, len(shape))
        columns, others = shape[axis], (*shape[:axis], *shape[axis + 1 :])
        matrix = random.orthogonal(key, math.prod(others), (), kind, columns)
        moved = moveaxis(reshape(matrix, (*others, columns)), -1, axis)
        return asarray(scale, kind) * moved

    return _initializer(make, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of convolutions that are an orthogonal matrix at their center.

    The shape is that of a kernel of one, two or three axes, then inputs, then outputs.
    """

    def make(key: Any, shape: Any, kind: Any) -> Any:
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ShapeError(
                f"delta_orthogonal: {shape} is no shape of a convolution that keeps lengths.",
                advice="It has 3 to 5 axes, the last of them as long as the one before or longer.",
            )
        matrix = orthogonal(scale, column_axis, kind)(key, shape[-2:])
        center = tuple((n - 1) // 2 for n in shape[:-2])
        return creation.zeros(shape, kind).at[center].set(matrix)

    return _initializer(make, dtype)
