"""How each function of stax.numpy is called."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.facade.checking import Entry, rows
from tests.facade.drawing import (
    ALL,
    BITS,
    FLOATS,
    INTS,
    NUMBERS,
    REAL,
    SHAPES,
    Call,
    From,
    Kind,
    Source,
    along,
    binary,
    made,
    reduction,
    reshaping,
    unary,
)

FORMATS = ("float32", "int32", "float16", "complex64", "bool", None)
WIDER = ("float32", "float16", "int32")
FILL = {"size": 4, "fill_value": 0}


def named(name: str) -> From:
    """A dtype, which each library has as a scalar type of its own."""
    return From(lambda lib: getattr(lib.numpy, name))


# --- element by element ---

ELEMENTWISE = {
    **rows(unary(), "abs sign square conj real imag isfinite isinf isnan positive"),
    **rows(unary(), "sin cos sinh cosh tanh arctan arcsinh exp exp2 expm1 angle", loose=4),
    **rows(unary(REAL), "fabs deg2rad rad2deg floor ceil trunc rint cbrt sinc isneginf isposinf"),
    **rows(unary(), "logical_not iscomplex isreal"),
    **rows(unary(NUMBERS, -1.4, 1.4, special=False), "tan", loose=10),
    **rows(unary(NUMBERS), "negative nan_to_num"),
    **rows(unary(NUMBERS, 0.25, 4), "sqrt log log2 log10 reciprocal", loose=4),
    "log1p": Entry(unary(NUMBERS, -0.75, 4), loose=4),
    **rows(unary(REAL, -0.9, 0.9, special=False), "arcsin arccos arctanh", loose=10),
    "arccosh": Entry(unary(FLOATS, 1.25, 5), loose=4),
    "round": Entry(unary(("float32", "complex64", "int32", "float16"), decimals=(0, 1, 2)), loose=20),
    "modf": Entry(unary(REAL, special=False)),
    "clip": Entry(
        made(
            lambda s: (
                s.some(REAL),
                s.pick((-1, None, 0.5)),
                s.pick((1, 1.5, np.float32(1.25), None)),
            )
        )
    ),
    **rows(binary(ALL), "add multiply equal not_equal logical_and logical_or logical_xor"),
    **rows(binary(NUMBERS), "subtract"),
    **rows(binary(ALL), "maximum minimum greater greater_equal less less_equal"),
    **rows(binary(REAL), "arctan2 logaddexp logaddexp2 fmax fmin heaviside", loose=4),
    "hypot": Entry(binary(REAL), loose=4, weak=False),
    "float_power": Entry(binary(FLOATS, 0.25, 3), loose=4),
    **rows(binary(NUMBERS, second=(0.5, 3)), "divide", loose=4),
    **rows(binary(REAL, second=(1, 3)), "floor_divide remainder fmod divmod", loose=4),
    "power": Entry(binary(REAL, 0.25, 3, second=(1, 3)), loose=4),
    **rows(binary(BITS), "bitwise_and bitwise_or bitwise_xor"),
    **rows(binary(INTS, second=(0, 3)), "left_shift right_shift"),
    "bitwise_not": Entry(unary(BITS, special=False)),
    **rows(binary(ALL), "isclose allclose array_equal array_equiv"),
    "where": Entry(
        made(lambda s: (s.mask(s.pick(((2, 3), (3,), (2, 1), ()))), *binary(ALL)(s).args))
    ),
    "select": Entry(
        made(lambda s: ([s.mask((3,)), s.mask((2, 3))], [s.array((3,), s.dtype(REAL)) for _ in "ab"], 0.5))
    ),
    "polyval": Entry(made(lambda s: (s.array((3,), s.dtype(REAL)), s.some(REAL))), loose=4, weak=False),
    "interp": Entry(
        made(lambda s: (s.some(("float32",)), np.arange(-2.0, 3.0).astype("f"), s.array((5,), "float32")))
    ),
    "astype": Entry(made(lambda s: (s.some(ALL), named(s.pick(("float32", "int32", "bool_", "int8")))))),
}  # fmt: skip

# --- over axes ---

DDOF = (0, 1)
REDUCTIONS = {
    "sum": Entry(reduction(initial=2, dtype=WIDER), loose=4),
    "prod": Entry(reduction(initial=2, dtype=WIDER), loose=4),
    "mean": Entry(reduction(dtype=("float32", "float16"), empty=False)),
    **rows(reduction(ddof=DDOF, empty=False), "var std", loose=10),
    **rows(reduction(initial=1), "max min"),
    **rows(reduction(), "all any"),
    "count_nonzero": Entry(reduction(where=False)),
    "ptp": Entry(reduction(NUMBERS, where=False, empty=False)),
    **rows(reduction(REAL, initial=1), "nansum nanprod", loose=4),
    **rows(reduction(REAL, empty=False), "nanmean", loose=4),
    **rows(reduction(REAL, ddof=DDOF, empty=False), "nanvar nanstd", loose=10),
    **rows(reduction(REAL, initial=1, empty=False), "nanmax nanmin"),
    **rows(reduction((*REAL, "bool"), where=False, single=True), "argmax argmin"),
    **rows(reduction(REAL, where=False, single=True, empty=False), "nanargmax nanargmin"),
    **rows(reduction(REAL, where=False, empty=False, least=1), "median nanmedian"),
    **rows(along(ALL, none=True), "cumsum cumprod"),
    **rows(along(REAL, none=True), "nancumsum nancumprod"),
    **rows(along(NUMBERS, include_initial=(False, True)), "cumulative_sum cumulative_prod"),
    **rows(
        made(
            lambda s: (
                s.array((2, 4), s.dtype(FLOATS)),
                s.pick((0.25, np.array([0.1, 0.75]))),
                {"axis": s.axes(2), "keepdims": s.flag(), "method": s.pick(("linear", "lower", "nearest"))},
            )
        ),
        "quantile nanquantile",
        loose=4,
    ),
    **rows(
        made(lambda s: (s.array((2, 4), s.dtype(FLOATS)), s.pick((25, 60.0)), {"axis": s.axes(2)})),
        "percentile nanpercentile",
        loose=4,
    ),
    "average": Entry(
        made(lambda s: (s.array((2, 3), s.dtype(REAL)), s.pick((1, None)), s.pick((None, s.array((3,), low=1)))))
    ),
    "trapezoid": Entry(made(lambda s: (s.array((2, 3), s.dtype(REAL)), {"dx": s.pick((1.0, 0.5)), "axis": s.axis(2)}))),
    "diff": Entry(along(REAL, n=(1, 2, 0), prepend=(None, 0.5))),
    "ediff1d": Entry(reshaping(1, REAL)),
    "gradient": Entry(made(lambda s: (s.array((3, 4), s.dtype(FLOATS)), {"axis": s.pick((None, 0, (0, 1)))}))),
    "cov": Entry(made(lambda s: (s.array((3, 4)), {"rowvar": s.flag(), "bias": s.flag()})), loose=4),
    "corrcoef": Entry(made(lambda s: (s.array((3, 4)), {"rowvar": s.flag()})), loose=10),
}  # fmt: skip

# --- shapes ---


def _reshape(s: Source) -> Any:
    x = s.array((2, 6), s.dtype(ALL))
    return x, s.pick(((3, 4), -1, (2, -1), (12, 1), (2, 3, 2), (5,))), {"order": s.pick(("C", "F"))}


def _broadcast(s: Source) -> Any:
    return s.array(s.pick(((3,), (2, 1), ())), s.dtype(ALL)), s.pick(((2, 3), (4, 2, 3), (3,)))


def _roll(s: Source) -> Any:
    shift, axis = s.pick(((1, None), (2, -1), ((1, -2), (0, 1)), (-4, 0), (1, (0, 1))))
    return s.array((2, 3), s.dtype(ALL)), shift, {"axis": axis}


def _move(s: Source) -> Any:
    source, destination = s.pick(((0, -1), ((0, 1), (-1, 0)), (2, 0), (0, 3)))
    return s.array((2, 3, 4), s.dtype(ALL)), source, destination


PADDINGS: tuple[tuple[Any, dict[str, Any]], ...] = (
    ("constant", {}), ("constant", {"constant_values": 2}), ("edge", {}), ("wrap", {}),
    ("reflect", {}), ("symmetric", {}), ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {"reflect_type": "odd"}), ("mean", {}), ("maximum", {}), ("minimum", {}),
    ("median", {}), ("mean", {"stat_length": 2}), ("linear_ramp", {}),
    ("linear_ramp", {"end_values": ((5, 1),)}), ("empty", {"unknown": 1}),
)  # fmt: skip


def _pad(s: Source) -> Any:
    mode, options = s.pick(PADDINGS)
    return s.array((3, 4), s.dtype(REAL)), s.pick((1, (2, 1), ((1, 0), (0, 7)))), mode, options


def several(least: int = 1, same: bool = True, axis: bool = True) -> Kind:
    """Functions of a list of arrays."""

    def draw(s: Source) -> Call:
        shape = s.pick([t for t in SHAPES if len(t) >= least])
        arrays = [s.array(shape, s.dtype(NUMBERS)) for _ in range(s.integer(1, 3))]
        return Call((arrays,), {"axis": s.axis(len(shape))} if axis and s.flag() else {})

    return draw


def splitting(least: int, axis: bool) -> Kind:
    def draw(s: Source) -> Call:
        shape = (4,) * least + ((6,) if axis else ())
        options = {"axis": s.axis(len(shape))} if axis else {}
        return Call((s.array(shape, s.dtype(REAL)), s.pick((2, [1, 3], 4, (0, 2, 2)))), options)

    return draw


MOVING = {
    "reshape": Entry(made(_reshape)),
    "ravel": Entry(reshaping(order=("C", "F"))),
    "broadcast_to": Entry(made(_broadcast)),
    "broadcast_arrays": Entry(made(lambda s: binary(ALL)(s).args)),
    "roll": Entry(made(_roll)),
    "moveaxis": Entry(made(_move)),
    "rollaxis": Entry(made(lambda s: (s.array((2, 3, 4)), s.axis(3), s.integer(-3, 3)))),
    "transpose": Entry(made(lambda s: (s.array((2, 3, 4), s.dtype(ALL)), s.pick((None, (2, 0, 1), (0, -1, 1)))))),
    "permute_dims": Entry(made(lambda s: (s.array((2, 3, 4)), s.pick(((2, 0, 1), (0, -1, 1), (0, 1))))), more=True),
    "swapaxes": Entry(made(lambda s: (s.array((2, 3, 4), s.dtype(ALL)), s.axis(3), s.axis(3)))),
    "matrix_transpose": Entry(reshaping(2)),
    "expand_dims": Entry(made(lambda s: (s.some(ALL), s.pick((0, -1, (0, 1), (-1, 0)))))),
    "squeeze": Entry(made(lambda s: (s.array((1, 3, 1), s.dtype(ALL)), s.pick((None, 0, -1, (0, 2), 1))))),
    "flip": Entry(made(lambda s: (s.array((2, 3), s.dtype(ALL)), s.axes(2)))),
    "fliplr": Entry(reshaping(2)),
    "flipud": Entry(reshaping(1)),
    "rot90": Entry(made(lambda s: (s.array((2, 3, 2)), {"k": s.integer(-1, 4), "axes": s.pick(((0, 1), (1, 0), (2, 0)))}))),
    "pad": Entry(made(_pad)),
    "resize": Entry(made(lambda s: (s.array((2, 3), s.dtype(ALL)), s.pick(((3, 3), (4,), 2, (1, 0)))))),
    **rows(reshaping(), "atleast_1d atleast_2d atleast_3d copy"),
    **rows(several(), "concatenate"),
    **rows(several(0), "stack"),
    **rows(several(1, axis=False), "hstack vstack dstack column_stack"),
    "concat": Entry(several()),
    "append": Entry(made(lambda s: (s.array((2, 3), s.dtype(REAL)), s.array((2, 3), s.dtype(REAL)), s.pick((None, 0, -1))))),
    "block": Entry(made(lambda s: ([[s.array((2, 2)), s.array((2, 1))], [s.array((1, 3))]],))),
    **rows(splitting(1, True), "split array_split"),
    "hsplit": Entry(splitting(2, False)),
    "vsplit": Entry(splitting(2, False)),
    "dsplit": Entry(splitting(3, False)),
    "unstack": Entry(made(lambda s: (s.array((2, 3), s.dtype(ALL)), {"axis": s.axis(2)}))),
    "tile": Entry(made(lambda s: (s.some(ALL), s.pick((2, (2, 1), (1, 2, 2), 0))))),
    "repeat": Entry(made(lambda s: (s.array((2, 3), s.dtype(ALL)), s.pick((2, 0, From(lambda lib: np.array([1, 2, 0])))), {"axis": -1}))),
    "delete": Entry(made(lambda s: (s.array((4, 3)), s.pick((1, -1, [0, 2], slice(0, 2))), {"axis": 0})), more=True),
    "insert": Entry(made(lambda s: (s.array((4, 3)), s.pick((1, -1, [0, 2])), 2.0, {"axis": 0})), more=True),
    "trim_zeros": Entry(made(lambda s: (np.array([0, 1, 2, 0], "f"), s.pick(("fb", "f", "b")))), concrete=True),
}  # fmt: skip

# --- making arrays ---

CREATION = {
    **rows(reshaping(dtype=FORMATS), "zeros_like ones_like empty_like", grad=False),
    "full_like": Entry(made(lambda s: (s.some(ALL), 2, {"dtype": s.pick(FORMATS)}))),
    **rows(made(lambda s: (s.pick((*SHAPES, 3)), {"dtype": s.pick(FORMATS)})), "zeros ones empty"),
    "full": Entry(made(lambda s: (s.pick(SHAPES), s.pick((2, 1.5, s.array((1,)))), {"dtype": s.pick(FORMATS)}))),
    "arange": Entry(made(lambda s: (*s.pick(((5,), (1, 7), (1, 8, 3), (0.0, 1.0, 0.25), (5, 1, -2))), {"dtype": s.pick(("float32", "int32", None))}))),
    **rows(made(lambda s: (1.0, s.pick((4, 9.5)), {"num": s.pick((5, 1, 2)), "endpoint": s.flag()})), "linspace logspace geomspace", loose=40),
    "eye": Entry(made(lambda s: (3, s.pick((None, 4, 2)), s.integer(-2, 2), {"dtype": s.pick(FORMATS)}))),
    "identity": Entry(made(lambda s: (3, {"dtype": s.pick(FORMATS)}))),
    "tri": Entry(made(lambda s: (3, s.pick((None, 4)), s.integer(-2, 2)))),
    **rows(made(lambda s: (s.array(s.pick(((3, 3), (2, 3), (2, 2, 3))), s.dtype(ALL)), s.integer(-2, 2))), "tril triu"),
    "array": Entry(made(lambda s: (s.pick(([1, 2], [[1.5], [2]], 3.0, True, [], [1j], s.some(ALL))), {"dtype": s.pick(("float32", None)), "ndmin": s.pick((0, 2))}))),
    "asarray": Entry(made(lambda s: (s.pick(([1, 2], [[1.5], [2]], 3.0, True, [], s.some(ALL))), {"dtype": s.pick(("float32", None, "int8"))}))),
    "meshgrid": Entry(made(lambda s: (s.array((3,)), s.array((2,)), {"indexing": s.pick(("xy", "ij")), "sparse": s.flag()}))),
    "indices": Entry(made(lambda s: ((2, 3), {"sparse": s.flag()}))),
    "fromfunction": Entry(made(lambda s: (lambda i, j: i * 2 + j, (2, 3), {"dtype": "float32"}))),
    "vander": Entry(made(lambda s: (s.array((3,), s.dtype(REAL)), {"N": s.pick((None, 2, 4)), "increasing": s.flag()})), loose=10),
    "diag": Entry(made(lambda s: (s.array(s.pick(((3,), (2, 3))), s.dtype(ALL)), s.integer(-2, 2)))),
    "diagflat": Entry(made(lambda s: (s.array((2, 2), s.dtype(ALL)), s.integer(-2, 2)))),
    "diagonal": Entry(made(lambda s: (s.array((2, 3, 4), s.dtype(ALL)), s.integer(-2, 2), *s.pick(((0, 1), (1, 2), (-1, 0)))))),
    "trace": Entry(made(lambda s: (s.array((2, 3, 4), s.dtype(ALL)), {"offset": s.integer(-1, 2), "axis1": s.pick((0, 1)), "axis2": 2}))),
    **rows(made(lambda s: (3, {"k": s.integer(-1, 2), "m": s.pick((None, 4))})), "tril_indices triu_indices", grad=False),
    **rows(made(lambda s: (s.array((3, 4)), {"k": s.integer(-1, 2)})), "tril_indices_from triu_indices_from", grad=False),
    "diag_indices": Entry(made(lambda s: (3, s.pick((2, 3))))),
    "diag_indices_from": Entry(made(lambda s: s.array((3, 3)))),
    "ix_": Entry(made(lambda s: (s.array((3,), "int32"), s.array((2,), "int32")))),
}  # fmt: skip

# --- indices, order, sets ---


def _take(s: Source) -> Any:
    mode = s.pick((None, "clip", "wrap", "fill"))
    indices = s.array(s.pick(((2,), (), (2, 2), (0,))), s.dtype(("int32", "int8", "uint32")), -4, 5)
    return s.array((3, 4), s.dtype(ALL)), indices, {"axis": s.pick((0, -1, None)), "mode": mode}


def _take_along(s: Source) -> Any:
    axis = s.pick((0, 1, -1))
    shape = (2, 4) if axis == 0 else (3, 2)
    return s.array((3, 4), s.dtype(ALL)), s.array(shape, "int32", -3, 2), {"axis": axis}


def _put_along(s: Source) -> Any:
    values = s.pick((2.0, s.array((3, 2))))
    return (
        s.array((3, 4)),
        np.array([[0, 1], [3, 2], [-1, 0]]),
        values,
        {"axis": 1, "inplace": False},
    )


def _searchsorted(s: Source) -> Any:
    a = np.sort(s.array((5,), s.dtype(("float32", "int32"))))
    return a, s.some(("float32", "int32")), {"side": s.pick(("left", "right"))}


def sets(**options: Any) -> Kind:
    return made(
        lambda s: (
            *(s.array((n,), s.dtype(("int32", "float32", "int8")), -3, 2) for n in (5, 4)),
            options,
        )
    )


INDEXING = {
    "take": Entry(made(_take)),
    "take_along_axis": Entry(made(_take_along)),
    "put_along_axis": Entry(made(_put_along)),
    "choose": Entry(made(lambda s: (s.array((3,), "int32", 0, 1), [s.array((3,)), s.array((3,))], {"mode": s.pick(("wrap", "clip"))}))),
    "compress": Entry(made(lambda s: ([True, False, True], s.array((3, 4), s.dtype(ALL)), {"axis": s.pick((0, None))}))),
    "extract": Entry(made(lambda s: (s.mask((2, 3)), s.array((2, 3)), {"size": 3}))),
    **rows(made(lambda s: (s.some(ALL, 1), FILL if s.flag() else {"size": 3})), "nonzero argwhere flatnonzero", grad=False),
    **rows(along(ALL, none=True), "sort", weak=True),
    "argsort": Entry(along(ALL, none=True, descending=(False, True), stable=(True,))),
    "lexsort": Entry(made(lambda s: ([s.array((4,), s.dtype(REAL), 0, 2), s.array((4,), s.dtype(REAL))],))),
    "searchsorted": Entry(made(_searchsorted)),
    "digitize": Entry(made(lambda s: (s.some(("float32", "int32")), np.array([-2.0, 0.0, 1.5], "f"), {"right": s.flag()}))),
    "unravel_index": Entry(made(lambda s: (s.array((4,), "int32", 0, 11), (3, 4)))),
    "ravel_multi_index": Entry(made(lambda s: ((s.array((4,), "int32", 0, 2), s.array((4,), "int32", 0, 3)), (3, 4), {"mode": s.pick(("clip", "wrap"))}))),
    "bincount": Entry(made(lambda s: (s.array((6,), "int32", 0, 4), {"weights": s.pick((None, s.array((6,)))), "length": s.pick((5, 3, 8))}))),
    "histogram": Entry(made(lambda s: (s.array((7,)), {"bins": s.pick((4, np.array([-2.0, 0, 1, 3], "f"))), "range": s.pick(((-2, 2), None)), "density": s.flag()})), grad=False),
    "histogram_bin_edges": Entry(made(lambda s: (s.array((7,)), {"bins": 4, "range": s.pick(((-2, 2), None))})), grad=False),
    "isin": Entry(made(lambda s: (s.some(("int32", "float32")), s.array((3,), "int32"), {"invert": s.flag()}))),
    **rows(made(lambda s: (s.array((6,), s.dtype(("int32", "float32", "bool")), -2, 2), {"size": 4, "return_counts": True, "return_inverse": s.flag()})), "unique", grad=False),
    **rows(sets(size=7), "union1d", grad=False),
    **rows(sets(size=4), "intersect1d setdiff1d setxor1d", grad=False),
    "sort_complex": Entry(made(lambda s: s.array((4,), s.dtype(("complex64", "float32")))), grad=False),
}  # fmt: skip

# --- products ---


def _pair(s: Source, shapes: Any) -> Any:
    return tuple(s.array(shape, s.dtype(NUMBERS)) for shape in shapes)


def product_of(*shapes: Any) -> Kind:
    """Functions of two arrays whose shapes fit each other (or, at the end, do not)."""
    return made(lambda s: _pair(s, s.pick(shapes)))


PRODUCTS = {
    "dot": Entry(product_of(((2, 3), (3, 4)), ((3,), (3,)), ((), (3,)), ((2, 3), (3,)), ((2, 3), (4, 3, 2)), ((2, 3), (2, 3)))),
    "matmul": Entry(product_of(((2, 3), (3, 4)), ((3,), (3,)), ((2, 2, 3), (3, 4)), ((3,), (2, 3, 4)), ((0, 3), (3, 2)), ((2, 3), (2, 3)))),
    "inner": Entry(product_of(((2, 3), (4, 3)), ((3,), (3,)), ((), (3,)), ((2, 3), (3, 2)))),
    "outer": Entry(product_of(((2,), (3,)), ((2, 2), (3,)), ((), (3,)))),
    "vdot": Entry(product_of(((3,), (3,)), ((2, 3), (2, 3)), ((3,), (2,)))),
    "vecdot": Entry(product_of(((2, 3), (3,)), ((2, 3), (2, 3)), ((3,), (2,)))),
    "matvec": Entry(product_of(((2, 3), (3,)), ((4, 2, 3), (4, 3)), ((2, 3), (2,)))),
    "vecmat": Entry(product_of(((2,), (2, 3)), ((4, 2), (4, 2, 3)), ((3,), (2, 3)))),
    "kron": Entry(product_of(((2, 2), (2, 3)), ((2,), (3,)), ((), (2,)))),
    "cross": Entry(product_of(((3,), (3,)), ((4, 3), (3,)), ((2,), (2,)))),
    "tensordot": Entry(made(lambda s: (s.array((2, 3, 4)), s.array((3, 4, 2)), s.pick((2, ((1, 2), (0, 1)), ((0,), (2,)), 0, 1))))),
    "einsum": Entry(made(lambda s: (s.pick(("ij,jk->ik", "ij,jk", "ij,kj->", "ij,jk->jik", "i...,j...->ij")), *_pair(s, ((3, 3), (3, 3)))))),
}  # fmt: skip

# --- floats taken apart, bits, windows, polynomials ---


def coefficients(*counts: int) -> Kind:
    """Functions of the coefficients of polynomials."""
    return made(lambda s: tuple(s.array((s.pick((n, 1)),), s.dtype(REAL), 1, 3) for n in counts))


def sliding(s: Source) -> Any:
    a, v = s.array((s.pick((5, 2)),), s.dtype(NUMBERS)), s.array((3,), s.dtype(NUMBERS))
    return a, v, {"mode": s.pick(("full", "same", "valid"))}


FURTHER = {
    **rows(binary(FLOATS), "copysign"),
    **rows(binary(FLOATS, mixed=False), "nextafter", grad=False),
    "signbit": Entry(unary(REAL)),
    "spacing": Entry(unary(("float32", "float16"), special=False), grad=False),
    "frexp": Entry(unary(FLOATS, special=False), grad=False),
    "ldexp": Entry(made(lambda s: (s.array((2, 3), s.dtype(FLOATS)), s.array((3,), "int32")))),
    **rows(binary(("int32", "int8", "uint8", "uint32")), "gcd lcm"),
    "i0": Entry(unary(FLOATS, special=False), loose=10),
    "bitwise_count": Entry(unary(INTS, special=False)),
    "packbits": Entry(made(lambda s: (s.array((2, 9), s.dtype(("uint8", "bool", "int32"))), {"axis": s.pick((None, 0, -1)), "bitorder": s.pick(("big", "little"))}))),
    "unpackbits": Entry(made(lambda s: (s.array((2, 3), "uint8"), {"axis": s.pick((None, 0, -1)), "count": s.pick((None, 5, -1)), "bitorder": s.pick(("big", "little"))}))),
    **rows(made(lambda s: s.pick((5, 0, 1, 8))), "bartlett blackman hamming hanning", loose=4),
    "kaiser": Entry(made(lambda s: (s.pick((5, 1, 8)), s.pick((2.5, 0.0)))), loose=10),
    **rows(made(sliding), "convolve correlate", loose=4, weak=False),
    "unwrap": Entry(made(lambda s: (s.array((2, 5), s.dtype(FLOATS), -9, 9), {"axis": s.pick((-1, 0)), "period": s.pick((6.0, 2.5))})), loose=4),
    **rows(coefficients(3, 2), "polyadd polysub"),
    "polymul": Entry(coefficients(3, 2), weak=False),
    "polydiv": Entry(coefficients(4, 2), loose=10),
    "polyder": Entry(made(lambda s: (s.array((4,), s.dtype(REAL)), s.pick((1, 2, 0))))),
    "polyint": Entry(made(lambda s: (s.array((4,), s.dtype(REAL)), s.pick((1, 2)), {"k": s.pick((None, 3))})), loose=4),
    "polyfit": Entry(made(lambda s: (np.arange(6.0, dtype="f") / 3, s.array((6,)), s.pick((2, 1)))), loose=200, grad=False),
    "poly": Entry(made(lambda s: s.array((3,), s.dtype(("float32", "complex64")))), loose=10),
    "piecewise": Entry(made(lambda s: (s.array((4,)), [s.mask((4,)), s.mask((4,))], [1.0, lambda x: x * 2, -1.0][: s.pick((3, 2))]))),
    "place": Entry(made(lambda s: (s.array((2, 3)), s.mask((2, 3)), s.array((2,)), {"inplace": False}))),
    "put": Entry(made(lambda s: (s.array((2, 3)), s.array((2,), "int32", 0, 5), s.pick((2.0, s.array((2,)))), {"mode": s.pick(("clip", "wrap", None)), "inplace": False}))),
    "fill_diagonal": Entry(made(lambda s: (s.array(s.pick(((3, 3), (4, 3)))), s.pick((2.0, s.array((3,)))), {"wrap": s.flag(), "inplace": False}))),
    "histogram2d": Entry(made(lambda s: (s.array((7,)), s.array((7,)), {"bins": s.pick((3, (2, 3))), "density": s.flag()})), grad=False),
    "histogramdd": Entry(made(lambda s: (s.array((7, 2)), {"bins": s.pick((3, (2, 3)))})), grad=False),
    "mask_indices": Entry(made(lambda s: (3, From(lambda lib: lib.numpy.triu), s.pick((0, 1)), {"size": 4})), grad=False),
    **rows(made(lambda s: (s.array((6,), s.dtype(("int32", "float32")), -2, 2), {"size": 4})), "unique_all unique_counts unique_inverse unique_values", grad=False),
    "apply_along_axis": Entry(made(lambda s: (lambda row: row[::-1] * 2, s.axis(2), s.array((2, 3))))),
    "apply_over_axes": Entry(made(lambda s: (From(lambda lib: lib.numpy.sum), s.array((2, 3, 4)), s.pick(((0, 2), (1,)))))),
}  # fmt: skip

# --- questions about types and shapes, answered with Python values ---

QUESTIONS = {
    **rows(made(lambda s: s.some(ALL)), "ndim shape size iscomplexobj isrealobj", concrete=True),
    "isscalar": Entry(made(lambda s: s.pick((3, 1.5, "x", [1]))), concrete=True),
    "iterable": Entry(made(lambda s: s.pick((3, [1], "x"))), concrete=True),
    "broadcast_shapes": Entry(made(lambda s: s.pick((((2, 1), (3,)), ((2,), (3,)), ((), (0,))))), concrete=True),
    "result_type": Entry(made(lambda s: (s.pick(ALL), s.pick((*ALL, 1.5, 2, True)))), concrete=True),
    "promote_types": Entry(made(lambda s: (s.pick(ALL), s.pick(ALL))), concrete=True),
    "issubdtype": Entry(made(lambda s: (s.pick(ALL), s.pick((np.floating, np.integer, np.inexact)))), concrete=True),
    "isdtype": Entry(made(lambda s: (jnp.dtype(s.pick(ALL)), s.pick(("real floating", "integral", "numeric", "bool")))), concrete=True),
    "can_cast": Entry(made(lambda s: (s.pick(("float32", "int32", "bool")), s.pick(("float16", "int8", "float32")))), concrete=True),
}  # fmt: skip

TABLE = {
    **ELEMENTWISE, **REDUCTIONS, **MOVING, **CREATION, **INDEXING, **PRODUCTS, **FURTHER,
    **QUESTIONS,
}  # fmt: skip
