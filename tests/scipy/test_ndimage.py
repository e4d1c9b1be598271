"""scipy.ndimage beside JAX's: places inside, on edges and far outside."""

from collections.abc import Callable
from typing import Any

import jax.scipy.ndimage as jax_ndimage
import numpy as np
import pytest

import stax
from stax.errors import ArgumentValueError, UnsupportedError
from stax.scipy import ndimage
from tests.beside_jax import Case, compare, draw, named

MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
IMAGE = draw(4, 5)
EDGES = np.array([-1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 3.0, 3.5, 4.5], "float32")
FAR = np.random.default_rng(0).uniform(-9, 12, (2, 30)).astype("float32")
PLACES = np.concatenate([np.stack([EDGES, EDGES[::-1]]), FAR], axis=1)


def in_each_mode(order: int, modes: Any = MODES) -> Callable[..., Any]:
    return lambda m, x, c: [m.map_coordinates(x, list(c), order, mode, 2.0) for mode in modes]


def of_type(m: Any, x: Any, c: Any) -> list[Any]:
    whole = c.astype("int32")
    return [
        *(m.map_coordinates(x, [c[0], c[1]], order) for order in (0, 1)),
        *(m.map_coordinates(x, [whole[0], c[1]], order, "wrap") for order in (0, 1)),
    ]


CASES = {
    "nearest": Case(in_each_mode(0), (IMAGE, PLACES)),
    "linear": Case(in_each_mode(1), (IMAGE, PLACES)),
    "slopes": Case(in_each_mode(1, ("constant", "mirror")), (IMAGE, FAR), slopes=True),
    **{k: Case(of_type, (draw(4, 5, dtype=k), FAR)) for k in ("int32", "float16", "complex64")},
    "numbers": Case(lambda m, x: m.map_coordinates(x, [1.2, np.float32(2.2)], 1), (IMAGE,)),
}


SLOW = "float16 complex64"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(ndimage, jax_ndimage, case)


def test_one_element_is_its_own_mirror_image() -> None:
    for mode in ("nearest", "wrap", "mirror", "reflect"):
        found = ndimage.map_coordinates(IMAGE[0, :1], [EDGES], 1, mode)
        np.testing.assert_allclose(found, np.full(EDGES.shape, IMAGE[0, 0]), rtol=1e-6)


def test_mapped() -> None:
    images = draw(3, 4, 5)
    read = stax.vmap(lambda x: ndimage.map_coordinates(x, list(PLACES), 1, "mirror"))
    each = [ndimage.map_coordinates(x, list(PLACES), 1, "mirror") for x in images]
    np.testing.assert_array_equal(stax.jit(read)(images), np.asarray(each))


def test_refused() -> None:
    with pytest.raises(ArgumentValueError, match="1 coordinates"):
        ndimage.map_coordinates(IMAGE, [EDGES], 1)
    with pytest.raises(UnsupportedError, match="order=3"):
        ndimage.map_coordinates(IMAGE, list(PLACES), 3)
    with pytest.raises(UnsupportedError, match="mode 'grid'"):
        ndimage.map_coordinates(IMAGE, list(PLACES), 1, "grid")
