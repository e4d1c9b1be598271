"""Operators: what every op is, and the rules it may have.

An op is a frozen dataclass whose fields are its static parameters in canonical form and whose
methods are its rules.  Ops are interned by class and by the type and value of their parameters, so
identity is equality: `ReduceSum((0,))` is one object, and `True` is not `1` in a parameter.

The rules, and what each is given and returns (values are proxies unless said otherwise):

    abstract_eval(*types) -> type           raises when the operands do not fit
    evaluate(*arrays) -> array              NumPy; this is the meaning of the op
    jvp(out, primals, tangents) -> tangent  a tangent of None is zero, given and returned
    transpose(ct, *inputs) -> cotangents    one per input, None where there is none; inputs that
                                            are linear are `Linear`, which has only a type
    batch(batch, flags, *inputs) -> out     inputs that are flagged have the batch axis in front;
                                            ops that hold graphs: (results, which are batched);
                                            those that mark it: (result, whether it is batched)
    pushforward(primals, tangents)          for ops that hold graphs, in place of jvp: out and
                                            tangent from one node; and
    linearize(primals, tangents)            the same from a primal and a linear node (see control)
    pull(cts, care, *inputs)                for ops that hold graphs, in place of transpose: masked
                                            cotangents, given and returned (see interpreters.masks)
    lower(kernel, index, *operands) -> expr one element of the result (see lowering.build)

`effect` says what an op does beside its result: nothing (None), something in any order
(UNORDERED), or something in the order of the program (ORDERED).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from stax.errors import MissingRule
from stax.extent import Dimension
from stax.types import ArrayType, Type

if TYPE_CHECKING:
    from stax.trace import Proxy

UNORDERED = "unordered"
ORDERED = "ordered"


def typed(value: Any) -> Any:
    """Return a key that tells values of different type apart: 1, 1.0 and True are three."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    return (value.__class__, repr(value) if isinstance(value, float) else value)


class _Interning(type):
    """Metaclass that returns the one op of a class with given parameters."""

    interned: bool

    _ops: ClassVar[WeakValueDictionary[Any, Op]] = WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        names = _field_names(cls)
        if not cls.interned:
            return super().__call__(*args, **kwargs)
        # Mostly all fields are given in order and the op is there already; then none is made.
        if len(args) == len(names):
            found = _Interning._ops.get((cls, typed(args)))
            if found is not None:
                return found
        op = super().__call__(*args, **kwargs)
        values = tuple([getattr(op, name) for name in names])
        object.__setattr__(op, "is_plain", _is_plain(values))
        return _Interning._ops.setdefault((cls, typed(values)), op)


_PLAIN = (int, float, str, type(None), np.dtype)
_MOST_TYPES = 1024  # that an op remembers results for


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)


@functools.cache
def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


class Batch(NamedTuple):
    """The axis that vmap adds: its size, and its name where it has one."""

    size: Dimension
    axis_name: Any = None


class Linear(NamedTuple):
    """Stands in a transpose rule for an input the op is linear in; it has a type and no value."""

    type: ArrayType


@dataclass(frozen=True, eq=False)
class Op(metaclass=_Interning):
    """Base of all ops; subclasses are frozen dataclasses with `eq=False`."""

    name: ClassVar[str]
    effect: ClassVar[str | None] = None
    interned: ClassVar[bool] = True
    holds_graph: ClassVar[bool] = False
    loops: ClassVar[bool] = False  # evaluating it may take long: a program outside of jit as well
    stops_tangent: ClassVar[bool] = False  # the result has no tangent whatever the operand has
    marks_batch: ClassVar[bool] = False  # the batch rule also says whether the result is batched
    by_lane: ClassVar[bool] = False  # lanes of a mapped axis differ whatever the operands are
    is_plain: ClassVar[bool] = False  # its parameters are numbers, text and dtypes
    opens: ClassVar[str] = ""  # the symbol of a length that is known when the op has run

    def __init_subclass__(cls) -> None:
        # Here before @dataclass looks, so that it does not put its own repr in place.
        cls.__repr__ = Op.__repr__  # type: ignore[method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def parameters(self) -> dict[str, Any]:
        """Return the static parameters by name, as printed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={getattr(v, 'name', v)}" for k, v in self.parameters().items())
        return f"{self.name}{{{inner}}}" if inner else self.name

    def abstract_eval(self, *types: ArrayType) -> Type:
        """Return the type of the result."""
        raise self._missing("abstract_eval")

    def result_type(self, *types: Type) -> Type:
        """Return what `abstract_eval` does, which is asked once for each list of types."""
        known: dict[Any, Type] | None = self.__dict__.get("_known")
        if known is None:
            object.__setattr__(self, "_known", known := {})
        found = known.get(types)
        if found is None:
            if len(known) >= _MOST_TYPES:
                known.clear()
            found = known[types] = self.abstract_eval(*types)  # type: ignore[arg-type]
        return found

    def evaluate(self, *arrays: Any) -> Any:
        """Return the result for NumPy arrays."""
        raise self._missing("evaluate")

    def jvp(
        self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]
    ) -> Proxy | None:
        """Return the tangent of the result."""
        raise self._missing("jvp")

    def names_axis(self, axis_name: Any) -> bool:
        """Say whether the op refers to the mapped axis by name and so has to see every batch."""
        return False

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Proxy | None]:
        """Return the cotangents of the inputs."""
        raise self._missing("transpose")

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Proxy:
        """Return the result for inputs that have the batch axis in front where flagged."""
        raise self._missing("batch")

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        """Return one element of the result as a loop IR expression."""
        raise self._missing("lower")

    def _missing(self, rule: str) -> MissingRule:
        return MissingRule(f"{self.name} has no {rule} rule.")


def has_rule(op: type[Op], rule: str) -> bool:
    """Say whether a class of ops defines or inherits `rule`."""
    return getattr(op, rule) is not getattr(Op, rule, None)
