"""Derivatives checked against finite differences: the names of `jax.test_util`.

Each check is along one random direction, the same in every run, so it costs a few evaluations
however large the arguments are.  Differences are of fourth order, (8 (f(x + h) - f(x - h)) -
(f(x + 2 h) - f(x - 2 h))) / 12 h, so that in float32 they are right to about five digits.

    >>> check_grads(lambda x: x**3, (2.0,), order=2)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stax import tree
from stax.api.derivatives import jvp, linearize, vjp
from stax.api.tracing import check_callable, function_name
from stax.errors import ArgumentValueError, DerivativeError
from stax.trace import type_of
from stax.types import ArrayType, bfloat16, float0, is_complex, is_inexact, is_python_number

__all__ = ["check_grads", "check_jvp", "check_vjp"]

Tolerance = float | Mapping[Any, float] | None

# How far a derivative may be off, absolutely and relative to its size, for each element.
_TOLERANCES = {
    np.dtype(bfloat16): 1e-1,
    np.dtype("float16"): 1e-2,
    np.dtype("float32"): 2e-3,
    np.dtype("float64"): 1e-5,
    np.dtype("complex64"): 1e-3,
    np.dtype("complex128"): 1e-5,
}
# The spacing of numbers at 1.
_SPACING = {np.dtype(bfloat16): 2.0**-7, np.dtype("float16"): 2.0**-10}


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Check derivatives of `f` at `args` up to `order`, in each sequence of `modes`.

    Modes are "fwd" (jvp), "rev" (vjp) and "lin" (linearize).  `atol` and `rtol` are numbers or
    dicts of them by dtype; `eps` is the step of the differences, by default the fourth root of the
    spacing of the dtype over the number of elements.  Integers in `args` stay as they are.

    Raises DerivativeError, an AssertionError, where a derivative is wrong.
    """
    check_callable("check_grads", f)
    for mode in modes:
        if mode not in ("fwd", "rev", "lin"):
            raise ArgumentValueError(
                f"check_grads: there is no mode {mode!r}.", advice='Use "fwd", "rev" or "lin".'
            )
    name, given = function_name(f), tuple(args)

    def check(f: Callable[..., Any], args: tuple[Any, ...], left: int, what: str) -> None:
        said = f" of the {what}" if what else ""
        for mode in modes:
            label = f"{_NAMES[mode]}{said}"
            message = f"the {label} of {name}"
            if mode == "rev":
                check_vjp(f, functools.partial(vjp, f), args, atol, rtol, eps, message)
                if left > 1:
                    check(functools.partial(_pulled, f), args, left - 1, label)
                continue
            push = functools.partial(jvp if mode == "fwd" else _pushed, f)
            check_jvp(f, push, args, atol, rtol, eps, message)
            if left > 1:
                check(functools.partial(_at, push), (args, _like(args)), left - 1, label)

    check(f, given, order, "")


_NAMES = {"fwd": "jvp", "rev": "vjp", "lin": "linear map"}


def _pushed(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    out, push = linearize(f, *primals)
    return out, push(*tangents)


def _at(push: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """Return a pushforward as a function to differentiate: without tangents of integers."""
    dots = tree.tree_map(
        lambda t, x: np.zeros(np.shape(x), float0) if t is None else t,
        tangents,
        primals,
        is_leaf=lambda t: t is None,
    )
    out, moved = push(primals, dots)
    return out, tree.tree_map(lambda t: None if t.dtype == float0 else t, moved)


def _pulled(f: Callable[..., Any], *args: Any) -> Any:
    """Return the pullback of the result, as a function to differentiate."""
    out, pull = vjp(f, *args)
    cts = tree.tree_map(
        lambda y: y if is_inexact(type_of(y).dtype) else np.zeros(np.shape(y), float0), out
    )
    return tree.tree_map(lambda t: None if t.dtype == float0 else t, pull(cts))


def _like(args: Any) -> Any:
    """Return the arguments as tangents of themselves."""
    return tree.tree_map(lambda x: x if is_inexact(type_of(x).dtype) else None, args)


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_jvp(primals, tangents) -> (result, tangent)` against differences of `f` at `args`.

    `err_msg` names what is checked.  Raises DerivativeError where it is wrong.
    """
    args, what = tuple(args), err_msg or f"the jvp of {function_name(f)}"
    draw = np.random.RandomState(0)
    dots = tree.tree_map(functools.partial(_random_like, draw), args)
    out, out_dot = f_jvp(args, dots)
    within = functools.partial(_within, _Tolerances(atol, rtol))
    within(f"{what}: its result", out, f(*args))
    expected = _difference(f, args, dots, eps)
    for y, t in zip(tree.tree_leaves(out), tree.tree_leaves(out_dot), strict=True):
        wanted = type_of(y).dtype if is_inexact(type_of(y).dtype) else float0
        if np.dtype(t.dtype) != wanted:
            raise DerivativeError(
                f"{what} has dtype {t.dtype} where the result has {type_of(y).dtype}.",
                advice="A tangent has the dtype of what it belongs to.",
            )
    within(what, out_dot, expected)


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_vjp(*args) -> (result, pullback)` against differences of `f` at `args`.

    The inner product of a random cotangent and the tangent of a random direction is that of what
    the cotangent is pulled back to and the direction.  `err_msg` names what is checked.  Raises
    DerivativeError where it is wrong.
    """
    args, what = tuple(args), err_msg or f"the vjp of {function_name(f)}"
    draw = np.random.RandomState(0)
    out, pull = f_vjp(*args)
    within = functools.partial(_within, _Tolerances(atol, rtol))
    within(f"{what}: its result", out, f(*args))
    dots = tree.tree_map(functools.partial(_random_like, draw), args)
    cts = tree.tree_map(functools.partial(_random_like, draw), out)
    # A cotangent acts on tangents by the real part of the product, without a conjugate.
    back = pull(cts)
    found, expected = _products(back, dots), _products(cts, _difference(f, args, dots, eps))
    dtype = _coarsest((args, out))
    size = float(np.abs(found).sum())
    within(what, np.asarray(found.sum(), dtype), np.asarray(expected.sum(), dtype), size)


# --- differences ---


def _random_like(draw: np.random.RandomState, x: Any) -> Any:
    """Return a random tangent of `x`."""
    type_ = type_of(x)
    if not is_inexact(type_.dtype):
        return np.zeros(type_.shape, float0)
    value = np.asarray(draw.randn(*type_.shape))
    if is_complex(type_.dtype):
        value = value + 1j * draw.randn(*type_.shape)
    return value.astype(type_.dtype)


def _difference(f: Callable[..., Any], args: Any, dots: Any, eps: float | None) -> Any:
    """Return the derivative of `f` along `dots`, by differences."""
    h = eps or _default_step(dots)

    def moved(steps: int) -> list[Any]:
        there = tree.tree_map(lambda x, t: _step(x, t, steps * h), args, dots)
        return tree.tree_leaves(f(*there))

    far, near, back, behind = map(moved, (2, 1, -1, -2))
    columns = zip(far, near, back, behind, strict=True)
    out_tree = tree.tree_structure(f(*args))
    return out_tree.unflatten([_slope(h, *column) for column in columns])


def _default_step(dots: Any) -> float:
    """Return a step of which the error is that of rounding; a long direction needs a short one."""
    length = sum(t.size for t in tree.tree_leaves(dots) if t.dtype != float0)
    return (_spacing(_coarsest(dots)) / max(length, 1)) ** 0.25


def _step(x: Any, dot: Any, length: float) -> Any:
    if dot.dtype == float0:
        return x
    value = np.asarray(x) + (length * _wide(dot)).astype(dot.dtype)
    return value.item() if is_python_number(x) else value.astype(dot.dtype)


def _slope(h: float, far: Any, near: Any, back: Any, behind: Any) -> Any:
    type_ = type_of(near)
    if not is_inexact(type_.dtype):
        return np.zeros(type_.shape, float0)
    far, near, back, behind = map(_wide, (far, near, back, behind))
    value = (8 * _less(near, back) - _less(far, behind)) / (12 * h)
    return value.astype(type_.dtype)


def _less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a - b, where the difference of equal infinities is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0, a - b)


def _wide(x: Any) -> np.ndarray:
    """Return an array in double precision."""
    value = np.asarray(x)
    return value.astype(complex if is_complex(value.dtype) else float)


def _coarsest(values: Any) -> Any:
    """Return the dtype with the largest spacing among those that have derivatives."""
    kinds = [x.dtype if hasattr(x, "dtype") else type_of(x).dtype for x in tree.tree_leaves(values)]
    found = [np.dtype(k) for k in kinds if is_inexact(k)]
    return max(found, key=_spacing, default=np.dtype("float32"))


def _spacing(dtype: Any) -> float:
    return _SPACING.get(dtype) or float(np.finfo(dtype).eps)


def _products(cts: Any, dots: Any) -> np.ndarray:
    """Return the terms of the product of cotangents and tangents."""
    pairs = zip(tree.tree_leaves(cts), tree.tree_leaves(dots), strict=True)
    terms = [np.ravel((_wide(c) * _wide(t)).real) for c, t in pairs if t.dtype != float0]
    return np.concatenate([np.zeros(1), *terms])


# --- comparisons ---


class _Tolerances:
    """Absolute and relative tolerances by dtype."""

    def __init__(self, atol: Tolerance, rtol: Tolerance) -> None:
        self.given = atol, rtol

    def __call__(self, dtype: np.dtype) -> tuple[float, float]:
        found = []
        for tolerance in self.given:
            if tolerance is None or isinstance(tolerance, Mapping):
                by_dtype = {np.dtype(k): v for k, v in (tolerance or {}).items()}
                tolerance = by_dtype.get(dtype, _TOLERANCES.get(dtype, 0.0))
            found.append(float(tolerance))
        return found[0], found[1]


def _within(
    tolerances: _Tolerances, what: str, found: Any, expected: Any, size: float = 0.0
) -> None:
    """Raise DerivativeError unless two trees agree, element by element.

    `size` is that of the terms of a sum, where they may cancel.
    """
    left, right = tree.tree_flatten_with_path(found)[0], tree.tree_leaves(expected)
    for (path, a), b in zip(left, right, strict=True):
        if getattr(a, "dtype", None) == float0:
            continue
        type_ = type_of(a)
        x, y = _wide(a), _wide(b)
        atol, rtol = tolerances(np.dtype(type_.dtype))
        with np.errstate(invalid="ignore"):
            off = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, np.abs(x - y))
            wrong = ~(off <= atol + rtol * np.maximum(np.abs(y), size))
        if wrong.any():
            raise _difference_error(what, "".join(map(str, path)), type_, (x, y, off, wrong))


def _difference_error(
    what: str, place: str, type_: ArrayType, arrays: tuple[np.ndarray, ...]
) -> DerivativeError:
    x, y, off, wrong = arrays
    worst = np.unravel_index(
        np.argmax(np.where(wrong, np.nan_to_num(off, nan=np.inf), -1)), x.shape
    )
    at = f" at {tuple(map(int, worst))}" if worst else ""
    return DerivativeError(
        f"{what} is not what finite differences say, in {np.sum(wrong)} of {x.size} elements.",
        values=[
            (f"derivative{place}", repr(type_), f"{x[worst]:.6g}{at}"),
            ("differences", repr(type_), f"{y[worst]:.6g}"),
        ],
        advice=(
            "Look at the rule that is used there; near a kink, or where values are large, choose "
            "another eps, atol or rtol."
        ),
    )
