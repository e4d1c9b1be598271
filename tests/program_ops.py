"""Programs as data, and the ops they are made of, each written once for JAX and for Stax.

A `Program` is inputs and steps: an op of `OPS` by name, the operands by number, and static
parameters; it is called with the library to run on.  The function of an op takes the library first.
Domains are safe for any finite operand: a logarithm is of `x * x + 0.5`, a quotient by `y * y + 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

# Bits of the significand: an exact value has at most that many.
BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "int32": 31, "int64": 63}


def _pad(lib: Any, x: Any, value: float, config: Any) -> Any:
    return lib.lax.pad(x, lib.lax.full_like(x, value, shape=()), config)


_UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "neg": lambda lib, x: -x,
    "abs": lambda lib, x: abs(x),
    "sin": lambda lib, x: lib.numpy.sin(x),
    "cos": lambda lib, x: lib.numpy.cos(x),
    "tanh": lambda lib, x: lib.numpy.tanh(x),
    "arctan": lambda lib, x: lib.numpy.arctan(x),
    "arcsinh": lambda lib, x: lib.numpy.arcsinh(x),
    "logistic": lambda lib, x: lib.nn.sigmoid(x),
    "erf": lambda lib, x: lib.lax.erf(x),
    "softplus": lambda lib, x: lib.nn.softplus(x),
    "gelu": lambda lib, x: lib.nn.gelu(x),
    "silu": lambda lib, x: lib.nn.silu(x),
    "relu": lambda lib, x: lib.nn.relu(x),
    "square": lambda lib, x: lib.numpy.square(x),
    "cube": lambda lib, x: x**3,
    "log": lambda lib, x: lib.numpy.log(x * x + 0.5),
    "log1p": lambda lib, x: lib.numpy.log1p(x * x),
    "log2": lambda lib, x: lib.numpy.log2(abs(x) + 1),
    "sqrt": lambda lib, x: lib.numpy.sqrt(x * x + 0.25),
    "rsqrt": lambda lib, x: lib.lax.rsqrt(x * x + 1.0),
    "reciprocal": lambda lib, x: 1 / (x * x + 1),
    "exp": lambda lib, x: lib.numpy.exp(lib.numpy.minimum(x, 2)),
    "exp2": lambda lib, x: lib.numpy.exp2(-abs(x)),
    "expm1": lambda lib, x: lib.numpy.expm1(-x * x),
    "sinh": lambda lib, x: lib.numpy.sinh(lib.numpy.clip(x, -2, 2)),
    "tan": lambda lib, x: lib.numpy.tan(lib.numpy.sin(x)),
    "arcsin": lambda lib, x: lib.numpy.arcsin(0.5 * lib.numpy.cos(x)),
    "logaddexp": lambda lib, x: lib.numpy.logaddexp(x, 1.0),
    "cbrt": lambda lib, x: lib.numpy.cbrt(x * x + 0.5),
    "sign": lambda lib, x: lib.numpy.sign(x),
    "floor": lambda lib, x: lib.numpy.floor(x),
    "ceil": lambda lib, x: lib.numpy.ceil(x),
    "round": lambda lib, x: lib.numpy.round(x),
    "isfinite": lambda lib, x: lib.numpy.isfinite(x),
    "invert": lambda lib, x: ~x,
    "stop": lambda lib, x: lib.lax.stop_gradient(x),
}
_BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda lib, x, y: x + y,
    "sub": lambda lib, x, y: x - y,
    "mul": lambda lib, x, y: x * y,
    "div": lambda lib, x, y: x / (y * y + 1),
    "maximum": lambda lib, x, y: lib.numpy.maximum(x, y),
    "minimum": lambda lib, x, y: lib.numpy.minimum(x, y),
    "arctan2": lambda lib, x, y: lib.numpy.arctan2(x, y * y + 1),
    "hypot": lambda lib, x, y: lib.numpy.hypot(x, y * y + 1),
    "power": lambda lib, x, y: (x * x + 0.5) ** lib.numpy.tanh(y),
    "floor_divide": lambda lib, x, y: x // y,
    "remainder": lambda lib, x, y: x % y,
    "left_shift": lambda lib, x, y: x << (y & 7),
    "right_shift": lambda lib, x, y: x >> (y & 7),
    "and": lambda lib, x, y: x & y,
    "or": lambda lib, x, y: x | y,
    "xor": lambda lib, x, y: x ^ y,
    "less": lambda lib, x, y: x < y,
    "less_equal": lambda lib, x, y: x <= y,
    "greater": lambda lib, x, y: x > y,
    "equal": lambda lib, x, y: x == y,
    "not_equal": lambda lib, x, y: x != y,
}
_MORE: dict[str, Callable[..., Any]] = {
    "where": lambda lib, c, x, y: lib.numpy.where(c, x, y),
    "clip": lambda lib, x, lo, hi: lib.numpy.clip(x, lo, hi),
    "astype": lambda lib, x, dtype: x.astype(dtype),
    "sum": lambda lib, x, axis, keepdims: lib.numpy.sum(x, axis=axis, keepdims=keepdims),
    "mean": lambda lib, x, axis, keepdims: lib.numpy.mean(x, axis=axis, keepdims=keepdims),
    "var": lambda lib, x, axis, keepdims: lib.numpy.var(x, axis=axis, keepdims=keepdims),
    "max": lambda lib, x, axis, keepdims: lib.numpy.max(x, axis=axis, keepdims=keepdims),
    "min": lambda lib, x, axis, keepdims: lib.numpy.min(x, axis=axis, keepdims=keepdims),
    # Which of 0.0 and -0.0 is the larger is not specified for reductions: adding 0 makes both 0.0.
    "highest": lambda lib, x, axis, keepdims: lib.numpy.max(x, axis=axis, keepdims=keepdims) + 0,
    "lowest": lambda lib, x, axis, keepdims: lib.numpy.min(x, axis=axis, keepdims=keepdims) + 0,
    "prod": lambda lib, x, axis, keepdims: lib.numpy.prod(x, axis=axis, keepdims=keepdims),
    "any": lambda lib, x, axis, keepdims: lib.numpy.any(x > 0, axis=axis, keepdims=keepdims),
    "all": lambda lib, x, axis, keepdims: lib.numpy.all(x > 0, axis=axis, keepdims=keepdims),
    "logsumexp": lambda lib, x, axis, keepdims: lib.nn.logsumexp(x, axis=axis, keepdims=keepdims),
    "argmax": lambda lib, x, axis, keepdims: lib.numpy.argmax(x, axis=axis, keepdims=keepdims),
    "argmin": lambda lib, x, axis, keepdims: lib.numpy.argmin(x, axis=axis, keepdims=keepdims),
    "softmax": lambda lib, x, axis: lib.nn.softmax(x, axis=axis),
    "log_softmax": lambda lib, x, axis: lib.nn.log_softmax(x, axis=axis),
    "cumsum": lambda lib, x, axis: lib.numpy.cumsum(x, axis=axis),
    "cumprod": lambda lib, x, axis: lib.numpy.cumprod(x, axis=axis),
    "cummax": lambda lib, x, axis, reverse: lib.lax.cummax(x, axis=axis, reverse=reverse),
    "sort": lambda lib, x, axis: lib.numpy.sort(x, axis=axis),
    "argsort": lambda lib, x, axis: lib.numpy.argsort(x, axis=axis),
    "reshape": lambda lib, x, shape: lib.numpy.reshape(x, shape),
    "transpose": lambda lib, x, axes: lib.numpy.transpose(x, axes),
    "broadcast": lambda lib, x, shape: lib.numpy.broadcast_to(x, shape),
    "expand": lambda lib, x, axis: lib.numpy.expand_dims(x, axis),
    "squeeze": lambda lib, x, axis: lib.numpy.squeeze(x, axis),
    "flip": lambda lib, x, axis: lib.numpy.flip(x, axis),
    "roll": lambda lib, x, shift, axis: lib.numpy.roll(x, shift, axis),
    "repeat": lambda lib, x, count, axis: lib.numpy.repeat(x, count, axis),
    "tile": lambda lib, x, counts: lib.numpy.tile(x, counts),
    "tril": lambda lib, x, k: lib.numpy.tril(x, k),
    "diagonal": lambda lib, x, k: lib.numpy.diagonal(x, k),
    "index": lambda lib, x, index: x[index],
    "pad": lambda lib, x, value, config: _pad(lib, x, value, config),
    "concatenate": lambda lib, *xs, axis: lib.numpy.concatenate(xs, axis),
    "stack": lambda lib, *xs, axis: lib.numpy.stack(xs, axis),
    "take": lambda lib, x, i, axis: lib.numpy.take(x, i % x.shape[axis], axis=axis),
    "gather": lambda lib, x, i: x[i],
    "take_along": lambda lib, x, i, axis: lib.numpy.take_along_axis(x, i, axis),
    "dynamic_slice": lambda lib, x, i, axis, size: lib.lax.dynamic_slice_in_dim(x, i, size, axis),
    "dynamic_update": lambda lib, x, y, i, axis: lib.lax.dynamic_update_slice_in_dim(x, y, i, axis),
    "at_set": lambda lib, x, i, v: x.at[i].set(v),
    "at_add": lambda lib, x, i, v: x.at[i].add(v),
    "matmul": lambda lib, x, y: lib.numpy.matmul(x, y),
    "outer": lambda lib, x, y: lib.numpy.outer(x, y),
    "tensordot": lambda lib, x, y, axes: lib.numpy.tensordot(x, y, axes),
    "einsum": lambda lib, x, y, spec: lib.numpy.einsum(spec, x, y),
}  # fmt: skip
OPS: dict[str, Callable[..., Any]] = {**_UNARY, **_BINARY, **_MORE}

# Unary functions of floats by what bounds the result; those that are exact or jump stand apart.
SMOOTH = {
    "sin": lambda s: 1.0, "cos": lambda s: 1.0, "tanh": lambda s: 1.0, "arctan": lambda s: 1.6,
    "arcsinh": lambda s: 6.0, "logistic": lambda s: 1.0, "erf": lambda s: 1.0,
    "softplus": lambda s: s + 1, "gelu": lambda s: s, "silu": lambda s: s,
    "log": lambda s: 10.0, "log1p": lambda s: 10.0, "log2": lambda s: 8.0,
    "sqrt": lambda s: s + 1, "rsqrt": lambda s: 1.0, "reciprocal": lambda s: 1.0,
    "exp": lambda s: 7.5, "exp2": lambda s: 1.0, "expm1": lambda s: 1.0, "sinh": lambda s: 3.7,
    "tan": lambda s: 1.6, "arcsin": lambda s: 0.6, "logaddexp": lambda s: s + 1,
    "cbrt": lambda s: s + 1,
}  # fmt: skip
# Ops that compiled code and NumPy must agree on to the last bit, whatever their operands.
LAST_BIT_UNARY = ("neg", "abs", "relu", "square", "sqrt", "reciprocal", "stop", "isfinite")
LAST_BIT_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")


@dataclass(frozen=True)
class Step:
    """One op: its name, its operands (numbers of values, or numbers as such), its parameters."""

    op: str
    operands: tuple[int | Scalar, ...]
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [str(x) if isinstance(x, Scalar) else f"v{x}" for x in self.operands]
        return f"{self.op}({', '.join(shown + [f'{k}={v!r}' for k, v in self.params.items()])})"


@dataclass(frozen=True)
class Scalar:
    """A Python number among the operands."""

    value: bool | int | float

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Value:
    """What is known of a value while a program is drawn."""

    type: jax.ShapeDtypeStruct
    size: float = 2.0
    grain: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.type.shape)

    @property
    def kind(self) -> str:
        dtype = self.type.dtype
        if jax.numpy.issubdtype(dtype, np.floating):
            return "f"
        return "i" if jax.numpy.issubdtype(dtype, np.integer) else "b"

    @property
    def bits(self) -> int:
        return BITS.get(str(self.type.dtype), 1)

    def is_exact(self, size: float, grain: float | None) -> bool:
        """Say whether multiples of `grain` up to `size` fit the dtype without rounding."""
        return grain is not None and size / grain < 2.0 ** min(self.bits, 20)


@dataclass(frozen=True)
class Program:
    """A straight-line program over inputs of the given types."""

    inputs: tuple[Value, ...]
    rough: tuple[bool, ...]
    seed: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, lib: Any, *arguments: Any) -> tuple[Any, ...]:
        values = self.trace(lib, *arguments)
        return tuple(values[i] for i in self.outputs)

    def trace(self, lib: Any, *arguments: Any) -> list[Any]:
        """Return all values of a run, inputs first."""
        values = list(arguments)
        for step in self.steps:
            operands = [x.value if isinstance(x, Scalar) else values[x] for x in step.operands]
            values.append(OPS[step.op](lib, *operands, **step.params))
        return values

    def arguments(self, *, special: bool = False, leading: Sequence[int] = ()) -> list[Any]:
        """Return NumPy arrays (and Python numbers where weak) to run on."""
        rng = np.random.default_rng(self.seed)
        return [
            _argument(rng, x, rough, special, tuple(leading))
            for x, rough in zip(self.inputs, self.rough, strict=True)
        ]

    def __repr__(self) -> str:
        lines = [f"program(seed={self.seed}):"]
        for i, (x, rough) in enumerate(zip(self.inputs, self.rough, strict=True)):
            weak = " weak" if x.type.weak_type else ""
            lines.append(f"  v{i} = input {x.type.dtype}{x.shape}{weak}{' rough' if rough else ''}")
        lines += [f"  v{len(self.inputs) + i} = {s}" for i, s in enumerate(self.steps)]
        return "\n".join([*lines, f"  return {', '.join(f'v{i}' for i in self.outputs)}"])


SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1.5e-38, 0.5])


def _argument(
    rng: np.random.Generator, value: Value, rough: bool, special: bool, leading: tuple[int, ...]
) -> Any:
    shape, dtype = leading + value.shape, value.type.dtype
    if value.kind == "b":
        drawn: np.ndarray = rng.random(shape) < 0.5
    elif value.kind == "i":
        drawn = rng.integers(-4, 5, shape)
    elif rough:
        drawn = np.clip(rng.standard_normal(shape), -2, 2)
    else:
        drawn = rng.integers(-8, 9, shape) / 4
    if special and value.kind == "f":
        with np.errstate(all="ignore"):
            drawn = np.where(rng.random(shape) < 0.3, rng.choice(SPECIALS, shape), drawn)
    if value.type.weak_type and not leading:
        return drawn.item() if isinstance(drawn, np.generic | np.ndarray) else drawn
    with np.errstate(all="ignore"):
        return np.asarray(drawn).astype(dtype)
