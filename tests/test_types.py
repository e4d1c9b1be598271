"""Types of values: interning, JAX's promotion, shapes and axes."""

import gc
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from stax import types
from stax.config import config
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import symbol
from stax.types import (
    ArrayType,
    TupleType,
    broadcast_shapes,
    canonical_axes,
    canonical_axis,
    canonical_dtype,
    canonical_shape,
    check_dtype,
    promote,
    scalar_type,
)

DTYPES = [d.name for d in types.NUMERIC]
SCALARS = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def x64(request: Any) -> Iterator[bool]:
    with config.override(enable_x64=request.param), jax.enable_x64(request.param):
        yield request.param


def test_array_types_are_interned() -> None:
    a = ArrayType(np.dtype("float32"), (2, 3))
    assert a is ArrayType(np.dtype(np.float32), (2, 3))
    assert a is a.with_leading(5).without_leading()
    assert a is ArrayType(types.float32, (2, 3), True).strong()
    assert a is pickle.loads(pickle.dumps(a))
    different = [
        ArrayType(types.float32, (3, 2)),
        ArrayType(types.float64, (2, 3)),
        ArrayType(types.float32, (2, 3), True),
    ]
    assert all(a is not b and a != b for b in different)


def test_interned_types_are_freed() -> None:
    before = len(ArrayType._interned)
    kept = [ArrayType(types.int8, (4711, n)) for n in range(100)]
    assert len(ArrayType._interned) >= before + 100
    del kept
    gc.collect()
    assert len(ArrayType._interned) <= before


def test_array_types_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        ArrayType(types.float32, ()).weak = True


def test_printed_forms() -> None:
    assert repr(ArrayType(types.bfloat16, (symbol("n"), 3))) == "bf16[n,3]"
    assert repr(ArrayType(types.int32, (), True)) == "i32[]~"
    assert repr(ArrayType(types.key_fry, (2,))) == "key<fry>[2]"
    assert repr(TupleType([ArrayType(types.bool_, ()), ArrayType(types.float0, (2,))])) == (
        "(bool[], float0[2])"
    )


@pytest.mark.parametrize("name", DTYPES)
def test_tangent_types(name: str) -> None:
    theirs = jax.core.ShapedArray((2,), np.dtype(getattr(ml_dtypes, name, name))).to_tangent_aval()
    ours = ArrayType(check_dtype(name), (2,), True).tangent()
    assert (ours.dtype, ours.shape, ours.weak) == (theirs.dtype, theirs.shape, False)


# --- dtypes ---


@pytest.mark.parametrize("name", DTYPES)
def test_canonical_dtypes(name: str, x64: bool) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert canonical_dtype(dtype) == jax.dtypes.canonicalize_dtype(dtype)
    assert check_dtype(dtype) == dtype


def test_python_classes_are_default_dtypes(x64: bool) -> None:
    width = 64 if x64 else 32
    assert [check_dtype(c).name for c in (bool, int, float, complex)] == [
        "bool", f"int{width}", f"float{width}", f"complex{2 * width}",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["U3", object, "datetime64[s]", "nonsense", "longdouble"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(DTypeError):
        check_dtype(dtype)


def test_foreign_byte_order_is_the_same_dtype() -> None:
    assert check_dtype(np.dtype(">f4")) is types.float32


# --- promotion ---


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(DTYPES, 2)))
def test_promotion_of_arrays(a: str, b: str) -> None:
    for wide in (False, True):
        with config.override(enable_x64=wide), jax.enable_x64(wide):
            x, y = (canonical_dtype(n) for n in (a, b))
            expected = jax.dtypes.result_type(
                jax.ShapeDtypeStruct((), x),
                jax.ShapeDtypeStruct((3,), y),
                return_weak_type_flag=True,
            )
            assert promote(ArrayType(x, ()), ArrayType(y, (3,))) == expected


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_promotion_of_scalars(name: str, scalar: str) -> None:
    for wide in (False, True):
        with config.override(enable_x64=wide), jax.enable_x64(wide):
            dtype = canonical_dtype(name)
            value = SCALARS[scalar]
            expected = jnp.result_type(jax.ShapeDtypeStruct((), dtype), value)
            assert promote(ArrayType(dtype, ()), scalar_type(value))[0] == expected


@pytest.mark.parametrize(("a", "b"), list(itertools.product(SCALARS, SCALARS)))
def test_promotion_of_two_scalars(a: str, b: str, x64: bool) -> None:
    x, y = SCALARS[a], SCALARS[b]
    expected, weak = jax.dtypes.result_type(x, y, return_weak_type_flag=True)
    ours = promote(scalar_type(x), scalar_type(y))
    assert ours == (expected, weak and expected.kind != "b")


@given(st.lists(st.sampled_from([*DTYPES, *SCALARS]), min_size=1, max_size=4))
def test_promotion_of_several(names: list[str]) -> None:
    values = [SCALARS.get(n, n) for n in names]
    ours = [
        scalar_type(v) if not isinstance(v, str) else ArrayType(canonical_dtype(v), ())
        for v in values
    ]
    theirs = [
        v if not isinstance(v, str) else jax.ShapeDtypeStruct((), canonical_dtype(v))
        for v in values
    ]
    assert promote(*ours)[0] == jnp.result_type(*theirs)


def test_strict_promotion() -> None:
    f32, i32, weak = (
        ArrayType(types.float32, ()),
        ArrayType(types.int32, ()),
        ArrayType(types.float32, (), True),
    )
    with config.override(numpy_dtype_promotion="strict"):
        assert promote(f32, weak) == (types.float32, False)
        with pytest.raises(DTypeError, match="strict promotion refuses to mix"):
            promote(f32, i32)
    assert promote(f32, i32) == (types.float32, False)


def test_keys_do_not_promote() -> None:
    with pytest.raises(DTypeError, match="takes part in no arithmetic"):
        promote(ArrayType(types.key_fry, ()), ArrayType(types.float32, ()))


# --- shapes and axes ---

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@given(SHAPES, SHAPES, SHAPES)
def test_broadcast_shapes(a: Any, b: Any, c: Any) -> None:
    try:
        expected = np.broadcast_shapes(a, b, c)
    except ValueError:
        with pytest.raises(ShapeError):
            broadcast_shapes(a, b, c)
    else:
        assert broadcast_shapes(a, b, c) == expected


def test_broadcast_symbolic_shapes() -> None:
    n = symbol("n")
    assert broadcast_shapes((n, 1), (3,)) == (n, 3)
    assert broadcast_shapes((), (n,), (1, n)) == (1, n)


@given(st.integers(-5, 5), st.integers(0, 4))
def test_canonical_axis(axis: int, ndim: int) -> None:
    if -ndim <= axis < ndim:
        assert canonical_axis(axis, ndim) == range(ndim)[axis]
    else:
        with pytest.raises(ShapeError, match=f"axis {axis} is out of range"):
            canonical_axis(axis, ndim)


def test_canonical_axes() -> None:
    assert canonical_axes(None, 3) == (0, 1, 2)
    assert canonical_axes(np.int64(-1), 3) == (2,)
    assert canonical_axes((2, -3), 3) == (0, 2)
    with pytest.raises(ShapeError, match="named twice"):
        canonical_axes((0, -2), 2)


def test_canonical_shape() -> None:
    n = symbol("n")
    assert canonical_shape(3) == canonical_shape([np.int64(3)]) == (3,)
    assert canonical_shape(n) == canonical_shape((n,)) == (n,)
    with pytest.raises(ShapeError, match="negative"):
        canonical_shape((2, -1))
    with pytest.raises(ArgumentError, match="sequence of integers"):
        canonical_shape((2.0,))
