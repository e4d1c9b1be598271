"""Factorisations, systems of equations, and Fourier transforms."""

from __future__ import annotations

from typing import Any

from benchmarks.benchmark import benchmark, complex_normal, well_conditioned
from stax.compare.programs import Workload, normal

ROWS = {"rows": 3, "length": 12}


@benchmark("a positive definite system", small={"side": 5}, odd={"side": 199}, plain=True)
def definite_system(lib: Any, side: int = 200) -> Workload:
    def solve(matrix: Any, right: Any) -> Any:
        return lib.scipy.linalg.solve(matrix, right, assume_a="pos")

    return solve, (well_conditioned(side, side), normal(side, 10))


@benchmark("many small inverses", small={"count": 4, "side": 3}, odd={"count": 501, "side": 7},
           plain=True)  # fmt: skip
def small_inverses(lib: Any, count: int = 500, side: int = 6) -> Workload:
    return lib.numpy.linalg.inv, (well_conditioned(count, side, side),)


@benchmark("log of a determinant, gradient", small={"side": 5}, odd={"side": 99})
def determinant_gradient(lib: Any, side: int = 100) -> Workload:
    def volume(matrix: Any) -> Any:
        return lib.numpy.linalg.slogdet(matrix)[1]

    return lib.grad(volume), (well_conditioned(side, side),)


@benchmark("least squares by QR", small={"rows": 9, "columns": 3},
           odd={"rows": 999, "columns": 31})  # fmt: skip
def least_squares(lib: Any, rows: int = 1000, columns: int = 32) -> Workload:
    def fit(x: Any, y: Any) -> Any:
        orthogonal, triangle = lib.numpy.linalg.qr(x)
        return lib.scipy.linalg.solve_triangular(triangle, orthogonal.T @ y)

    return fit, (normal(rows, columns), normal(rows))


@benchmark("eigenvalues, symmetric", small={"side": 5}, odd={"side": 63}, plain=True)
def eigenvalues(lib: Any, side: int = 64) -> Workload:
    return lib.numpy.linalg.eigvalsh, (well_conditioned(side, side),)


@benchmark("spectra of real rows", small=ROWS, odd={"rows": 255, "length": 1023}, plain=True)
def real_spectra(lib: Any, rows: int = 256, length: int = 1024) -> Workload:
    return lib.numpy.fft.rfft, (normal(rows, length),)


@benchmark("rows from their spectra", small=ROWS, odd={"rows": 255, "length": 1000}, plain=True)
def from_spectra(lib: Any, rows: int = 256, length: int = 1024) -> Workload:
    def restore(spectra: Any) -> Any:
        return lib.numpy.fft.irfft(spectra, length)

    return restore, (complex_normal(rows, length // 2 + 1),)


@benchmark("transform of columns", small=ROWS, odd={"rows": 255, "length": 257}, plain=True)
def column_transform(lib: Any, rows: int = 256, length: int = 256) -> Workload:
    def transform(x: Any) -> Any:
        return lib.numpy.fft.fft(x, axis=0)

    return transform, (complex_normal(rows, length),)


@benchmark("transform of a long signal", small={"length": 30}, odd={"length": 65_537}, plain=True)
def long_transform(lib: Any, length: int = 65_536) -> Workload:
    return lib.numpy.fft.fft, (complex_normal(length),)


@benchmark("an image blurred by Fourier", small={"side": 9}, odd={"side": 243}, plain=True)
def blurred(lib: Any, side: int = 256) -> Workload:
    fft, np_ = lib.numpy.fft, lib.numpy

    def blur(image: Any) -> Any:
        down, across = fft.fftfreq(side), fft.rfftfreq(side)
        squares = (down[:, None] ** 2 + across[None] ** 2).astype(np_.float32)
        return fft.irfft2(fft.rfft2(image) * np_.exp(-20.0 * squares), (side, side))

    return blur, (normal(side, side),)
