"""Random programs give JAX's values, types and gradients; compiled, they give NumPy's bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings

import stax
from tests.program_ops import OPS, Program
from tests.programs import LAST_BIT, LENGTHLESS, programs

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def wide(x: Any) -> np.ndarray:
    """Return values that NumPy can compare, floats as float64."""
    value = np.asarray(x)
    return value if value.dtype.kind in "biu" else value.astype(np.float64)


def magnitude(values: Any) -> float:
    """Return the largest magnitude among the floats of `values`, at least 1."""
    floats = [np.abs(wide(x)).max() for x in values if np.size(x) and wide(x).dtype.kind == "f"]
    return max([1.0, *(float(x) for x in floats if np.isfinite(x))])


def coarsest(program: Program, values: Any) -> float:
    """Return the spacing of the coarsest floating dtype in a run."""
    return max([2.0**-52, *(EPSILON[str(x.dtype)] for x in values if str(x.dtype) in EPSILON)])


def assert_same_type(ours: Any, theirs: Any) -> None:
    """Check dtype, shape and weak flag."""
    assert (str(ours.dtype), ours.shape) == (str(theirs.dtype), theirs.shape)
    # A comparison has no weak result here: a bool is never converted.
    assert ours.weak_type == theirs.weak_type or ours.dtype == bool


def assert_close(ours: Any, theirs: Any, error: float) -> None:
    """Check values up to an absolute error; integers exactly."""
    left, right = wide(ours), wide(theirs)
    if left.dtype.kind in "biu":
        np.testing.assert_array_equal(left, right)
    else:
        np.testing.assert_allclose(left, right, rtol=0, atol=error)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    """Check equality of bits; one NaN is as good as another."""
    left, right = np.asarray(ours), np.asarray(theirs)
    assert left.dtype == right.dtype and left.shape == right.shape
    left, right = wide(left), wide(right)
    np.testing.assert_array_equal(left, right)
    if left.dtype.kind == "f":
        number = ~np.isnan(left)
        np.testing.assert_array_equal(np.signbit(left)[number], np.signbit(right)[number])


def check_values(program: Program) -> None:
    """Compare values and types with JAX's, eager and jitted."""
    arguments = program.arguments()
    every = program.trace(stax, *map(stax.numpy.asarray, arguments))
    error = 8 * coarsest(program, every) * (len(program.steps) + 1) * magnitude(every)
    theirs = jax.jit(lambda *xs: program(jax, *xs))(*arguments)
    jitted = stax.jit(lambda *xs: program(stax, *xs))(*arguments)
    for i, right, compiled in zip(program.outputs, theirs, jitted, strict=True):
        assert_same_type(every[i], right)
        assert_same_type(compiled, right)
        assert_close(every[i], right, error)
        assert_close(compiled, right, error)


def loss_of(program: Program, lib: Any) -> Any:
    """Return the program as a function to a scalar that weighs all elements differently."""

    def loss(*arguments: Any) -> Any:
        total = lib.numpy.zeros((), "float32")
        for y in program(lib, *arguments):
            if lib.numpy.issubdtype(y.dtype, np.floating):
                flat = lib.numpy.ravel(y).astype("float32")
                total += lib.numpy.vdot(flat, np.cos(np.arange(flat.size)).astype(np.float32))
        return total

    return loss


def differentiable(program: Program) -> tuple[int, ...]:
    """Return the positions of the float inputs."""
    return tuple(i for i, x in enumerate(program.inputs) if x.kind == "f")


def check_gradients(program: Program) -> None:
    """Compare gradients with JAX's, eager and jitted."""
    arguments, argnums = program.arguments(), differentiable(program)
    every = program.trace(stax, *map(stax.numpy.asarray, arguments))
    theirs = jax.jit(jax.grad(loss_of(program, jax), argnums))(*arguments)
    ours = stax.grad(loss_of(program, stax), argnums)
    scale = magnitude([*every, *theirs]) * magnitude(theirs)
    error = 16 * max(coarsest(program, every), 2.0**-23) * (len(program.steps) + 1) * scale
    eager = ours(*map(stax.numpy.asarray, arguments))
    for found in (eager, stax.jit(ours)(*arguments)):
        for left, right in zip(found, theirs, strict=True):
            # A gradient has the type of its argument here; in JAX weak types come and go.
            assert (left.dtype, left.shape) == (right.dtype, right.shape)
            assert_close(left, right, error)


def check_mapped(program: Program) -> None:
    """Compare vmap with JAX's, over some of the arguments."""
    single, batch = program.arguments(), program.arguments(leading=(3,))
    mapped = [(program.seed >> i) % 3 > 0 for i in range(len(single))]
    weak = [x.type.weak_type for x in program.inputs]
    mapped = [m and not w for m, w in zip(mapped, weak, strict=True)]
    mapped[0] |= not any(mapped)  # the first input is never weak
    in_axes = tuple(0 if m else None for m in mapped)
    arguments = [b if m else s for s, b, m in zip(single, batch, mapped, strict=True)]
    every = stax.vmap(lambda *xs: program.trace(stax, *xs), in_axes)(*arguments)
    error = 8 * coarsest(program, every) * (len(program.steps) + 1) * magnitude(every)
    theirs = jax.jit(jax.vmap(lambda *xs: program(jax, *xs), in_axes))(*arguments)
    jitted = stax.jit(stax.vmap(lambda *xs: program(stax, *xs), in_axes))(*arguments)
    for i, right, compiled in zip(program.outputs, theirs, jitted, strict=True):
        for left in (every[i], compiled):
            assert_same_type(left, right)
            assert_close(left, right, error)


def check_second_order(program: Program) -> None:
    """Compare a product of the Hessian with a vector with JAX's, forward over reverse."""
    arguments, argnums = program.arguments(), differentiable(program)
    every = program.trace(stax, *map(stax.numpy.asarray, arguments))

    def product(lib: Any) -> Any:
        def run(*xs: Any) -> Any:
            def gradient(*chosen: Any) -> Any:
                full = list(xs)
                for i, x in zip(argnums, chosen, strict=True):
                    full[i] = x
                return lib.grad(loss_of(program, lib), argnums)(*full)

            chosen = tuple(lib.numpy.asarray(xs[i]) for i in argnums)
            return lib.jvp(gradient, chosen, tuple(lib.numpy.cos(x) for x in chosen))

        return run

    theirs = jax.tree.leaves(jax.jit(product(jax))(*arguments))
    scale = magnitude([*every, *theirs]) * magnitude(theirs)
    error = 32 * max(coarsest(program, every), 2.0**-23) * (len(program.steps) + 1) * scale
    for left, right in zip(
        stax.tree.leaves(stax.jit(product(stax))(*arguments)), theirs, strict=True
    ):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert_close(left, right, error)


def check_dynamic(program: Program) -> None:
    """Compare a program compiled once for all lengths with NumPy, at two lengths.

    Programs that ask for the length raise, which is right.
    """
    jitted = stax.jit(lambda x: program(stax, x), dynamic={"x": {0: "n"}})
    for length in (program.inputs[0].shape[0], 7):
        x = program.arguments()[0]
        x = np.resize(x, (length, *x.shape[1:]))
        try:
            found = jitted(x)
        except (stax.errors.ShapeError, stax.errors.LoweringError):
            return
        every = program.trace(stax, stax.numpy.asarray(x))
        error = 8 * EPSILON["float32"] * (len(program.steps) + 1) * magnitude(every)
        for i, left in zip(program.outputs, found, strict=True):
            assert (left.dtype, left.shape) == (every[i].dtype, every[i].shape)
            assert_close(left, every[i], error)


def check_bits(program: Program) -> None:
    """Compare compiled code with NumPy, on values that include the special ones."""
    arguments = program.arguments(special=True)
    with np.errstate(all="ignore"):
        eager = program(stax, *(stax.numpy.asarray(x) for x in arguments))
    jitted = stax.jit(lambda *xs: program(stax, *xs))(*arguments)
    for left, right in zip(jitted, eager, strict=True):
        assert_same_bits(left, right)


def check_units(program: Program) -> None:
    """Compare a chain of exact ops that ends in one function with NumPy: at most 4 ulp apart."""
    arguments = program.arguments()
    eager = program(stax, *map(stax.numpy.asarray, arguments))
    jitted = stax.jit(lambda *xs: program(stax, *xs))(*arguments)
    for name, f in SMOOTH_FUNCTIONS.items():
        for y, z in zip(eager, jitted, strict=True):
            if not stax.numpy.issubdtype(y.dtype, np.floating):
                continue
            left = np.asarray(stax.jit(lambda v, f=f: f(stax, v))(z), np.float64)
            right = np.asarray(f(stax, y), np.float64)
            spacing = np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)
            assert np.all(np.abs(left - right) <= 4 * spacing), name


SMOOTH_FUNCTIONS = {
    name: OPS[name] for name in ("sin", "cos", "tanh", "exp", "log1p", "logistic", "erf", "arctan")
}
HALVES = ("float16", "bfloat16", "float32")
INTEGERS = ("int8", "uint8", "int16", "uint32", "int32", "float32")
WIDE = ("float64", "float32", "float64")


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True), stax.enable_x64(True):
        yield


@settings(max_examples=30)
@given(programs())
def test_values_are_those_of_jax(program: Program) -> None:
    check_values(program)


@settings(max_examples=12)
@given(programs(dtypes=HALVES, steps=6))
def test_values_in_half_precision_are_those_of_jax(program: Program) -> None:
    check_values(program)


@settings(max_examples=12)
@given(programs(dtypes=INTEGERS[:3], steps=8))
def test_values_of_narrow_integers_are_those_of_jax(program: Program) -> None:
    check_values(program)


def test_values_in_double_precision_are_those_of_jax(x64: None) -> None:
    settings(max_examples=12)(given(programs(dtypes=WIDE, steps=8))(check_values))()


@settings(max_examples=15)
@given(programs(steps=8))
def test_gradients_are_those_of_jax(program: Program) -> None:
    check_gradients(program)


@settings(max_examples=6)
@given(programs(steps=6))
def test_second_derivatives_are_those_of_jax(program: Program) -> None:
    check_second_order(program)


@settings(max_examples=15)
@given(programs(steps=8))
def test_mapped_programs_are_those_of_jax(program: Program) -> None:
    check_mapped(program)


@settings(max_examples=40)
@given(programs(families=LAST_BIT, steps=14))
def test_compiled_programs_have_the_bits_of_numpy(program: Program) -> None:
    check_bits(program)


@settings(max_examples=15)
@given(programs(dtypes=HALVES, families=LAST_BIT, steps=8))
def test_compiled_programs_in_half_precision_have_the_bits_of_numpy(program: Program) -> None:
    check_bits(program)


@settings(max_examples=20)
@given(programs(dtypes=INTEGERS, families=LAST_BIT, steps=10))
def test_compiled_integers_have_the_bits_of_numpy(program: Program) -> None:
    check_bits(program)


@settings(max_examples=4)
@given(programs(families=LAST_BIT, steps=4))
def test_compiled_functions_are_within_four_units_of_numpy(program: Program) -> None:
    check_units(program)


@settings(max_examples=15)
@given(programs(families=LENGTHLESS, steps=6, shape=(5, 3)))
def test_programs_of_any_length(program: Program) -> None:
    check_dynamic(program)


DEEP = {
    "values": (check_values, 400, {"steps": 16}),
    "values in half precision": (check_values, 200, {"dtypes": HALVES}),
    "values of integers": (check_values, 200, {"dtypes": INTEGERS[:3]}),
    "gradients": (check_gradients, 300, {"steps": 14}),
    "gradients in half precision": (check_gradients, 150, {"dtypes": HALVES}),
    "second derivatives": (check_second_order, 150, {}),
    "mapped": (check_mapped, 300, {"steps": 14}),
    "bits": (check_bits, 1000, {"families": LAST_BIT, "steps": 20}),
    "bits of integers": (check_bits, 400, {"families": LAST_BIT, "dtypes": INTEGERS}),
    "bits in half precision": (check_bits, 400, {"families": LAST_BIT, "dtypes": HALVES}),
    "units": (check_units, 60, {"families": LAST_BIT}),
    "any length": (check_dynamic, 300, {"families": LENGTHLESS, "shape": (5, 3)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_deeper(name: str) -> None:
    check, count, options = DEEP[name]
    settings(max_examples=count)(given(programs(**options))(check))()


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_values, check_gradients])
def test_deeper_in_double_precision(check: Callable[[Program], None], x64: None) -> None:
    settings(max_examples=200)(given(programs(dtypes=WIDE))(check))()
