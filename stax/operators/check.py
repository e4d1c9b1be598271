"""`check`: an error that may have happened, as values; and what is said about it.

An error is a number, 0 where there is none, and the values that its message shows.  The numbers are
those of *sites*, places in a program where something is checked; sites whose messages show values
of the same types share the arrays that hold them, because one error at most is told.

    first failure ->  code  i32[]     the number of the site
                      shown arrays    for each group of types, one after the other
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from stax import tree
from stax.errors import CheckError
from stax.extent import product
from stax.op import UNORDERED, Batch
from stax.operators.broadcast import broadcast_in_dim, expand_leading
from stax.operators.callback import HostOp
from stax.operators.dynamic import DynamicSlice
from stax.operators.elementwise import and_, convert, eq, like, ne, not_, select
from stax.operators.reduce import argmax
from stax.operators.reshape import reshape
from stax.source import Source
from stax.trace import Proxy, bind, full, links, type_of, zeros
from stax.types import ArrayType, TupleType, int32, uint8

Types = tuple[ArrayType, ...]


class CheckException(Exception):
    """What a failed check is: the message of its site, filled in with the values shown."""

    def __init__(self, message: str, site: Site) -> None:
        super().__init__(message)
        self.site = site

    def __str__(self) -> str:
        where = self.site.source
        place = f"\n    {self.site.name}  {where.shown()}" if where else ""
        return f"{self.args[0]}{place}"


class FailedCheckError(CheckException):
    """A `check` of the program does not hold."""


class NaNError(CheckException):
    """An op made a NaN."""


class DivisionByZeroError(CheckException):
    """A divisor is zero."""


class OOBError(CheckException):
    """An index is out of bounds."""


class BatchedError(CheckException):
    """Several errors: of each mapped index that has one."""

    def __init__(self, errors: dict[tuple[int, ...], CheckException]) -> None:
        lines = [f"at mapped index {', '.join(map(str, i))}: {e}" for i, e in errors.items()]
        super().__init__("\n".join(lines), next(iter(errors.values())).site)
        self.error_mapping = errors

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, eq=False)
class Site:
    """A place where something is checked; `site` makes one.

    `form` is the tree of what `message` is formatted with, `types` are those of its leaves.
    """

    code: int
    category: type[CheckException]
    name: str
    message: str
    form: tree.TreeDef
    types: Types
    source: Source | None

    def exception(self, shown: Sequence[Any]) -> CheckException:
        """Return the exception for values of its types."""
        args, kwargs = self.form.unflatten(shown)
        return self.category(self.message.format(*args, **kwargs), self)


_numbers = itertools.count(1)
_sites: WeakValueDictionary[Any, Site] = WeakValueDictionary()


def site(
    category: type[CheckException],
    name: str,
    message: str,
    source: Source | None,
    form: tree.TreeDef | None = None,
    types: Types = (),
) -> Site:
    """Return the site of a check, the same one whenever it is traced again."""
    form = tree.tree_structure(((), {})) if form is None else form
    key = category, name, message, source, form, types
    return _sites.get(key) or _sites.setdefault(
        key, Site(next(_numbers), *key[:3], *key[4:], source)
    )


@dataclass(frozen=True)
class Form:
    """Which sites an error may be of, and the groups of types that it shows values of."""

    sites: tuple[Site, ...] = ()
    groups: tuple[Types, ...] = ()

    @classmethod
    def of(cls, sites: Iterable[Site], first: Sequence[Types] = ()) -> Form:
        """Return the form for some sites, whose first groups are given."""
        unique = tuple(sorted(dict.fromkeys(sites), key=lambda s: s.code))
        return cls(unique, tuple(dict.fromkeys((*first, *(s.types for s in unique if s.types)))))

    @property
    def types(self) -> Types:
        """The types of what is shown."""
        return tuple(itertools.chain.from_iterable(self.groups))

    def shown(self, number: int, values: Sequence[Any]) -> list[Any]:
        """Return the values that the site of a number shows."""
        return list(values[self._slice(self._site(number).types)])

    def exception(self, number: int, values: Sequence[Any]) -> CheckException:
        """Return the exception of a number other than 0."""
        return self._site(number).exception(self.shown(number, values))

    def _site(self, number: int) -> Site:
        return next(s for s in self.sites if s.code == number)

    def _slice(self, types: Types) -> slice:
        if not types:
            return slice(0, 0)
        at = self.groups.index(types)
        start = sum(map(len, self.groups[:at]))
        return slice(start, start + len(types))


class State:
    """The first error so far, as values of the current trace."""

    def __init__(self, form: Form = Form(), values: Sequence[Any] = ()) -> None:
        self.sites = list(form.sites)
        self.set(form.groups, list(values) or [full((), 0, int32)])

    def set(self, groups: Sequence[Types], values: Sequence[Any]) -> None:
        """Take over an error: its number, and what the groups show."""
        self.code, *shown = values
        found = iter(shown)
        self.groups = {types: [next(found) for _ in types] for types in groups}

    @property
    def form(self) -> Form:
        return Form.of(self.sites, tuple(self.groups))

    @property
    def values(self) -> list[Any]:
        """The number of the error, and what it shows."""
        return [self.code, *itertools.chain.from_iterable(self.groups.values())]

    def add_groups(self, groups: Iterable[Types]) -> None:
        """Make room for what more sites show."""
        for types in groups:
            self.groups.setdefault(types, [zeros(t) for t in types])

    def fail(self, failed: Any, where: Site, shown: Sequence[Any] = ()) -> None:
        """Take the error of a site if it failed, a bool[], and if it is the first."""
        self.sites.append(where)
        first = and_(failed, eq(self.code, like(self.code, 0)))
        self.code = select(first, full((), where.code, int32), self.code)
        self._show(first, where.types, shown)

    def merge(self, form: Form, code: Any, shown: Sequence[Any]) -> None:
        """Take another error if it happened, and if there is none yet."""
        self.sites += form.sites
        none = eq(self.code, like(self.code, 0))
        self.code = select(none, code, self.code)
        rest = iter(shown)
        for types in form.groups:
            self._show(none, types, [next(rest) for _ in types])

    def _show(self, first: Any, types: Types, shown: Sequence[Any]) -> None:
        if not types:
            return
        old = self.groups.get(types)
        strong = [convert(x, t.dtype) for x, t in zip(shown, types, strict=True)]
        self.groups[types] = strong if old is None else list(map(_chooser(first), strong, old))


def _chooser(first: Any) -> Any:
    return lambda x, y: select(broadcast_in_dim(first, type_of(x).shape, ()), x, y)


@dataclass(frozen=True, eq=False)
class Check(HostOp):
    """Raise the error that the operands are, if it happened: whether it did, its number, and what
    it shows.  With `debug` it does nothing: it is there for checkify."""

    form: Form
    debug: bool
    name: ClassVar[str] = "check"
    effect: ClassVar[str | None] = UNORDERED
    guarded: ClassVar[bool] = True

    def abstract_eval(self, *operands: ArrayType) -> TupleType:
        return TupleType(())

    def evaluate(self, *arrays: np.ndarray) -> tuple[()]:
        failed, code, *shown = arrays
        if failed and not self.debug:
            values = list(map(links.from_numpy, shown, self.form.types))
            error = self.form.exception(int(code), values)
            raise CheckError(str(error)) from error
        return ()

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Any]) -> Any:
        return None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        failed = inputs[0] if flags[0] else expand_leading(inputs[0], batch.size)
        lane = argmax(convert(failed, uint8), 0)  # the first that failed
        taken = [
            _lane(x, lane) if f else x
            for x, f in zip((failed, *inputs[1:]), (True, *flags[1:]), strict=True)
        ]
        return bind(self, *taken)


def first_of_all(form: Form, values: Sequence[Any]) -> list[Any]:
    """Return an error for the first mapped index that has one, given those of all indices."""
    shape = type_of(values[0]).shape
    if not shape:
        return list(values)
    types = [ArrayType(int32, ()), *form.types]
    flat = [reshape(x, (product(shape), *t.shape)) for x, t in zip(values, types, strict=True)]
    lane = argmax(convert(ne(flat[0], like(flat[0], 0)), uint8), 0)
    return [_lane(x, lane) for x in flat]


def _lane(x: Any, lane: Any) -> Any:
    """Return the element of the leading axis at `lane`."""
    rest = type_of(x).shape[1:]
    starts = [lane, *(like(lane, 0) for _ in rest)]
    return reshape(bind(DynamicSlice((1, *rest)), x, *starts), rest)


def check(form: Form, code: Any, shown: Sequence[Any], debug: bool = False) -> None:
    """Raise an error if it happened; in a traced function, when that runs."""
    bind(Check(form, debug), ne(code, like(code, 0)), code, *shown)


def check_holds(holds: Any, where: Site, shown: Sequence[Any], debug: bool) -> None:
    """Raise the error of a site unless `holds`, a bool[]."""
    failed = not_(holds)
    code = select(failed, full((), where.code, int32), full((), 0, int32))
    bind(Check(Form.of([where]), debug), failed, code, *shown)
