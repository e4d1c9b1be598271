"""Sample inputs for every op: what the generic rule suite (`test_rules`) runs.

A sample is a function that applies the op and a factory of arguments; a factory draws new values
of the same shapes each time, so that a batch can be made of several draws.  Values keep away from
kinks and from the ends of domains, where a difference quotient says nothing; those have tests of
their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax.graph import Input
from stax.lowering.loop_ir import SPECIAL
from stax.operators import elementwise
from stax.operators.bits import bitcast, gcd, late, optimization_barrier, reduce_precision
from stax.operators.broadcast import broadcast_in_dim, reduce_sum
from stax.operators.contract import dot_general
from stax.operators.convolution import convolution
from stax.operators.dynamic import DynamicSlice, DynamicUpdateSlice
from stax.operators.elementwise import ROWS, convert, integer_pow, select
from stax.operators.gradient import checkpoint_name, stop_gradient
from stax.operators.index import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    gather,
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
)
from stax.operators.random import (
    gamma_sample,
    random_bits,
    random_fold_in,
    random_split,
    random_unwrap,
    random_wrap,
)
from stax.operators.reduce import (
    argmax,
    argmin,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_xor,
)
from stax.operators.reshape import reshape, rev, transpose
from stax.operators.shape import concatenate, iota, pad, slice_
from stax.operators.sort import sort, top_k
from stax.trace import bind
from tests.operators import matrix_samples

Arrays = tuple[np.ndarray, ...]
FLOAT64 = np.dtype("float64")


@dataclass(frozen=True)
class Sample:
    """One way to use an op: `function` of arrays, a factory of them, and which have derivatives."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], Arrays]
    differentiable: tuple[int, ...] = ()
    tolerance: float = 1e-6


SAMPLES: dict[str, list[Sample]] = {}

# Ops without samples, each with the reason.
REASONS: dict[str, str] = {
    "input": "stands for a parameter and is never applied",
    "project": "reads a result of an op with several, and is exercised by each of them",
    "length": "stands for a symbolic length, which has no value to evaluate",
    "check": "raises or does nothing; see tests/experimental/test_checkify.py",
    "copy": "is put in by lowering, after every transform",
    "debug_callback": "has no result; see tests/api/test_callbacks.py",
    "io_callback": "is to be called as often as written; see tests/api/test_callbacks.py",
    "patches": "is put in by lowering, after every transform",
    "fourier_pass": "is put in by lowering, after every transform",
    "returned": "is put in by lowering, after every transform",
    "array": "holds an array by its identity; see tests/test_custom_closures.py",
    "loggamma_real": "its derivative has none; see tests/scipy/test_special_complex.py",
    "loggamma_imag": "its derivative has none; see tests/scipy/test_special_complex.py",
    "pairs": "is put in by lowering, after every transform",
    "paired": "wraps an op on complex values for a library, after every transform",
    "pure_callback": "calls a function of the user's; see tests/api/test_callbacks.py",
    "watch": "is put in by lowering, after every transform",
    **dict.fromkeys(
        (
            "all_gather",
            "all_to_all",
            "axis_index",
            "pbroadcast",
            "pmax",
            "pmin",
            "ppermute",
            "psum",
            "psum_scatter",
        ),
        "means something between lanes of vmap only; see tests/operators/test_collective.py",
    ),
}


def add(
    op: str,
    name: str,
    function: Callable[..., Any],
    arguments: Callable[[np.random.Generator], Arrays],
    differentiable: Sequence[int] = (),
    tolerance: float = 1e-6,
) -> None:
    sample = Sample(f"{op}-{name}", function, arguments, tuple(differentiable), tolerance)
    SAMPLES.setdefault(op, []).append(sample)


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    """Float64 arrays of standard normal values."""
    return lambda rng: tuple(rng.normal(size=s) for s in shapes)


def uniform(
    low: float, high: float, *shapes: tuple[int, ...]
) -> Callable[[np.random.Generator], Arrays]:
    """Float64 arrays of values between two bounds."""
    return lambda rng: tuple(rng.uniform(low, high, size=s) for s in shapes)


def complex_numbers(
    low: float, high: float, *shapes: tuple[int, ...]
) -> Callable[[np.random.Generator], Arrays]:
    """Complex128 arrays with real parts between two bounds, imaginary parts from 0.2 to 1.5."""
    return lambda rng: tuple(
        rng.uniform(low, high, size=s) + 1j * rng.uniform(0.2, 1.5, size=s) for s in shapes
    )


def integers(
    low: int, high: int, *shapes: tuple[int, ...], dtype: str = "int32"
) -> Callable[[np.random.Generator], Arrays]:
    """Integer arrays of values from `low` up to but not including `high`."""
    return lambda rng: tuple(np.asarray(rng.integers(low, high, size=s), dtype) for s in shapes)


def booleans(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    """Arrays of truth values."""
    return lambda rng: tuple(np.asarray(rng.random(s) < 0.5) for s in shapes)


def distinct(*shape: int) -> Callable[[np.random.Generator], Arrays]:
    """One float64 array whose elements differ by 0.1 at least."""
    count = int(np.prod(shape))
    return lambda rng: (rng.permutation(np.arange(count) * 0.1 - 1).reshape(shape),)


def draw_bits(words: Any, width: int, shape: tuple[int, ...]) -> Any:
    """Random bits of keys given by their words."""
    return random_bits(random_wrap(words), width, shape)


def joined(
    *factories: Callable[[np.random.Generator], Arrays],
) -> Callable[[np.random.Generator], Arrays]:
    """The arguments of several factories, one after the other."""
    return lambda rng: tuple(x for factory in factories for x in factory(rng))


# --- element-wise ---

# Where a row is not defined, or not smooth, on all of the line.
DOMAINS = {
    "log": (0.2, 3), "log1p": (-0.7, 3), "sqrt": (0.2, 3), "rsqrt": (0.2, 3), "cbrt": (0.2, 3),
    "pow": (0.3, 2), "div": (0.4, 3), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "tan": (-1.2, 1.2),
    "acosh": (1.2, 3), "atanh": (-0.9, 0.9), "rem": (1.1, 1.9), "atan2": (0.3, 2),
    **{name: (0.3, 3) for name in SPECIAL}, "zeta": (1.5, 4),
    **{name: (0.1, 0.9) for name in ("erf_inv", "ndtri", "betainc")},
    **{name: (0.2, 0.8) for name in SPECIAL if name.startswith("hyp")},
    **{name: (-2, 2) for name in ("erfcx", "dawsn", "owens_t", "bessel_i0e", "bessel_i1e")},
    **{name: (-2, 2) for name in ("sinint", "fresnel_s", "fresnel_c")},
}  # fmt: skip
# The arguments by which a row has a derivative, where that is not all of them.
SMOOTH: dict[str, tuple[int, ...]] = {
    "igamma_grad_a": (1,), "polygamma": (1,), "expn": (1,), "bessel_j": (1,), "betainc": (2,),
    **dict.fromkeys(("random_gamma_grad", "hyp1f1_grad_a", "hyp1f1_grad_b"), ()),
    **dict.fromkeys(("hyp2f1_grad_a", "hyp2f1_grad_c"), ()),
    **dict.fromkeys(("complex_digamma_real", "complex_digamma_imag"), ()),
}  # fmt: skip
# How many first arguments are numbers, because their derivatives have no derivatives.
HELD = {"igamma": 1, "igammac": 1, "hyp1f1": 2, "hyp2f1": 3}
# Rows whose first argument is an order.
ORDERS = ("polygamma", "expn", "bessel_j")
FLAT = {"sign", "floor", "ceil", "trunc", "round"}


def add_rows() -> None:
    """Add samples for every row of the table of element-wise ops."""
    float64, int32, bool_ = np.dtype("float64"), np.dtype("int32"), np.dtype("bool")
    for name, row in ROWS.items():
        if name in REASONS:
            continue
        held = [0.4, 1.3, 2.1][: HELD.get(name, 0)]
        op, count = elementwise.Elementwise(name), len(row.partials) - len(held)

        def apply(*xs: Any, op: Any = op, held: Any = held) -> Any:
            return bind(op, *(elementwise.like(xs[0], value) for value in held), *xs)

        if row.accepts(float64):
            low, high = DOMAINS.get(name, (-2, 2))
            smooth = [] if row.to_bool or name in FLAT else SMOOTH.get(name, range(count))
            values = uniform(low, high, *[(3, 4)] * (count - (name in ORDERS)))
            orders = [integers(0, 4, (3, 4), dtype="float64")] if name in ORDERS else []
            add(name, "float", apply, joined(*orders, values), smooth)
        if row.accepts(np.dtype("complex128")):
            low, high = DOMAINS.get(name, (-2, 2))
            smooth = [] if row.to_bool or name in FLAT else range(count)
            add(name, "complex", apply, complex_numbers(low, high, *[(3, 4)] * count), smooth)
        if row.accepts(int32):
            low, high = (0, 9) if name.startswith("shift") else (-9, 9)
            add(name, "int", apply, integers(low, high, *[(3, 4)] * count))
        if row.accepts(bool_):
            add(name, "bool", apply, booleans(*[(2, 5)] * count))


add_rows()
add("select", "float", select, joined(booleans((3, 4)), normal((3, 4), (3, 4))), (1, 2))
add("convert", "narrow", lambda x: convert(x, np.dtype("float32")), normal((3, 4)), (0,), 1e-2)
add("convert", "integer", lambda x: convert(x, np.dtype("int32")), uniform(-9, 9, (3, 4)))
add("convert", "bool", lambda x: convert(x, np.dtype("float64")), booleans((3, 4)))
for exponent in (2, 3, -2):
    add(
        "integer_pow",
        str(exponent),
        lambda x, n=exponent: integer_pow(x, n),
        uniform(0.5, 2, (5,)),
        (0,),
    )
add("stop_gradient", "float", stop_gradient, normal((3, 4)))
COMPLEX = complex_numbers(-2, 2, (3, 4))
TWO_COMPLEX = complex_numbers(-2, 2, (3, 4), (3, 4))
add("select", "complex", select, joined(booleans((3, 4)), TWO_COMPLEX), (1, 2))
add("convert", "real", lambda x: convert(x, np.dtype("float64")), COMPLEX, (0,))
add("convert", "complex", lambda x: convert(x, np.dtype("complex128")), normal((3, 4)), (0,))
add("integer_pow", "complex", lambda x: integer_pow(x, -3), COMPLEX, (0,))
add("stop_gradient", "complex", stop_gradient, COMPLEX)
add("gcd", "int", gcd, integers(0, 99, (3, 4), (3, 4)))
add("checkpoint_name", "float", lambda x: checkpoint_name(x, "y"), normal((3, 4)), (0,))
add("optimization_barrier", "float", optimization_barrier, normal((3, 4)), (0,))
add("late", "float", late, normal((3, 4), (2,)), (0,))
add("reduce_precision", "near", lambda x: reduce_precision(x, 11, 44), normal((3, 4)), (0,))
add(
    "reduce_precision",
    "far",
    lambda x: reduce_precision(convert(x, np.dtype("float64")), 4, 3),
    integers(-300, 300, (3, 4)),
)
for source, target in [("float64", "int64"), ("int64", "float64"), ("float64", "uint16")]:
    add(
        "bitcast",
        f"{source}to{target}",
        lambda x, t=target: bitcast(x, np.dtype(t)),
        lambda rng, s=source: (rng.normal(size=(3, 4)).view(s),),
    )
add(
    "bitcast",
    "joined",
    lambda x: bitcast(x, np.dtype("int32")),
    integers(-9, 9, (3, 2), dtype="int16"),
)

# --- shapes ---

add("broadcast", "new", lambda x: broadcast_in_dim(x, (2, 3, 4), (1, 2)), normal((3, 4)), (0,))
add("broadcast", "stretch", lambda x: broadcast_in_dim(x, (5, 3, 4), (1, 2)), normal((1, 4)), (0,))
add("broadcast", "scalar", lambda x: broadcast_in_dim(x, (2, 3), ()), normal(()), (0,))
add("broadcast", "empty", lambda x: broadcast_in_dim(x, (0, 3), (1,)), normal((3,)), (0,))
for source, target in [
    ((2, 3, 4), (6, 4)), ((6, 4), (3, 2, 4)), ((4, 6), (8, 3)), ((1, 5), (5, 1, 1)), ((2, 3), (6,)),
    ((4, 3, 2), (2, 2, 6)), ((), (1, 1)), ((0, 3), (3, 0)),
]:  # fmt: skip
    add("reshape", f"{source}to{target}", lambda x, s=target: reshape(x, s), normal(source), (0,))
add("transpose", "reverse", transpose, normal((2, 3)), (0,))
add("transpose", "cycle", lambda x: transpose(x, (2, 0, 1)), normal((2, 3, 4)), (0,))
add("rev", "one", lambda x: rev(x, 1), normal((2, 3)), (0,))
add("rev", "all", lambda x: rev(x, (0, 1)), normal((2, 3)), (0,))
add("slice", "plain", lambda x: slice_(x, (1, 0), (3, 4)), normal((4, 4)), (0,))
add("slice", "strided", lambda x: slice_(x, (1, 0), (8, 5), (3, 2)), normal((9, 6)), (0,))
add("slice", "empty", lambda x: slice_(x, (2,), (2,), (3,)), normal((4,)), (0,))
for config in [
    ((1, 2, 0), (0, 3, 0)), ((0, 0, 2), (1, 0, 1)), ((-1, 2, 0), (2, -1, 1)),
    ((-2, -2, 2), (0, -3, 0)), ((3, -7, 1), (-1, -1, 0)), ((2, -6, 0), (1, 1, 0)),
]:  # fmt: skip
    add("pad", str(config), lambda x, v, c=config: pad(x, v, c), normal((4, 5), ()), (0, 1))
add(
    "concatenate",
    "three",
    lambda x, y, z: concatenate([x, y, z], 1),
    normal((2, 1), (2, 3), (2, 2)),
    (0, 1, 2),
)
add("concatenate", "empty", lambda x, y: concatenate([x, y], 0), normal((0,), (3,)), (0, 1))
add("iota", "int", lambda: iota(np.dtype("int32"), (3, 4), 1), lambda rng: ())
add("iota", "bfloat16", lambda: iota("bfloat16", (3,), 0), lambda rng: ())
add("constant", "full", lambda: elementwise.full((2, 3), 1.5, np.dtype("float32")), lambda rng: ())
START = integers(-2, 6, (), ())
add(
    "dynamic_slice",
    "both",
    lambda x, i, j: bind(DynamicSlice((2, 3)), x, i, j),
    joined(normal((4, 5)), START),
    (0,),
)
add(
    "dynamic_slice",
    "whole",
    lambda x, i: bind(DynamicSlice((3,)), x, i),
    joined(normal((3,)), integers(0, 3, ())),
    (0,),
)
add(
    "dynamic_slice",
    "uint8",
    lambda x, i: bind(DynamicSlice((1,)), x, i),
    joined(normal((200,)), integers(100, 250, (), dtype="uint8")),
    (0,),
)
add(
    "dynamic_update_slice",
    "both",
    lambda x, u, i, j: bind(DynamicUpdateSlice(), x, u, i, j),
    joined(normal((4, 5), (2, 3)), START),
    (0, 1),
)

# --- random bits ---

ONE_KEY, KEYS = (integers(0, 1 << 32, shape, dtype="uint32") for shape in ((2,), (3, 2)))
for width in (8, 16, 32, 64):
    add("random_bits", str(width), lambda k, w=width: draw_bits(k, w, (2, 5)), ONE_KEY)
add("random_bits", "keys", lambda k: draw_bits(k, 32, (4,)), KEYS)
add("random_bits", "none", lambda k: draw_bits(k, 32, (0, 4)), KEYS)
add("random_split", "keys", lambda k: random_unwrap(random_split(random_wrap(k), (2,))), KEYS)
add(
    "random_fold_in",
    "keys",
    lambda k, i: random_unwrap(random_fold_in(random_wrap(k), i)),
    joined(KEYS, integers(0, 1 << 32, (3,), dtype="uint32")),
)
for log_space in (False, True):
    add(
        "gamma_sample",
        f"log-{log_space}",
        # Of integers: its derivative is that of the distribution, and not of the value.
        lambda x, a, w=log_space: gamma_sample(convert(x, FLOAT64), convert(a, FLOAT64), w),
        integers(1, 9, (3,), (3,)),
    )
add("random_wrap", "keys", lambda k: random_unwrap(random_wrap(k)), KEYS)
add("random_unwrap", "keys", lambda k: random_unwrap(random_wrap(k)), KEYS)

# --- reductions ---

for axes in ((0,), (1,), (0, 2), (0, 1, 2)):
    add("reduce_sum", str(axes), lambda x, a=axes: reduce_sum(x, a), normal((2, 3, 4)), (0,))
    add("reduce_prod", str(axes), lambda x, a=axes: reduce_prod(x, a), normal((2, 3, 4)), (0,))
    add("reduce_max", str(axes), lambda x, a=axes: reduce_max(x, a), distinct(2, 3, 4), (0,))
    add("reduce_min", str(axes), lambda x, a=axes: reduce_min(x, a), distinct(2, 3, 4), (0,))
    add("reduce_and", str(axes), lambda x, a=axes: reduce_and(x, a), booleans((2, 3, 4)))
    add("reduce_or", str(axes), lambda x, a=axes: reduce_or(x, a), integers(0, 99, (2, 3, 4)))
    add("reduce_xor", str(axes), lambda x, a=axes: reduce_xor(x, a), integers(0, 99, (2, 3, 4)))
add("reduce_sum", "empty", lambda x: reduce_sum(x, 0), normal((0, 3)), (0,))
add("reduce_prod", "empty", lambda x: reduce_prod(x, 0), normal((0, 3)), (0,))
add("reduce_sum", "int", lambda x: reduce_sum(x, 0), integers(-99, 99, (5, 3), dtype="int8"))
add("reduce_max", "int", lambda x: reduce_max(x, 0), integers(-99, 99, (5, 3)))
for axis in (0, 1):
    add("argmax", str(axis), lambda x, a=axis: argmax(x, a), integers(0, 4, (5, 6)))
    add("argmin", str(axis), lambda x, a=axis: argmin(x, a, np.int64), normal((5, 6)))
    for reverse in (False, True):
        label = f"{axis}{'-reverse' if reverse else ''}"
        add("cumsum", label, lambda x, a=axis, r=reverse: cumsum(x, a, r), normal((5, 4)), (0,))
        add("cumprod", label, lambda x, a=axis, r=reverse: cumprod(x, a, r), normal((5, 4)), (0,))
        add("cummax", label, lambda x, a=axis, r=reverse: cummax(x, a, r), distinct(5, 4), (0,))
        add("cummin", label, lambda x, a=axis, r=reverse: cummin(x, a, r), distinct(5, 4), (0,))
for reduction in (reduce_sum, reduce_prod, reduce_max, reduce_min, cumsum, cumprod, cummax, cummin):
    add(reduction.__name__, "complex", lambda x, f=reduction: f(x, 1), COMPLEX, (0,))
add("cumprod", "one", lambda x: cumprod(x, 0), normal((1,)), (0,))

# --- order ---

add("sort", "one", lambda x: sort(x, 0), distinct(4, 3), (0,))
add("sort", "complex", lambda x: sort(x, 0), COMPLEX, (0,))
add("sort", "last", lambda x: sort(x, -1), distinct(2, 3, 4), (0,))
add("sort", "values", lambda k, v: sort((k, v), 1), joined(distinct(2, 5), normal((2, 5))), (0, 1))
add(
    "sort",
    "keys",
    lambda k, m, v: sort((k, m, v), 0, 2),
    joined(integers(0, 2, (6,)), distinct(6), normal((6,))),
    (1, 2),
)

add("top_k", "two", lambda x: top_k(x, 2), distinct(3, 5), (0,))
add("top_k", "int", lambda x: top_k(x, 3), integers(-3, 3, (2, 7)))

# --- products and indexing ---

add(
    "dot_general",
    "matrix",
    lambda x, y: dot_general(x, y, (((1,), (0,)), ((), ()))),
    normal((3, 4), (4, 2)),
    (0, 1),
)
add(
    "dot_general",
    "complex",
    lambda x, y: dot_general(x, y, (((1,), (0,)), ((), ()))),
    complex_numbers(-2, 2, (3, 4), (4, 2)),
    (0, 1),
)
add(
    "dot_general",
    "batched",
    lambda x, y: dot_general(x, y, (((2,), (1,)), ((0,), (2,)))),
    normal((2, 3, 4), (5, 4, 2)),
    (0, 1),
)
add(
    "convolution",
    "plain",
    lambda x, w: convolution(x, w, (2, 1), ((1, 0), (-1, 2)), (1, 2), (1, 1)),
    normal((2, 5, 3, 2), (2, 3, 2, 4)),
    (0, 1),
)
add(
    "convolution",
    "groups",
    lambda x, w: convolution(x, w, (1,), ((1, 1),), (1,), (2,), 2),
    normal((3, 5, 4), (2, 2, 6)),
    (0, 1),
)
add(
    "convolution",
    "by_channel",
    lambda x, w: convolution(x, w, (2,), ((1, 1),), (1,), (1,), 3),
    normal((2, 5, 3), (3, 1, 6)),
    (0, 1),
)
add(
    "convolution",
    "complex",
    lambda x, w: convolution(x, w, (1,), ((0, 0),), (1,), (1,)),
    complex_numbers(-2, 2, (1, 4, 2), (2, 2, 3)),
    (0, 1),
)
ROWS_OF = GatherDimensionNumbers((1,), (0,), (0,))
WINDOWS = GatherDimensionNumbers((1, 2), (), (0, 1))
ROWS_TO = ScatterDimensionNumbers((1,), (0,), (0,))


def unique_rows(rng: np.random.Generator) -> Arrays:
    """Four different places among six rows."""
    return (rng.permutation(6)[:4].reshape(4, 1).astype(np.int32),)


for mode in ("clip", "fill"):
    add(
        "gather",
        f"rows-{mode}",
        lambda x, i, m=mode: gather(x, i, ROWS_OF, (1, 3), mode=m, fill_value=0),
        joined(normal((5, 3)), integers(-1, 7, (4, 1))),
        (0,),
    )
    add(
        "gather",
        f"windows-{mode}",
        lambda x, i, m=mode: gather(x, i, WINDOWS, (2, 2), mode=m, fill_value=0),
        joined(normal((5, 4)), integers(-1, 6, (3, 2))),
        (0,),
    )
    add(
        "scatter",
        f"add-{mode}",
        lambda x, i, u, m=mode: scatter_add(x, i, u, ROWS_TO, mode=m),
        joined(normal((5, 3)), integers(-1, 7, (4, 1)), normal((4, 3))),
        (0, 2),
    )
    add(
        "scatter",
        f"set-{mode}",
        lambda x, i, u, m=mode: scatter(x, i, u, ROWS_TO, mode=m),
        joined(normal((6, 3)), unique_rows, normal((4, 3))),
        (0, 2),
    )
add(
    "gather",
    "complex",
    lambda x, i: gather(x, i, ROWS_OF, (1, 4), mode="fill", fill_value=1j),
    joined(COMPLEX, integers(-1, 5, (4, 1))),
    (0,),
)
add(
    "scatter",
    "complex",
    lambda x, i, u: scatter_add(x, i, u, ROWS_TO),
    joined(COMPLEX, integers(-1, 5, (3, 1)), COMPLEX),
    (0, 2),
)
for kind in (scatter_min, scatter_max, scatter_mul):
    add(
        "scatter",
        kind.__name__,
        lambda x, i, u, f=kind: f(x, i, u, ROWS_TO, unique_indices=True),
        joined(normal((6, 3)), unique_rows, normal((4, 3))),
        (0, 2),
    )

# --- matrices and transforms ---

for row in matrix_samples.rows():
    add(*row)

assert Input.name in REASONS
