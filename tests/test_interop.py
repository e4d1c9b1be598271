"""Arrays of other libraries, in and out: DLPack, NumPy's protocols, any memory layout."""

import array
import copy
import ctypes
import gc
import pickle
from collections.abc import Callable
from typing import Any

import jax.dlpack
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import stax
import stax.numpy as snp
from stax.array import Array, value_of
from stax.capsule import Exported, imported
from stax.errors import DeletedArrayError, TracerArrayConversionError
from stax.types import ArrayType
from tests.identifiers import shown

DTYPES = [
    "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", ml_dtypes.bfloat16,
    "float32", "complex64",
]  # fmt: skip
SHAPES = [(), (3,), (2, 3), (0, 2)]


def filled(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


class Old:
    """A producer of before DLPack 1.0, which takes no keywords."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def address(x: Any) -> int:
    return x.unsafe_buffer_pointer() if hasattr(x, "unsafe_buffer_pointer") else x.ctypes.data


# --- DLPack ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=shown)
def test_numpy_memory_is_taken_over(dtype: Any, shape: tuple[int, ...]) -> None:
    memory = filled(dtype, shape)
    for producer in (Exported(memory), Old(Exported(memory))):
        x = stax.dlpack.from_dlpack(producer)
        assert (x.shape, x.dtype, x.weak_type) == (shape, memory.dtype, False)
        assert not memory.size or address(x) == address(memory)
        np.testing.assert_array_equal(np.asarray(x), memory)
        assert memory.flags.writeable and not value_of(x).flags.writeable


@pytest.mark.parametrize("dtype", DTYPES, ids=shown)
def test_jax_memory_is_taken_over(dtype: Any) -> None:
    theirs = jnp.asarray(filled(dtype, (4, 5)))
    ours = snp.from_dlpack(theirs)
    assert address(ours) == address(theirs)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=shown)
def test_jax_takes_our_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    ours = snp.asarray(filled(dtype, shape))
    theirs = jax.dlpack.from_dlpack(ours)
    assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape)
    np.testing.assert_array_equal(np.asarray(theirs), np.asarray(ours))
    numbers = jnp.from_dlpack(ours) * 2 if dtype != "bool" else ~jnp.from_dlpack(ours)
    assert numbers.shape == shape


def test_exports_share_memory_that_is_aligned_as_jax_asks() -> None:
    memory = np.zeros(64 + 16, np.float32)
    start = (-memory.ctypes.data % 64) // 4
    ours = stax.dlpack.from_dlpack(memory[start : start + 64])
    assert address(jax.dlpack.from_dlpack(ours)) == address(ours)


def test_numpy_reads_exports_without_a_copy() -> None:
    x = snp.arange(4.0)
    out = np.from_dlpack(x)
    assert out.ctypes.data == address(x) and not out.flags.writeable
    copied = np.from_dlpack(x, copy=True)
    assert copied.ctypes.data != address(x)


def capsule_name(capsule: Any) -> bytes:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule)


def test_versions_of_capsules() -> None:
    x = snp.ones(3, snp.bfloat16)
    assert capsule_name(x.__dlpack__()) == b"dltensor"
    assert capsule_name(x.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsule_name(x.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert capsule_name(x.__dlpack__(max_version=(1, 1), dl_device=(1, 0), copy=True))
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("options", [{"dl_device": (2, 0)}, {"stream": 1}])
def test_what_a_capsule_cannot_be(options: dict[str, Any]) -> None:
    for version in (None, (1, 0)):
        with pytest.raises(BufferError):
            snp.ones(3).__dlpack__(max_version=version, **options)


def test_memory_lives_as_long_as_it_is_used() -> None:
    x = snp.from_dlpack(np.full(1000, 7, np.int32))
    taken = imported(snp.full(1000, 3, snp.int32))
    theirs = jax.dlpack.from_dlpack(snp.full(1000, 5, snp.int32))
    gc.collect()
    garbage = [np.zeros(1000, np.int32) for _ in range(20)]
    assert int(x.sum()) == 7000 and int(taken.sum()) == 3000 and int(theirs.sum()) == 5000
    assert len(garbage) == 20


def test_deleting_an_array_leaves_what_was_exported() -> None:
    x = snp.arange(5)
    out = np.from_dlpack(x)
    x.delete()
    assert out.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DeletedArrayError):
        x.__dlpack__()


def test_64_bits_become_32_as_everywhere() -> None:
    memory = np.arange(3.0)
    assert snp.from_dlpack(memory).dtype == jnp.from_dlpack(memory).dtype == np.float32
    with pytest.raises(ValueError, match="float64 becomes float32"):
        snp.from_dlpack(memory, copy=False)
    with stax.enable_x64():
        x = snp.from_dlpack(memory, copy=False)
        assert x.dtype == np.float64 and address(x) == address(memory)
    # An array of 64 bits that is there stays one.
    assert snp.from_dlpack(x).dtype == np.float64


@pytest.mark.parametrize(
    "view", [lambda m: m.T, lambda m: m[::-1], lambda m: m[:, ::2], lambda m: m[0:1] + 0 * m]
)
def test_layouts_that_kernels_cannot_read_are_copied(view: Callable[..., Any]) -> None:
    memory = view(np.arange(12, dtype=np.float32).reshape(3, 4))
    x = snp.from_dlpack(memory)
    np.testing.assert_array_equal(np.asarray(x), memory)
    if not memory.flags.c_contiguous:
        with pytest.raises(ValueError, match="rows do not follow"):
            snp.from_dlpack(memory, copy=False)


def test_copies_that_are_asked_for() -> None:
    memory = np.arange(3, dtype=np.float32)
    x = snp.from_dlpack(memory, copy=True)
    memory[0] = 9
    assert x.tolist() == [0, 1, 2]
    assert snp.from_dlpack(x, device=stax.devices()[0]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("source", [3, [1, 2], "a", None])
def test_what_has_no_dlpack(source: Any) -> None:
    with pytest.raises(TypeError, match="__dlpack__"):
        snp.from_dlpack(source)


@pytest.mark.parametrize(
    "source",
    [np.array(["a"]), np.zeros(2, ">f4"), np.zeros(2, [("a", "i4")]),
     jnp.zeros(2, jnp.float8_e4m3fn)],
    ids=shown,
)  # fmt: skip
def test_elements_that_dlpack_or_arrays_lack(source: Any) -> None:
    with pytest.raises(BufferError):
        snp.from_dlpack(source)


def test_traced_arrays_have_no_memory() -> None:
    with pytest.raises(TracerArrayConversionError, match="no memory"):
        stax.jit(snp.from_dlpack)(1.0)
    with pytest.raises(ValueError, match="no device"):
        snp.from_dlpack(snp.ones(2), device="gpu")


def test_supported_dtypes_are_those_of_jax() -> None:
    names = ["float32", "bool", "bfloat16", "complex128", "int64", "S1", "M8[D]", "float8_e4m3fn"]
    for dtype in [getattr(jnp, n, n) if n.startswith(("bf", "float8")) else n for n in names]:
        assert stax.dlpack.is_supported_dtype(dtype) == jax.dlpack.is_supported_dtype(dtype)
    with pytest.raises(TypeError):
        stax.dlpack.is_supported_dtype(None)


# --- NumPy's and Python's protocols ---


def test_numpy_reads_arrays_without_a_copy() -> None:
    x = snp.arange(6.0).reshape(2, 3)
    view = np.asarray(x)
    assert view.ctypes.data == address(x) and not view.flags.writeable
    assert memoryview(np.asarray(x)).readonly and bytes(x) == view.tobytes()
    assert np.array(x).flags.writeable and np.array(x, copy=True).ctypes.data != address(x)
    assert np.asarray(x, np.float64).tolist() == x.tolist()
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, np.float64, copy=False)


def test_namespace() -> None:
    x = snp.ones(2)
    assert x.__array_namespace__() is snp
    assert x.__array_namespace__(api_version=snp.__array_api_version__) is snp
    assert stax.jit(lambda y: y.__array_namespace__().sin(y))(x).shape == (2,)
    with pytest.raises(ValueError, match=r"no version '1999\.01'"):
        x.__array_namespace__(api_version="1999.01")


def test_reflected_operators_and_ufuncs() -> None:
    m, n = np.ones((2, 2), np.float32), np.arange(2, dtype=np.float32)
    for x in (n @ snp.asarray(m), n + snp.asarray(n), np.float32(2) * snp.asarray(n)):
        assert type(x) is Array
    traced = stax.jit(lambda x: (n @ x, n - x[0], np.float32(2) ** x))(m)
    assert [x.shape for x in traced] == [(2,), (2,), (2, 2)]
    assert type(np.sin(snp.asarray(n))) is np.ndarray
    with pytest.raises(TracerArrayConversionError, match=r"function of stax\.numpy"):
        stax.jit(np.sin)(n)


class Box:
    """Another library's array."""

    def __jax_array__(self) -> Any:
        return snp.asarray([1.0, 2.0])


@pytest.mark.parametrize("f", [snp.sin, lambda x: snp.add(x, 1), lambda x: snp.stack([x, x])])
def test_objects_that_say_which_array_they_are(f: Callable[..., Any]) -> None:
    wanted = f(snp.asarray([1.0, 2.0]))
    for out in (f(Box()), stax.jit(f)(Box()), stax.jit(lambda: f(Box()))()):
        np.testing.assert_array_equal(np.asarray(out), np.asarray(wanted))
    assert stax.grad(lambda x: snp.sum(x * 2))(Box()).tolist() == [2, 2]


@pytest.mark.parametrize("dtype", DTYPES, ids=shown)
def test_copies_and_pickles(dtype: Any) -> None:
    x = snp.asarray(filled(dtype, (2, 3)))
    for make in (copy.copy, copy.deepcopy, lambda y: pickle.loads(pickle.dumps(y))):
        y = make(x)
        assert type(y) is Array and y.type is x.type and address(y) != address(x)
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_weak_types_are_kept_by_copies_and_pickles() -> None:
    for x in (snp.asarray(1.5), snp.asarray(2), snp.asarray(1j)):
        for y in (copy.copy(x), copy.deepcopy([x])[0], pickle.loads(pickle.dumps(x))):
            assert y.weak_type and y.type is x.type
    assert pickle.loads(pickle.dumps(snp.ones(2, snp.bfloat16))).dtype == ml_dtypes.bfloat16


# --- sources of any layout: eagerly, as arguments, and closed over ---


def strided(values: np.ndarray, how: int) -> np.ndarray:
    """Return an array with the elements of `values` that lies in memory in another way."""
    if how == 0:
        return np.asfortranarray(values)
    if how == 1:  # every other element, backwards
        spread = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        spread[..., ::-2] = values
        return spread[..., ::-2]
    if how == 2:  # not aligned
        raw = np.zeros(values.nbytes + 1, np.uint8)
        moved = raw[1:].view(values.dtype).reshape(values.shape)
        moved[...] = values
        return moved
    if how == 3:
        return np.broadcast_to(values, (2, *values.shape))
    if how == 4:
        return values.astype(values.dtype.newbyteorder())
    read_only = values.copy()
    read_only.setflags(write=False)
    return read_only


@settings(max_examples=40)
@given(
    hnp.arrays(
        st.sampled_from([np.dtype(d) for d in ("f4", "i4", "i2", "f2", "c8", "u1", "f8", "i8")]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4),
        elements=st.integers(0, 100),
    ),
    st.integers(0, 5),
)
def test_any_layout_is_read_right(values: np.ndarray, how: int) -> None:
    source = strided(values, how)
    wanted = np.asarray(jnp.asarray(np.array(source, values.dtype, order="C")))
    for out in (snp.asarray(source), read(source), stax.jit(lambda: snp.positive(source))()):
        assert (out.dtype, out.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(np.asarray(out), wanted)


read = stax.jit(lambda x: x)


@pytest.mark.parametrize(
    "source", [memoryview(b"abc"), array.array("f", [1, 2]), np.float16(3), bytearray(b"xy")]
)
def test_buffers(source: Any) -> None:
    wanted = np.asarray(jnp.asarray(np.asarray(source)))
    assert np.asarray(snp.asarray(source)).tolist() == wanted.tolist()
    if not isinstance(source, bytearray):
        assert np.asarray(read(source)).tolist() == wanted.tolist()


def test_changing_a_source_changes_nothing() -> None:
    source = np.arange(3, dtype=np.float32)
    made, result = snp.asarray(source), read(source)
    closed = stax.jit(lambda: source + 0.0)
    first = closed()
    source[:] = 9
    for x in (made, result, first, closed()):
        assert x.tolist() == [0, 1, 2]


BAD = {
    "masked": np.ma.array([1.0, 2.0], mask=[True, False]),
    "object": np.array([object()]),
    "text": np.array(["a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "fields": np.zeros(2, [("a", "f4"), ("b", "i4")]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    source = BAD[name]
    uses = (
        lambda: snp.asarray(source),
        lambda: snp.sin(source),
        lambda: read(source),
        lambda: stax.grad(lambda x: x.sum())(source),
        lambda: stax.jit(lambda: snp.sin(source))(),
        lambda: stax.device_put(source),
    )
    for use in uses:
        with pytest.raises(TypeError) as caught:
            use()
        text = str(caught.value).lower()
        assert "masked" in text if name == "masked" else "dtype" in text or "object" in text


@pytest.mark.parametrize("name", ["numpy", "jax", "stax"])
def test_all_keep_arrays_apart_in_a_round_trip(name: str) -> None:
    library = {"numpy": np, "jax": jnp, "stax": snp}[name]
    x = library.asarray([1.0, 2.0, 3.0], "float32")
    assert snp.from_dlpack(x).type is ArrayType(np.dtype("float32"), (3,))
    assert library.from_dlpack(snp.from_dlpack(x)).tolist() == [1, 2, 3]
