"""Small inputs that other libraries got wrong, with the right answer.

From public bug reports against JAX, autograd, torch.compile, tinygrad and TensorFlow; each stands
for a kind.  Everything is float32 unless said, and runs eagerly and jitted.  Those of control flow
and of custom rules stand in tests/control and tests/test_custom.py.
"""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax, nn
from stax.errors import ArgumentValueError
from stax.scipy import special

INF, NAN = math.inf, math.nan
MODES = [pytest.param(lambda f: f, id="eager"), pytest.param(stax.jit, id="jit")]
both = pytest.mark.parametrize("mode", MODES)
Mode = Callable[[Callable[..., Any]], Callable[..., Any]]


def close(result: Any, right: Any, tolerance: float = 2e-6) -> None:
    """Check values, with equal NaN and infinities."""
    np.testing.assert_allclose(np.asarray(result), np.asarray(right), tolerance, tolerance)


# --- gradients at awkward points ---


@both
def test_a_branch_that_is_not_taken_is_not_differentiated(mode: Mode) -> None:
    def f(x: Any) -> Any:
        return snp.where(x < 1, x, snp.sqrt(x))

    close(mode(stax.grad(f))(0.0), 1)  # JAX: nan
    a = snp.array([3.0, 0.0, -5.0])
    mask = snp.array([False, True, False])

    def g(a: Any) -> Any:
        return snp.sum(snp.where(mask, 0.0, snp.arctan2(a, a)))

    close(mode(stax.grad(g))(a), [0, 0, 0])  # JAX: nan in the middle


@both
def test_the_norm_at_zero(mode: Mode) -> None:
    close(mode(stax.grad(lambda x: snp.linalg.norm(x) ** 2))(snp.zeros(2)), [0, 0])  # JAX: nan


@both
@pytest.mark.parametrize(
    ("function", "x", "gradient"),
    [
        (snp.cumprod, [0, 2, 3], [9, 0, 0]),
        (snp.cumprod, [2, 0, 0, 3], [1, 2, 0, 0]),
        (snp.prod, [2, 0, 3], [0, 6, 0]),
        (snp.prod, [0, 0, 3], [0, 0, 0]),
    ],
)
def test_products_with_zeros(mode: Mode, function: Any, x: Any, gradient: Any) -> None:
    close(mode(stax.grad(lambda v: snp.sum(function(v))))(snp.array(x, "float32")), gradient)


@both
def test_powers_at_zero(mode: Mode) -> None:
    close(mode(stax.grad(lambda x, n: x**n))(0.0, 0), 0)

    def f(v: Any) -> Any:
        return v[0] ** v[1]

    right = [[0, 0.25], [0.25, 1.9218121]]
    at = snp.array([4.0, 0.0])
    close(mode(stax.jacfwd(stax.jacfwd(f)))(at), right)
    close(mode(stax.jacrev(stax.jacrev(f)))(at), right)


@both
def test_entropies(mode: Mode) -> None:
    close(mode(special.xlogy)(0.0, 0.0), 0)
    close(mode(special.xlogy)(0.0, NAN), NAN)
    close(mode(stax.grad(special.entr))(0.0), INF)


@both
def test_logsumexp(mode: Mode) -> None:
    mask = snp.array([True, False])
    f = stax.grad(lambda x: nn.logsumexp(x, where=mask))
    close(mode(f)(snp.array([0.0, 100.0])), [1, 0])


@both
@pytest.mark.parametrize("length", [1, 2, 9])
def test_logaddexp_in_vector_tails(mode: Mode, length: int) -> None:
    x = snp.array(([-INF, -1] * 5)[:length])
    close(mode(snp.logaddexp)(x, x), ([-INF, -0.30685282] * 5)[:length])


@both
def test_nanvar(mode: Mode) -> None:
    x = snp.array([NAN, 1, 2, 3, 4])
    close(mode(stax.grad(snp.nanvar))(x), [0, -0.75, -0.25, 0.25, 0.75])


@both
def test_ties(mode: Mode) -> None:
    close(mode(stax.grad(snp.maximum, (0, 1)))(1.0, 1.0), (0.5, 0.5))
    close(mode(stax.grad(nn.relu))(0.0), 0)
    close(mode(stax.grad(lambda x: snp.max(snp.stack([x, x]))))(1.0), 1)


@both
def test_a_clamped_index_under_vmap(mode: Mode) -> None:
    x, past = snp.array([1.0]), snp.array([7])

    def read(x: Any, i: Any) -> Any:
        return lax.dynamic_index_in_dim(x, i, keepdims=False)

    mapped = stax.vmap(read, in_axes=(None, 0))
    close(mode(stax.jacrev(mapped))(x, past), [[1]])
    close(mode(stax.jacfwd(mapped))(x, past), [[1]])
    close(mode(stax.jacrev(lambda x, i: read(x, i)[None]))(x, past[0]), [[1]])


@both
def test_six_derivatives(mode: Mode) -> None:
    def f(x: Any) -> Any:
        return 1 / x

    for _ in range(6):
        f = stax.grad(f)
    close(mode(f)(4.0), 0.0439453125)


@both
def test_equal_inputs_stay_two(mode: Mode) -> None:
    close(mode(stax.grad(lambda a, b: a + b, (0, 1)))(3.0, 3.0), (1, 1))
    x = snp.array(3.0)
    close(mode(stax.grad(lambda a, b: a + b, (0, 1)))(x, x), (1, 1))


@both
def test_perturbations_are_not_confused(mode: Mode) -> None:
    close(mode(stax.grad(lambda x: x * stax.grad(lambda y: x + y)(2.0)))(5.0), 1)
    inner = lambda x: stax.jvp(lambda y: x + y, (2.0,), (1.0,))[1]  # noqa: E731
    close(mode(stax.grad(lambda x: x * inner(x)))(5.0), 1)


# --- closures and signatures ---


def test_parameters_with_the_names_of_our_own() -> None:
    def product(f: Any, fun: Any, self: Any, args: Any, kwargs: Any) -> Any:
        return f * fun * self * args * kwargs

    by_name = {"f": 2.0, "fun": 3.0, "self": 5.0, "args": 7.0, "kwargs": 11.0}
    assert stax.jit(product)(**by_name) == 2310
    assert stax.jit(product)(2.0, 3.0, 5.0, args=7.0, kwargs=11.0) == 2310
    assert stax.grad(product)(*by_name.values()) == 1155
    assert stax.vmap(product)(**{k: snp.array([v]) for k, v in by_name.items()}) == 2310


def test_an_unhashable_static_argument() -> None:
    f = stax.jit(lambda x, sizes: x, static_argnames="sizes")
    with pytest.raises(ArgumentValueError, match=r"argument sizes of .* type list"):
        f(1.0, sizes=[1, 2])


# --- NaN, infinity, signed zero, subnormals ---


@both
def test_nothing_is_folded_that_may_be_nan(mode: Mode) -> None:
    zero, one = snp.array(0.0), snp.array(1.0)
    assert mode(lambda x: snp.isnan(x / x))(zero)
    assert not mode(lambda x: x == snp.inf)(snp.array(NAN))
    assert np.isnan(mode(lambda x: 0 * x)(snp.array(INF)))
    assert mode(lambda s, x: s + (-1e30 * (1 - x)))(2.5 * one, one) == 2.5
    assert np.signbit(np.asarray(mode(lambda x: x * 1.0 + -0.0)(-zero)))


@both
@pytest.mark.parametrize(
    ("function", "right"),
    [(snp.log, -92.1034), (snp.sqrt, 1e-20), (snp.log1p, 1e-40), (lax.rsqrt, 1e20)],
)
def test_subnormals_are_numbers(mode: Mode, function: Any, right: float) -> None:
    # JAX takes them for zero.
    x = np.full(9, 1e-40, np.float32)
    np.testing.assert_allclose(np.asarray(mode(function)(x)), right, rtol=2e-5)


@both
def test_extremes_with_nan_and_subnormals(mode: Mode) -> None:
    assert mode(snp.argmax)(snp.array([-1, -0.0, 1.4e-45])) == 2  # JAX: 1
    assert mode(snp.argmax)(snp.array([NAN, 4.6])) == 0
    assert np.isnan(mode(snp.max)(snp.array([1, NAN])))
    assert np.isnan(mode(snp.max)(snp.array([NAN, 1])))
    close(mode(snp.sort)(snp.array([NAN, 2, INF, 1])), [1, 2, INF, NAN])


@both
def test_floor_division_of_floats(mode: Mode) -> None:
    assert mode(lambda x, y: x // y)(1.0, 0.1) == 9
    assert mode(lambda x, y: x // y)(6.0, 0.2) == 29
    x = snp.array([-2.0, -1, 0, 1, 2])
    close(mode(lambda x: x // 0.0)(x), [-INF, -INF, NAN, INF, INF])


# --- integers, dtypes, indices ---


@both
def test_integer_division(mode: Mode) -> None:
    x, y = snp.array([15, -8, 22, 4]), snp.array([4, 0, 0, 1])
    quotient = mode(lambda x, y: x // y)(x, y)
    close(quotient, jax.jit(lambda x, y: x // y)(np.asarray(x), np.asarray(y)))
    lowest = np.iinfo(np.int32).min
    assert mode(lambda x, y: x // y)(snp.array([lowest]), snp.array([-1])) == lowest
    assert mode(lambda x, y: x // y)(-21, 5) == -5
    assert mode(lambda x, y: x % y)(-21, 5) == 4
    assert mode(lax.div)(-21, 5) == -4
    assert mode(lax.rem)(-21, 5) == -1


@both
def test_integer_powers_wrap(mode: Mode) -> None:
    x, y = snp.array([3, 2, -1]), snp.array([21, 32, 127])
    close(mode(lambda x, y: x**y)(x, y), [1870418611, 0, -1])
    assert mode(lambda x: snp.argmax(~x))(snp.array([2, 2])) == 0


@both
def test_narrow_integers(mode: Mode) -> None:
    assert mode(lambda i: snp.arange(1000)[:, None][999, i])(np.int8(0)) == 999
    start = snp.array(128, "uint8")
    close(mode(lambda i: lax.dynamic_slice(snp.arange(200), (i,), (1,)))(start), [128])
    sum_ = mode(lambda x, y: x + y)(snp.array(100, "int8"), snp.array(100, "int8"))
    assert (sum_, sum_.dtype) == (-56, np.int8)
    sum_ = mode(lambda x: x + 100)(snp.array(100, "int8"))
    assert (sum_, sum_.dtype) == (-56, np.int8)
    assert mode(lambda x: x + 1)(snp.zeros(2, "int16")).dtype == np.int16


# --- shapes, layouts, batching ---


@both
def test_empty_arrays(mode: Mode) -> None:
    empty = snp.zeros(0)
    assert (mode(snp.sum)(empty), mode(snp.prod)(empty)) == (0, 1)
    assert np.isnan(mode(snp.mean)(empty))
    assert mode(snp.all)(empty) and not mode(snp.any)(empty)
    for extreme in (snp.max, snp.argmax):
        with pytest.raises(ValueError):
            mode(extreme)(empty)
    assert mode(lambda x: snp.argmax(x, axis=1))(snp.zeros((0, 3))).shape == (0,)


@both
def test_layouts(mode: Mode) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert mode(lambda x: snp.argmax(snp.sin(x).T))(x) == np.argmax(np.sin(x).T)
    swapped = x.astype(x.dtype.newbyteorder())
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6)
    sources = [x[::-1, ::-2], np.broadcast_to(x[:1], (4, 6)), np.asfortranarray(x), swapped, odd]
    for source in sources:
        close(mode(lambda a: a * 2 + 1)(source), np.asarray(source, np.float32) * 2 + 1)
        close(mode(lambda a: snp.sum(a, 1))(snp.asarray(source)), source.sum(1))


@both
def test_an_update_that_reads_what_it_writes(mode: Mode) -> None:
    close(mode(lambda x: x.at[1:].set(1 + x[:-1]))(snp.zeros(8)), [0] + [1] * 7)


@pytest.mark.parametrize("make", [snp.asarray, snp.array, stax.jit(lambda x: x)])
def test_a_source_may_change_later(make: Any) -> None:
    source = np.zeros(3, np.float32)
    array = make(source)
    source[:] = 7
    close(array, [0, 0, 0])


def _scatter(operand: Any, index: Any, update: Any) -> Any:
    return operand.at[index].add(update)


def _update_slice(operand: Any, index: Any, update: Any) -> Any:
    return lax.dynamic_update_slice(operand, update[None], (index, 0))


@both
@pytest.mark.parametrize("function", [_scatter, _update_slice])
@pytest.mark.parametrize("flags", range(1, 8))
@pytest.mark.parametrize("axis", [0, -1])
def test_vmap_of_updates(mode: Mode, function: Any, flags: int, axis: int) -> None:
    batch = [bool(flags >> i & 1) for i in range(3)]
    shapes = [(4, 2), (), (2,)]
    random = np.random.default_rng(flags)
    rows = [[random.normal(size=s).astype("float32") for _ in range(3)] for s in shapes]
    rows[1] = [np.int32(i) for i in (0, 3, 9)]
    axes = [axis if b else None for b in batch]
    args = [np.stack(r, axis) if b else r[0] for r, b in zip(rows, batch, strict=True)]
    mapped = mode(stax.vmap(function, in_axes=tuple(axes)))(*args)
    one_by_one = [
        function(*(snp.asarray(r[i if b else 0]) for r, b in zip(rows, batch, strict=True)))
        for i in range(3)
    ]
    close(mapped, np.stack([np.asarray(y) for y in one_by_one]))


# --- precision, size, concurrency ---


@both
def test_sixteen_bits(mode: Mode) -> None:
    bf16 = ml_dtypes.bfloat16

    def is_largest(x: Any) -> Any:
        return x / 3 == snp.max(x / 3)

    assert np.asarray(mode(is_largest)(snp.array([1, 5, 10], bf16))).sum() == 1
    small = snp.full(2**20, 1e-5, "float16")
    assert mode(snp.mean)(small) == np.float16(1e-5)
    assert mode(snp.sum)(snp.ones(20000, "float16")) == 20000
    assert float(mode(snp.sum)(snp.ones(70000, bf16))) == 70144


@both
def test_many_arguments(mode: Mode) -> None:
    args = [snp.array(float(i)) for i in range(1500)]

    def total(*xs: Any) -> Any:
        return sum(xs[1:], xs[0])

    assert mode(total)(*args) == 1124250
    gradients = mode(stax.grad(total, tuple(range(1500))))(*args)
    assert len(gradients) == 1500 and all(g == 1 for g in gradients)


def _growth(y: Any) -> Any:
    for _ in range(3000):
        y = y + 0.002 * y
    return y


@both
def test_a_long_chain(mode: Mode) -> None:
    close(mode(stax.grad(_growth))(1.0), 401.01867, 1e-4)


COMPILE_AND_CALL = """
import numpy as np, stax, stax.numpy as snp
f = stax.jit(lambda x: snp.sum(snp.tanh(x) * 3))
print(float(f(np.arange(5, dtype=np.float32))))
"""


def test_processes_share_an_empty_cache(tmp_path: Path) -> None:
    environment = os.environ | {"STAX_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE_AND_CALL]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    results = {float(process.communicate(timeout=120)[0]) for process in processes}
    assert len(results) == 1
    assert any(tmp_path.rglob("*"))


def test_threads_share_a_jitted_function() -> None:
    f = stax.jit(lambda x: snp.sum(snp.exp(x)) + 1)
    x, results = snp.arange(1000.0) / 1000, []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        results.extend(float(f(x)) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 160 and len(set(results)) == 1


def test_jax_still_differs() -> None:
    """Where the comments above say what JAX answers, it does; else the list may be shortened."""
    f = jax.grad(lambda x: jnp.where(x < 1, x, jnp.sqrt(x)))
    assert np.isnan(f(0.0))
    assert np.isnan(jax.grad(lambda x: jnp.linalg.norm(x) ** 2)(jnp.zeros(2))).all()
    assert jnp.argmax(jnp.array([-1, -0.0, 1.4e-45])) == 1
