"""stax.image beside JAX's: values, types, slopes."""

from collections.abc import Callable
from typing import Any

import jax.image as jax_image
import numpy as np
import pytest

import stax
from stax import image
from stax.errors import ArgumentValueError
from tests.beside_jax import Case, compare, draw, named

SHAPES = ((3, 9), True), ((11, 4), False)
IMAGE = draw(5, 6)
SCALE, SHIFT = np.array([1.3, 0.6], "float32"), np.array([0.3, -0.7], "float32")
METHODS = ("linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")


def sizes(method: str) -> Callable[..., Any]:
    return lambda m, x: [m.resize(x, shape, method, wide) for shape, wide in SHAPES]


def moved(method: str) -> Callable[..., Any]:
    return lambda m, x, a, b: m.scale_and_translate(x, (7, 5), (0, 1), a, b, method)


def plain(m: Any, x: Any) -> list[Any]:
    return [m.resize(x, (3, 4), method) for method in ("nearest", "linear")]


CASES = {
    "nearest": Case(sizes("nearest"), (IMAGE,)),
    **{method: Case(sizes(method), (IMAGE,), loose=2) for method in METHODS},
    **{f"{k}-moved": Case(moved(k), (IMAGE, SCALE, SHIFT), k != "area", 4) for k in METHODS[:5:2]},
    "area-moved": Case(moved("area"), (IMAGE, SCALE, SHIFT), True, 4),
    **{k: Case(plain, (draw(5, 6, dtype=k),)) for k in ("float16", "int32", "complex64")},
}


SLOW = "lanczos5 cubic lanczos3-moved complex64"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(image, jax_image, case)


def test_one_element() -> None:
    one = draw(1, 1)
    for method in METHODS:
        found = image.resize(one, (3, 2), method, antialias=False)
        np.testing.assert_allclose(found, np.broadcast_to(one, (3, 2)), rtol=1e-6)


def test_nothing_is_made_of_nothing() -> None:
    x = draw(4, 3)
    shifted = image.scale_and_translate(x, (4, 3), (0,), [1.0], [2.0], "linear")
    np.testing.assert_array_equal(shifted[:2], np.zeros((2, 3)))
    np.testing.assert_allclose(shifted[2:], x[:2], rtol=1e-6)


def test_of_several_images() -> None:
    images = draw(3, 5, 6)
    mapped = stax.jit(stax.vmap(lambda x: image.resize(x, (8, 3), "cubic")))(images)
    np.testing.assert_allclose(mapped, image.resize(images, (3, 8, 3), "cubic"), atol=1e-6)


def test_methods_have_names() -> None:
    for name in ("bilinear", "trilinear", "triangle"):
        assert image.ResizeMethod.from_string(name) is image.ResizeMethod.LINEAR
    assert {m.name for m in image.ResizeMethod} == {m.name for m in jax_image.ResizeMethod}
    found = image.resize(IMAGE, (3, 3), image.ResizeMethod.AREA)
    np.testing.assert_array_equal(found, image.resize(IMAGE, (3, 3), "area"))


REFUSED = {
    "name": lambda: image.resize(IMAGE, (3, 3), "sharp"),
    "method": lambda: image.resize(IMAGE, (3, 3), 1),
    "rank": lambda: image.resize(IMAGE, (3,), "linear"),
    "nearest": lambda: image.scale_and_translate(IMAGE, (3, 3), (0, 1), SCALE, SHIFT, "nearest"),
    "lengths": lambda: image.scale_and_translate(IMAGE, (3, 3), (0,), SCALE, SHIFT, "linear"),
    "other": lambda: image.scale_and_translate(IMAGE, (3, 3), (0,), SCALE[:1], SHIFT[:1], "area"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(ArgumentValueError):
        REFUSED[name]()
