"""Ops that call functions of the user's, also from compiled programs.

debug_callback     has no result and is there for what it does: printing, say
pure_callback      has results that depend on its operands alone; it may be merged, or left out
io_callback        has results and does something beside

The function is handed arrays of its own, which it may keep.  What it raises is raised by the call
of the program.  Under vmap it is called once for each lane; `lanes` says which operands differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from stax import tree
from stax.errors import ArgumentValueError, JaxRuntimeError, UnsupportedError
from stax.extent import Dimension
from stax.op import ORDERED, UNORDERED, Batch, Op
from stax.operators.broadcast import expand_leading
from stax.trace import Proxy, bind, ensure_compile_time_eval, links
from stax.types import ArrayType, TupleType, canonical_dtype

VMAP_METHODS = (
    "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized",
)  # fmt: skip
# A mapped axis: its size, and which operands have it.  The last one is the leading axis.
Lanes = tuple[tuple[Dimension, tuple[bool, ...]], ...]


@dataclass(frozen=True, eq=False)
class Called:
    """A function with the form of its arguments: a tree, whose leaves are arrays of `types`, but
    for those in `fixed`, by position.

    Two are equal if they call the same function in the same way.
    """

    function: Callable[..., Any]
    treedef: tree.TreeDef
    fixed: tuple[tuple[int, Any], ...]
    types: tuple[ArrayType, ...]

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __repr__(self) -> str:
        return self.name

    def _content(self) -> Any:
        found = self.function, self.treedef, self.fixed, self.types
        try:
            hash(found)
        except TypeError:
            return id(self)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Called) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        """Call the function, outside of any trace that is under way."""
        wrapped = map(links.from_numpy, arrays, self.types)
        fixed = dict(self.fixed)
        count = len(fixed) + len(self.types)
        leaves = [fixed[i] if i in fixed else next(wrapped) for i in range(count)]
        args, kwargs = self.treedef.unflatten(leaves)
        with ensure_compile_time_eval():
            return self.function(*args, **kwargs)


class HostOp(Op):
    """Base of ops that run in Python.

    One that is `guarded` has nothing to do unless its first operand, a bool[], holds.
    """

    guarded: ClassVar[bool] = False


class _Callback(HostOp):
    """What callbacks share."""

    called: Called
    lanes: Lanes

    def calls(self, arrays: Sequence[np.ndarray]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Call the function for each lane; yields the index of the lane, and what is returned."""
        sizes = [range(int(n)) for n, _ in self.lanes]
        for lane in itertools.product(*sizes):
            places = list(zip(lane, self.lanes, strict=True))[::-1]
            given = [
                np.asarray(x[tuple(i for i, (_, flags) in places if flags[k])])
                for k, x in enumerate(arrays)
            ]
            yield lane[::-1], self.called(given)

    def in_lanes(self, batch: Batch, flags: Sequence[bool]) -> Any:
        """Return the op with one more mapped axis."""
        op: Any = self
        return replace(op, lanes=(*self.lanes, (batch.size, tuple(flags))))


class _WithResults(_Callback):
    """What callbacks with results share: what is returned has to be what was announced."""

    results: tuple[ArrayType, ...]

    def abstract_eval(self, *operands: ArrayType) -> TupleType:
        found = self.results
        for size, _ in self.lanes:
            found = tuple(t.with_leading(size) for t in found)
        return TupleType(found)

    def evaluate(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        types = self.abstract_eval().items
        found = tuple(np.empty(t.shape, t.dtype) for t in types)
        for lane, result in self.calls(arrays):
            for y, value in zip(found, self._checked(result), strict=True):
                y[lane] = value
        return found

    def _checked(self, result: Any) -> list[np.ndarray]:
        """Return the arrays of what the function returned."""
        leaves = [np.asarray(x) for x in tree.tree_leaves(result)]
        name = f"{self.name}: {self.called.name}"
        if len(leaves) != len(self.results):
            raise JaxRuntimeError(
                f"{name} returned {len(leaves)} arrays, and {len(self.results)} were announced.",
                advice="result_shape_dtypes has the structure of what the function returns.",
            )
        found = [x.astype(canonical_dtype(x.dtype)) for x in leaves]
        for i, (x, t) in enumerate(zip(found, self.results, strict=True)):
            if x.shape != t.shape or x.dtype != t.dtype:
                raise JaxRuntimeError(
                    f"{name} returned {x.dtype}{list(x.shape)} as result {i}, and {t!r} was "
                    "announced.",
                    advice="Return the shapes and dtypes of result_shape_dtypes.",
                )
        return found

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Any]) -> Any:
        raise ArgumentValueError(
            f"{self.name}: the derivative of {self.called.name} is not known.",
            advice="Say what it is, by custom_jvp or custom_vjp around the call.",
        )


@dataclass(frozen=True, eq=False)
class DebugCallback(_Callback):
    """Call a function for what it does; it is given primals, and derivatives do not see it."""

    called: Called
    ordered: bool
    lanes: Lanes = ()
    name: ClassVar[str] = "debug_callback"

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        return ORDERED if self.ordered else UNORDERED

    def abstract_eval(self, *operands: ArrayType) -> TupleType:
        return TupleType(())

    def evaluate(self, *arrays: np.ndarray) -> tuple[()]:
        for _ in self.calls(arrays):
            pass
        return ()

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Any]) -> Any:
        return None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self.in_lanes(batch, flags), *inputs)


@dataclass(frozen=True, eq=False)
class PureCallback(_WithResults):
    """The results of a function of the operands, which does nothing else."""

    called: Called
    results: tuple[ArrayType, ...]
    vmap_method: str | None
    lanes: Lanes = ()
    name: ClassVar[str] = "pure_callback"

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        match self.vmap_method:
            case None:
                raise UnsupportedError(
                    f"vmap: pure_callback has no vmap_method for {self.called.name}.",
                    advice=f"Choose one of {', '.join(map(repr, VMAP_METHODS))}.",
                )
            case "sequential" | "sequential_unrolled":
                return bind(self.in_lanes(batch, flags), *inputs)
            case "expand_dims":
                inputs = _led(inputs, flags, 1)
            case "broadcast_all":
                inputs = _led(inputs, flags, batch.size)
        called = replace(self.called, types=tuple(x.type.strong() for x in inputs))
        results = tuple(t.with_leading(batch.size) for t in self.results)
        return bind(PureCallback(called, results, self.vmap_method), *inputs)


@dataclass(frozen=True, eq=False)
class IoCallback(_WithResults):
    """The results of a function of the operands, which does something beside."""

    called: Called
    results: tuple[ArrayType, ...]
    ordered: bool
    lanes: Lanes = ()
    name: ClassVar[str] = "io_callback"

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        return ORDERED if self.ordered else UNORDERED

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        if self.ordered:
            raise ArgumentValueError(
                f"vmap: the calls of {self.called.name} by an ordered io_callback have no order "
                "among lanes.",
                advice="Map with lax.map, or leave out ordered=True.",
            )
        return bind(self.in_lanes(batch, flags), *inputs)


def _led(inputs: Sequence[Any], flags: Sequence[bool], size: Dimension) -> tuple[Any, ...]:
    """Return the inputs, a leading axis of `size` added to those that are not flagged."""
    return tuple(x if f else expand_leading(x, size) for x, f in zip(inputs, flags, strict=True))
