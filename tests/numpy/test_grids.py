"""Arrays written as indices, and arrays from bytes, texts and files."""

import io
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax.numpy as snp
from stax.errors import ArgumentValueError, UnsupportedError
from tests.like_jax import assert_like_jax

P = np.array([2.0, -3, 1], np.float32)
GRIDS = [np.s_[0:3], np.s_[0:3, 0:2], np.s_[0:1:4j], np.s_[0:1:4j, 0:3], np.s_[:2, 1:7:2, -1:1]]
JOINED = [
    np.s_[0:3], np.s_[0:3, 7, P], np.s_[P, [1, 2]], np.s_["0,2", [1, 2, 3], [4, 5, 6]],
    np.s_["0,2,0", [1, 2, 3], [4, 5, 6]], np.s_["0,2,-2", [1, 2, 3], [4, 5, 6]],
    np.s_["r", [1, 2], [3]], np.s_["c", [1, 2], [3]], np.s_[-1:1:6j, 0],
]  # fmt: skip


@pytest.mark.parametrize("key", GRIDS, ids=str)
def test_grids(key: Any) -> None:
    assert_like_jax(snp.mgrid[key], jnp.mgrid[key], 1e-6)
    ours, theirs = snp.ogrid[key], jnp.ogrid[key]
    assert_like_jax(*(tuple(x) if isinstance(x, list) else x for x in (ours, theirs)), 1e-6)


@pytest.mark.parametrize("key", JOINED, ids=str)
def test_joined(key: Any) -> None:
    assert_like_jax(snp.r_[key], jnp.r_[key], 1e-6)
    try:
        theirs = jnp.c_[key]
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            snp.c_[key]
    else:
        assert_like_jax(snp.c_[key], theirs, 1e-6)


def test_directives_that_are_not_understood() -> None:
    for key in (np.s_["x", [1]], np.s_[[1], "r"]):
        with pytest.raises(ArgumentValueError, match="directive"):
            snp.r_[key]
    assert snp.s_[1:3] == slice(1, 3) and snp.index_exp[2] == (2,)


def test_bytes_and_texts() -> None:
    data = np.arange(3.0).tobytes()
    assert_like_jax(snp.frombuffer(data), jnp.frombuffer(data))
    options = {"dtype": "uint8", "count": 2, "offset": 1}
    assert_like_jax(snp.frombuffer(b"\0\1\2\3", **options), jnp.frombuffer(b"\0\1\2\3", **options))
    assert_like_jax(snp.fromstring("1, 2.5", sep=","), jnp.fromstring("1, 2.5", sep=","))
    numbers = {"dtype": int, "sep": " "}
    assert_like_jax(snp.fromstring("1 2", **numbers), jnp.fromstring("1 2", **numbers))
    for name in ("fromfile", "fromiter"):
        with pytest.raises(UnsupportedError, match="used up"):
            getattr(snp, name)([1], int)
    assert "1." in snp.array_str(snp.ones(2)) and snp.array_repr(snp.ones(2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "complex64"])
def test_saved_arrays_are_loaded(dtype: str) -> None:
    x = snp.asarray(np.array([0, 1, 2]).astype(jnp.dtype(dtype)))
    file = io.BytesIO()
    snp.save(file, x)
    file.seek(0)
    found = snp.load(file)
    assert found.dtype == x.dtype and (found == x).all()
    archive = io.BytesIO()
    snp.savez(archive, x=x)
    archive.seek(0)
    assert [*snp.load(archive)] == ["x"]


def test_einsum_path() -> None:
    x, y, z = np.ones((2, 3)), np.ones((3, 40)), np.ones((40, 2))
    path, report = snp.einsum_path("ij,jk,kl->il", x, y, z)
    assert path == jnp.einsum_path("ij,jk,kl->il", x, y, z)[0]
    assert "contraction" in report
    assert snp.einsum_path("ij,jk,kl->il", x, y, z, optimize="optimal")[0] == path
