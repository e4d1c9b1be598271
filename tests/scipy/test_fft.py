"""scipy.fft beside JAX's, and cosine transforms beside SciPy's in float64."""

from collections.abc import Callable
from typing import Any

import jax.scipy.fft as jax_fft
import numpy as np
import pytest
import scipy.fft

import stax
from stax.errors import ArgumentValueError, UnsupportedError
from stax.scipy import fft
from tests.beside_jax import Case, compare, draw, named

LINES: Any = ({}, {"norm": "ortho", "axis": 0}, {"n": 4}, {"n": 9, "axis": 0})
PLANES: Any = ({}, {"norm": "ortho"}, {"s": [4]}, {"s": [9, 3]}, {"axes": (0,)})


def each(name: str, options: Any) -> Callable[..., Any]:
    return lambda m, x: [getattr(m, name)(x, **chosen) for chosen in options]


CASES = {
    **{name: Case(each(name, LINES), (draw(5, 6),), True, 4) for name in ("dct", "idct")},
    **{name: Case(each(name, PLANES), (draw(5, 6),), False, 4) for name in ("dctn", "idctn")},
    "complex": Case(each("dct", LINES[:2]), (draw(5, 6, dtype="complex64"),), False, 4),
    "complex-inverse": Case(each("idct", LINES[:2]), (draw(5, 6, dtype="complex64"),), False, 4),
    "int": Case(each("dctn", PLANES[:1]), (draw(5, 6, dtype="int32"),), False, 4),
    "half": Case(each("idctn", PLANES[:1]), (draw(5, 6, dtype="float16"),), False, 1000),
}


SLOW = "complex-inverse dctn"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(fft, jax_fft, case)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 30, 101])
def test_like_scipy(n: int) -> None:
    x = draw(3, n, dtype="float64", seed=n)
    with stax.enable_x64(True):
        for name in ("dct", "idct", "dctn", "idctn"):
            for norm in ("backward", "ortho"):
                right = getattr(scipy.fft, name)(x, norm=norm)
                found = getattr(fft, name)(x, norm=norm)
                np.testing.assert_allclose(found, right, atol=1e-11)


def test_there_and_back() -> None:
    x = draw(4, 7)
    np.testing.assert_allclose(stax.jit(lambda x: fft.idctn(fft.dctn(x)))(x), x, atol=1e-6)
    rows = stax.vmap(fft.dct)(x)
    np.testing.assert_allclose(rows, fft.dct(x), atol=1e-6)


def test_refused() -> None:
    x = draw(3, 4)
    with pytest.raises(UnsupportedError, match="type=3"):
        fft.dct(x, type=3)
    with pytest.raises(ArgumentValueError, match="norm='forward'"):
        fft.idct(x, norm="forward")
    with pytest.raises(ArgumentValueError, match="lengths"):
        fft.dctn(x, s=[2], axes=[0, 1])
    with pytest.raises(ArgumentValueError, match="no elements"):
        fft.dct(x[:, :0])
