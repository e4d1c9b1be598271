"""Linear algebra: products, norms, factorizations, solutions.

The last two axes of an array are matrices, the axes before them a batch.  Factorizations are
LAPACK's; where they fail they give NaN.  Functions of 16-bit floats raise DTypeError, but for norms
and products: convert with `astype`.
"""

from __future__ import annotations

from stax.numpy.linalg.factors import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from stax.numpy.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from stax.numpy.linalg.products import (
    cross,
    diagonal,
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from stax.numpy.linalg.solutions import (
    SlogdetResult,
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    tensorinv,
    tensorsolve,
)

__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip
