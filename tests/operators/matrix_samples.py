"""Samples for the ops on matrices and for Fourier transforms; `samples` adds them to its own.

Factorizations are differentiated where they are smooth: matrices are symmetrized where an op takes
symmetric ones, and random, so that no two eigenvalues meet.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stax.operators import elementwise as ops, linalg, qr, spectral
from stax.operators.fft import FftType, fft
from stax.operators.matrices import adjoint, conj, matmul, symmetrized
from stax.trace import bind, results

Arrays = tuple[np.ndarray, ...]
Factory = Callable[[np.random.Generator], Arrays]
Row = tuple[str, str, Callable[..., Any], Factory, tuple[int, ...], float]


def draw(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if is_complex else x


def matrices(*shapes: tuple[int, ...], is_complex: bool = False) -> Factory:
    """Random matrices."""
    return lambda rng: tuple(draw(rng, s, is_complex) for s in shapes)


def regular(*shapes: tuple[int, ...], is_complex: bool = False) -> Factory:
    """Random matrices, the first of them with a large diagonal."""

    def arguments(rng: np.random.Generator) -> Arrays:
        first, *others = (draw(rng, s, is_complex) for s in shapes)
        return first + 3 * np.eye(*first.shape[-2:]), *others

    return arguments


def pivots(rng: np.random.Generator) -> Arrays:
    return (np.array([[1, 2, 2], [0, 3, 2]], "int32"),)


def positive(x: Any) -> Any:
    """A positive definite matrix."""
    return ops.add(symmetrized(x), matmul(x, adjoint(x)))


def eigenvalues_and_projections(x: Any) -> Any:
    """What of eigenvectors does not depend on the phases that were chosen for them."""
    values, vectors = spectral.eigh(symmetrized(x))
    return values, ops.mul(vectors, conj(vectors))


def singular_projections(x: Any) -> Any:
    """What of singular vectors does not depend on the phases that were chosen for them."""
    s, u, vh = spectral.svd(x)
    return s, ops.mul(u, conj(u)), ops.mul(vh, conj(vh))


def tridiagonal(x: Any) -> Any:
    return results(bind(qr.Tridiagonal(True), symmetrized(x)))


def inverse_by_normal_equations(x: Any) -> Any:
    square = matmul(adjoint(x), x)
    return linalg.pseudo_inverse(matmul(linalg.inverse(square), adjoint(x)), x)


def carried(kind: bool) -> Iterator[Row]:
    """Ops with derivative rules of their own."""
    square = regular((3, 3), is_complex=kind)
    name = "complex" if kind else "real"
    both = regular((2, 3, 3), (2, 3, 2), is_complex=kind)
    yield "solution", name, linalg.solve, both, (0, 1), 1e-5
    yield "solution", f"inverse-{name}", linalg.inverse, square, (0,), 1e-5
    yield "determinant", name, linalg.determinant, square, (0,), 1e-5
    yield "log_determinant", name, linalg.log_determinant, square, (0,), 1e-5
    long = regular((4, 3), is_complex=kind)
    yield "pseudo_inverse", name, inverse_by_normal_equations, long, (0,), 1e-5


def factorizations(kind: bool) -> Iterator[Row]:
    name = "complex" if kind else "real"
    square, long, wide = (matrices(s, is_complex=kind) for s in ((3, 3), (4, 3), (3, 4)))
    yield "cholesky", name, lambda x: linalg.cholesky(positive(x)), square, (0,), 1e-5
    shapes = (("square", square), ("long", long), ("wide", wide))
    for shape, factory in shapes[1:2] if kind else shapes:
        yield "lu", f"{shape}-{name}", linalg.lu, factory, (0,), 1e-5
        yield "qr", f"{shape}-{name}", lambda x: qr.qr(x, False), factory, (0,), 1e-5
        yield "svd", f"{shape}-{name}", lambda x: spectral.svd(x, False, False), factory, (0,), 1e-5
        smooth = (0,) if shape == "square" else ()
        yield "svd", f"full-{shape}-{name}", singular_projections, factory, smooth, 1e-5
    yield "qr", f"pivoted-{name}", lambda x: qr.qr(x, False, True), square, (0,), 1e-5
    yield "qr", f"full-{name}", lambda x: qr.qr(x, True), long, (), 1e-5
    yield "eigh", name, eigenvalues_and_projections, square, (0,), 1e-5
    yield "eig", f"values-{name}", lambda x: spectral.eig(x, False, False), square, (0,), 1e-5
    if kind:
        yield "eig", name, lambda x: spectral.eig(x, True, True, True), square, (0,), 1e-4
    for vectors in (False, True):
        yield (
            "schur",
            f"{vectors}-{name}",
            lambda x, v=vectors: results(bind(qr.Schur(v), x)),
            square,
            (),
            0,
        )
    blocks = lambda x: spectral.complex_schur(*results(bind(qr.Schur(True), x)))  # noqa: E731
    yield "rsf2csf", name, blocks, square, (), 0
    yield "sqrtm", name, lambda x: spectral.square_root(positive(x)), square, (), 0
    yield "hessenberg", name, lambda x: results(bind(qr.Hessenberg(), x)), square, (), 0
    yield "tridiagonal", name, tridiagonal, square, (), 0
    yield "geqrf", name, qr.qr_factors, long, (), 0
    yield (
        "householder_product",
        name,
        lambda x: bind(qr.HouseholderProduct(), *qr.qr_factors(x)),
        long,
        (),
        0,
    )


def solves(kind: bool) -> Iterator[Row]:
    name = "complex" if kind else "real"
    for left in (False, True):
        for lower in (False, True):
            for turned in (lower,) if kind else (False, True):
                op = linalg.TriangularSolve(left, lower, turned, kind and lower, left)
                sides = (3, 3), (3, 2) if left else (2, 3)
                factory = regular(*sides, is_complex=kind)
                label = f"{left}-{lower}-{turned}-{name}"
                apply = lambda a, b, op=op: bind(op, a, b)  # noqa: E731
                yield "triangular_solve", label, apply, factory, (0, 1), 1e-5
    yield (
        "tridiagonal_solve",
        name,
        lambda a, b, c, x: bind(qr.TridiagonalSolve(), a, ops.add(b, ops.like(b, 5)), c, x),
        matrices((4,), (4,), (4,), (4, 2), is_complex=kind),
        (0, 1, 2, 3),
        1e-5,
    )


def transforms() -> Iterator[Row]:
    for n in (4, 5):
        whole, half = matrices((2, n), is_complex=True), matrices((2, n // 2 + 1), is_complex=True)
        for kind in (FftType.FFT, FftType.IFFT):
            apply = lambda x, k=kind, n=n: fft(x, k, (n,))  # noqa: E731
            yield "fft", f"{kind.name}-{n}", apply, whole, (0,), 1e-6
            both = lambda x, k=kind, n=n: fft(x, k, (2, n))  # noqa: E731
            yield "fft", f"{kind.name}-2-{n}", both, whole, (0,), 1e-6
        of_real = lambda x, n=n: fft(x, FftType.FFT, (n,))  # noqa: E731
        yield "fft", f"FFT-real-{n}", of_real, matrices((2, n)), (0,), 1e-6
        for lengths in ((n,), (2, n)):
            there = lambda x, s=lengths: fft(x, FftType.RFFT, s)  # noqa: E731
            yield "fft", f"RFFT-{lengths}", there, matrices((2, n)), (0,), 1e-6
            back = lambda x, s=lengths: fft(x, FftType.IRFFT, s)  # noqa: E731
            yield "fft", f"IRFFT-{lengths}", back, half, (0,), 1e-6


def rows() -> Iterator[Row]:
    """All samples."""
    for kind in (False, True):
        yield from factorizations(kind)
        yield from carried(kind)
        yield from solves(kind)
    yield from transforms()
    permutation = lambda p: linalg.pivots_to_permutation(p, 4)  # noqa: E731
    yield "lu_pivots_to_permutation", "rows", permutation, pivots, (), 0
