"""Functions of stax.numpy that read, write and print: their results are NumPy's."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax.numpy as snp
from tests.like_jax import assert_like_jax

X = np.array([[1.5, -2.0, 3.25], [0.0, 1e-7, 12.0]], np.float32)


def test_saved_and_loaded(tmp_path: Path) -> None:
    snp.save(tmp_path / "x.npy", snp.asarray(X))
    assert_like_jax(snp.load(tmp_path / "x.npy"), jnp.load(tmp_path / "x.npy"))
    snp.savez(tmp_path / "x.npz", snp.asarray(X), y=snp.arange(3))
    with np.load(tmp_path / "x.npz") as found:
        np.testing.assert_array_equal(found["arr_0"], X)
        np.testing.assert_array_equal(found["y"], np.arange(3))


READERS = [
    ("frombuffer", (X.tobytes(), "float32")),
    ("frombuffer", (X.tobytes(), "int32", 2, 4)),
    ("fromstring", ("1 2 3", "int32", -1, " ")),
    ("fromstring", ("1.5,2", "float32", 1, ",")),
]


@pytest.mark.parametrize(("name", "args"), READERS)
def test_read(name: str, args: Any) -> None:
    separator = {"sep": args[3]} if name == "fromstring" else {}
    args = args[:3] if separator else args
    ours, theirs = (getattr(lib, name)(*args, **separator) for lib in (snp, jnp))
    assert_like_jax(ours, theirs)


@pytest.mark.parametrize("name", ["fromfile", "fromiter"])
def test_what_is_used_up_is_not_read(name: str) -> None:
    for library in (snp, jnp):
        with pytest.raises(NotImplementedError):
            getattr(library, name)(iter([1, 2, 3]), "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_limits_of_floats(dtype: str) -> None:
    ours, theirs = snp.finfo(dtype), jnp.finfo(dtype)
    for name in ("bits", "eps", "epsneg", "max", "min", "tiny", "nmant", "nexp", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_limits_of_integers(dtype: str) -> None:
    ours, theirs = snp.iinfo(dtype), jnp.iinfo(dtype)
    for name in ("bits", "max", "min", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_printed() -> None:
    x = snp.asarray(X)
    assert snp.array_str(x) == np.array_str(X)
    assert snp.array_repr(x) == repr(x)
    with snp.printoptions(precision=1):
        assert snp.get_printoptions()["precision"] == 1
    before = snp.get_printoptions()
    snp.set_printoptions(precision=3)
    try:
        assert np.get_printoptions()["precision"] == 3
    finally:
        snp.set_printoptions(**before)


def test_einsum_path() -> None:
    arrays = [np.ones((2, 3)), np.ones((3, 4)), np.ones((4, 2))]
    ours, theirs = (lib.einsum_path("ij,jk,kl->il", *arrays) for lib in (snp, jnp))
    assert ours[0] == theirs[0]
