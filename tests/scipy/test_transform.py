"""scipy.spatial.transform beside JAX's, and Euler angles and slopes beside SciPy's."""

import itertools
from collections.abc import Callable
from typing import Any

import jax.scipy.spatial.transform as jax_transform
import numpy as np
import pytest
from scipy.spatial import transform as scipy_transform

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.scipy.spatial import transform
from stax.scipy.spatial.transform import Rotation, Slerp
from tests.beside_jax import Case, compare, draw, named

QUAT, OTHER, VECTORS = draw(7, 4), draw(7, 4, seed=1), draw(7, 3)
MATRICES = scipy_transform.Rotation.from_quat(QUAT).as_matrix().astype("float32")
TIMES = np.array([-0.5, 0.0, 0.25, 1.0, 2.5, 6.0], "float32")
SEQUENCES = ("xyz", "ZXZ")
ALL = [
    kind(a + b + c)
    for a, b, c in itertools.product("xyz", repeat=3)
    if a != b != c
    for kind in (str.lower, str.upper)
]


def represented(m: Any, q: Any) -> list[Any]:
    made = m.Rotation.from_quat(q)
    one = made[2]
    return [
        made.as_quat(True, True), made.as_matrix(), made.as_rotvec(), made.as_rotvec(True),
        made.as_mrp(), made.magnitude(), made.inv().quat, made[1:3].quat, one.as_matrix(),
        m.Rotation.concatenate([made, made[:2]]).quat, made.mean().as_quat(True),
    ]  # fmt: skip


def acting(m: Any, p: Any, q: Any, v: Any) -> list[Any]:
    first, second = m.Rotation.from_quat(p), m.Rotation.from_quat(q)
    return [
        (first * second).quat, (first[0] * second).quat, first.apply(v), first.apply(v[0], True),
        first[0].apply(v),
    ]  # fmt: skip


def made_of(m: Any, v: Any, matrices: Any) -> list[Any]:
    r = m.Rotation
    return [
        r.from_matrix(matrices).quat, r.from_matrix(matrices[0]).quat, r.from_mrp(v).quat,
        r.from_rotvec(v).quat, r.from_rotvec(v * 90, True).quat, r.identity().quat,
        r.from_euler("z", 90.0, True).quat,
    ]  # fmt: skip


def by_angles(m: Any, v: Any, q: Any) -> list[Any]:
    return [
        *(m.Rotation.from_euler(seq, v).quat for seq in SEQUENCES),
        *(m.Rotation.from_quat(q).as_euler(seq, True) for seq in SEQUENCES),
    ]


def between(m: Any, q: Any, times: Any) -> list[Any]:
    made = m.Slerp.init(np.arange(7.0), m.Rotation.from_quat(q))
    return [made(times).quat, made(times[2]).quat]


SHORT: Callable[..., Any] = lambda m, v: m.Rotation.from_rotvec(v).as_matrix()  # noqa: E731
CASES = {
    "represented": Case(represented, (QUAT,), loose=10),
    "acting": Case(acting, (QUAT, OTHER, VECTORS), slopes=True, loose=4),
    "made-of": Case(made_of, (VECTORS, MATRICES), slopes=True, loose=4),
    "by-angles": Case(by_angles, (VECTORS, QUAT), loose=10),
    "between": Case(between, (QUAT, TIMES), loose=10),
    "short": Case(SHORT, (VECTORS * np.float32(1e-4),), slopes=True, loose=4),
}


SLOW = "short between"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(transform, jax_transform, case)


@pytest.mark.parametrize("seq", ALL)
def test_euler_angles_like_scipy(seq: str) -> None:
    theirs = scipy_transform.Rotation.from_quat(QUAT)
    angles = theirs.as_euler(seq)
    np.testing.assert_allclose(Rotation.from_quat(QUAT).as_euler(seq), angles, atol=2e-5)
    found = Rotation.from_euler(seq, angles).as_matrix()
    np.testing.assert_allclose(found, theirs.as_matrix(), atol=1e-6)


@pytest.mark.parametrize("seq", ["xyz", "XYZ", "zxz", "ZXZ"])
def test_undecided_angles_give_the_same_rotation(seq: str) -> None:
    half = np.pi / 2 if seq.lower() == "xyz" else np.pi
    angles = np.array([[0.3, half, 0.2], [0.3, half - np.pi, 0.4]], "float32")
    made = Rotation.from_euler(seq, angles)
    again = Rotation.from_euler(seq, made.as_euler(seq))
    np.testing.assert_allclose(again.as_matrix(), made.as_matrix(), atol=1e-3)


def test_slopes_of_no_rotation() -> None:
    there = stax.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(snp.zeros(3))
    np.testing.assert_allclose(there, np.eye(3), atol=1e-6)


def test_every_quaternion_has_one_sign() -> None:
    for place in range(4):
        quat = np.zeros(4, "float32")
        quat[place] = -1
        assert Rotation(snp.asarray(quat)).as_quat(canonical=True)[place] == 1
        assert Rotation.from_matrix(Rotation(quat).as_matrix()).magnitude() >= 0


def test_rotations_pass_through_transforms() -> None:
    made = Rotation.from_quat(QUAT)
    twice = stax.jit(lambda r: r * r)(made)
    assert isinstance(twice, Rotation)
    np.testing.assert_allclose(twice.quat, (made * made).quat, atol=1e-6)
    mapped = stax.vmap(lambda r, v: r.apply(v))(made, VECTORS)
    np.testing.assert_allclose(mapped, made.apply(VECTORS), atol=1e-6)
    assert isinstance(stax.jit(Slerp.init)(np.arange(7.0), made), Slerp)


def test_rows() -> None:
    assert len(Rotation.identity(3)) == 3
    drawn = Rotation.random(stax.random.key(0), 5)
    np.testing.assert_allclose(snp.linalg.norm(drawn.quat, axis=-1), np.ones(5), rtol=1e-6)
    one = Rotation.random(stax.random.key(1))
    assert one.single
    with pytest.raises(ArgumentError, match="no length"):
        len(one)
    with pytest.raises(ArgumentError, match="no elements"):
        one[0]
    weighted = Rotation.from_quat(QUAT).mean(np.eye(7, dtype="float32")[2])
    right = Rotation.from_quat(QUAT)[2].as_quat(canonical=True)
    np.testing.assert_allclose(weighted.as_quat(canonical=True), right, atol=1e-5)


MADE = Rotation.from_quat(QUAT)
REFUSED = {
    "axes": (ArgumentValueError, lambda: Rotation.from_euler("xYz", VECTORS)),
    "twice": (ArgumentValueError, lambda: MADE.as_euler("xxz")),
    "two": (ArgumentValueError, lambda: MADE.as_euler("xz")),
    "angles": (ShapeError, lambda: Rotation.from_euler("xy", VECTORS)),
    "quaternion": (ShapeError, lambda: Rotation.from_quat(VECTORS)),
    "matrix": (ShapeError, lambda: Rotation.from_matrix(VECTORS[0])),
    "weights": (ArgumentValueError, lambda: MADE.mean(VECTORS)),
    "no-rotation": (ArgumentError, lambda: Slerp.init(TIMES, None)),  # type: ignore[arg-type]
    "one": (ArgumentValueError, lambda: Slerp.init([1.0], MADE[:1])),
    "times": (ArgumentValueError, lambda: Slerp.init([1.0, 2.0], MADE)),
    "at": (ArgumentValueError, lambda: Slerp.init(np.arange(7.0), MADE)(VECTORS)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error):
        call()
