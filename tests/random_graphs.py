"""Random small graphs for property tests, and values for their inputs.

`exact` graphs hold only ops whose results do not depend on how they are compiled: + - * / and
comparisons, maxima (but for the sign of zero, hence + 0), and ops that move elements.  The others
hold sums and products of rows, and functions such as exp, too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import stax.numpy as snp
from stax.graph import Graph
from stax.operators.reshape import rev
from stax.trace import Trace
from stax.types import ArrayType, check_dtype, is_float

Draw = Callable[..., Any]
ROWS, COLUMNS = 3, 5
SHAPES = ((ROWS, COLUMNS), (COLUMNS,), (ROWS, 1), ())
DTYPES = (
    "float32", "float16", "bfloat16", "float64", "bool", "int8", "int16", "int32", "int64", "uint8",
    "uint32",
)  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-40, 1e38, np.inf, -np.inf, np.nan]

UNARY: list[Callable[[Any], Any]] = [
    lambda x: -x, abs, snp.sign, snp.floor, lambda x: x * 1, lambda x: x + 0, lambda x: x * 0,
    lambda x: x - 0.0, lambda x: x + -0.0, lambda x: x / 1, lambda x: x > 0.5,
    lambda x: x.astype("int32"), lambda x: x.astype("float32"), snp.isfinite, snp.sqrt,
]  # fmt: skip
MOVING: list[Callable[[Any], Any]] = [
    snp.ravel, lambda x: x.T, lambda x: x[..., None], lambda x: x[None], snp.atleast_2d,
    lambda x: snp.broadcast_to(x, (2, *x.shape)), lambda x: rev(x, tuple(range(x.ndim))),
    lambda x: x[..., 1:], lambda x: x[..., ::2],
    lambda x: snp.pad(x, 1), lambda x: snp.concatenate([x, x]),
    lambda x: x.max(-1) + 0.0, lambda x: x.max(0) + 0.0,
    lambda x: snp.argmax(x, -1),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    snp.add, snp.subtract, snp.multiply, snp.maximum, snp.minimum, snp.less, snp.equal,
    lambda x, y: snp.where(x > 0, x, y), lambda x, y: snp.where(True, x, y),
]  # fmt: skip
INEXACT: list[Callable[[Any], Any]] = [
    snp.tanh, snp.sin, lambda x: snp.exp(-abs(x)), lambda x: x.sum(-1),
    lambda x: x.mean(0, keepdims=True),
    lambda x: x - x.max(-1, keepdims=True),
    lambda x: x @ x.T, lambda x: x / (1 + abs(x)),
]  # fmt: skip


def _step(draw: Draw, values: list[Any], exact: bool) -> Any:
    """Apply one op to values drawn from those that there are, or return one where it cannot be."""
    x = draw(st.sampled_from(values))
    kind = draw(st.integers(0, 2 if exact else 4))
    f: Callable[..., Any] = draw(st.sampled_from([UNARY, MOVING, BINARY, INEXACT, INEXACT][kind]))
    operands = (x, draw(st.sampled_from(values))) if kind == 2 else (x,)
    try:
        return f(*operands)
    except (TypeError, ValueError, IndexError):
        return x


@st.composite
def graphs(
    draw: Draw, exact: bool = True, most: int = 12, dtypes: Sequence[str] = ("float32",)
) -> Graph:
    """A graph of some inputs, at most `most` ops of the facade, and some outputs."""
    with Trace("random", "test") as trace:
        shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
        values = [
            trace.input(ArrayType(check_dtype(draw(st.sampled_from(dtypes))), shape), f"x{i}")
            for i, shape in enumerate(shapes)
        ]
        for _ in range(draw(st.integers(1, most))):
            result = _step(draw, values, exact)
            if 0 < result.size <= 200 and result.ndim <= 3:
                values.append(result)
        outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        return trace.finish([*outputs, values[-1]])


def arguments(graph: Graph, seed: int, special: bool = True) -> list[np.ndarray]:
    """Values for the inputs: normal ones, and with `special` some that are not."""
    rng = np.random.default_rng(seed)
    found = []
    for t in graph.input_types:
        x = rng.normal(size=t.shape).astype(np.float32)
        odd = rng.choice(np.asarray(SPECIAL, np.float32), size=t.shape)
        found.append(_of_dtype(np.where(rng.random(t.shape) < 0.4, odd, x) if special else x, t))
    return found


def _of_dtype(x: np.ndarray, type_: ArrayType) -> np.ndarray:
    with np.errstate(over="ignore"):
        if type_.dtype.kind in "iub":
            x = np.nan_to_num(x * 50, nan=0, posinf=100, neginf=-100).clip(-120, 120)
        return np.asarray(abs(x) if type_.dtype.kind == "u" else x).astype(type_.dtype)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    """Compare bit for bit, all NaN being one."""
    for array, b in zip(ours, theirs, strict=True):
        a = np.asarray(array)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if is_float(b.dtype):
            a, b = a.astype(np.float64), b.astype(np.float64)
            known = ~np.isnan(b)
            np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))
        np.testing.assert_array_equal(a, b)
