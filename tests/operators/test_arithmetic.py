"""Arithmetic with promotion and broadcasting, against jax.numpy."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays, mutually_broadcastable_shapes

import stax.interpreters.evaluate
import stax.numpy
from stax.array import asarray
from stax.config import enable_x64
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import symbol
from stax.operators import arithmetic
from stax.printer import to_text
from stax.trace import Trace
from stax.types import ArrayType, float32, int32
from tests.like_jax import TOLERANCES, assert_like_jax

DTYPES = ["bool", "int8", "int32", "uint8", "uint32", "float16", "float32", "complex64"]
BINARY = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power",
    "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
    "logical_and", "logical_or", "logical_xor",
]  # fmt: skip
UNARY = ["negative", "positive", "absolute", "invert", "logical_not"]
VALUES = np.array([-7, -2, -1, 0, 1, 2, 3, 9])


def outcome(function: Any, *args: Any) -> Any:
    """Return the result, or None where an error says that the types do not go together."""
    try:
        return function(*args)
    except (TypeError, ShapeError):
        return None


def both(name: str, *args: Any) -> None:
    """Check that a function does what JAX's does, refusing included."""
    ours = outcome(getattr(arithmetic, name), *[asarray(a) for a in args])
    same(ours, outcome(getattr(jnp, name), *[jnp.asarray(a) for a in args]))


def same(ours: Any, theirs: Any) -> None:
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert_like_jax(ours, theirs, TOLERANCES.get(str(ours.dtype), 0.0))


@functools.cache
def of_jax(x: str, y: str) -> dict[str, Any]:
    """Return what JAX's functions of two arrays give for two types, from one compilation."""
    given = VALUES.astype(x)[:, None], VALUES.astype(y)
    return jax.jit(lambda *xs: {name: outcome(getattr(jnp, name), *xs) for name in BINARY})(*given)


def is_complex_pair(x: str, y: str) -> bool:
    return "complex64" in (x, y)


MIXED = [
    ("bool", "float32"), ("bool", "int8"), ("int8", "uint8"), ("uint8", "int32"),
    ("int32", "uint32"), ("int32", "float16"), ("float16", "float32"), ("float32", "complex64"),
]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("x", "y"), [*zip(DTYPES, DTYPES, strict=True), *MIXED])
def test_binary_functions_promote_like_jax(name: str, x: str, y: str) -> None:
    if is_complex_pair(x, y) and name in ("power", "divide"):
        pytest.skip("at 0 the libraries differ in which parts are NaN")
    if (name, x, y) == ("fmod", "bool", "bool"):
        pytest.skip("JAX looks at the type before promotion and divides by zero")
    left, right = VALUES.astype(x)[:, None], VALUES.astype(y)
    ours = outcome(getattr(arithmetic, name), asarray(left), asarray(right))
    same(ours, of_jax(x, y)[name])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str, dtype: str) -> None:
    both(name, VALUES.astype(dtype))


X = np.array([-2.5, 0.0, 3.0], np.float32)
I = np.array([-7, 0, 7], np.int32)  # noqa: E741
U = np.array([250, 0, 7], np.uint8)
B = np.array([True, False, True])
H = np.array([1.5, -2, 0.25], np.float16)

EXPRESSIONS = [
    "x+1", "1+x", "x-1.5", "2*x", "x/2", "1/i", "i/2", "i//2", "i%3", "i//0", "i%0", "2//i",
    "i**2", "2**i", "i**2.", "2.**i", "x**2", "x**-2", "x**0", "x**1", "x**3", "x**2.",
    "(-x)**.5", "x**i", "i**i", "u**2", "i+1.", "i*2.5", "i<<40", "i>>40", "u>>9", "u-1", "u*-1",
    "u+300", "i&True", "i&b", "~i", "~b", "b+b", "b*b", "b|b", "b^b", "b&b", "b/b", "b//b",
    "b%b", "b**b", "b**2", "+b", "abs(b)", "b<<1", "b+1", "1+b", "b+1.", "b*2", "-x", "+x",
    "abs(i)", "abs(u)", "-u", "h+1", "h*2.5", "h+x", "h+i", "h**2", "i<1.5", "x==x", "x!=1",
    "1<x", "x>=i", "x<=2.5", "divmod(i,-3)", "divmod(i,2.5)", "divmod(-7,i+1)", "divmod(x,2)",
    "i%-3", "x%2", "x%-2", "x//0", "x%0", "x//2.", "5%x", "x@x", "i@i", "x@i", "2%i", "True+x",
    "x+True", "i**True", "round(x)", "round(x,1)", "round(i)", "x+np.float64(2)",
    "np.float64(2)+x", "np.float64(2)*i", "np.int64(2)+u", "x*np.ones(3)", "np.ones(3)*x",
    "i+np.arange(3)", "x**np.int32(2)", "x+1j", "x==None", "x=='a'", "x!=None",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_operators_are_those_of_jax(text: str) -> None:
    values = {"x": X, "i": I, "u": U, "b": B, "h": H}
    ours = eval(text, {"np": np} | {k: asarray(v) for k, v in values.items()})
    theirs = eval(text, {"np": np} | {k: jnp.asarray(v) for k, v in values.items()})
    if isinstance(theirs, bool):
        assert ours is theirs
    else:
        kinds = [str(t.dtype) for t in (theirs if isinstance(theirs, tuple) else (theirs,))]
        assert_like_jax(ours, theirs, max(TOLERANCES.get(k, 0.0) for k in kinds))


@pytest.mark.parametrize(
    "text",
    ["b-b", "-b", "i**-1", "~x", "x<<1", "i&1.", "x+'a'", "x+None", "x+[1,2]", "x<None", "x+{}",
     "x@1", "x+x[:2]", "x==x[:2]", "x+2**40", "x==[1,1]", "x+object()", "(x+1j)%2"],
)  # fmt: skip
def test_what_jax_refuses_is_refused(text: str) -> None:
    allowed = (TypeError, ValueError, OverflowError)
    with pytest.raises(allowed):
        eval(text, {"x": jnp.asarray(X), "i": jnp.asarray(I), "b": jnp.asarray(B)})
    with pytest.raises(allowed):
        eval(text, {"x": asarray(X), "i": asarray(I), "b": asarray(B)})


@given(st.data())
@settings(max_examples=25)
def test_broadcasting(data: Any) -> None:
    shapes = data.draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    kinds = [data.draw(st.sampled_from([np.float32, np.int32, np.uint8])) for _ in range(2)]
    x, y = (
        data.draw(arrays(kind, shape, elements=st.integers(0, 9)))
        for kind, shape in zip(kinds, shapes.input_shapes, strict=True)
    )
    names = "add", "multiply", "subtract", "less"
    theirs = jax.jit(lambda *xs: [getattr(jnp, name)(*xs) for name in names])(x, y)
    for name, wanted in zip(names, theirs, strict=True):
        same(getattr(arithmetic, name)(asarray(x), asarray(y)), wanted)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ShapeError) as caught:
        arithmetic.add(asarray(np.zeros((2, 3))), asarray(np.zeros(2)))
    assert str(caught.value).splitlines()[0] == "add: shapes (2, 3) and (2,) do not broadcast."
    with pytest.raises(ArgumentError, match="operands are arrays and numbers, not list"):
        arithmetic.add(asarray(X), [1, 2, 3])
    with pytest.raises(DTypeError, match="no negative powers"):
        asarray(I) ** -1


def test_a_number_is_one_constant() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (4, 4)), "x")
        graph = trace.finish([2 * x + x])
    assert len(graph.nodes) == 3, to_text(graph)


def test_known_exponents_are_multiplied_out() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (4,)), "x")
        n = trace.input(ArrayType(int32, ()), "n")
        captured = asarray(np.int32(2))
        assert (x**3).node.op.name == "integer_pow"
        assert (x ** np.int64(3)).node.op.name == "integer_pow"
        assert (x**n).node.op.name == "pow"
        # A captured array is an input of the graph, and its value no part of it.
        assert (x**captured).node.op.name == "pow"


def test_symbolic_lengths_are_weak_integers() -> None:
    n = symbol("n")
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (n,)), "x")
        assert (x * n).type is x.type
        assert (x + x).type is x.type
        assert (x + 1 > x).shape == (n,)


def test_64_bits() -> None:
    with enable_x64(True):
        assert (asarray(I) / 2).dtype == np.float32
        assert (asarray(I.astype(np.int64)) / 2).dtype == np.float64
        assert (asarray(X) * 2).dtype == np.float32
        assert (asarray(3) * 2).dtype == np.int64


NUMBERS: list[Any] = [True, 2, 2.0, 2j, np.int8(2), np.float16(2), np.asarray(2), np.asarray([2.0])]


def weak_and_strong(library: Any) -> list[Any]:
    """Numbers as arrays, weak and strong."""
    dtypes = (bool, np.int8, np.uint32, np.float16, np.complex64)
    return [library.asarray(x) for x in (2, 2.0, 2j)] + [library.asarray(2, t) for t in dtypes]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "ge", "pow"])
def test_weak_types_are_those_of_jax(name: str) -> None:
    f, known = getattr(operator, name), weak_and_strong(stax.numpy)
    for a, b in zip(known, weak_and_strong(jnp), strict=True):
        pairs = [(a, x, b, x) for x in NUMBERS]
        pairs += [(a, c, b, d) for c, d in zip(known, weak_and_strong(jnp), strict=True)]
        for x, y, u, v in [*pairs, *((y, x, v, u) for x, y, u, v in pairs)]:
            ours, theirs = f(x, y), jax.eval_shape(lambda u=u, v=v: f(u, v))
            assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type), (x, y)
