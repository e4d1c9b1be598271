"""How each function of stax.nn, scipy.special, numpy.linalg, numpy.fft and ops is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.facade.checking import Entry, rows
from tests.facade.drawing import (
    COMPLEX,
    FLOATS,
    NUMBERS,
    REAL,
    Kind,
    Source,
    made,
    matrices,
    ternary,
    unary,
)

# --- nn ---

OVER_AXIS = {"axis": (-1, 0, None, (0, 1))}


def over_axis(s: Source, **options: Any) -> Any:
    mask = {"where": s.mask((2, 3))} if s.flag() else {}
    return s.array((2, 3), s.dtype(FLOATS)), {"axis": s.pick(OVER_AXIS["axis"]), **mask, **options}


def attention(s: Source) -> Any:
    query, key, value = s.array((2, 3, 4, 2)), s.array((2, 5, 2, 2)), s.array((2, 5, 2, 2))
    bias = s.pick((None, s.array((1, 4, 3, 5))))
    mask = s.pick((None, np.tile([True, True, False, True, True], (2, 4, 3, 1))))
    return query, key, value, bias, mask, {"scale": s.pick((None, 0.5)), "is_causal": s.flag()}


NN = {
    **rows(unary(REAL), "relu relu6 hard_tanh identity"),
    **rows(unary(FLOATS), "sigmoid tanh softplus silu log_sigmoid soft_sign mish selu squareplus", loose=10),
    **rows(unary(FLOATS), "hard_sigmoid hard_silu sparse_plus sparse_sigmoid", loose=10),
    **rows(unary(FLOATS, alpha=(1.0, 0.5)), "elu celu", loose=10),
    "leaky_relu": Entry(unary(FLOATS, negative_slope=(0.01, 0.5))),
    "gelu": Entry(unary(FLOATS, approximate=(True, False)), loose=20),
    "log1mexp": Entry(unary(FLOATS, 0.1, 4), loose=10),
    "glu": Entry(made(lambda s: (s.array((2, 4), s.dtype(FLOATS)), s.pick((-1, 0))))),
    **rows(made(over_axis), "softmax log_softmax", loose=10),
    "logsumexp": Entry(made(lambda s: over_axis(s, keepdims=s.flag())), loose=4),
    "logmeanexp": Entry(made(lambda s: over_axis(s, keepdims=s.flag())), loose=10),
    "standardize": Entry(made(lambda s: (s.array((2, 5), s.dtype(FLOATS)), {"axis": s.pick((-1, (0, 1)))})), loose=200),
    "dot_product_attention": Entry(made(attention), loose=20),
    "one_hot": Entry(made(lambda s: (s.some(("int32", "uint8", "float32"), low=-1, high=4), 3, {"dtype": s.pick(("float32", "int8")), "axis": s.pick((-1, 0))}))),
}  # fmt: skip

# --- scipy.special; JAX has few of them in 16 bits ---

F32 = ("float32",)
FREE: dict[str, Any] = {"more": True, "loose": 30}
SPECIAL = {
    **rows(unary(FLOATS, special=False), "entr erf erfc expit i0 i0e i1 i1e dawsn erfcx", **FREE),
    **rows(unary(F32, special=False), "ndtr log_ndtr", **FREE),
    **rows(unary(F32, special=False), "fresnel sici", **FREE),
    **rows(unary(FLOATS, 0.1, 0.9, special=False), "logit ndtri erfinv", **FREE),
    **rows(unary(F32, 0.25, 4, special=False), "digamma gammaln loggamma gamma factorial exp1 expi spence", **FREE),
    "gammasgn": Entry(unary(F32), more=True),
    **rows(ternary(F32, (0.5, 3), (0.5, 3)), "beta betaln gammainc gammaincc poch comb owens_t", **FREE),
    **rows(ternary(F32, (0.5, 3), (0.5, 3)), "xlogy xlog1py rel_entr kl_div boxcox boxcox1p", **FREE),
    "zeta": Entry(ternary(F32, (1.5, 4), (0.5, 3)), **FREE),
    "polygamma": Entry(made(lambda s: (s.pick((1, 2, 3)), s.array((3,), "float32", 0.5, 4))), **FREE),
    "expn": Entry(made(lambda s: (s.pick((1, 2, 3)), s.array((3,), "float32", 0.5, 4))), **FREE),
    "betainc": Entry(ternary(F32, (0.5, 3), (0.5, 3), (0.1, 0.9)), **FREE),
    "hyp1f1": Entry(ternary(F32, (0.5, 3), (0.5, 3), (-2, 2)), more=True, loose=100),
    "hyp2f1": Entry(ternary(F32, (0.5, 3), (0.5, 3), (0.5, 3), (-0.5, 0.5)), more=True, loose=100),
    "multigammaln": Entry(made(lambda s: (s.array((3,), "float32", 2, 5), s.pick((1, 2, 3)))), **FREE),
    "bernoulli": Entry(made(lambda s: s.pick((1, 0))), more=True),  # JAX's series is not exact
    "bessel_jn": Entry(made(lambda s: (s.array((3,), "float32", 8, 12), {"v": s.pick((2, 0)), "n_iter": 50})), grad=False, **FREE),  # JAX's slopes are wrong
    "sph_harm_y": Entry(made(lambda s: (np.array([2]), np.array([1]), *(s.array((1,), s.dtype(F32)) for _ in "ab"), {"n_max": 3})), **FREE),
    "wofz": Entry(made(lambda s: s.array((3,), "complex64")), **FREE),
    "logsumexp": Entry(made(lambda s: (s.array((2, 3), s.dtype(FLOATS)), {"axis": s.pick((-1, None)), "keepdims": s.flag(), "b": s.pick((None, s.array((3,), low=0.5)))})), loose=10),
    **rows(made(lambda s: (s.array((2, 3), s.dtype(FLOATS)), {"axis": s.pick((-1, 0, None))})), "softmax log_softmax", loose=10),
}  # fmt: skip

# --- numpy.linalg: factors are compared where they are unique up to a sign, by what they make ---


def positive(s: Source) -> Any:
    x = matrices(dtypes=("float32", "complex64"))(s).args[0]
    return x @ np.conj(np.swapaxes(x, -1, -2)) / 8, {"upper": s.flag()}


def equations(s: Source) -> Any:
    a, b = s.pick((((3, 3), (3,)), ((2, 3, 3), (2, 3, 2)), ((3, 3), (2, 3, 1))))
    return matrices(a)(s).args[0], s.array(b, s.dtype(("float32", "complex64")))


def normed(*orders: Any) -> Kind:
    return made(
        lambda s: (
            s.array((3, 4), s.dtype(("float32", "complex64", "int32"))),
            {"ord": s.pick(orders), "keepdims": s.flag()},
        )
    )


EASY = {"loose": 20}
LINALG = {
    **rows(matrices(), "det inv slogdet", **EASY),
    "cholesky": Entry(made(positive), **EASY),
    "matrix_power": Entry(made(lambda s: (matrices()(s).args[0], s.pick((2, 0, 3, -1)))), loose=40),
    "solve": Entry(made(equations), **EASY),
    **rows(made(lambda s: positive(s)[0]), "eigvalsh", **EASY),
    **rows(matrices((3, 3), (4, 2), (2, 3, 3)), "svdvals", **EASY),
    "cond": Entry(matrices((3, 3), p=(None, 2, 1, "fro")), loose=40),
    "pinv": Entry(matrices((3, 3), (4, 2), dtypes=("float32",)), loose=40),
    "matrix_rank": Entry(matrices((3, 3), (4, 2)), grad=False),
    "norm": Entry(normed(None, 1, np.inf, "fro", 2, "nuc", -1), **EASY),
    "matrix_norm": Entry(normed("fro", 1, np.inf, 2, "nuc"), **EASY),
    "vector_norm": Entry(made(lambda s: (s.array((3, 4)), {"axis": s.axes(2), "ord": s.pick((2, 1, np.inf, 3, 0)), "keepdims": s.flag()})), loose=4),
    "lstsq": Entry(made(lambda s: (matrices((4, 2), dtypes=("float32",))(s).args[0], s.array((4,)))), grad=False, loose=40),
    "tensorinv": Entry(made(lambda s: (matrices((6, 6), dtypes=("float32",))(s).args[0].reshape(2, 3, 6), {"ind": 2})), **EASY),
    "tensorsolve": Entry(made(lambda s: (matrices((6, 6), dtypes=("float32",))(s).args[0].reshape(2, 3, 6), s.array((2, 3)))), **EASY),
    "multi_dot": Entry(made(lambda s: ([s.array((2, 3)), s.array((3, 4)), s.array((4, 2))],)), **EASY),
    "matrix_transpose": Entry(made(lambda s: s.some(NUMBERS, 2))),
    "diagonal": Entry(made(lambda s: (s.array((3, 4), s.dtype(NUMBERS)), {"offset": s.integer(-1, 2)}))),
    "trace": Entry(made(lambda s: (s.array((3, 4), s.dtype(NUMBERS)), {"offset": s.integer(-1, 2)}))),
    "matmul": Entry(made(lambda s: (s.array((2, 3)), s.array((3, 4))))),
    "outer": Entry(made(lambda s: (s.array((2,)), s.array((3,))))),
    "cross": Entry(made(lambda s: (s.array((2, 3)), s.array((2, 3))))),
    "vecdot": Entry(made(lambda s: (s.array((2, 3), s.dtype(NUMBERS)), s.array((3,), s.dtype(NUMBERS))))),
    "tensordot": Entry(made(lambda s: (s.array((2, 3)), s.array((3, 4)), {"axes": s.pick((1, 0))}))),
}  # fmt: skip

# --- numpy.fft ---

NORMS = ("backward", "ortho", "forward")


def transformed(dtypes: Any, **sizes: Any) -> Kind:
    def draw(s: Source) -> Any:
        options = {name: s.pick(values) for name, values in sizes.items()}
        return s.array((3, 4), s.dtype(dtypes)), {**options, "norm": s.pick(NORMS)}

    return made(draw)


LINE: dict[str, Any] = {"n": (None, 4, 3, 6), "axis": (-1, 0)}
PLANE: dict[str, Any] = {"s": (None, (2, 6)), "axes": ((-2, -1), (0, 1))}
FFT = {
    **rows(transformed(("complex64", "float32"), **LINE), "fft ifft hfft", loose=10),
    **rows(transformed(F32, **LINE), "rfft ihfft", loose=10),
    **rows(transformed(COMPLEX, **LINE), "irfft", loose=10),
    **rows(transformed(("complex64", "float32"), **PLANE), "fft2 ifft2 fftn ifftn", loose=10),
    **rows(transformed(F32, **PLANE), "rfft2 rfftn", loose=10),
    **rows(transformed(COMPLEX, **PLANE), "irfft2 irfftn", loose=10),
    **rows(made(lambda s: (s.array((3, 4), s.dtype(NUMBERS)), {"axes": s.pick((None, 0, (0, 1)))})), "fftshift ifftshift"),
    **rows(made(lambda s: (s.pick((5, 6)), {"d": s.pick((1.0, 0.5))})), "fftfreq rfftfreq"),
}  # fmt: skip

# --- ops ---


def segments(s: Source) -> Any:
    return (
        s.array((5, 2), s.dtype(REAL)),
        s.array((5,), "int32", 0, 3),
        {"num_segments": s.pick((4, 3))},
    )


OPS = {
    **rows(made(segments), "segment_sum segment_max segment_min"),
    "segment_prod": Entry(made(segments), grad=False),
}  # fmt: skip
