"""The context table: how generated code reaches what lies outside it.

The one idea: object code holds slot numbers, never addresses. A program gets the table as its first
argument and loads the addresses of the pool, the allocator, BLAS and LAPACK from it, so its object
code means the same in every process. Slot numbers are fixed by the order of `_SLOTS`, which may
only grow at its end. `require` fills a slot when the first program that needs it is loaded: BLAS
costs nothing to those who do not use it.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from pathlib import Path

import scipy

from stax.extensions import extension
from stax.runtime import growing, host, memory, polling, threads
from stax.runtime.forking import Lock
from stax.runtime.once import once
from stax.runtime.products import Products

_RUNTIME = ("parallel_for", "threads", "allocate", "release", "poll", "blas_begin", "blas_end")
# Drivers over the pool (see products.py) and the BLAS routine each one calls.
_GEMM = {"gemm_f32": "sgemm", "gemm_f64": "dgemm", "gemm_c64": "cgemm", "gemm_c128": "zgemm"}
_BLAS = (
    *(kind + name for name in ("gemm", "gemv", "trsm") for kind in "sdcz"),
    *("ssyrk", "dsyrk", "cherk", "zherk"),
)
_LAPACK_ROUTINES = (
    "potrf", "potrs", "getrf", "getrs", "gesv", "trtrs", "geqrf", "gesdd", "geev",
)  # fmt: skip
_LAPACK = (
    *(kind + name for name in _LAPACK_ROUTINES for kind in "sdcz"),
    *("sorgqr", "dorgqr", "cungqr", "zungqr", "ssyevd", "dsyevd", "cheevd", "zheevd"),
)

# Functions of scipy.special.cython_special, by their types.
_ONE, _TWO, _THREE, _FOUR = (
    f"double ({'double, ' * count}int __pyx_skip_dispatch)" for count in (1, 2, 3, 4)
)
_PAIR = "void (double, double *, double *)"
_COMPLEX = "__pyx_t_double_complex (__pyx_t_double_complex, int __pyx_skip_dispatch)"
_SPECIAL = {
    "betainc": _THREE, "expn": _TWO, "sici": _PAIR, "fresnel": _PAIR, "gammainc": _TWO,
    "gammaincc": _TWO, "jv": _TWO, "gamma": _ONE, "expi": _ONE, "spence": _ONE, "beta": _TWO,
    "binom": _TWO, "poch": _TWO, "owens_t": _TWO, "hyp1f1": _THREE, "hyp2f1": _FOUR,
    "complex_wofz": _COMPLEX, "complex_loggamma": _COMPLEX, "complex_psi": _COMPLEX,
}  # fmt: skip
_SPECIAL_PREFIX = "special_"

_HOST = ("host_call",)
HOST_OPS = "host_ops"  # the ops that the program leaves to Python, see host
_PYTHON = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Clear")
_LOOPS = ("grow", "step_limit")
_SLOTS = (
    *_RUNTIME, *_GEMM, *_BLAS, *_LAPACK, *_HOST,
    *(_SPECIAL_PREFIX + name for name in _SPECIAL), *_PYTHON, HOST_OPS, *_LOOPS,
)  # fmt: skip
_NUMBERS = {name: number for number, name in enumerate(_SLOTS)}
_CAPACITY = 512

_table = (ctypes.c_void_p * _CAPACITY)()
_lock = Lock()


def context_address() -> int:
    """The address of the table, the same for the life of the process."""
    return ctypes.addressof(_table)


class Context:
    """A copy of the table for one program, with the ops that it leaves to Python.

    Slots that the program uses are filled (`require`) before it is made.
    """

    def __init__(self, host_ops: tuple[host.HostCall, ...]) -> None:
        self._host_ops = host_ops  # the table refers to it
        self._table = type(_table).from_buffer_copy(_table)
        self._table[slot(HOST_OPS)] = id(host_ops)
        self.address = ctypes.addressof(self._table)


def slot(name: str) -> int:
    """The number of a slot, the same in every process."""
    if name not in _NUMBERS:
        raise KeyError(f"the context table has no slot {name!r}; it has {', '.join(_SLOTS)}")
    return _NUMBERS[name]


def require(*names: str) -> None:
    """Fill the slots a program uses; call it before the program runs."""
    for name in names:
        number = slot(name)
        if not _table[number]:
            with _lock:
                _table[number] = _find(name)


def _find(name: str) -> int:
    if name in _GEMM:
        return _products().connect(name.removeprefix("gemm_"), _routine(_GEMM[name]))
    if name in _FINDERS:
        return _FINDERS[name]()
    if name in _PYTHON:
        return _function_address(getattr(ctypes.pythonapi, name))
    if name.startswith(_SPECIAL_PREFIX):
        return _special(name.removeprefix(_SPECIAL_PREFIX))
    return _routine(name)


def _routine(name: str) -> int:
    """The address of a BLAS or LAPACK routine: Fortran order and calling convention, every argument
    a pointer, integers 32 bits."""
    module = "cython_blas" if name in _BLAS else "cython_lapack"
    capsule = extension(f"linalg.{module}").__pyx_capi__[name]
    address = _capsule_pointer(capsule, _capsule_name(capsule))
    if not address:
        raise RuntimeError(f"scipy.linalg.{module} exports {name} without an address")
    return int(address)


def _special(name: str) -> int:
    """The address of a special function, which may be one of several of its name."""
    exported = importlib.import_module("scipy.special.cython_special").__pyx_capi__
    plain = name.removeprefix("complex_")
    for candidate in (plain, f"__pyx_fuse_0{plain}", f"__pyx_fuse_1{plain}"):
        capsule = exported.get(candidate)
        if capsule is not None and _capsule_name(capsule).decode() == _SPECIAL[name]:
            return int(_capsule_pointer(capsule, _capsule_name(capsule)))
    raise RuntimeError(f"scipy.special.cython_special exports no {plain} of type {_SPECIAL[name]}")


# Prototypes of our own: the attributes of ctypes.pythonapi are shared with every other library.
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@once
def _thread_control() -> tuple[int, int] | None:
    """The addresses of `int get()` and `void set(int)` for BLAS's thread count, if it has them."""
    extension("linalg.cython_blas")
    root = Path(scipy.__file__).parent
    bundled = (*root.parent.glob("scipy.libs/*openblas*"), *root.glob(".dylibs/*openblas*"))
    for path in bundled:
        library = ctypes.CDLL(str(path))
        for prefix in ("scipy_openblas", "openblas"):
            get = getattr(library, f"{prefix}_get_num_threads", None)
            put = getattr(library, f"{prefix}_set_num_threads", None)
            if get is not None and put is not None:
                return _function_address(get), _function_address(put)
    return None


def _function_address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


@once
def _products() -> Products:
    return Products(threads.parallel_for_address(), _thread_control())


_FINDERS: dict[str, Callable[[], int]] = {
    "host_call": host.host_call_address,
    HOST_OPS: lambda: 0,
    "parallel_for": threads.parallel_for_address,
    "threads": threads.thread_count_address,
    "allocate": memory.allocate_address,
    "release": memory.release_address,
    "poll": polling.poll_address,
    "grow": growing.grow_address,
    "step_limit": growing.step_limit_address,
    "blas_begin": lambda: _products().address("stax_blas_begin"),
    "blas_end": lambda: _products().address("stax_blas_end"),
}


def blas_num_threads() -> int | None:
    """BLAS's own thread count; None where the library does not say."""
    control = _thread_control()
    return None if control is None else int(ctypes.CFUNCTYPE(ctypes.c_int)(control[0])())


def set_blas_num_threads(count: int) -> bool:
    """Set BLAS's own thread count; False where the library has no way to."""
    if count < 1:
        raise ValueError(f"a thread count is at least 1, got {count}")
    control = _thread_control()
    if control is None:
        return False
    ctypes.CFUNCTYPE(None, ctypes.c_int)(control[1])(count)
    return True
