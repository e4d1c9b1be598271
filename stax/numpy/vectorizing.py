"""Functions that apply a Python function along axes: each is a `vmap` for every axis it maps."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from stax.api import vmap
from stax.errors import ArgumentError, ArgumentValueError
from stax.numpy.arguments import array
from stax.numpy.manipulation import moveaxis
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.types import broadcast_shapes, canonical_axis

_CORE = re.compile(r"\(([\w,]*)\)")


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """Return `func1d` applied to the vectors along `axis`; its result takes their place."""
    arr = array("apply_along_axis", arr)
    where = canonical_axis(axis, arr.ndim)
    moved = move_axis(arr, where, -1)
    result = _over_leading(lambda x: func1d(x, *args, **kwargs), arr.ndim - 1)(moved)
    core = result.ndim - (arr.ndim - 1)
    return moveaxis(result, range(arr.ndim - 1, result.ndim), range(where, where + core))


def _over_leading(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    for _ in range(count):
        function = vmap(function)
    return function


def apply_over_axes(func: Callable[..., Any], a: Any, axes: int | Sequence[int]) -> Any:
    """Return `func(a, axis)` for each of `axes` in turn; an axis it drops is put back."""
    a = array("apply_over_axes", a)
    for axis in [axes] if isinstance(axes, int) else axes:
        result = func(a, axis)
        if result.ndim != a.ndim:
            result = expand_dims(result, canonical_axis(axis, a.ndim))
        a = result
    return a


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """Return `pyfunc` mapped over the leading axes of its arguments, which broadcast.

    `signature`, such as "(n),(n)->()", names the axes that `pyfunc` itself takes; without it, it
    takes numbers.  Positions in `excluded` are passed as they are.
    """

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        mapped = [i for i in range(len(args)) if i not in excluded]
        cores = _cores(signature, len(mapped))
        arrays = [array("vectorize", args[i]) for i in mapped]
        leads = [_lead(x, core) for x, core in zip(arrays, cores, strict=True)]
        shape = broadcast_shapes(*leads)

        def core_function(*given: Any) -> Any:
            whole = list(args)
            for i, x in zip(mapped, given, strict=True):
                whole[i] = x
            return pyfunc(*whole, **kwargs)

        function = core_function
        for axis in range(len(shape) - 1, -1, -1):
            # An axis that an argument lacks, or that is 1 in it, is the same for every example.
            function = vmap(function, [_along(lead, axis, shape) for lead in leads])
        return function(
            *(_without_ones(x, lead, shape) for x, lead in zip(arrays, leads, strict=True))
        )

    return vectorized


def _cores(signature: str | None, count: int) -> list[int]:
    """Return how many axes the function takes of each argument."""
    if signature is None:
        return [0] * count
    left = signature.replace(" ", "").partition("->")[0]
    cores = [len([n for n in part.split(",") if n]) for part in _CORE.findall(left)]
    if len(cores) != count:
        raise ArgumentValueError(
            f"vectorize: signature {signature!r} does not describe {count} arguments.",
            advice="Write a parenthesis for each argument, as in '(n),(n)->()'.",
        )
    return cores


def _lead(x: Any, core: int) -> tuple[Any, ...]:
    if x.ndim < core:
        raise ArgumentError(
            f"vectorize: {x.type} has fewer than the {core} axes of the signature.",
            advice="Add axes, or change the signature.",
        )
    return tuple(x.shape[: x.ndim - core])


def _place(lead: tuple[Any, ...], axis: int, shape: tuple[Any, ...]) -> int:
    return axis - (len(shape) - len(lead))


def _along(lead: tuple[Any, ...], axis: int, shape: tuple[Any, ...]) -> int | None:
    place = _place(lead, axis, shape)
    return None if place < 0 or (lead[place] == 1 and shape[axis] != 1) else 0


def _without_ones(x: Any, lead: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    kept = [n for axis, n in enumerate(shape) if _along(lead, axis, shape) == 0]
    return reshape(x, (*kept, *x.shape[len(lead) :]))
