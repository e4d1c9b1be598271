"""Functions that C functions from outside compute lane by lane: tails, threads, NaN, addresses."""

import re
import threading
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import scipy.special

import stax
import stax.numpy as snp
from stax.config import config
from stax.errors import LoweringError
from stax.lowering.triton import emit_triton
from stax.lowering.vector_math import MathLibrary
from stax.lowering.vector_math.external import EXTERNAL, SLOT_PREFIX
from stax.operators.elementwise import ROWS, Elementwise
from stax.runtime import libraries
from stax.runtime.compiler import compile_graph, lowered
from stax.scipy import special
from stax.trace import bind
from tests.operators.calculus import traced

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def module(name: str, dtype: Any, lanes: int) -> str:
    library = MathLibrary()
    library.call(name, np.dtype(dtype), lanes)
    return library.text()


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", EXTERNAL)
def test_modules_are_valid_and_hold_no_address(name: str, dtype: Any, lanes: int) -> None:
    text = module(name, dtype, lanes)
    llvm.parse_assembly(text).verify()
    assert "inttoptr" not in text
    pointers = re.findall(r"@stax\.external\.(\w+) = internal global ptr null", text)
    assert len(pointers) == 1
    assert libraries.slot(SLOT_PREFIX + pointers[0])


def test_a_c_function_has_one_pointer_for_all_its_uses() -> None:
    library = MathLibrary()
    for name in ("sinint", "cosint"):
        for dtype, lanes in ((FLOAT32, 16), (FLOAT32, 8), (FLOAT64, 8)):
            library.call(name, dtype, lanes)
    assert library.externals == ("sici",)
    assert library.text().count("internal global ptr null") == 1
    assert not MathLibrary().externals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [*range(1, 20), 31, 33, 63, 65, 127])
def test_every_size(size: int, dtype: Any) -> None:
    """Shifted and masked tails: each element once, none beyond."""
    with config.override(enable_x64=True):
        a = np.linspace(0.5, 9.0, size, dtype=dtype)
        x = a[::-1].copy()
        found = compiled(special.gammainc, a, x)
        np.testing.assert_allclose(found, scipy.special.gammainc(a, x).astype(dtype), rtol=3e-7)


def compiled(function: Any, *arrays: np.ndarray) -> np.ndarray:
    program = compile_graph(traced(function, arrays))
    return np.asarray(program.run(list(arrays))[0])


def test_a_masked_tail_and_strides() -> None:
    x = np.linspace(0.5, 9.0, 5 * 37, dtype=np.float32).reshape(5, 37)
    total = stax.jit(lambda x: special.gammaincc(x, x[:, ::-1] + x[:, :1]).sum(axis=1))
    exact = scipy.special.gammaincc(x, x[:, ::-1] + x[:, :1]).sum(axis=1)
    np.testing.assert_allclose(total(x), exact, rtol=1e-5)
    flipped = stax.jit(lambda x: special.spence(x[::-1, ::2].T))
    np.testing.assert_allclose(flipped(x), scipy.special.spence(x[::-1, ::2].T), atol=1e-6)


def test_in_place_and_after_other_code() -> None:
    """A chain of functions, and the value of a call used twice."""
    x = np.linspace(0.2, 0.9, 1001, dtype=np.float32)

    def chain(x: Any) -> Any:
        y = special.spence(x)
        return special.gamma(1 + y) + y * special.spence(1 + y * x)

    np.testing.assert_allclose(stax.jit(chain)(x), chain(snp.array(x)), rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity_stay_in_their_lanes(dtype: Any) -> None:
    with config.override(enable_x64=True):
        x = np.linspace(0.1, 0.9, 67).astype(dtype)
        x[::9] = np.nan
        x[4::9] = np.inf
        x[5::9] = -5.0
        for name in ("betainc", "expn", "beta", "poch", "gamma"):
            function, count = getattr(special, name), len(ROWS[name].partials)
            arguments = [np.full_like(x, 2.0)] * (count - 1) + [x]
            with np.errstate(all="ignore"):
                exact = getattr(scipy.special, name)(*(a.astype(np.float64) for a in arguments))
            found = compiled(function, *arguments)
            np.testing.assert_allclose(found, exact.astype(dtype), rtol=1e-5)


def test_threads_of_the_pool_and_of_python() -> None:
    """A program large enough for every thread of the pool, called from several Python threads."""
    x = np.random.default_rng(0).uniform(0.5, 5.0, 1 << 18).astype(np.float32)
    function = stax.jit(lambda x: special.gammainc(x, x + 0.5))
    exact = scipy.special.gammainc(x, x + np.float32(0.5))
    wrong: list[int] = []

    def call(number: int) -> None:
        found = np.asarray(function(x))
        if not np.allclose(found, exact, rtol=1e-6):
            wrong.append(number)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_of_scipy_stay_silent() -> None:
    x = np.array([-1.0, 0.5, 2.0, np.inf], np.float32)
    functions = {
        "betainc": lambda x: special.betainc(x, x, x),
        "expn": lambda x: special.expn(x, -x),
        "gammaincc": lambda x: special.gammaincc(x, -x),
        "gamma": special.gamma,
        "hyp1f1": lambda x: special.hyp1f1(x, -x, x),
    }
    with scipy.special.errstate(all="raise"):
        for function in functions.values():
            eager, found = function(snp.array(x)), stax.jit(function)(x)
            np.testing.assert_array_equal(np.asarray(eager), np.asarray(found))


def test_the_driver_fills_the_pointers() -> None:
    x = np.ones(8, np.float32)
    code = lowered(traced(lambda x: special.sici(x)[0] + special.gamma(x), [x]))
    assert {"special_sici", "special_gamma"} <= set(code.slots)
    driver = code.text[code.text.index("@program(") :]
    for name in ("sici", "gamma"):
        assert f"ptr @stax.external.{name} unordered" in driver
    plain = lowered(traced(lambda x: x + 1, [x]))
    assert "stax.external" not in plain.text
    assert not [name for name in plain.slots if name.startswith(SLOT_PREFIX)]


@pytest.mark.parametrize("name", ["igamma", "erf_inv", "zeta", "sinint"])
def test_triton_says_what_it_lacks(name: str) -> None:
    x = np.ones(64, np.float32)
    count = len(ROWS[name].partials)
    graph = traced(lambda *xs: bind(Elementwise(name), *xs), [x] * count)
    (kernel,) = lowered(graph).program.kernels
    with pytest.raises(LoweringError, match=name):
        emit_triton(kernel)
