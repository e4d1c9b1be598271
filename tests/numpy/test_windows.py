"""Windows at traced starts, `x[ds(start, size)]`, beside JAX."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import stax

Y, X = np.arange(10, dtype=np.float32), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "first": lambda ds, x, y: y[ds(3)],
    "all": lambda ds, x, y: y[ds(None)],
    "none": lambda ds, x, y: y[ds(4, 0)],
    "from the end": lambda ds, x, y: y[ds(-2, 2)],
    "past the end": lambda ds, x, y: y[ds(9, 3)],
    "stride": lambda ds, x, y: y[ds(1, 3, 2)],
    "stride past the end": lambda ds, x, y: y[ds(8, 3, 2)],
    "after an integer": lambda ds, x, y: x[0, ds(1, 2)],
    "before an integer": lambda ds, x, y: x[:, ds(1, 2), 1],
    "after dots": lambda ds, x, y: x[..., ds(1, 2)],
    "before dots": lambda ds, x, y: x[ds(1, 1), ..., 2],
    "two": lambda ds, x, y: x[ds(0, 1), :, ds(np.int32(1), 2)],
    "new axis": lambda ds, x, y: x[None, ds(0, 1)],
    "array after": lambda ds, x, y: x[:, ds(1, 2), np.array([0, 1])],
    "array before": lambda ds, x, y: x[np.array([0, 1]), ds(1, 2)],
}


@pytest.mark.skipif(
    jax.__version_info__ >= (0, 11), reason="newer JAX cuts windows off at the end, as slices are"
)
@pytest.mark.parametrize("name", READS)
def test_windows(name: str) -> None:
    read = READS[name]
    wanted = np.asarray(read(jax.ds, *map(jax.numpy.asarray, (X, Y))))
    ours = stax.numpy.asarray(X), stax.numpy.asarray(Y)
    for out in (read(stax.ds, *ours), stax.jit(lambda x, y: read(stax.ds, x, y))(*ours)):
        np.testing.assert_array_equal(np.asarray(out), wanted)


def test_traced_starts() -> None:
    y = stax.numpy.asarray(Y)
    assert stax.jit(lambda i: y[stax.ds(i, 3)])(2).tolist() == [2, 3, 4]
    assert stax.jit(lambda i: y[stax.ds(i, 2, 3)])(2).tolist() == [2, 5]
    rows = stax.vmap(lambda i: y[stax.ds(i, 2)])(np.arange(3))
    assert rows.tolist() == [[0, 1], [1, 2], [2, 3]]
    gradient = stax.grad(lambda z: z[stax.ds(1, 2)].sum())(stax.numpy.ones(4))
    assert gradient.tolist() == [0, 1, 1, 0]


def test_what_is_no_window() -> None:
    y = stax.numpy.asarray(Y)
    with pytest.raises(TypeError):
        y[stax.ds(1, 20)]
    with pytest.raises(TypeError):
        stax.jit(lambda n: y[stax.ds(0, n)])(2)
    with pytest.raises(ValueError, match="stride must be an integer"):
        stax.ds(0, 2, 1.5)
