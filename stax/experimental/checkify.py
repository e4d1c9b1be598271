"""Checks in functions that are compiled: `checkify` returns the first error as a value.

    >>> import stax
    >>> from stax.experimental import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "{x} is not positive", x=x)
    ...     return stax.numpy.log(x)
    >>> err, out = stax.jit(checkify.checkify(f))(stax.numpy.float32(-2.0))
    >>> print(err.get().splitlines()[0])
    -2.0 is not positive (`check` failed)

The names are those of jax.experimental.checkify, and so are the first lines of messages; the line
after it says where the check is.  Without `checkify` a check that fails raises, under `jit` and in
loops too, where JAX refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import tree
from stax.api.tracing import check_callable, flatten_result, function_name
from stax.control.checking import Categories, run_checked
from stax.control.held import sections
from stax.errors import ArgumentError, CheckError as JaxRuntimeError
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.interpreters.simplify import simplify
from stax.operators import check as checks
from stax.operators.check import (
    BatchedError,
    CheckException,
    DivisionByZeroError,
    FailedCheckError,
    Form,
    NaNError,
    OOBError,
    State,
    site,
)
from stax.source import user_source
from stax.trace import Proxy, Trace, as_array, full, is_array, type_of
from stax.types import bool_
from stax.verify import verified

__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check",
    "check_error", "checkify", "debug_check", "div_checks", "float_checks", "index_checks",
    "init_error", "nan_checks", "user_checks",
]  # fmt: skip

ErrorCategory = type[CheckException]

user_checks: Categories = frozenset({FailedCheckError})
nan_checks: Categories = frozenset({NaNError})
index_checks: Categories = frozenset({OOBError})
div_checks: Categories = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


@tree.register_pytree_node_class
class Error:
    """The first error of a run, if there was one: a tree of arrays, which functions may return."""

    def __init__(self, form: Form, values: Sequence[Any]) -> None:
        self._form = form
        self._values = tuple(values)  # the number of the site, 0 for none, and what it shows

    def get(self) -> str | None:
        """Return the message of the error, None if there was none."""
        exception = self.get_exception()
        return None if exception is None else str(exception)

    def get_exception(self) -> CheckException | None:
        """Return the error as an exception, None if there was none.

        An error of a mapped function is one of all indices that have one.
        """
        code, *shown = self._values
        codes = np.asarray(code)
        found = {i: int(codes[i]) for i in np.ndindex(codes.shape) if codes[i]}
        if not codes.shape:
            return self._form.exception(found[()], shown) if found else None
        each = {i: self._form.exception(n, [x[i] for x in shown]) for i, n in found.items()}
        return BatchedError(each) if each else None

    def throw(self) -> None:
        """Raise JaxRuntimeError, a ValueError, if there was an error; see `check_error`."""
        check_error(self)

    def __repr__(self) -> str:
        traced = any(type(x) is Proxy for x in self._values)
        return f"Error({'traced' if traced else self.get()})"

    def tree_flatten(self) -> tuple[Sequence[Any], Form]:
        return self._values, self._form

    @classmethod
    def tree_unflatten(cls, form: Form, values: Sequence[Any]) -> Error:
        return cls(form, tuple(values))


init_error = Error(Form(), (np.zeros((), np.int32),))


def checkify(
    f: Callable[..., Any], errors: frozenset[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """Return a function that returns the first error and what `f` returns.

    `errors` says what is an error: a `check` that does not hold (`user_checks`), a NaN that an
    operation makes or hands on (`nan_checks`), a division by zero (`div_checks`), an index out of
    bounds (`index_checks`), or several of these.  Checks of other kinds are left out.  The error is
    a tree of arrays, so the function can be jitted, mapped and differentiated; of one that is
    mapped there is an error for each index.

    What custom_jvp and custom_vjp say of derivatives is not checked; derivatives that are taken
    inside of `f` are.  An index that is a Python number is clamped when it is traced, as elsewhere.
    """
    check_callable("checkify", f)

    def checked_fun(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        # What is known stays as it is, Python numbers too; nothing is folded before it is checked.
        with Trace(function_name(f), "checkify") as trace:
            outs, out_tree = flatten_result(f(*args, **kwargs), function_name(f))
            graph = verified(trace.finish(outs), "trace")
        found, form = _with_error(graph, frozenset(errors), trace.captures)
        error, outs = sections(found, 1 + len(form.types))
        return Error(form, error), out_tree.unflatten(outs)

    checked_fun.__name__ = function_name(f)
    checked_fun.__doc__ = f.__doc__
    return checked_fun


def _with_error(
    graph: Graph, categories: Categories, args: Sequence[Any]
) -> tuple[list[Any], Form]:
    """Return the error of `graph`, its outputs, and the form of the error."""
    with Trace(graph.name, "checkify") as trace:
        given = [trace.input(x.type, x.label) for x in graph.inputs]
        state = State()
        outs = run_checked(graph, given, categories, state)
        result = simplify(verified(trace.finish([*state.values, *outs]), "checkify"))
    return inline(result, args), state.form


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise JaxRuntimeError, or give `checkify` its error, unless `pred`, a scalar bool, holds.

    The message is `msg.format(*fmt_args, **fmt_kwargs)`, arguments being trees of arrays, whose
    values are those of the run.  With `debug` it does nothing outside of `checkify`.

    Raises ArgumentError if `pred` is no scalar bool, or if an argument holds something else than
    arrays.
    """
    name = "debug_check" if debug else "check"
    if not isinstance(pred, bool | np.bool_) and not (
        is_array(pred) and pred.shape == () and pred.dtype == bool_
    ):
        raise ArgumentError(
            f"{name}: the condition has to be a scalar bool, got {pred!r}.",
            advice="Compare it with something, and reduce with all or any.",
        )
    leaves, form = tree.tree_flatten((fmt_args, fmt_kwargs))
    for leaf in leaves:
        if not (is_array(leaf) or isinstance(leaf, np.ndarray)):
            raise ArgumentError(
                f"{name}: the arguments of a message are trees of arrays, got {leaf!r} of type "
                f"{type(leaf).__name__}.",
                advice="Put what is known into the message itself.",
            )
    types = tuple(type_of(x).strong() for x in leaves)
    message = f"{msg} (`check` failed)"
    where = site(FailedCheckError, name, message, user_source(), form, types)
    checks.check_holds(full((), pred, bool_) if not is_array(pred) else pred, where, leaves, debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Give `checkify` an error unless `pred` holds; elsewhere it does nothing.  See `check`."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise JaxRuntimeError, or give `checkify` around this call its error, if there is one.

    Raises ArgumentError if `error` is no Error.
    """
    if not isinstance(error, Error):
        raise ArgumentError(
            f"check_error takes an Error, got a {type(error).__name__}.",
            advice="It is the first result of a function that checkify returned.",
        )
    values = list(map(as_array, error._values))
    if any(type(x) is Proxy for x in values):
        code, *shown = checks.first_of_all(error._form, values)
        checks.check(error._form, code, shown)
        return
    exception = error.get_exception()
    if exception is not None:
        raise JaxRuntimeError(str(exception)) from exception
