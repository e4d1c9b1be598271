"""Concrete arrays: making them, reading them, and what Python and NumPy ask of them."""

import array
import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stax.interpreters.evaluate
import stax.numpy as snp
import stax.numpy.indexing
from stax.array import Array, array_from_numpy, asarray, value_of
from stax.config import enable_x64
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    DeletedArrayError,
    DTypeError,
    ImmutableArrayError,
    NumberRangeError,
    ShapeError,
)
from stax.trace import Proxy, Trace
from stax.types import ArrayType, float32, float64, int32
from tests.identifiers import shown
from tests.like_jax import assert_like_jax

F32 = ArrayType(float32, (3,))

SOURCES = [
    True,
    3,
    2.5,
    1j,
    [1, 2],
    [1, 2.5],
    [True, 2],
    [],
    [[1, 2], [3, 4]],
    (1.0, 2.0),
    range(3),
    np.float64(2.5),
    np.int64(7),
    np.arange(3),
    np.arange(3.0),
    np.arange(6, dtype=np.uint16).reshape(2, 3),
    np.arange(4, dtype=ml_dtypes.bfloat16),
    [np.float16(1), 2.0],
    [np.arange(2), np.arange(2)],
    array.array("i", [1, 2, 3]),
    memoryview(b"abc"),
    np.zeros((0, 3)),
]


@pytest.mark.parametrize("source", SOURCES, ids=shown)
def test_asarray_is_jax_asarray(source: Any) -> None:
    assert_like_jax(asarray(source), jnp.asarray(source))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("source", [1, 2.5, [0, 1.5], np.arange(3.0)], ids=shown)
def test_asarray_with_dtype(source: Any, dtype: str) -> None:
    assert_like_jax(asarray(source, dtype), jnp.asarray(source, dtype))


def test_an_explicit_dtype_keeps_64_bits() -> None:
    assert asarray([0.1], float64).dtype == float64
    assert np.asarray(asarray(np.array([0.1]), float64))[0] == 0.1
    assert asarray(np.array([0.1])).dtype == float32
    with enable_x64(True):
        assert asarray(np.array([0.1])).dtype == float64
        wide = asarray([0.1])
    assert (wide + 1).dtype == float64


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4)[::-1, ::2],
        np.arange(12, dtype=">f4").reshape(3, 4).T,
        np.frombuffer(b"x" + np.arange(3, dtype=np.int32).tobytes(), np.int32, offset=1),
        np.broadcast_to(np.float32(2), (2, 3)),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    ],
    ids=["strided", "big-endian", "unaligned", "broadcast", "fortran"],
)
def test_any_layout_is_read_right(value: np.ndarray) -> None:
    result = asarray(value)
    np.testing.assert_array_equal(np.asarray(result), value)
    flags = value_of(result).flags
    assert flags.c_contiguous and flags.aligned and not flags.writeable


def test_sources_that_can_change_are_copied() -> None:
    source = np.arange(3, dtype=np.int32)
    result = asarray(source)
    source[0] = 100
    assert result.tolist() == [0, 1, 2]
    assert source.flags.writeable


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("a", DTypeError),
        (["a"], DTypeError),
        (object(), DTypeError),
        ({}, DTypeError),
        (np.array([object()]), DTypeError),
        (np.array(["2020-01-01"], "datetime64[D]"), DTypeError),
        (None, ArgumentValueError),
        ([1, None], ArgumentValueError),
        ([[1, 2], [3]], ArgumentValueError),
        (2**40, OverflowError),
        ([2**40], OverflowError),
    ],
    ids=shown,
)
def test_what_is_no_array(source: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        asarray(source)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        jnp.asarray(source)


def test_lists_with_traced_arrays_are_stacked() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, ()), "x")
        y = trace.input(ArrayType(float32, (2,)), "y")
        assert asarray([x, 1, 2.5]).type is ArrayType(float32, (3,))
        assert asarray([y, [x, x]]).type is ArrayType(float32, (2, 2))
        with pytest.raises(ShapeError, match="one shape"):
            asarray([x, y])


def test_traced_arrays_are_instances() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(F32, "x")
        assert isinstance(x, Array) and type(x) is Proxy
    assert isinstance(asarray(1), Array)
    assert not isinstance(np.zeros(1), Array)
    with pytest.raises(ArgumentError, match="no constructor"):
        Array([1])


@pytest.mark.parametrize(
    "source",
    [1.5, [1.0, 2.0], np.zeros((0, 3)), np.arange(2000), np.eye(3), True, 2, [1 + 2j],
     np.arange(40) / 3, np.arange(5, dtype=ml_dtypes.bfloat16)],
    ids=shown,
)  # fmt: skip
def test_printed_as_in_jax(source: Any) -> None:
    ours, theirs = asarray(source), jnp.asarray(source)
    assert repr(ours) == repr(theirs)
    assert str(ours) == str(theirs)
    assert f"{ours}" == f"{theirs}"


def test_properties() -> None:
    x = asarray(np.zeros((2, 3), np.float16))
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3), 2, 6, 2, 12)
    assert x.aval is x.type and not x.weak_type and asarray(1).weak_type
    assert x.block_until_ready() is x and x.copy_to_host_async() is None


def test_python_numbers() -> None:
    x = asarray(2.5)
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5 + 0j, True, 2.5)
    assert f"{x:.3f}" == "2.500"
    assert [10, 20, 30][asarray(1)] == 20
    assert asarray([[1], [2]]).tolist() == [[1], [2]]
    assert asarray([1, 2]).item(1) == 2
    assert bool(asarray([[1]]))


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda: float(asarray([1.0])), ArgumentError),
        (lambda: int(asarray([[1]])), ArgumentError),
        (lambda: bool(asarray([1, 2])), ArgumentValueError),
        (lambda: bool(asarray([])), ArgumentValueError),
        (lambda: asarray(1.0).__index__(), ArgumentError),
        (lambda: asarray(True).__index__(), ArgumentError),
        (lambda: asarray([1]).__index__(), ArgumentError),
        (lambda: asarray([1, 2]).item(), ArgumentValueError),
        (lambda: len(asarray(1)), TypeError),
        (lambda: iter(asarray(1)), TypeError),
        (lambda: hash(asarray(1)), TypeError),
    ],
)
def test_what_is_no_python_number(use: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        use()


def test_iteration_gives_rows() -> None:
    rows = list(asarray([[1, 2], [3, 4]]))
    assert [type(r) for r in rows] == [Array, Array]
    assert [r.tolist() for r in rows] == [[1, 2], [3, 4]]
    first, second = asarray([1.0, 2.0])
    assert first.shape == () and float(second) == 2.0


def test_numpy_reads_arrays() -> None:
    x = asarray([1.0, 2.0])
    assert not np.asarray(x).flags.writeable
    assert np.array(x).flags.writeable
    assert np.asarray(x, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.sin(x), np.sin(np.array([1, 2], np.float32)))
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, np.int32, copy=False)
    np.testing.assert_array_equal(np.from_dlpack(x), [1, 2])
    for total in (np.ones(2) + x, np.float32(1) + x):
        assert isinstance(total, Array) and total.tolist() == [2, 3]


def test_copies_and_pickles() -> None:
    x = asarray(np.arange(3, dtype=ml_dtypes.bfloat16))
    weak = asarray(1.5)
    copies = (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)))
    x.delete()
    for y in copies:
        assert y.tolist() == [0, 1, 2] and y.type is x.type
    assert pickle.loads(pickle.dumps(weak)).weak_type


def test_deleted_arrays_say_so() -> None:
    x = asarray([1.0, 2.0])
    assert not x.is_deleted()
    x.delete()
    assert x.is_deleted() and x.shape == (2,)
    for use in (lambda: x + 1, lambda: repr(x), lambda: np.asarray(x), lambda: float(x[0])):
        with pytest.raises(DeletedArrayError, match=r"f32\[2\] was used after it was deleted"):
            use()


def test_assignment_says_what_to_write() -> None:
    x = asarray([1.0, 2.0])
    with pytest.raises(ImmutableArrayError) as caught:
        x[0] = 5
    text = str(caught.value)
    assert text.splitlines()[0] == "arrays are immutable: x[index] = value cannot change x."
    assert "x[0] = 5  test_array.py" in text
    assert "x.at[index].set(value)" in text
    with Trace("f", "grad") as trace, pytest.raises(ImmutableArrayError, match="tracing f for"):
        trace.input(F32, "x")[0] = 5


def test_taking_over_a_numpy_array() -> None:
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    x = array_from_numpy(value.T, ArrayType(int32, (3, 2)))
    assert value_of(x).flags.c_contiguous
    assert x.tolist() == value.T.tolist()


LARGE: dict[str, Callable[[], Any]] = {
    "asarray": lambda: snp.asarray(2**63),
    "array": lambda: snp.array([1, 2**40]),
    "float": lambda: snp.array([1.0, 10**400]),
    "dtype": lambda: snp.asarray(300, "uint8"),
    "operand": lambda: snp.arange(3) + 2**31,
    "argument": lambda: stax.jit(lambda x: x + 1)(2**40),
    "update": lambda: snp.arange(3).at[0].set(2**63),
    "put": lambda: stax.device_put(-(2**31) - 1),
    "lax": lambda: stax.lax.add(snp.arange(3), 2**63),
    "bound": lambda: stax.lax.fori_loop(0, 2**33, lambda i, x: x, 1),
    "branch": lambda: stax.lax.cond(True, lambda x: x, lambda x: x, 2**40),
}


@pytest.mark.parametrize("name", LARGE)
def test_integers_that_fit_no_dtype(name: str) -> None:
    with pytest.raises(OverflowError) as caught:
        LARGE[name]()
    assert isinstance(caught.value, NumberRangeError)
    text = str(caught.value)
    assert "the Python integer " in text and "does not fit" in text and "asarray" in text
