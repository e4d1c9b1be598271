"""Tracing: running a function on proxies while a builder records what it applies.

There is one kind of proxy and no tracer stack.  A proxy of an enclosing trace that is used inside
becomes an extra input, a *capture*, and so does a concrete array; nested transforms therefore
cannot mix up their perturbations.  A trace may know the values of its inputs (eager `grad`, and the
unmapped arguments of an eager `vmap`); then a proxy's value is computed on demand, so `if x > 0`
works there as in NumPy.  A trace that was asked for a value is marked `concretised` and its graph
must not be cached.

    >>> with Trace("double", "example") as trace:
    ...     x = trace.input(ArrayType(np.dtype("float32"), (3,)), "x")
    ...     graph = trace.finish([bind(add, x, x)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, NoReturn

import numpy as np

from stax import errors
from stax.extent import Extent
from stax.graph import Builder, Constant, Graph, Input, Length, Node, Project
from stax.op import Op
from stax.source import Source, name_stack, user_source
from stax.types import (
    ArrayType,
    Dimension,
    Shape,
    TupleType,
    canonical_dtype,
    int_dtype,
    scalar_type,
)

_current: ContextVar[Trace | None] = ContextVar("stax_trace", default=None)


def current_trace() -> Trace | None:
    """Return the innermost trace of this thread, or None outside of any."""
    return _current.get()


# --- links to layers above, registered there ---


class _Links:
    """What this layer needs from above: running an op on arrays, and making an array."""

    run: Callable[..., Any]  # (op, args) -> Array: interpreters.evaluate
    run_graph: Callable[..., Any]  # (graph, args) -> list of Array
    evaluate: Callable[..., Any]  # (nodes, known) -> None: interpreters.evaluate
    as_array: Callable[..., Any]  # (value) -> Array: array
    array_class: type = type(None)


links = _Links


class Proxy:
    """Stands for a value while a function is traced; has a type, and a value only on demand."""

    __slots__ = ("__weakref__", "node", "trace")
    __array_priority__ = 100

    def __init__(self, node: Node, trace: Trace) -> None:
        self.node = node
        self.trace = trace

    @property
    def type(self) -> Any:
        return self.node.type

    @property
    def aval(self) -> Any:
        return self.node.type

    @property
    def dtype(self) -> Any:
        return self.node.type.dtype

    @property
    def shape(self) -> Shape:
        return self.node.type.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.node.type.shape)

    @property
    def size(self) -> Dimension:
        return self.node.type.size  # type: ignore[no-any-return]

    @property
    def weak_type(self) -> bool:
        return self.node.type.weak  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Proxy<{self.node.type!r}, {self.trace.transform}>"

    def __hash__(self) -> NoReturn:
        raise TypeError("traced arrays are not hashable, as arrays are not")

    def __bool__(self) -> bool:
        return bool(self._value(errors.TracerBoolConversionError, "the truth"))

    def __int__(self) -> int:
        return int(self._value(errors.ConcretizationTypeError, "the value as an int"))

    def __float__(self) -> float:
        return float(self._value(errors.ConcretizationTypeError, "the value as a float"))

    def __complex__(self) -> complex:
        return complex(self._value(errors.ConcretizationTypeError, "the value as a complex number"))

    def __index__(self) -> int:
        return self._value(errors.TracerIntegerConversionError, "the value as an index").__index__()  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value(errors.TracerArrayConversionError, "the values as a NumPy array")
        return np.asarray(value, dtype)

    def item(self) -> Any:
        """Return the value of a one-element array as a Python number."""
        return self._value(errors.ConcretizationTypeError, "the value").item()

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return self._value(errors.ConcretizationTypeError, "the values").tolist()

    def _value(self, error: type[errors.StaxError], what: str) -> np.ndarray:
        value = self.trace.concrete(self)
        if isinstance(value, np.ndarray):
            return value
        kind = "a mapped" if value.mapped else "a traced"
        raise error(
            f"{what} of {kind} array was needed, but {value.transform} traces without values.",
            values=[(self.node.op.name, repr(self.type), described(self.node))],
            doing=self.trace.doing(),
            advice=_ADVICE[error],
        )


_ADVICE: dict[type, str] = {
    errors.TracerBoolConversionError: (
        "Use where(condition, a, b) or cond, or mark the argument with static_argnums."
    ),
    errors.TracerIntegerConversionError: (
        "Indices of arrays may be traced (x[i], dynamic_slice); shapes and range() may "
        "not.\nMark the argument with static_argnums."
    ),
    errors.TracerArrayConversionError: "Use the function of stax.numpy in place of NumPy's.",
    errors.ConcretizationTypeError: "Keep it an array, or mark the argument with static_argnums.",
}


class Trace(AbstractContextManager["Trace"]):
    """Records one function; a context manager that makes it the current trace.

    `transform` names what the trace is for, `function` what is traced; `values`, if given, are the
    known values of the inputs in order (arrays, proxies of an enclosing trace, or None).
    """

    def __init__(
        self, function: str, transform: str, *, call: Source | None = None, mapped: bool = False
    ) -> None:
        self.function = function
        self.transform = transform
        self.call = call
        self.mapped = mapped
        self.builder = Builder()
        self.inputs: list[Node] = []
        self.captures: list[Any] = []
        self.known: dict[Node, Any] = {}
        self.alive = True
        self.concretised = False
        self.parent = _current.get()
        self.source: Source | None = None
        self.scope: tuple[str, ...] | None = None
        self._captured: dict[int, Node] = {}
        self._token: Token[Trace | None] | None = None

    def __enter__(self) -> Trace:
        self._token = _current.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._token is not None
        _current.reset(self._token)
        self.alive = False

    def input(self, type_: ArrayType, label: str = "", value: Any = None) -> Proxy:
        """Append an input; `value` is its known value, if there is one."""
        node = Node(Input(label), (), type_, self.source or user_source(), self.scope or ())
        self.inputs.append(node)
        if value is not None:
            self.known[node] = value
        return Proxy(node, self)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        """Return the graph with `outputs`; captures have become trailing inputs."""
        nodes = [self.node(x) for x in outputs]
        return self.builder.finish(self.function, self.inputs, nodes)

    def node(self, value: Any) -> Node:
        """Return the node that stands for `value` here, capturing it if it comes from outside."""
        if type(value) is Proxy:
            if value.trace is self:
                return value.node
            return self._capture(value, value.node.type)
        if type(value) is links.array_class:
            return self._capture(value, value.type)
        if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
            return self._constant(value, scalar_type(value))
        if isinstance(value, np.generic):
            return self._constant(value, ArrayType(canonical_dtype(value.dtype), ()))
        if isinstance(value, Extent):
            op = Length(value, int_dtype())
            return self._add(op, (), op.abstract_eval())
        array = links.as_array(value)
        return self._capture(array, array.type)

    def _constant(self, value: Any, type_: ArrayType) -> Node:
        data = np.asarray(value).astype(type_.dtype).tobytes()
        op = Constant(data, type_.dtype, (), type_.weak)
        return self._add(op, (), type_)

    def _capture(self, value: Any, type_: ArrayType) -> Node:
        found = self._captured.get(id(value if type(value) is not Proxy else value.node))
        if found is not None:
            return found
        if type(value) is Proxy:
            self._check_alive(value)
        node = Node(Input(""), (), type_, self.source or user_source(), ())
        self.inputs.append(node)
        self.captures.append(value)  # keeps the value alive, so that its id stays its own
        self.known[node] = value
        self._captured[id(value if type(value) is not Proxy else value.node)] = node
        return node

    def _check_alive(self, value: Proxy) -> None:
        enclosing = self.parent
        while enclosing is not None and enclosing is not value.trace:
            enclosing = enclosing.parent
        if enclosing is None or not value.trace.alive:
            raise escaped(value)

    def _add(self, op: Op, inputs: tuple[Node, ...], type_: Any) -> Node:
        found = self.builder.find(op, inputs)
        if found is not None:
            return found
        source = self.source or user_source()
        scope = name_stack() if self.scope is None else self.scope
        return self.builder.add(op, inputs, type_, source, scope)

    def apply(self, op: Op, nodes: tuple[Node, ...]) -> Node:
        """Return the node that applies `op`, deriving its type if it is new."""
        found = self.builder.find(op, nodes)
        if found is not None:
            return found
        try:
            type_ = op.abstract_eval(*(n.type for n in nodes))
        except errors.StaxError as error:
            raise error.located(
                [(f"operand {i}", repr(n.type), described(n)) for i, n in enumerate(nodes)],
                self.doing(),
            ) from None
        source = self.source or user_source()
        scope = name_stack() if self.scope is None else self.scope
        return self.builder.add(op, nodes, type_, source, scope)

    def doing(self) -> list[str]:
        """Return what is being done, innermost first, as the last but one part of an error."""
        lines, trace = [], self
        while trace is not None:
            at = f", called at {trace.call}" if trace.call else ""
            lines.append(f"tracing {trace.function} for {trace.transform}{at}")
            trace = trace.parent  # type: ignore[assignment]
        return lines

    def concrete(self, proxy: Proxy) -> np.ndarray | Trace:
        """Return the value of `proxy`, or the trace that does not know it."""
        if not self.alive:
            raise escaped(proxy)
        unknown = self._settle([proxy.node])
        if unknown is not None:
            return unknown
        self.concretised = True
        return np.asarray(self.known[proxy.node])

    def _settle(self, targets: Sequence[Node]) -> Trace | None:
        """Compute the values of `targets` from those of inputs, or return who lacks one."""
        needed, stack = set(), [n for n in targets if not isinstance(self.known.get(n), np.ndarray)]
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            if isinstance(node.op, Input):
                unknown = self._settle_input(node)
                if unknown is not None:
                    return unknown
            stack += [
                x for x in node.inputs if not isinstance(self.known.get(x), np.ndarray | tuple)
            ]
        links.evaluate([n for n in self.builder.nodes if n in needed], self.known)
        return None

    def _settle_input(self, node: Node) -> Trace | None:
        value = self.known.get(node)
        if value is None:
            return self
        if type(value) is Proxy:
            found = value.trace.concrete(value)
            if not isinstance(found, np.ndarray):
                return found
            self.known[node] = found
        else:
            self.known[node] = np.asarray(value)
        return None


def bind(op: Op, *args: Any) -> Any:
    """Apply `op`: record it in the current trace, or outside of any run it at once."""
    trace = _current.get()
    if trace is None:
        return links.run(op, args)
    return Proxy(trace.apply(op, tuple([trace.node(x) for x in args])), trace)


def type_of(value: Any) -> ArrayType:
    """Return the type of a proxy, an array, a number or anything `as_array` accepts."""
    if type(value) is Proxy or type(value) is links.array_class:
        return value.type  # type: ignore[no-any-return]
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return scalar_type(value)
    if isinstance(value, Extent):
        return ArrayType(int_dtype(), (), True)
    return links.as_array(value).type  # type: ignore[no-any-return]


def is_array(value: Any) -> bool:
    """Say whether `value` is a proxy or an array of the library."""
    return type(value) is Proxy or type(value) is links.array_class


def full(shape: Shape, value: Any, dtype: Any, weak: bool = False) -> Any:
    """Return an array filled with the number `value`."""
    data = np.asarray(value).astype(dtype).tobytes()
    return bind(Constant(data, dtype, shape, weak))


def zeros_like(value: Any) -> Any:
    """Return zeros of the type of `value`."""
    t = type_of(value)
    return full(t.shape, 0, t.dtype)


def results(proxy: Any) -> tuple[Any, ...]:
    """Return the results of a value of several, or the value alone."""
    if isinstance(proxy, tuple):
        return proxy
    if not isinstance(proxy.type, TupleType):
        return (proxy,)
    return tuple(project(proxy, i) for i in range(len(proxy.type.items)))


def project(proxy: Any, position: int) -> Any:
    """Return one result of a value of several."""
    return bind(Project(position), proxy)


def described(node: Node) -> str:
    """Return where a node comes from, as errors show it."""
    if isinstance(node.op, Input) and node.op.label:
        return f"parameter {node.op.label}"
    if isinstance(node.op, Constant):
        return f"constant {node.op.value}"
    return node.source.shown() if node.source else ""


def escaped(proxy: Proxy) -> errors.UnexpectedTracerError:
    """Return the error for a proxy that is used outside its trace."""
    trace = proxy.trace
    where = "after" if not trace.alive else "outside"
    return errors.UnexpectedTracerError(
        f"a traced array was used {where} the trace that made it.",
        values=[(proxy.node.op.name, repr(proxy.type), described(proxy.node))],
        doing=[f"not tracing {trace.function} for {trace.transform}"],
        advice=(
            "Return the value from the function; do not store it in a global, an attribute "
            "or a list."
        ),
    )
