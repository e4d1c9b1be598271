"""Names of mapped axes: which are bound where a function is traced, and how long each axis is.

`vmap` binds its `axis_name` while it traces its function.  An inner vmap hides an outer axis of
the same name.  Ops on a named axis carry the name and the size, so only what applies such an op by
name has to look here.

>>> with bound("i", 3), bound("j", 4):
...     size_of("example", "i")
3
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from stax.errors import UnboundAxisNameError
from stax.extent import Dimension

_axes: ContextVar[Mapping[Any, Dimension]] = ContextVar("stax_named_axes", default={})  # noqa: B039

_innermost: ContextVar[Dimension | None] = ContextVar("stax_innermost_axis", default=None)


def in_force() -> tuple[tuple[Any, Dimension], ...]:
    """Return the names that are bound and the sizes of their axes: what a trace may depend on."""
    return tuple(_axes.get().items())


@contextmanager
def bound(axis_name: Any, size: Dimension) -> Iterator[None]:
    """Bind the name of an axis that is mapped in a `with` block; None is no name."""
    more = () if axis_name is None else ((axis_name, size),)
    token = _innermost.set(size)
    try:
        with restored((*in_force(), *more)):
            yield
    finally:
        _innermost.reset(token)


def innermost_size(otherwise: Dimension) -> Dimension:
    """Return the size of the innermost mapped axis, which need not have a name."""
    size = _innermost.get()
    return otherwise if size is None else size


@contextmanager
def restored(axes: Iterable[tuple[Any, Dimension]]) -> Iterator[None]:
    """Bind these names alone for a `with` block: those of the place where a rule was given."""
    token = _axes.set(dict(axes))
    try:
        yield
    finally:
        _axes.reset(token)


def size_of(name: str, axis_name: Any) -> Dimension:
    """Return the size of the axis of that name; raises UnboundAxisNameError for `name`, an op."""
    axes = _axes.get()
    try:
        return axes[axis_name]
    except (KeyError, TypeError):
        pass
    known = [(repr(n), "axis", f"of size {size}") for n, size in axes.items()]
    shown = ", ".join(map(repr, axes))
    advice = f"Bound here: {shown}." if axes else "No axis has a name here."
    raise UnboundAxisNameError(
        f"{name}: unbound axis name: {axis_name!r}.",
        values=known,
        advice=f"{advice}\nMap the function that uses it with vmap(f, axis_name={axis_name!r}).",
    )
