"""The array API's questions about the library, and results that it asks for to the sign of zero."""

import math

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError


def test_dtypes() -> None:
    info = snp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == np.float32
    assert list(info.dtypes(kind="bool")) == ["bool"]
    assert "float64" not in info.dtypes()
    assert list(info.dtypes(kind=("complex floating", "bool"))) == ["bool", "complex64"]
    with stax.enable_x64(True):
        assert info.default_dtypes()["indexing"] == np.int64
        assert len(info.dtypes(kind="numeric")) == 12
        assert len(info.dtypes(kind="integral")) == 8
    with pytest.raises(ArgumentValueError, match="no kind"):
        info.dtypes(kind="floats")


def test_devices_and_capabilities() -> None:
    info = snp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert snp.ones(2).device == info.default_device()
    assert not info.capabilities()["data-dependent shapes"]
    assert snp.ones(2).__array_namespace__() is snp


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "divmod"])
def test_zeros_have_signs(name: str) -> None:
    numbers = (-0.0, 0.0, 6.0, -6.0, 7.5, -7.5, math.inf, -math.inf, math.nan)
    x, y = (v.ravel() for v in np.meshgrid(np.float32(numbers), np.float32([3, -3, math.inf])))
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(np, name)(x, y))
    for run in (getattr(snp, name), stax.jit(getattr(snp, name))):
        found = np.asarray([np.asarray(r) for r in run(x, y)]) if name == "divmod" else run(x, y)
        np.testing.assert_array_equal(np.asarray(found), expected)
        zero = expected == 0
        assert (np.signbit(np.asarray(found)) == np.signbit(expected))[zero].all()


def test_derivative_of_a_remainder_of_zero() -> None:
    slopes = stax.grad(snp.remainder, argnums=(0, 1))
    for x, y in ((6.0, 3.0), (-6.0, 3.0), (6.0, -3.0)):
        assert [float(s) for s in slopes(x, y)] == [1.0, -x / y]


def test_diagonals_far_away() -> None:
    assert float(snp.eye(3, k=10**12).sum()) == 0
    assert float(snp.tri(2, 3, 10**12).sum()) == 6
    assert float(snp.tri(2, 3, -(10**12)).sum()) == 0
    np.testing.assert_array_equal(np.asarray(snp.eye(2, 4, 3)), np.eye(2, 4, 3))
