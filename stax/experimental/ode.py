"""`jax.experimental.ode`: initial value problems of ordinary differential equations.

Steps are those of Dormand and Prince (1980): six stages of fifth order, and the difference to a
fourth order as the error, by which the next step is chosen.  Between steps the solution is the
quartic through both ends, their slopes and the middle (Shampine 1986).  The first step is chosen as
in Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section II.4.

Reverse mode solves the adjoint equation backwards in time, in memory that does not grow with the
number of steps (Chen et al. 2018, appendix C); forward mode differentiates the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stax import lax, tree
from stax.api import closure_convert, jvp, vjp, vmap
from stax.api.custom import custom_jvp, custom_vjp
from stax.errors import ArgumentValueError, DTypeError
from stax.flatten_util import ravel_pytree
from stax.numpy import (
    abs as modulus,
    concatenate,
    dot,
    full,
    inf,
    int32,
    maximum,
    mean,
    minimum,
    real,
    sqrt,
    stack,
    sum as sum_of,
    where,
    zeros,
)
from stax.numpy.arguments import array
from stax.types import is_float, is_inexact

# Stages are computed from those before by the rows of _STAGES, at the times _NODES of a step.
_NODES = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0],
        [1 / 5, 0, 0, 0, 0, 0, 0],
        [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
        [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
    ]
)
_FIFTH = _STAGES[-1]
_FOURTH = np.array([1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60])
_MIDDLE = 0.5 * np.array(
    [
        6025192743 / 30085553152,
        0,
        51252292925 / 65400821598,
        -2691868925 / 45128329728,
        187940372067 / 1594534317056,
        -1776094331 / 19743644256,
        11237099 / 235043384,
    ]
)
# A step grows or shrinks by such factors at most, and aims a bit below the error that is allowed.
_GROWTH, _SHRINKAGE, _SAFETY = 10.0, 0.2, 0.9

Slope = Callable[..., Any]


class _Options(NamedTuple):
    rtol: float
    atol: float
    mxstep: Any
    hmax: Any


class _State(NamedTuple):
    """A solution at `t`, its slope there, the step to take next, and the last one that was taken:
    where it began, and its quartic, highest coefficient first."""

    y: Any
    slope: Any
    t: Any
    step: Any
    began: Any
    quartic: Any


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: Any = inf,
    hmax: Any = inf,
) -> Any:
    """Return the solution of dy/dt = func(y, t, *args) that is `y0` at t[0], at the times `t`.

    `y0` is a tree of arrays, and `func` returns one like it; the result has a leading axis for the
    times, which rise strictly.  `args` are trees of arrays.  A step is taken if its error, over
    `atol + rtol * abs(y)`, has a root mean square of at most 1; there are `mxstep` of them between
    two times at most, none longer than `hmax`.

    Derivatives are those in `y0`, `t`, `args`, and what `func` closes over.  Raises DTypeError
    if the times are no floats, ArgumentValueError if they are no vector.
    """
    t = array("odeint", t)
    if not is_float(t.dtype):
        raise DTypeError(
            f"odeint: the times are floats, not {t.type}.", advice="Convert them with astype."
        )
    if t.ndim != 1 or not t.shape[0]:
        raise ArgumentValueError(
            f"odeint: the times are a vector, not {t.type}.",
            advice="Its first element is the time of y0.",
        )
    converted, closed = closure_convert(func, y0, t[0], *args)
    flat, unravel = ravel_pytree(y0)
    leaves, treedef = tree.tree_flatten((args, tuple(closed)))
    moving = [is_inexact(array("odeint", x).dtype) for x in leaves]

    def slope(y: Any, t: Any, *given: Any) -> Any:
        found = iter(given)
        every = [next(found) if m else x for m, x in zip(moving, leaves, strict=True)]
        args, closed = tree.tree_unflatten(treedef, every)
        return ravel_pytree(converted(unravel(y), t, *args, *closed))[0].astype(flat.dtype)

    solved = _solver(slope, _Options(rtol, atol, mxstep, hmax))
    given = [x for x, m in zip(leaves, moving, strict=True) if m]
    return vmap(unravel)(solved(flat, t, *given))


def _solver(slope: Slope, options: _Options) -> Callable[..., Any]:
    """Return the function of a vector, times and arguments that gives the solution, with rules."""

    def solution(y0: Any, t: Any, *args: Any) -> Any:
        return _solution(lambda y, s: slope(y, s, *args), y0, t, options)

    def bwd(residuals: Any, ct: Any) -> Any:
        ys, t, args = residuals
        return _adjoint(slope, options, ys, t, args, ct)

    def fwd(y0: Any, t: Any, *args: Any) -> Any:
        ys = solution(y0, t, *args)
        return ys, (ys, t, args)

    forward = custom_jvp(solution)
    forward.defjvp(lambda primals, tangents: jvp(solution, primals, tangents))
    both = custom_vjp(forward)
    both.defvjp(fwd, bwd)
    return both


def _solution(slope: Slope, y0: Any, t: Any, options: _Options) -> Any:
    """Return the solution at each of the times."""

    def taken(state: _State, target: Any) -> tuple[_State, Any]:
        limit = options.mxstep

        def unfinished(carry: Any) -> Any:
            state, count = carry
            return (state.t < target) & (count < limit) & (state.step > 0)

        def onwards(carry: Any) -> Any:
            state, count = carry
            return _tried(slope, state, options), count + 1

        state, _ = lax.while_loop(unfinished, onwards, (state, full((), 0, int32)))
        share = ((target - state.began) / (state.t - state.began)).astype(real(y0).dtype)
        value = state.quartic[0]
        for coefficient in state.quartic[1:]:
            value = value * share + coefficient
        return state, value

    f0 = slope(y0, t[0])
    step = minimum(_first_step(slope, y0, f0, t[0], options), options.hmax).astype(t.dtype)
    start = _State(y0, f0, t[0], step, t[0], stack([y0] * 5))
    _, ys = lax.scan(taken, start, t[1:])
    return concatenate([y0[None], ys])


def _tried(slope: Slope, state: _State, options: _Options) -> _State:
    """Return the state after a step, or with a smaller one to take where its error is too large."""
    y, t, h = state.y, state.t, state.step
    kind, width = real(y).dtype, state.step.astype(real(y).dtype)
    rows, nodes = _STAGES.astype(kind), _NODES.astype(t.dtype)

    def stage(i: Any, found: Any) -> Any:
        inner = y + width * dot(array("odeint", rows)[i], found)
        return found.at[i].set(slope(inner, t + h * array("odeint", nodes)[i]))

    first = zeros((7, *y.shape), y.dtype).at[0].set(state.slope)
    slopes = lax.fori_loop(1, 7, stage, first)
    after = y + width * dot(_FIFTH.astype(kind), slopes)
    error = width * dot((_FIFTH - _FOURTH).astype(kind), slopes)
    allowed = options.atol + options.rtol * maximum(modulus(y), modulus(after))
    ratio = sqrt(mean((modulus(error) / allowed) ** 2)).astype(t.dtype)
    least = where(ratio < 1, 1.0, _SHRINKAGE)
    factor = minimum(_GROWTH, maximum(ratio**-0.2 * _SAFETY, least))
    next_step = minimum(where(ratio == 0, h * _GROWTH, h * factor), options.hmax)
    middle = y + width * dot(_MIDDLE.astype(kind), slopes)
    quartic = _quartic(y, middle, after, width * state.slope, width * slopes[-1])
    new = _State(after, slopes[-1], t + h, next_step, t, quartic)
    kept = state._replace(step=next_step)
    return tree.tree_map(lambda a, b: where(ratio <= 1, a, b.astype(a.dtype)), new, kept)


def _quartic(y0: Any, middle: Any, y1: Any, rise0: Any, rise1: Any) -> Any:
    """Return the coefficients of the quartic with these values at 0, 1/2 and 1, and these slopes at
    0 and 1."""
    return stack(
        [
            2 * (rise1 - rise0) - 8 * (y0 + y1) + 16 * middle,
            5 * rise0 - 3 * rise1 + 18 * y0 + 14 * y1 - 32 * middle,
            rise1 - 4 * rise0 - 11 * y0 - 5 * y1 + 16 * middle,
            rise0,
            y0,
        ]
    )


def _first_step(slope: Slope, y0: Any, f0: Any, t0: Any, options: _Options) -> Any:
    """Return a step of which the error is likely to be small, by sizes of y, y' and y''."""
    scale = options.atol + options.rtol * modulus(y0)

    def size(x: Any) -> Any:
        return sqrt(sum_of((modulus(x) / scale) ** 2))

    d0, d1 = size(y0), size(f0)
    tiny = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = where(tiny, 1e-6, 0.01 * d0 / where(tiny, 1, d1))
    f1 = slope(y0 + h0 * f0, t0 + h0.astype(t0.dtype))
    d2 = size(f1 - f0) / h0
    steepest = maximum(d1, d2)
    flat = steepest <= 1e-15
    h1 = where(flat, maximum(1e-6, h0 * 1e-3), (0.01 / where(flat, 1, steepest)) ** (1 / 5))
    return minimum(100 * h0, h1)


def _adjoint(
    slope: Slope, options: _Options, ys: Any, t: Any, args: Sequence[Any], ct: Any
) -> tuple[Any, ...]:
    """Return the cotangents of y0, the times and the arguments, given those of the solution."""

    def backwards(state: Any, minus_t: Any) -> Any:
        y, ct_y, *_ = state
        f, pull = vjp(slope, y, -minus_t, *args)
        return (-f, *pull(ct_y))

    def interval(carry: Any, x: Any) -> tuple[Any, Any]:
        ct_y, ct_t0, cts = carry
        y, end, begin, ct_end, ct_begin = x
        ct_end_time = real(sum_of(slope(y, end, *args) * ct_end)).astype(t.dtype)
        flat, unravel = ravel_pytree((y, ct_y, ct_t0 - ct_end_time, *cts))
        times = stack([-end, -begin])
        path = _solution(
            lambda v, s: ravel_pytree(backwards(unravel(v), s))[0].astype(flat.dtype),
            flat,
            times,
            options,
        )
        _, ct_y, ct_t0, *cts = unravel(path[1])
        return (ct_y + ct_begin, ct_t0, cts), ct_end_time

    start = (ct[-1], zeros((), t.dtype), [zeros(x.shape, x.dtype) for x in map(_as_array, args)])
    elements = (ys[1:], t[1:], t[:-1], ct[1:], ct[:-1])
    (ct_y, ct_t0, cts), ct_times = lax.scan(interval, start, elements, reverse=True)
    return ct_y, concatenate([ct_t0[None], ct_times]), *cts


def _as_array(x: Any) -> Any:
    return array("odeint", x)
