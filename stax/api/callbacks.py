"""Functions of the user's that run inside of traced and compiled functions.

A compiled program calls back to Python for them, also from its loops; values that they read are
stored, and nothing else about the program changes.
"""

from __future__ import annotations

import logging
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax import tree
from stax.errors import ArgumentError, ArgumentValueError
from stax.operators.callback import VMAP_METHODS, Called, DebugCallback, IoCallback, PureCallback
from stax.source import Source, user_source
from stax.trace import bind, results, type_of
from stax.types import ArrayType, canonical_dtype

_logger = logging.getLogger("stax.debug")


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Return what `callback(*args, **kwargs)` returns, a tree of arrays as `result_shape_dtypes`.

    Leaves of that have a shape and a dtype.  The callback depends on its arguments, trees of
    arrays, alone and does nothing else: it may be called twice for the same values, or not at all.
    It has no derivative unless custom_jvp or custom_vjp gives it one.  Under vmap `vmap_method`
    tells how it is called: "sequential" and "sequential_unrolled" once for each lane,
    "expand_dims" once, with an axis in front of each argument, of length 1 where it is not mapped,
    "broadcast_all" likewise with arguments repeated along it, and "legacy_vectorized" with the axis
    in front of mapped arguments alone.  `sharding` changes nothing: there is one device.

    Raises ArgumentValueError for another method and for 64-bit results without enable_x64; when it
    is called, JaxRuntimeError if results are not as announced, and what the callback raises.
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ArgumentValueError(
            f"pure_callback: vmap_method cannot be {vmap_method!r}.",
            advice=f"It is None or one of {', '.join(map(repr, VMAP_METHODS))}.",
        )
    called, leaves = _called("pure_callback", callback, args, kwargs)
    types, treedef = _announced("pure_callback", result_shape_dtypes)
    found = results(bind(PureCallback(called, types, vmap_method), *leaves))
    return treedef.unflatten(found)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Return what `callback(*args, **kwargs)` returns, a tree of arrays as `result_shape_dtypes`.

    It is called once each time that the program comes by, and with `ordered` in the order of the
    program among all ordered callbacks.  Under vmap it is called once for each lane.  `sharding`
    changes nothing: there is one device.

    Raises ArgumentValueError for 64-bit results without enable_x64, for derivatives of it, and
    under vmap if it is ordered; when it is called, JaxRuntimeError if results are not as announced,
    and what the callback raises.
    """
    called, leaves = _called("io_callback", callback, args, kwargs)
    types, treedef = _announced("io_callback", result_shape_dtypes)
    found = results(bind(IoCallback(called, types, bool(ordered)), *leaves))
    return treedef.unflatten(found)


def debug_callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `callback(*args, **kwargs)` whenever the program comes by; what it returns is dropped.

    Arguments are trees of arrays, and of other things, which are handed on as they are.  In a
    function that is differentiated they are primals.  With `ordered`, calls have the order of the
    program among all ordered callbacks.  Under vmap it is called once for each lane.  Without a
    callback, returns a function of it and its arguments with the options set.  `partitioned`
    changes nothing: there is one device.

    Raises ArgumentError if `callback` is not callable; when it is called, what it raises.
    """

    def call(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        called, leaves = _called("debug.callback", callback, args, kwargs)
        bind(DebugCallback(called, bool(ordered)), *leaves)

    if callback is not None:
        return call(callback, *args, **kwargs)
    _check_no_arguments("debug.callback", args, kwargs)
    return call


def debug_print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Any:
    """Print `fmt.format(*args, **kwargs)` whenever the program comes by, with values of arrays.

    Arguments are trees of arrays, and of other things.  `ordered` and `partitioned` are as in
    `debug_callback`; `skip_format_check` leaves a format that does not go with the arguments for
    when it is printed.  Without a format, returns a function of it with the options set.

    Raises what `str.format` raises if the format does not go with the arguments, and
    ArgumentValueError if it does not use some of them.
    """

    def call(fmt: str, *args: Any, **kwargs: Any) -> None:
        if not skip_format_check:
            _check_format(fmt, args, kwargs)
        holes = any(name is not None for _, name, *_ in string.Formatter().parse(fmt))
        options = tuple(sorted(np.get_printoptions().items()))
        where = user_source() if _use_logging else None
        written = _Written(fmt, holes, options, _use_logging, where)
        called, leaves = _called("debug.print", written, args, kwargs)
        bind(DebugCallback(called, bool(ordered)), *leaves)

    if fmt is not None:
        return call(fmt, *args, **kwargs)
    _check_no_arguments("debug.print", args, kwargs)
    return call


def debug_log(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = True,
    **kwargs: Any,
) -> Any:
    """Log what `debug_print` would print, at level INFO by the logger `stax.debug`."""
    return debug_print(
        fmt,
        *args,
        ordered=ordered,
        partitioned=partitioned,
        skip_format_check=skip_format_check,
        _use_logging=_use_logging,
        **kwargs,
    )


@dataclass(frozen=True)
class _Written:
    """Prints or logs its arguments; equal ones print alike."""

    fmt: str
    holes: bool  # the format names arguments; if not, those there are follow it
    options: tuple[tuple[str, Any], ...]
    logs: bool
    source: Source | None

    @property
    def __name__(self) -> str:
        return f"print({self.fmt!r})"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with np.printoptions(**dict(self.options)):
            if self.holes:
                text = self.fmt.format(*args, **kwargs)
            else:
                text = " ".join((self.fmt, *map(str, args)))
        if not self.logs:
            sys.stdout.write(text + "\n")
        elif _logger.isEnabledFor(logging.INFO):
            file, line = (self.source.file, self.source.line) if self.source else ("", 0)
            record = _logger.makeRecord(_logger.name, logging.INFO, file, line, text, (), None)
            _logger.handle(record)


class _FormatCheck(string.Formatter):
    """Formats nothing, and raises what formatting would raise for arguments that do not fit.

    Then `unused` are the arguments that the format does not use.
    """

    unused: Sequence[str] = ()

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(
        self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        names = (*range(len(args)), *kwargs)
        self.unused = [repr(name) for name in names if name not in used_args]


def _check_format(fmt: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise unless a format goes with its arguments."""
    if not isinstance(fmt, str):
        raise ArgumentError(
            f"debug.print: the format has to be a string, got a {type(fmt).__name__}.",
            advice='Name what is to be printed: debug.print("{}", x).',
        )
    check = _FormatCheck()
    check.format(fmt, *args, **kwargs)
    if check.unused:
        raise ArgumentValueError(
            f"debug.print: the format does not use the arguments {', '.join(check.unused)}.",
            advice=(
                "Name them in braces, {} or {name}; the format is a plain string and no "
                'f-string:\ndebug.print("x is {x}", x=x).'
            ),
        )


def _called(
    name: str, callback: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Called, list[Any]]:
    """Return what is called, and the arrays among its arguments."""
    if not callable(callback):
        raise ArgumentError(
            f"{name}: the first argument has to be callable, got a {type(callback).__name__}.",
            advice="Pass the function, and then what it is called with.",
        )
    leaves, treedef = tree.tree_flatten((tuple(args), dict(kwargs)))
    arrays, types, fixed = [], [], []
    for i, leaf in enumerate(leaves):
        try:
            type_ = type_of(leaf)
        except (TypeError, ValueError):
            fixed.append((i, leaf))
        else:
            arrays.append(leaf)
            types.append(type_.strong())
    return Called(callback, treedef, tuple(fixed), tuple(types)), arrays


def _announced(name: str, structs: Any) -> tuple[tuple[ArrayType, ...], tree.TreeDef]:
    """Return the types of results, and their tree."""
    leaves, treedef = tree.tree_flatten(structs)
    types = []
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ArgumentError(
                f"{name}: result_shape_dtypes holds a {type(leaf).__name__}, which has no shape "
                "and dtype.",
                advice="Its leaves are ShapeDtypeStruct(shape, dtype), or arrays.",
            )
        dtype = np.dtype(leaf.dtype)
        if canonical_dtype(dtype) != dtype:
            raise ArgumentValueError(
                f"{name}: result_shape_dtypes holds {dtype}, and enable_x64 is off.",
                advice=f"Announce {canonical_dtype(dtype)}, or turn enable_x64 on.",
            )
        types.append(ArrayType(dtype, tuple(leaf.shape)))
    return tuple(types), treedef


def _check_no_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if args or kwargs:
        raise ArgumentError(
            f"{name}: there are arguments, {[*args, *kwargs]}, and nothing is called with them.",
            advice=f"Give options first, and then the rest: {name}(ordered=True)(...).",
        )
