"""Functions whose result has a size that depends on values, with the size given: under jit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from tests.like_jax import assert_like_jax

X = np.array([3, 0, 2, 5, 2, 0], np.int32)

# What is done with a library and a vector.
USES = {
    "flatnonzero": lambda np, x: np.flatnonzero(x, size=5, fill_value=-1),
    "argwhere": lambda np, x: np.argwhere(x.reshape(2, 3), size=5, fill_value=-1),
    "where": lambda np, x: np.where(x, size=5, fill_value=9),
    "where-axes": lambda np, x: np.where(x.reshape(2, 3), size=5, fill_value=(9, 8)),
    "nonzero": lambda np, x: np.nonzero(x.reshape(2, 3), size=3),
    "compress": lambda np, x: np.compress(x > 1, x, size=3, fill_value=7),
    "compress-axis": lambda np, x: np.compress(x[:2] > 1, x.reshape(2, 3), 0, size=2, fill_value=7),
    "extract": lambda np, x: np.extract(x > 1, x, size=5, fill_value=7),
    "bincount": lambda np, x: np.bincount(x, length=4),
    "bincount-weights": lambda np, x: np.bincount(x, x * 0.5, length=9),
    "repeat": lambda np, x: np.repeat(x, x, total_repeat_length=9),
    "repeat-rest": lambda np, x: np.repeat(x, np.array([1, 2, 0, 1, 1, 0]), total_repeat_length=8),
    "repeat-axis": lambda np, x: np.repeat(x.reshape(2, 3), x[:3], 1, total_repeat_length=4),
    "repeat-one": lambda np, x: np.repeat(x, x[2], total_repeat_length=9),
    "choose-clip": lambda np, x: np.choose(x, [x, x * 2, x * 3], mode="clip"),
    "choose-wrap": lambda np, x: np.choose(x, [x, x * 2, x * 3], mode="wrap"),
    "lexsort": lambda np, x: np.lexsort((x, x % 3)),
    "put_along_axis": lambda np, x: np.put_along_axis(
        x.reshape(2, 3), np.array([[0], [-1]]), 9, axis=1, inplace=False
    ),
    "put_along_none": lambda np, x: np.put_along_axis(
        x.reshape(2, 3), np.array([0, 4]), np.array([9, 8]), axis=None, inplace=False
    ),
    "searchsorted": lambda np, x: np.searchsorted(np.sort(x), x, side="right"),
    "digitize": lambda np, x: np.digitize(x, np.array([1, 2, 4])),
    "select": lambda np, x: np.select([x > 3, x > 1], [x, x * 10], default=5),
    "partition": lambda np, x: np.partition(x, 2)[2],
}


@pytest.mark.parametrize("name", USES)
def test_sized(name: str) -> None:
    use: Any = USES[name]
    theirs = use(jnp, X)
    assert_like_jax(use(snp, snp.asarray(X)), theirs)
    assert_like_jax(stax.jit(lambda x: use(snp, x))(X), theirs)


@pytest.mark.parametrize("name", ["nonzero", "compress", "bincount", "repeat", "where"])
def test_sized_when_mapped(name: str) -> None:
    use: Any = USES[name]
    ours = stax.jit(stax.vmap(lambda x: use(snp, x)))(np.stack([X, X[::-1]]))
    for i, x in enumerate((X, X[::-1])):
        found = tuple(y[i] for y in ours) if isinstance(ours, tuple) else ours[i]
        assert_like_jax(found, use(jnp, x))
