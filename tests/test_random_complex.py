"""Random small complex programs under nested transforms give JAX's values and derivatives.

A program is a list of steps on a list of complex matrices; what it returns is its last value, or a
real number made of it.  Steps keep values of moderate size and away from branch cuts and ties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax.array import asarray

Function = Callable[..., Any]
SHAPE = 3, 3


def _bounded(lib: Any, z: Any) -> Any:
    """Keep values of moderate size: z over the length of (1, |z|)."""
    return z / lib.numpy.sqrt(1 + lib.numpy.abs(z) ** 2)


def _right(lib: Any, z: Any) -> Any:
    """Move values into the right half of the plane, away from cuts."""
    return z * 0.25 + 1.5


UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "neg": lambda lib, z: -z,
    "conj": lambda lib, z: z.conj(),
    "turn": lambda lib, z: z * (0.5 + 1j),
    "square": lambda lib, z: z**2,
    "cube": lambda lib, z: z * z * z,
    "exp": lambda lib, z: lib.numpy.exp(z),
    "sin": lambda lib, z: lib.numpy.sin(z),
    "tanh": lambda lib, z: lib.numpy.tanh(z * 0.5),
    "log": lambda lib, z: lib.numpy.log(_right(lib, z)),
    "sqrt": lambda lib, z: lib.numpy.sqrt(_right(lib, z)),
    "asin": lambda lib, z: lib.numpy.arcsin(z * 0.5),
    "parts": lambda lib, z: lib.lax.complex(z.imag, z.real * 2),
    "real": lambda lib, z: z.real.astype(z.dtype),
    "transpose": lambda lib, z: z.T,
    "reverse": lambda lib, z: z[::-1],
    "first": lambda lib, z: z - z[0],
    "mean": lambda lib, z: z - z.mean(0),
    "sum": lambda lib, z: z.sum(1, keepdims=True) + z,
    "running": lambda lib, z: lib.numpy.cumsum(z, 1),
    "product": lambda lib, z: lib.numpy.prod(z, 0) + z,
    "set": lambda lib, z: z.at[1].set(z[0] * 1j),
    "add": lambda lib, z: z.at[lib.numpy.array([0, 0])].add(z[1:]),
    "pad": lambda lib, z: lib.numpy.pad(z, ((1, 0), (0, 0)))[:-1],
    "hold": lambda lib, z: lib.lax.stop_gradient(z) * z,
    "jit": lambda lib, z: lib.jit(lambda v: v * v.conj() + 1j)(z),
}
BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda lib, x, y: x + y,
    "sub": lambda lib, x, y: x - y,
    "mul": lambda lib, x, y: x * y,
    "div": lambda lib, x, y: x / _right(lib, y),
    "matmul": lambda lib, x, y: x @ y,
    "power": lambda lib, x, y: _right(lib, x) ** (y * 0.5),
    "vdot": lambda lib, x, y: lib.numpy.vdot(x, y) + x,
    "join": lambda lib, x, y: lib.numpy.concatenate([x, y])[1:4],
    "lengths": lambda lib, x, y: lib.numpy.abs(x) * y,
}


class Step(NamedTuple):
    """One step: an op, and which earlier values it takes."""

    name: str
    operands: tuple[int, ...]


steps = st.one_of(
    st.builds(Step, st.sampled_from(sorted(UNARY)), st.tuples(st.integers(0, 9))),
    st.builds(
        Step, st.sampled_from(sorted(BINARY)), st.tuples(st.integers(0, 9), st.integers(0, 9))
    ),
)
programs = st.lists(steps, min_size=1, max_size=6)


def run(lib: Any, program: list[Step], z: Any) -> Any:
    """Return the last value of a program."""
    values = [z]
    for name, operands in program:
        table: Any = UNARY if len(operands) == 1 else BINARY
        chosen = [values[i % len(values)] for i in operands]
        values.append(_bounded(lib, table[name](lib, *chosen)))
    return values[-1]


def loss(lib: Any, program: list[Step]) -> Function:
    def real_valued(z: Any) -> Any:
        out = run(lib, program, z)
        return (lib.numpy.abs(out) ** 2).sum() + (out * (1 - 2j)).imag.sum()

    return real_valued


def tangent_of(z: Any) -> Any:
    return z[::-1] * 1j + 0.5


TRANSFORMS: dict[str, Callable[[Any, Function, list[Step]], Function]] = {
    "value": lambda lib, f, p: f,
    "grad": lambda lib, f, p: lib.grad(loss(lib, p)),
    "jvp": lambda lib, f, p: lambda z: lib.jvp(f, (z,), (tangent_of(z),)),
    "vjp": lambda lib, f, p: lambda z: lib.vjp(f, z)[1](tangent_of(z)),
    "linearize": lambda lib, f, p: lambda z: lib.linearize(f, z)[1](tangent_of(z)),
    "jvp of grad": lambda lib, f, p: (
        lambda z: lib.jvp(lib.grad(loss(lib, p)), (z,), (tangent_of(z),))
    ),
    "grad of jvp": lambda lib, f, p: lib.grad(
        lambda z: lib.numpy.abs(lib.jvp(f, (z,), (tangent_of(z),))[1]).sum()
    ),
}


def transformed(lib: Any, name: str, program: list[Step], mapped: bool) -> Function:
    f = TRANSFORMS[name](lib, lambda z: run(lib, program, z), program)
    if not mapped:
        return f
    return lambda z: lib.vmap(f)(lib.numpy.stack([z, z * 0.5j]))


def assert_close(ours: Any, theirs: Any) -> None:
    left, right = stax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(left) == len(right)
    for x, y in zip(left, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        scale = np.abs(np.asarray(y)).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(x) / scale, np.asarray(y) / scale, atol=2e-4)


def check(name: str, program: list[Step], mapped: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=SHAPE) + 1j * rng.normal(size=SHAPE)).astype(np.complex64)
    theirs = jax.jit(transformed(jax, name, program, mapped))(z)
    ours = transformed(stax, name, program, mapped)
    assert_close(ours(asarray(z)), theirs)
    assert_close(stax.jit(ours)(asarray(z)), theirs)


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=2)
@given(programs, st.booleans(), st.integers(0, 99))
def test_random_programs(name: str, program: list[Step], mapped: bool, seed: int) -> None:
    check(name, program, mapped, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=60)
@given(st.lists(steps, min_size=1, max_size=9), st.booleans(), st.integers(0, 99))
def test_many_random_programs(name: str, program: list[Step], mapped: bool, seed: int) -> None:
    check(name, program, mapped, seed)


@pytest.mark.parametrize("name", [*UNARY, *(f"{n} of two" for n in BINARY)])
def test_every_step(name: str) -> None:
    single = name in UNARY
    program = [Step(name if single else name.removesuffix(" of two"), (0,) if single else (0, 0))]
    check("grad", program, mapped=True, seed=1)
