"""How each function of stax.lax is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.facade.checking import Entry, rows
from tests.facade.drawing import (
    ALL,
    BITS,
    COMPLEX,
    FLOATS,
    INTS,
    NUMBERS,
    REAL,
    SIGNED,
    Call,
    From,
    Kind,
    Source,
    made,
    reshaping,
    same,
    ternary,
    unary,
)

INEXACT = (*FLOATS, *COMPLEX)

# --- element by element ---

ELEMENTWISE = {
    **rows(unary(INEXACT), "sin cos sinh cosh tanh exp exp2 expm1 logistic", loose=4),
    **rows(unary(INEXACT, -1.4, 1.4, special=False), "tan", loose=10),
    **rows(unary(INEXACT, -3, 3, special=False), "atan asinh", loose=10),
    **rows(unary(INEXACT, 0.25, 4), "sqrt rsqrt log log1p", loose=4),
    **rows(unary(FLOATS, -0.9, 0.9, special=False), "asin acos atanh erf_inv", loose=10),
    **rows(unary(FLOATS, 1.25, 5), "acosh", loose=4),
    **rows(unary(FLOATS), "floor ceil round erf erfc cbrt is_finite bessel_i0e bessel_i1e", loose=4),
    **rows(unary(FLOATS, 0.25, 4, special=False), "lgamma digamma", loose=10),
    **rows(unary(NUMBERS), "neg sign square reciprocal", loose=4),
    "abs": Entry(unary((*INEXACT, *SIGNED))),
    **rows(unary(COMPLEX, special=False), "real imag"),
    "conj": Entry(unary((*COMPLEX, "float32"), special=False)),
    "complex": Entry(same(("float32",))),
    **rows(unary(BITS, special=False), "bitwise_not"),
    **rows(unary(INTS, special=False), "clz population_count"),
    "integer_pow": Entry(made(lambda s: (s.array((2, 3), s.dtype(REAL)), s.pick((2, 3, 0, 1, -1)))), loose=4),
    "stop_gradient": Entry(unary(ALL)),
    **rows(same(ALL), "add mul max min eq ne"),
    **rows(same(NUMBERS), "sub"),
    **rows(same(REAL), "lt le gt ge"),
    **rows(same(REAL, low=1), "div rem", loose=4),
    "pow": Entry(same(FLOATS, low=0.25), loose=4),
    "atan2": Entry(same(FLOATS), loose=4),
    "nextafter": Entry(same(("float32", "float16", "bfloat16")), grad=False),
    **rows(same(BITS), "bitwise_and bitwise_or bitwise_xor"),
    **rows(same(INTS, low=0), "shift_left shift_right_arithmetic shift_right_logical"),
    "mulhi": Entry(same(("int32", "uint32"))),
    "clamp": Entry(made(lambda s: (s.pick((-1.0, s.array((2, 3), low=-2, high=-1))), s.array((2, 3), low=-0.5), s.pick((1.0, np.float32(1))))), more=True),
    "select": Entry(made(lambda s: (s.mask(s.pick(((2, 3), ()))), *(s.array((2, 3), s.dtype(("float32", "int32"))) for _ in "ab")))),
    "select_n": Entry(made(lambda s: (s.array((3,), s.pick(("bool", "int32")), 0, 1), s.array((3,)), s.array((3,))))),
    "reduce_precision": Entry(made(lambda s: (s.some(FLOATS), s.pick((5, 8, 3)), s.pick((10, 7, 2)))), grad=False),
    "convert_element_type": Entry(made(lambda s: (s.some(ALL), s.pick(("float32", "int32", "float16", "bool", "complex64"))))),
    "bitcast_convert_type": Entry(made(lambda s: (s.some(("float32", "int32", "uint8", "float16"), 1), s.pick(("int32", "uint8", "float32")))), grad=False),
    **rows(ternary(("float32",), (0.5, 3), (0.5, 3)), "igamma igammac", loose=30),
    **rows(same(("float32",), low=0.5), "igamma_grad_a random_gamma_grad", loose=100, grad=False, more=True),
    "betainc": Entry(same(("float32",), 3, 0.1, 0.9), loose=30),
    "zeta": Entry(same(("float32",), low=1.5), loose=30),
    "polygamma": Entry(made(lambda s: (np.float32(s.pick((1, 2))) * np.ones(3, "f"), s.array((3,), "float32", 0.5, 4))), loose=30),
}  # fmt: skip

# --- shapes ---


def _slice(s: Source) -> Any:
    return s.array((4, 5), s.dtype(ALL)), s.pick(((0, 1), (1, 0), (4, 5))), s.pick(((3, 4), (4, 5), (5, 5))), s.pick((None, (2, 1), (1, 3)))  # fmt: skip


def _pad(s: Source) -> Any:
    config = s.pick((((1, 2, 0), (0, 1, 1)), ((-1, 0, 0), (2, -2, 0)), ((0, 0, 2), (0, 0, 0))))
    return s.array((3, 4)), s.pick((0.0, np.float32(2))), config


def starts(s: Source) -> Any:
    return s.pick(((1, 0), (np.int32(1), np.int32(9)), (-1, np.int32(-2)), s.array((2,), "int32")))


def several(s: Source) -> Any:
    dtype = s.dtype(ALL)
    return [s.array((2, 3), dtype) for _ in range(s.integer(1, 3))], s.pick((0, 1))


SHAPES_OF = {
    "reshape": Entry(made(lambda s: (s.array((2, 6), s.dtype(ALL)), *s.pick((((3, 4), None), ((12,), (1, 0)), ((2, 3, 2), (1, 0)), ((4, 3), None)))))),
    "transpose": Entry(made(lambda s: (s.array((2, 3, 4), s.dtype(ALL)), s.pick(((2, 0, 1), (0, 1, 2), (0, 1)))))),
    "broadcast": Entry(made(lambda s: (s.some(ALL), s.pick(((2,), (), (3, 1)))))),
    "broadcast_in_dim": Entry(made(lambda s: (s.array((3, 1), s.dtype(ALL)), s.pick(((2, 3, 4), (3, 4, 1))), s.pick(((1, 2), (0, 1), (0, 2)))))),
    "broadcast_like": Entry(made(lambda s: (s.array((3,)), s.array((2, 3))))),
    "broadcast_to_rank": Entry(made(lambda s: (s.array((2, 3)), s.pick((2, 4))))),
    "broadcast_shapes": Entry(made(lambda s: s.pick((((2, 1), (1, 3)), ((2,), (3,))))), concrete=True),
    "collapse": Entry(made(lambda s: (s.array((2, 3, 4)), s.pick((0, 1)), s.pick((None, 2, 3))))),
    "expand_dims": Entry(made(lambda s: (s.some(ALL), s.pick(((0,), (0, 1), (-1,)))))),
    "squeeze": Entry(made(lambda s: (s.array((1, 3, 1), s.dtype(ALL)), s.pick(((0,), (0, 2), (1,)))))),
    "rev": Entry(made(lambda s: (s.array((2, 3), s.dtype(ALL)), s.pick(((0,), (0, 1), ()))))),
    "concatenate": Entry(made(several)),
    "stack": Entry(made(lambda s: ([s.array((2, 3)) for _ in range(s.integer(1, 3))], s.pick((0, 1, 2))))),
    "unstack": Entry(made(lambda s: (s.array((2, 3)), s.pick((0, 1))))),
    "split": Entry(made(lambda s: (s.array((4, 3)), s.pick(((1, 3), (4,), (2, 1)))))),
    "tile": Entry(made(lambda s: (s.array((2, 3)), s.pick(((2, 1), (1, 3), (0, 1)))))),
    "pad": Entry(made(_pad), more=True),
    "slice": Entry(made(_slice)),
    "slice_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.pick((0, 1, None, -2)), s.pick((None, 3, -1)), s.pick((1, 2)), s.pick((0, 1, -1))))),
    "index_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.pick((0, -1, 3)), s.pick((0, 1)), s.flag()))),
    "index_take": Entry(made(lambda s: (s.array((4, 5)), (s.array((3,), "int32", 0, 3),), (0,)))),
    "dynamic_slice": Entry(made(lambda s: (s.array((4, 5), s.dtype(ALL)), starts(s), s.pick(((2, 3), (4, 5), (1, 1))))), more=True),
    "dynamic_slice_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.pick((1, np.int32(3), -1)), 2, s.pick((0, 1))))),
    "dynamic_index_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.pick((1, np.int32(3), -1)), s.pick((0, 1)), s.flag()))),
    "dynamic_update_slice": Entry(made(lambda s: (s.array((4, 5)), s.array((2, 3)), starts(s))), more=True),
    "dynamic_update_slice_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.array((2, 5)), s.pick((1, np.int32(3), -1)), 0))),
    "dynamic_update_index_in_dim": Entry(made(lambda s: (s.array((4, 5)), s.array((5,)), s.pick((1, np.int32(3), -1)), 0))),
    "full": Entry(made(lambda s: (s.pick(((2, 3), ())), s.pick((2, 1.5, True)), s.pick((None, "float32", "int32"))))),
    "full_like": Entry(made(lambda s: (s.some(ALL), 2, s.pick((None, "float32")), s.pick((None, (2,)))))),
    "empty": Entry(made(lambda s: (s.pick(((2, 3), ())), s.pick(("float32", "int32"))))),
    "iota": Entry(made(lambda s: (s.pick(("float32", "int32", "uint8")), s.integer(0, 4)))),
    "broadcasted_iota": Entry(made(lambda s: (s.pick(("float32", "int32")), (2, 3), s.pick((0, 1))))),
    "stage": Entry(reshaping()),
    "optimization_barrier": Entry(reshaping()),
    "dtype": Entry(made(lambda s: s.some(ALL)), concrete=True),
    "shape_as_value": Entry(made(lambda s: s.pick(((2, 3), ())))),
}  # fmt: skip

# --- over axes, products, order ---


def over_axes(dtypes: Any, empty: bool = True) -> Kind:
    def draw(s: Source) -> Call:
        shape = s.shape(empty=empty)
        axes = [a for a in range(len(shape)) if s.flag()] or ([0] if shape else [])
        return Call((s.array(shape, s.dtype(dtypes)), tuple(axes)), {})

    return draw


def running(dtypes: Any) -> Kind:
    def draw(s: Source) -> Call:
        shape = s.shape(1)
        axis = s.integer(0, len(shape) - 1)
        return Call((s.array(shape, s.dtype(dtypes)),), {"axis": axis, "reverse": s.flag()})

    return draw


def _reduce(s: Source) -> Any:
    name, start = s.pick((("add", 0), ("max", -9), ("mul", 1)))
    combine = From(lambda lib: getattr(lib.lax, name))
    return s.array((2, 3)), np.float32(start), combine, s.pick(((0,), (1,), (0, 1)))


def _window(s: Source) -> Any:
    name, start = s.pick((("add", 0.0), ("max", -np.inf), ("min", np.inf)))
    combine = From(lambda lib: getattr(lib.lax, name))
    return s.array((5, 6)), np.float32(start), combine, s.pick(((2, 3), (1, 2))), s.pick(((1, 1), (2, 1))), s.pick(("VALID", "SAME"))  # fmt: skip


def _dot_general(s: Source) -> Any:
    numbers = s.pick(
        ((((2,), (1,)), ((0,), (0,))), (((1, 2), (2, 1)), ((), ())), (((2,), (1,)), ((), ())))
    )
    lhs, rhs = s.array((2, 3, 4), s.dtype(NUMBERS)), s.array((2, 4, 3), s.dtype(NUMBERS))
    if {lhs.dtype.kind, rhs.dtype.kind} == set("iu"):  # JAX takes either for the result
        rhs = rhs.astype(lhs.dtype)
    return lhs, rhs, numbers


def gathered(s: Source) -> Any:
    numbers = From(lambda lib: lib.lax.GatherDimensionNumbers((1,), (0,), (0,)))
    mode = s.pick((None, "clip", "fill"))
    return s.array((4, 5)), s.array((3, 1), "int32", 0, 5), numbers, (1, 5), {"mode": mode}


def scattered(s: Source) -> Any:
    numbers = From(lambda lib: lib.lax.ScatterDimensionNumbers((1,), (0,), (0,)))
    places = s.pick((np.array([[2], [0], [1]]), np.array([[0], [5], [3]])))
    # No two elements are equal: of a tie that an update beyond the end makes, JAX misses a part.
    operand, updates = s.array((4, 5)) + np.float32(0.01), s.array((3, 5))
    return (
        operand,
        places.astype(np.int32),
        updates,
        numbers,
        {"mode": s.pick((None, "drop", "clip"))},
    )


def applied(s: Source) -> Any:
    operand, places, _, numbers, options = scattered(s)
    return operand, places, lambda x: x * x + 1, numbers, {"update_shape": (3, 5), **options}


OVER = {
    **rows(over_axes(NUMBERS), "reduce_sum reduce_prod", loose=4),
    **rows(over_axes(REAL, empty=False), "reduce_max reduce_min"),
    **rows(over_axes(BITS), "reduce_and reduce_or reduce_xor"),
    **rows(running(NUMBERS), "cumsum cumprod", loose=4),
    **rows(running(REAL), "cummax cummin"),
    "cumlogsumexp": Entry(running(FLOATS), loose=4),
    **rows(made(lambda s: (s.array((2, 3), s.dtype(REAL)), s.pick((0, 1)), s.pick(("int32", "uint8")))), "argmax argmin"),
    "reduce": Entry(made(_reduce)),
    "reduce_window": Entry(made(_window)),
    "reduce_window_shape_tuple": Entry(made(lambda s: ((5, 6), (2, 3), s.pick(((1, 1), (2, 1))), ((0, 0), (1, 1)))), concrete=True),
    "sort": Entry(made(lambda s: (s.array((3, 4), s.dtype(REAL)), {"dimension": s.pick((-1, 0))}))),
    "sort_key_val": Entry(made(lambda s: (s.array((3, 4), s.dtype(REAL)), s.array((3, 4)), {"dimension": s.pick((-1, 0))}))),
    "top_k": Entry(made(lambda s: (s.array((3, 4), s.dtype(REAL)), s.pick((2, 4, 0)))), loose=1),
    **rows(made(lambda s: (s.array((3, 4)), s.pick((2, 4)))), "approx_max_k approx_min_k"),
    "dot": Entry(made(lambda s: [s.array(t, s.dtype(NUMBERS)) for t in s.pick((((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (2,))))])),
    "dot_general": Entry(made(_dot_general)),
    "batch_matmul": Entry(made(lambda s: (s.array((2, 3, 4)), s.array((2, 4, 2))))),
    "gather": Entry(made(gathered)),
    **rows(made(scattered), "scatter scatter_add scatter_sub scatter_max scatter_min"),
    "scatter_apply": Entry(made(applied)),
    "scatter_mul": Entry(made(lambda s: (*scattered(s)[:-1], {"unique_indices": True}))),
    "fft": Entry(made(lambda s: (s.array((2, 4), s.dtype(COMPLEX)), s.pick(("fft", "ifft")), (4,)))),
    "ragged_dot": Entry(made(lambda s: (s.array((5, 3)), s.array((2, 3, 4)), np.array(s.pick(([2, 3], [5, 0])), np.int32)))),
}  # fmt: skip

# --- convolutions ---

CONVOLVED = (*FLOATS, "int32", "complex64")


def _images(s: Source, dtypes: Any = CONVOLVED) -> Any:
    dtype = s.dtype(dtypes)
    return s.array((2, 4, 5, 6), dtype), s.array((3, 4, 2, 3), dtype)


def _dilated(s: Source) -> Any:
    groups = s.pick((1, 2))
    dtype = s.dtype(CONVOLVED)
    x, w = s.array((2, 5, 6, 4), dtype), s.array((2, 3, 4 // groups, 6), dtype)
    padding = s.pick(("SAME", "VALID", ((1, 0), (2, -1))))
    options = {
        "rhs_dilation": s.pick((None, (2, 1))),
        "dimension_numbers": ("NHWC", "HWIO", s.pick(("NHWC", "CWNH"))),
        "feature_group_count": groups,
    }
    return x, w, s.pick(((1, 1), (2, 1))), padding, options


def _pulled_back(s: Source) -> Any:
    x, w = s.array((2, 4, 5, 3)), s.array((3, 2, 3, 3))
    padding = s.pick(("SAME", "VALID", ((1, 2), (0, 1))))
    return x, w, s.pick(((1, 1), (2, 3))), padding, {"transpose_kernel": s.pick((False, True))}


def _patched(s: Source) -> Any:
    options = {"rhs_dilation": s.pick((None, (2, 1)))}
    return (
        s.array((2, 3, 5, 6)),
        (2, 3),
        s.pick(((1, 1), (2, 1))),
        s.pick(("SAME", "VALID")),
        options,
    )


def _local(s: Source) -> Any:
    return s.array((2, 3, 4, 5)), s.array((4, 18, 3, 3)), (1, 1), "VALID", (2, 3)


LAYOUT = ("NHWC", "HWIO", "NHWC")
WITH_SHAPES = (
    ((2, 5, 6, 3), (2, 3, 3, 4), (1, 2), "SAME"),
    ((2, 5, 6, 3), (2, 3, 3, 4), (2, 1), "VALID"),
)
CONVOLUTIONS = {
    "conv": Entry(made(lambda s: (*_images(s), s.pick(((1, 1), (2, 1))), s.pick(("SAME", "VALID")))), loose=4),
    "conv_general_dilated": Entry(made(_dilated), loose=4),
    "conv_with_general_padding": Entry(made(lambda s: (*_images(s), (1, 2), ((1, 0), (0, 2)), s.pick((None, (1, 2))), None)), loose=4),
    "conv_transpose": Entry(made(_pulled_back), loose=4),
    "conv_general_dilated_patches": Entry(made(_patched)),
    "conv_general_dilated_local": Entry(made(_local), loose=4),
    "conv_dimension_numbers": Entry(made(lambda s: ((2, 5, 6, 3), (2, 3, 3, 4), s.pick((None, LAYOUT)))), concrete=True),
    "conv_general_permutations": Entry(made(lambda s: (s.pick((LAYOUT, ("NCHW", "OIWH", "HNCW"))),)), concrete=True),
    "conv_general_shape_tuple": Entry(made(lambda s: (*s.pick(WITH_SHAPES), LAYOUT)), concrete=True),
    "conv_shape_tuple": Entry(made(lambda s: ((2, 3, 5, 6), (4, 3, 2, 3), s.pick(((1, 2), (2, 2))), ((0, 1), (1, 1)))), concrete=True),
    "conv_transpose_shape_tuple": Entry(made(lambda s: (*s.pick(WITH_SHAPES), LAYOUT)), concrete=True),
    "padtype_to_pads": Entry(made(lambda s: ((5, 6), (2, 3), s.pick(((1, 1), (2, 3))), s.pick(("SAME", "VALID", "SAME_LOWER")))), concrete=True),
}  # fmt: skip

TABLE = {**ELEMENTWISE, **SHAPES_OF, **OVER, **CONVOLUTIONS}
