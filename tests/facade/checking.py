"""The comparison of one call in both libraries: type, values, compiled values, slopes, errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import InternalError
from tests.facade.drawing import Call, From, Kind

TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-10, "complex128": 1e-10}
FAMILIES = (TypeError, ValueError, NotImplementedError, IndexError, ArithmeticError, KeyError)


class Entry(NamedTuple):
    """How one function is called, and what cannot be asked of it."""

    kind: Kind
    grad: bool = True  # whether slopes are compared
    concrete: bool = False  # whether shapes follow from values, so that nothing is compiled
    weak: bool = True  # whether weak types are compared
    more: bool = False  # whether it may accept what JAX refuses
    loose: float = 1.0  # how much more than the dtype's error is allowed


def rows(kind: Kind, names: str, **flags: Any) -> dict[str, Entry]:
    """Return an entry of one kind for each name."""
    return {name: Entry(kind, **flags) for name in names.split()}


class Bound(NamedTuple):
    """A call whose arrays are taken out, to be traced."""

    call: Call
    leaves: list[Any]
    structure: Any
    places: list[int]

    @classmethod
    def of(cls, call: Call) -> Bound:
        leaves, structure = jax.tree.flatten((call.args, call.options), is_leaf=_is_leaf)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
        return cls(call, leaves, structure, places)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.leaves[i] for i in self.places]

    def run(self, library: Any, function: Callable[..., Any], arrays: Any) -> list[Any]:
        """Return the leaves of the function's result for other arrays."""
        full = [leaf.make(library) if isinstance(leaf, From) else leaf for leaf in self.leaves]
        for place, value in zip(self.places, arrays, strict=True):
            full[place] = value
        args, options = jax.tree.unflatten(self.structure, full)
        return jax.tree.leaves(function(*args, **options))


def _is_leaf(x: Any) -> bool:
    return isinstance(x, From)


def check(
    ours: Callable[..., Any], theirs: Callable[..., Any], entry: Entry, call: Call, slopes: bool
) -> None:
    """Compare one call, eager and compiled; with `slopes` also its derivative."""
    bound = Bound.of(call)
    try:
        kinds = _kinds(bound, theirs, entry)
    except Exception as error:
        _check_refused(bound, ours, entry, error)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        eager = bound.run(stax, ours, bound.arrays)
    _check_types(eager, kinds, entry)
    if entry.concrete:
        _check_values(eager, kinds, entry)
        return
    slopes = bool(slopes and entry.grad and call.smooth and _moving(bound))
    right, right_slopes = _evaluate_theirs(bound, theirs, kinds, slopes)
    _check_values(eager, right, entry)
    compiled = stax.jit(lambda *a: bound.run(stax, ours, a))(*bound.arrays)
    _check_types(compiled, kinds, entry)
    _check_values(compiled, eager, entry)
    # Where no value is finite there are no slopes either, and JAX may have some.
    if right_slopes is not None and any(np.isfinite(_wide(y)).any() for y in right):
        found = _pull(stax, snp.asarray, bound, ours, kinds)
        _check_slopes(found, right_slopes, entry)


def _kinds(bound: Bound, theirs: Callable[..., Any], entry: Entry) -> list[Any]:
    """Return the types of JAX's result, or the result itself where shapes follow from values."""
    if entry.concrete:
        return bound.run(jax, theirs, bound.arrays)
    return jax.eval_shape(lambda *a: bound.run(jax, theirs, a), *bound.arrays)


def _check_refused(bound: Bound, ours: Any, entry: Entry, error: Exception) -> None:
    """Check that a call that JAX refuses is refused, with an error of the same family."""
    if entry.more:
        return
    with pytest.raises(FAMILIES) as raised:
        bound.run(stax, ours, bound.arrays)
    assert not isinstance(raised.value, InternalError)
    families = [f for f in FAMILIES if isinstance(error, f)]
    assert not families or any(isinstance(raised.value, f) for f in families), (
        f"JAX raises {type(error).__name__}: {error}"
    )


def _check_types(found: list[Any], kinds: list[Any], entry: Entry) -> None:
    assert len(found) == len(kinds)
    for x, kind in zip(found, kinds, strict=True):
        # Lengths are Python's integers, also where JAX has computed them with NumPy.
        if not hasattr(kind, "dtype") or (isinstance(kind, np.integer) and isinstance(x, int)):
            continue
        assert hasattr(x, "dtype"), f"not an array but {type(x).__name__}"
        assert (x.dtype, tuple(x.shape)) == (kind.dtype, tuple(kind.shape))
        if entry.weak and hasattr(kind, "weak_type"):
            assert x.weak_type == kind.weak_type, f"weak: {x.weak_type}, JAX: {kind.weak_type}"


def _evaluate_theirs(
    bound: Bound, theirs: Any, kinds: list[Any], slopes: bool
) -> tuple[list[Any], list[Any] | None]:
    """Return JAX's values and slopes, from one compilation; None if there are no slopes."""
    if slopes and any(_is_inexact(k) for k in kinds):
        try:
            both = jax.jit(
                lambda arrays: (
                    bound.run(jax, theirs, arrays),
                    _pull(jax, jnp.asarray, bound, theirs, kinds, arrays),
                )
            )
            return both(bound.arrays)
        except (NotImplementedError, TypeError, ValueError, AttributeError):
            pass  # JAX has no derivative
    return jax.jit(lambda arrays: bound.run(jax, theirs, arrays))(bound.arrays), None


def _is_inexact(kind: Any) -> bool:
    return hasattr(kind, "dtype") and jnp.issubdtype(kind.dtype, jnp.inexact)


def _moving(bound: Bound) -> list[int]:
    """Which arrays are differentiated: those of single or double precision."""
    wide = ("float32", "float64", "complex64", "complex128")
    return [i for i, a in enumerate(bound.arrays) if str(a.dtype) in wide]


def _pull(
    library: Any, asarray: Any, bound: Bound, function: Any, kinds: list[Any], given: Any = None
) -> list[Any]:
    """Return the cotangents of the arrays that are differentiated, for one of the result."""
    full = [asarray(a) for a in bound.arrays] if given is None else list(given)
    moving = _moving(bound)
    smooth = [i for i, kind in enumerate(kinds) if _is_inexact(kind)]

    def outputs(*arrays: Any) -> list[Any]:
        values = list(full)
        for i, x in zip(moving, arrays, strict=True):
            values[i] = x
        found = bound.run(library, function, values)
        return [found[i] for i in smooth]

    _, pull = library.vjp(outputs, *(full[i] for i in moving))
    rng = np.random.default_rng(0)
    cotangents = [rng.uniform(0.5, 1.5, kinds[i].shape).astype(kinds[i].dtype) for i in smooth]
    return list(pull([asarray(c) for c in cotangents]))


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _check_values(found: list[Any], right: list[Any], entry: Entry) -> None:
    for x, y in zip(found, right, strict=True):
        if not hasattr(y, "dtype"):
            assert x == y or x is y
            continue
        error = TOLERANCES.get(str(y.dtype), 1e-5) * entry.loose
        if np.asarray(y).dtype.kind in "biu":
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        else:
            np.testing.assert_allclose(_wide(x), _wide(y), rtol=error, atol=error / 10)


def _check_slopes(found: list[Any], right: list[Any], entry: Entry) -> None:
    for x, y in zip(found, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape), "type of the cotangent"
        ours, theirs = _wide(x), _wide(y)
        known = np.isfinite(theirs)  # masked cotangents are absorbed, JAX's may be NaN
        error = 10 * TOLERANCES.get(str(y.dtype), 1e-5) * entry.loose
        np.testing.assert_allclose(
            ours[known], theirs[known], rtol=error, atol=error, err_msg="slopes"
        )
