"""Library steps: LAPACK natively and ops through Python, beside the evaluator."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.interpreters.evaluate import evaluate
from stax.lowering.host import HostStep
from stax.lowering.lapack import LapackStep
from stax.lowering.pipeline import lower_graph
from stax.lowering.small_matrices import FEWEST
from stax.operators import elementwise as ops, linalg, qr, spectral
from stax.operators.matrices import adjoint, matmul
from stax.runtime.compiler import compile_graph, module_text
from stax.trace import bind
from tests.lowering.test_program import check

RNG = np.random.default_rng(2)
DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with stax.enable_x64(True):
        yield


def draw(dtype: str, *shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if "complex" in dtype else x).astype(dtype)


def positive(x: Any) -> Any:
    return matmul(x, adjoint(x))


def up_to_phases(values: Any, vectors: Any) -> Any:
    """The phases of eigenvectors depend on rounding."""
    return values, ops.abs_(vectors)


def triangular(left: bool, lower: bool, turned: bool) -> Callable[..., Any]:
    op = linalg.TriangularSolve(left, lower, turned, turned, lower)

    def solve(a: Any, b: Any) -> Any:
        dominant = positive(a)  # what is far from singular stays so
        return bind(op, dominant, b if left else adjoint(b))

    return solve


SQUARE, LONG, WIDE = (20, 20), (20, 7), (7, 20)
OPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, int], ...]]] = {
    "cholesky": (lambda x: linalg.cholesky(positive(x)), (SQUARE,)),
    "lu": (linalg.lu, (SQUARE,)),
    "lu-long": (linalg.lu, (LONG,)),
    "lu-wide": (linalg.lu, (WIDE,)),
    "qr": (lambda x: qr.qr(x, False), (LONG,)),
    "qr-wide": (lambda x: qr.qr(x, False), (WIDE,)),
    "qr-full": (lambda x: qr.qr(x, True), (LONG,)),
    "eigh": (lambda x: up_to_phases(*spectral.eigh(positive(x))), (SQUARE,)),
    "eigh-upper": (lambda x: up_to_phases(*spectral.eigh(positive(x), False)), (SQUARE,)),
    "svd": (spectral.svd, (SQUARE,)),
    "svd-long": (lambda x: spectral.svd(x, False), (LONG,)),
    "svd-full": (spectral.svd, (WIDE,)),
    "svd-values": (lambda x: spectral.svd(x, False, False), (LONG,)),
    **{
        f"solve-{left}-{lower}-{turned}": (triangular(left, lower, turned), (SQUARE, LONG))
        for left in (False, True)
        for lower in (False, True)
        for turned in (False, True)
    },
}


def steps_of(graph: Any, kind: type) -> list[Any]:
    return [s for s in lower_graph(graph).steps if isinstance(s, kind)]


QUICK = {("float32", 30), ("complex128", 1)}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    ("dtype", "batch"),
    [
        pytest.param(d, n, marks=[] if (d, n) in QUICK else [pytest.mark.slow])
        for d in DTYPES
        for n in (1, 30)
    ],
)
def test_native(name: str, dtype: str, batch: int) -> None:
    function, shapes = OPS[name]
    arrays = [draw(dtype, batch, *s) for s in shapes]
    graph = stax.make_graph(function)(*arrays)
    assert steps_of(graph, LapackStep) or batch >= FEWEST
    assert not steps_of(graph, HostStep)
    tolerance = 2e-3 if dtype in ("float32", "complex64") else 1e-9
    program = compile_graph(graph)
    for x, y in zip(program.run(arrays), evaluate(graph, arrays), strict=True):
        a = np.asarray(x)
        assert (a.dtype, a.shape) == (y.dtype, y.shape)
        scale = max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(a / scale, y / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in OPS if name.startswith("solve")])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_many_unknowns_are_found_in_halves(name: str, dtype: str) -> None:
    function = OPS[name][0]
    arrays = [draw(dtype, 110, 110), draw(dtype, 110, 99)]
    graph = stax.make_graph(lambda a, b: function(a / 110 + snp.eye(110, dtype=dtype), b))(*arrays)
    (step,) = steps_of(graph, LapackStep)
    assert step.kernel.tasks == 2
    (got,), (want,) = compile_graph(graph).run(arrays), evaluate(graph, arrays)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-3, atol=1e-4)


LANES = {
    **{name: OPS[name][0] for name in ("cholesky", "lu")},
    **{name: function for name, (function, _) in OPS.items() if name.startswith("solve")},
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize(
    ("side", "batch", "dtype"), [(1, 8, "float32"), (3, 19, "float64"), (4, 16, "float32"),
                                 (7, 33, "float32"), (13, 9, "float64")]
)  # fmt: skip
def test_many_small_matrices(name: str, side: int, batch: int, dtype: str) -> None:
    """One matrix in each lane: what is found does not depend on the lane."""
    arrays = [draw(dtype, batch, side, side), draw(dtype, batch, side, 2)]
    function = LANES[name] if name.startswith("solve") else lambda a, b: LANES[name](a)
    graph = stax.make_graph(function)(*arrays)
    assert not steps_of(graph, LapackStep)
    program, tolerance = compile_graph(graph), 1e-2 if dtype == "float32" else 1e-9
    found = [np.asarray(x) for x in program.run(arrays)]
    for x, y in zip(found, evaluate(graph, arrays), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        scale = max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(x / scale, y / scale, rtol=tolerance, atol=tolerance)
    turned = [np.asarray(x) for x in program.run([np.roll(x, 3, 0) for x in arrays])]
    for x, y in zip(found, turned, strict=True):
        np.testing.assert_array_equal(np.roll(x, 3, 0), y)


def test_small_matrices_that_have_no_factors() -> None:
    x = np.stack([np.eye(5, dtype=np.float32)] * 9)
    x[2], x[4, 1, 1], x[6, 3, 3], x[7, 2] = 0, -1, np.nan, 0
    factor = np.asarray(stax.jit(snp.linalg.cholesky)(x))
    np.testing.assert_array_equal(factor, np.asarray(snp.linalg.cholesky(x)))
    x[6, 3, 3] = 0
    for got, want in zip(stax.jit(linalg.lu)(x), linalg.lu(x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("function", [linalg.lu, lambda x: spectral.svd(x, False)])
def test_results_that_nobody_reads(function: Callable[..., Any], wanted: tuple[int, ...]) -> None:
    x = draw("float64", 3, 6, 4)
    chosen = stax.make_graph(lambda a: [function(a)[i] for i in wanted])(x)
    check(chosen)
    expected = evaluate(stax.make_graph(function)(x), [x])
    for i, y in zip(wanted, compile_graph(chosen).run([x]), strict=True):
        np.testing.assert_allclose(np.asarray(y), expected[i], atol=1e-12)


def test_equal_factorizations_are_compiled_once() -> None:
    x = draw("float32", 8, 8)
    graph = stax.make_graph(lambda a: linalg.lu(linalg.lu(a)[0])[0])(x)
    first, second = steps_of(graph, LapackStep)
    assert first.kernel.name == second.kernel.name
    (other,) = steps_of(stax.make_graph(linalg.lu)(x), LapackStep)
    assert other.kernel.name != first.kernel.name  # it has more results


@pytest.mark.parametrize(
    "function",
    [
        lambda x: spectral.eig(x),
        lambda x: qr.qr(x, False, True),
        lambda x: linalg.cholesky(x[:0, :0]),
    ],
)
def test_through_python(function: Callable[..., Any]) -> None:
    x = draw("float64", 6, 6)
    graph = stax.make_graph(function)(x)
    check(graph)
    assert len(steps_of(graph, HostStep)) == 1
    assert module_text(graph) == module_text(stax.make_graph(function)(x))  # it names no address
    for a, b in zip(compile_graph(graph).run([x]), evaluate(graph, [x]), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, atol=1e-12)


def test_calls_from_several_threads() -> None:
    run = stax.jit(lambda x: snp.fft.irfft2(snp.fft.rfft2(x)) + snp.linalg.inv(x))
    given = [draw("float32", 120, 120) + 20 * np.eye(120, dtype="float32") for _ in range(4)]
    expected = [x + np.linalg.inv(x) for x in given]
    run(given[0])
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = np.asarray(run(given[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, y in enumerate(expected):
        np.testing.assert_allclose(found[i], y, atol=1e-4)


def test_an_op_through_python_follows_and_precedes_kernels() -> None:
    def f(x: Any) -> Any:
        return snp.tanh(snp.abs(snp.fft.fft(snp.exp(x)))) * 2

    x = draw("float64", 40)
    expected = np.tanh(np.abs(np.fft.fft(np.exp(x)))) * 2
    np.testing.assert_allclose(np.asarray(stax.jit(f)(x)), expected, rtol=1e-12)


def test_an_exception_of_an_op_travels_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *arrays: Any) -> Any:
        raise KeyboardInterrupt("stop")

    for n in (4, 200):  # the larger one runs without the GIL
        run = stax.jit(lambda x: snp.abs(snp.linalg.eigvals(x)) + 1)
        x = draw("float32", n, n)
        expected = np.asarray(run(x))
        with monkeypatch.context() as patch:
            patch.setattr(spectral.Eig, "evaluate", fail)
            with pytest.raises(KeyboardInterrupt, match="stop"):
                run(x)
        np.testing.assert_array_equal(np.asarray(run(x)), expected)


def test_library_steps_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(carry: Any, x: Any) -> Any:
        factor = snp.linalg.cholesky(carry @ carry.T + snp.eye(4) * x)
        return carry * 0.5 + factor * 0.1, snp.linalg.eigvals(factor).real.sum()

    start, xs = draw("float64", 4, 4), np.arange(1.0, 5.0)
    run = stax.jit(lambda c: stax.lax.scan(body, c, xs))
    found = run(start)
    carry, rows = start, []
    for x in xs:
        factor = np.linalg.cholesky(carry @ carry.T + np.eye(4) * x)
        carry = carry * 0.5 + factor * 0.1
        rows.append(np.trace(factor))
    np.testing.assert_allclose(np.asarray(found[0]), carry, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found[1]), rows, rtol=1e-12)

    def fail(self: Any, *arrays: Any) -> Any:
        raise ZeroDivisionError("in a loop")

    monkeypatch.setattr(spectral.Eig, "evaluate", fail)
    with pytest.raises(ZeroDivisionError, match="in a loop"):
        run(start)
