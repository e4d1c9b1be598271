"""Minimisation by BFGS: quasi-Newton steps with a line search for the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization, 2006: algorithms 6.1 (steps), 3.5 and 3.6 (search).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stax.api.derivatives import value_and_grad
from stax.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from stax.lax.control_flow import while_loop
from stax.numpy.creation import asarray, eye
from stax.numpy.elementwise import absolute, isfinite, maximum, minimum, where
from stax.numpy.linalg.norms import norm as norm_of
from stax.numpy.linear import outer, vdot
from stax.trace import as_array, type_of
from stax.types import is_float

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """The outcome of a minimisation.

    `status` is 0 if it converged, 1 after the most iterations, 5 if a line search found no step;
    `fun`, `jac` and `hess_inv` are the value, the gradient and an estimate of the inverse Hessian
    at `x`; `nfev`, `njev` and `nit` count evaluations, gradients and iterations.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Minimise `fun(x, *args)`, a scalar, over vectors x; `x0` is where to start.

    The one method is "BFGS".  Its options are `maxiter` (200 for each variable), `gtol` (1e-5): the
    gradient's `norm` (inf) at which it ends, and `line_search_maxiter` (10).  `tol` is `gtol`.  It
    compiles under jit and maps under vmap.

    Raises UnsupportedError for another method, ShapeError and DTypeError unless x0 is a vector of
    floats, ArgumentError if `args` is no tuple or for another option.
    """
    if not isinstance(args, tuple):
        raise ArgumentError(
            f"minimize: args is a {type(args).__name__}.", advice="Write (a,) for one argument."
        )
    if method.lower() != "bfgs":
        raise UnsupportedError(f"minimize: there is no method {method!r}.", advice='Use "BFGS".')
    type_ = type_of(x0)
    if len(type_.shape) != 1:
        raise ShapeError(
            f"minimize: x0 is {type_} where a vector is needed.",
            advice="Ravel it, or use flatten_util.ravel_pytree for a tree.",
        )
    if not is_float(type_.dtype):
        raise DTypeError(f"minimize: x0 is {type_}.", advice="Convert it with astype(float).")
    found = {"maxiter": None, "gtol": tol or 1e-5, "norm": float("inf"), "line_search_maxiter": 10}
    for name, value in (options or {}).items():
        if name not in found:
            raise ArgumentError(
                f"minimize: BFGS has no option {name!r}.", advice=f"It has {', '.join(found)}."
            )
        found[name] = value
    return _bfgs(lambda x: fun(x, *args), as_array(x0), **found)  # type: ignore[arg-type]


class _State(NamedTuple):
    x: Any
    f: Any
    g: Any
    inverse: Any
    converged: Any
    failed: Any
    evaluations: Any
    k: Any


def _bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None,
    gtol: float,
    norm: Any,
    line_search_maxiter: int,
) -> OptimizeResults:
    both = value_and_grad(fun)
    most = 200 * x0.size if maxiter is None else maxiter
    f, g = both(x0)

    def ends(g: Any) -> Any:
        return norm_of(g, ord=norm) < gtol

    def going(s: _State) -> Any:
        return ~s.converged & ~s.failed & (s.k < most)

    def step(s: _State) -> _State:
        direction = -(s.inverse @ s.g)
        first = where(s.k == 0, minimum(1.0, 1 / maximum(norm_of(s.g), 1e-30)), 1.0)
        at = _search(both, s, direction, first.astype(x0.dtype), line_search_maxiter)
        moved, turned = at.a * direction, at.g - s.g
        inverse = _updated(s.inverse, moved, turned)
        done = ends(at.g)
        count = s.evaluations + at.evaluations
        return _State(s.x + moved, at.f, at.g, inverse, done, ~at.found & ~done, count, s.k + 1)

    no = asarray(False)
    start = _State(x0, f, g, eye(x0.size, dtype=x0.dtype), ends(g), no, 1, 0)
    s = while_loop(going, step, start)
    status = where(s.converged, 0, where(s.failed, 5, 1))
    return OptimizeResults(
        s.x, s.converged, status, s.f, s.g, s.inverse, s.evaluations, s.evaluations, s.k
    )


def _updated(inverse: Any, moved: Any, turned: Any) -> Any:
    """Return the estimate of the inverse Hessian after a step along which the gradient turned."""
    rho = 1 / vdot(turned, moved)
    w = eye(moved.size, dtype=moved.dtype) - rho * outer(moved, turned)
    new = w @ inverse @ w.T + rho * outer(moved, moved)
    return where(isfinite(rho), new, inverse)


# --- the line search ---


class _Search(NamedTuple):
    """A trial `a`; `low` is the best step so far, between which and `high` a good one lies."""

    a: Any
    f: Any
    g: Any
    low: Any
    low_f: Any
    low_g: Any
    low_slope: Any
    high: Any
    high_f: Any
    bracketed: Any
    found: Any
    evaluations: Any


ENOUGH, FLAT = 1e-4, 0.9  # of the decrease that the slope promises, and of the slope


def _search(
    both: Callable[[Any], Any], s: _State, direction: Any, first: Any, most: int
) -> _Search:
    """Find a step along `direction` with enough decrease and a slope that is flat enough.

    Near a minimum decrease drowns in rounding; there the slope alone decides, as in Hager and
    Zhang, 2005.
    """
    slope = vdot(s.g, direction)
    noise = asarray(4e-7 if s.f.dtype.itemsize <= 4 else 1e-15, s.f.dtype) * absolute(s.f)

    def going(t: _Search) -> Any:
        return ~t.found & (t.evaluations < most)

    def step(t: _Search) -> _Search:
        f, g = both(s.x + t.a * direction)
        here = vdot(g, direction)
        flat = absolute(here) <= -FLAT * slope
        rounded = (f <= s.f + noise) & (here <= (2 * ENOUGH - 1) * slope) & (here >= FLAT * slope)
        high = (f > s.f + ENOUGH * t.a * slope) | (f >= t.low_f) | ~isfinite(f)
        found = (flat & ~high) | rounded
        # Where the slope points away from `high`, the best step so far is the other end.
        turned = ~high & where(t.bracketed, here * (t.high - t.low) >= 0, here >= 0)
        new_high = where(high, t.a, where(turned, t.low, t.high))
        new_high_f = where(high, f, where(turned, t.low_f, t.high_f))
        low = where(high, t.low, t.a)
        low_f, low_slope = where(high, t.low_f, f), where(high, t.low_slope, here)
        bracketed = t.bracketed | high | turned
        between = _between(low, low_f, low_slope, new_high, new_high_f)
        trial = where(found, t.a, where(bracketed, between, 2 * t.a))
        low_g, count = where(high, t.low_g, g), t.evaluations + 1
        ends = low, low_f, low_g, low_slope, new_high, new_high_f
        return _Search(trial, f, g, *ends, bracketed, found, count)

    zero, no = 0 * first, asarray(False)
    start = _Search(first, s.f, s.g, zero, s.f, s.g, slope, zero, s.f, no, no, 0)
    end = while_loop(going, step, start)
    # Without a good step, the best one is as good as it gets.
    kept = end.found
    return end._replace(
        a=where(kept, end.a, end.low),
        f=where(kept, end.f, end.low_f),
        g=where(kept, end.g, end.low_g),
    )


def _between(low: Any, low_f: Any, slope: Any, high: Any, high_f: Any) -> Any:
    """Return where a parabola through both ends is lowest, or the middle if that is near an end."""
    width = high - low
    bend = 2 * (high_f - low_f - slope * width)
    lowest = -slope * width * width / where(bend > 0, bend, 1)
    inside = (bend > 0) & (absolute(lowest - width / 2) <= 0.4 * absolute(width))
    return low + where(inside, lowest, width / 2)
