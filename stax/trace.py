"""Tracing: running a function on proxies while a builder records what it applies.

There is one kind of proxy and no tracer stack.  A proxy of an enclosing trace that is used inside
becomes an extra input, a *capture*, and so does a concrete array; nested transforms therefore
cannot mix up their perturbations.  A trace may know the values of its inputs (eager `grad`, and the
unmapped arguments of an eager `vmap`); then a proxy's value is computed on demand, so `if x > 0`
works there as in NumPy.  A trace that was asked for a value is marked `concretised` and its graph
must not be cached.

    >>> with Trace("first", "example") as trace:
    ...     x = trace.input(ArrayType(np.dtype("float32"), (3,)), "x")
    ...     graph = trace.finish([x, full((), 1, x.dtype)])
    >>> [node.op.name for node in graph.outputs]
    ['input', 'constant']
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import Any, NoReturn

import numpy as np

from stax import errors
from stax.device import Placed
from stax.extent import Extent
from stax.graph import Builder, Constant, Graph, Input, Length, Node, Project
from stax.op import Op
from stax.source import Source, hide_internal, name_stack, user_source
from stax.types import (
    ArrayType,
    Dimension,
    Shape,
    TupleType,
    canonical_dtype,
    int_dtype,
    is_inexact,
    is_key,
    is_python_number,
    scalar_type,
    storage,
)

trace_variable: ContextVar[Trace | None] = ContextVar("stax_trace", default=None)


def current_trace() -> Trace | None:
    """Return the innermost trace of this thread, or None outside of any."""
    return trace_variable.get()


class links:
    """What this layer needs from above, registered there: running an op, and making an array."""

    run: Callable[..., Any]  # (op, args, operands) -> Array: interpreters.evaluate
    run_graph: Callable[..., Any]  # (graph, args) -> list of Array
    run_loop: Callable[..., Any]  # (op, types, arrays) -> results, compiled: runtime.loops
    evaluate: Callable[..., Any]  # (nodes, known) -> None: interpreters.evaluate
    as_array: Callable[..., Any]  # (value) -> Array: array
    value_of: Callable[..., np.ndarray]  # (Array) -> the NumPy array behind it: array
    from_numpy: Callable[..., Any]  # (NumPy array, type) -> Array of it: array
    array_class: Any = type(None)


NOT_HASHABLE = "arrays are not hashable: == compares their elements."


class Proxy(Placed):
    """Stands for a value while a function is traced; has a type, and a value only on demand."""

    __slots__ = ("__weakref__", "node", "owner")
    __array_priority__ = 100

    def __init__(self, node: Node, trace: Trace) -> None:
        self.node = node
        self.owner = trace

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
        return self.node.type.shape

    @property
    def ndim(self) -> int:
        return len(self.node.type.shape)

    @property
    def size(self) -> Dimension:
        return self.node.type.size

    @property
    def weak_type(self) -> bool:
        return self.node.type.weak

    @property
    def itemsize(self) -> int:
        return int(self.node.type.dtype.itemsize)

    @property
    def nbytes(self) -> Dimension:
        return self.size * self.itemsize

    def __repr__(self) -> str:
        return f"<traced {self.node.type!r} in {self.owner.transform}>"

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        value = self._number(errors.ConcretizationTypeError, "{} was formatted")
        return format(value if self.ndim else value[()], spec)

    def __hash__(self) -> NoReturn:
        raise errors.ArgumentError(
            NOT_HASHABLE, advice="A key must be known while tracing: take a number or a string."
        )

    def __copy__(self) -> Proxy:
        return self

    def __deepcopy__(self, memo: Any) -> Proxy:
        return self  # arrays are immutable, so containers may share them

    def __reduce__(self) -> NoReturn:
        raise errors.TracerArrayConversionError(
            "a traced array cannot be pickled: it has no values.",
            values=[named_row(self)],
            advice="Pickle results of the function, outside of it.",
        )

    def __bool__(self) -> bool:
        return bool(self._number(errors.TracerBoolConversionError, "the truth of {} was needed"))

    def __int__(self) -> int:
        return int(self._number(errors.ConcretizationTypeError, "int() of {} was needed"))

    def __float__(self) -> float:
        return float(self._value(errors.ConcretizationTypeError, "float() of {} was needed"))

    def __complex__(self) -> complex:
        return complex(self._value(errors.ConcretizationTypeError, "complex() of {} was needed"))

    def __index__(self) -> int:
        return self._number(
            errors.TracerIntegerConversionError, "{} was used as a Python integer"
        ).__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value(errors.TracerArrayConversionError, "{} was handed to NumPy")
        return np.asarray(value, dtype)

    def item(self, *index: Any) -> Any:
        """Return the one element, or that at `index`, as a Python number."""
        value = self._value(errors.ConcretizationTypeError, "item() of {} was needed")
        if not index and value.size != 1:
            raise errors.ArgumentValueError(
                f"item() takes an array of one element, not {self.type}.",
                advice="Name the element, x.item(0), or use x.tolist().",
            )
        return value.item(*index)

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return self._value(errors.ConcretizationTypeError, "tolist() of {} was needed").tolist()

    def _value(self, error: builtins.type[errors.StaxError], what: str) -> np.ndarray:
        """The value, to leave the trace as a number that derivatives do not see."""
        value = self._number(error, what)
        if self.owner.carries_tangent(self.node):
            raise error(
                f"{what.format('an array that is differentiated')}, and its derivative would be "
                "lost there.",
                values=[named_row(self)],
                advice=(
                    "Use functions of stax.numpy throughout, or stop_gradient(x) where no gradient "
                    "should flow."
                ),
            )
        return value

    def _number(self, error: builtins.type[errors.StaxError], what: str) -> np.ndarray:
        if is_key(self.dtype):
            raise errors.DTypeError(
                f"random keys ({self.type}) are not numbers.",
                values=[named_row(self)],
                advice="Use random.key_data for their bits.",
            )
        value = self.owner.concrete(self)
        if isinstance(value, np.ndarray):
            return value
        kind = "a mapped array" if value.mapped else "a traced array"
        raise error(
            f"{what.format(kind)}, but {value.transform} traces without values.",
            values=[named_row(self)],
            advice=_ADVICE[error].format(known=_KNOWN[value.mapped]),
        )


# What errors, Python's own among them, call the class.
Proxy.__name__ = Proxy.__qualname__ = "TracedArray"

# What makes a value known, by whether it is unknown because it is mapped.
_KNOWN = {False: "mark the argument with static_argnums", True: "do not map it (in_axes None)"}
_ADVICE: dict[type, str] = {
    errors.TracerBoolConversionError: ("Use where(condition, a, b) or cond, or {known}."),
    errors.TracerIntegerConversionError: (
        "Indices of arrays may be traced (x[i], dynamic_slice); shapes and range() may "
        "not.\nOr {known}."
    ),
    errors.TracerArrayConversionError: "Use the function of stax.numpy in place of NumPy's.",
    errors.ConcretizationTypeError: "Keep it an array, or {known}.",
}


class Trace(AbstractContextManager["Trace"]):
    """Records one function; a context manager that makes it the current trace.

    `transform` names what the trace is for, `function` what is traced, and `call` is the user's
    line that asked for it; `mapped` says that inputs without a value are unknown because vmap maps
    them, `differentiated` that derivatives in the inputs are wanted.  While `source` and `scope`
    are set, new nodes get them in place of the user's line.
    """

    def __init__(
        self, function: str, transform: str, *, mapped: bool = False, differentiated: bool = False
    ) -> None:
        self.differentiated = differentiated
        self.outer: dict[Node, Proxy] = {}  # inputs that stand for a value of an enclosing trace
        self.function = function
        self.transform = transform
        self.call = user_source()
        self.mapped = mapped
        self.builder = Builder()
        self.inputs: list[Node] = []
        self.captures: list[Any] = []
        self.known: dict[Node, Any] = {}
        self.alive = True
        self.concretised = False
        self.parent = trace_variable.get()
        self.depth: int = 0 if self.parent is None else self.parent.depth + 1
        self.source: Source | None = None
        self.scope: tuple[str, ...] | None = None
        self._captured: dict[int, Node] = {}
        self._token: Token[Trace | None] | None = None

    def __enter__(self) -> Trace:
        self._token = trace_variable.set(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        assert self._token is not None
        trace_variable.reset(self._token)
        self.alive = False
        if isinstance(error, errors.StaxError):
            hide_internal(traceback)

    def input(
        self, type_: ArrayType, label: str = "", value: Any = None, source: Source | None = None
    ) -> Proxy:
        """Append an input; `value` is its known value, if there is one."""
        source = source or self.source or user_source()
        node = Node(Input(label), (), type_, source, self.scope or ())
        self.inputs.append(node)
        if value is not None:
            self.known[node] = value
        if type(value) is Proxy:
            self.outer[node] = value
        return Proxy(node, self)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        """Return the graph with `outputs`; captures have become trailing inputs."""
        nodes = [self.node(x) for x in outputs]
        return self.builder.finish(self.function, self.inputs, nodes)

    def node(self, value: Any) -> Node:
        """Return the node that stands for `value` here, capturing it if it comes from outside."""
        if type(value) is Proxy:
            if value.owner is self:
                return value.node
            return self._capture(value, value.node.type)
        if type(value) is links.array_class:
            return self._capture(value, value.type)
        if is_python_number(value):
            return self._constant(value, scalar_type(value))
        if isinstance(value, np.generic):
            return self._constant(value, ArrayType(canonical_dtype(value.dtype), ()))
        if isinstance(value, Extent):
            return self.apply(Length(value, int_dtype()), ())
        array = links.as_array(value)
        return self._capture(array, array.type)

    def _constant(self, value: Any, type_: ArrayType) -> Node:
        data = np.asarray(value).astype(type_.dtype).tobytes()
        return self.apply(Constant(data, type_.dtype, (), type_.weak), ())

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
        if type(value) is Proxy:
            self.outer[node] = value
        self._captured[id(value if type(value) is not Proxy else value.node)] = node
        return node

    def _check_alive(self, value: Proxy) -> None:
        enclosing = self.parent
        while enclosing is not None and not enclosing.has(value):
            enclosing = enclosing.parent
        if enclosing is None:
            raise escaped(value)

    def has(self, value: Proxy) -> bool:
        """Say whether `value` may be used here and in traces inside."""
        return value.owner is self and self.alive

    def apply(self, op: Op, nodes: tuple[Node, ...]) -> Node:
        """Return the node that applies `op`, deriving its type if it is new."""
        found = self.builder.find(op, nodes)
        if found is not None:
            return found
        try:
            type_ = op.result_type(*(n.type for n in nodes))
        except errors.StaxError as error:
            here = self.source or user_source()
            origins = [described(n, here) for n in nodes]
            raise error.located(operand_rows([n.type for n in nodes], origins), doing()) from None
        source = self.source or user_source()
        scope = name_stack() if self.scope is None else self.scope
        return self.builder.add(op, nodes, type_, source, scope)

    def concrete(self, proxy: Proxy) -> np.ndarray | Trace:
        """Return the value of `proxy`, or the trace that does not know it."""
        if not self.alive:
            raise escaped(proxy)
        unknown = self._settle([proxy.node])
        if unknown is not None:
            return unknown
        self.concretised = True
        return _numpy(self.known[proxy.node])

    def carries_tangent(self, node: Node) -> bool:
        """Say whether `node` has a derivative in an argument that is differentiated."""
        captured = set(self._captured.values())
        pending, seen = [node], set[Node]()
        while pending:
            x = pending.pop()
            discrete = isinstance(x.type, ArrayType) and not is_inexact(x.type.dtype)
            if x in seen or discrete or x.op.stops_tangent:
                continue
            seen.add(x)
            pending += x.inputs
            if isinstance(x.op, Input):
                if self.differentiated and x not in captured:
                    return True
                outer = self.outer.get(x)
                if outer is not None and outer.owner.carries_tangent(outer.node):
                    return True
        return False

    def _settle(self, targets: Sequence[Node]) -> Trace | None:
        """Compute the values of `targets` from those of inputs, or return who lacks one."""
        needed, stack = set(), [n for n in targets if not isinstance(self.known.get(n), np.ndarray)]
        while stack:
            node = stack.pop()
            if node in needed:
                continue
            needed.add(node)
            if isinstance(node.op, Input) or node.op.by_lane:
                unknown = self._settle_input(node)
                if unknown is not None:
                    return unknown
            stack += [
                x for x in node.inputs if not isinstance(self.known.get(x), np.ndarray | tuple)
            ]
        links.evaluate([n for n in self.builder.nodes if n in needed], self.known)
        return None

    def _settle_input(self, node: Node) -> Trace | None:
        value, owner = self.known.get(node), self
        if value is None:
            while node.op.by_lane and not owner.mapped and owner.parent is not None:
                owner = owner.parent
            return owner
        if type(value) is Proxy:
            found = value.owner.concrete(value)
            if not isinstance(found, np.ndarray):
                return found
            self.known[node] = found
        else:
            self.known[node] = _numpy(value)
        return None


def _numpy(value: Any) -> np.ndarray:
    """Return a known value as a NumPy array; that of random keys as it is held."""
    return links.value_of(value) if type(value) is links.array_class else np.asarray(value)


_computes: ContextVar[bool] = ContextVar("stax_computes", default=False)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Compute what has known values at once, in a `with` block inside a traced function.

    Results are arrays that Python can look at; ops on traced arrays are recorded as elsewhere.
    """
    tokens = trace_variable.set(None), _computes.set(True)
    try:
        yield
    finally:
        trace_variable.reset(tokens[0])
        _computes.reset(tokens[1])


def recorder(args: Sequence[Any]) -> Trace | None:
    """Return the trace in which an op on `args` is recorded, or None if it is computed at once."""
    trace = trace_variable.get()
    if trace is None and _computes.get():
        live = [x.owner for x in args if type(x) is Proxy and x.owner.alive]
        return max(live, key=lambda found: found.depth, default=None)
    return trace


def bind(op: Op, *args: Any) -> Any:
    """Apply `op`: record it in the current trace, or outside of any run it at once."""
    trace = recorder(args)
    if trace is None:
        return links.run(op, args)
    return Proxy(trace.apply(op, tuple([trace.node(x) for x in args])), trace)


def type_of(value: Any) -> ArrayType:
    """Return the type of a proxy, an array, a number or anything `as_array` accepts."""
    if type(value) is Proxy or type(value) is links.array_class:
        return value.type
    if is_python_number(value):
        return scalar_type(value)
    if isinstance(value, Extent):
        return ArrayType(int_dtype(), (), True)
    return links.as_array(value).type


def is_array(value: Any) -> bool:
    """Say whether `value` is a proxy or an array of the library."""
    return type(value) is Proxy or type(value) is links.array_class


def full(shape: Shape, value: Any, dtype: Any, weak: bool = False) -> Any:
    """Return an array filled with the number `value`."""
    number = np.asarray(value).astype(storage(dtype))
    if recorder(()) is None:
        return links.from_numpy(np.full(shape, number), ArrayType(dtype, shape, weak))
    return bind(Constant(number.tobytes(), dtype, shape, weak))


def as_array(value: Any) -> Any:
    """Return `value` as an array; proxies and arrays are returned as they are."""
    return value if is_array(value) else links.as_array(value)


def zeros(type_: ArrayType) -> Any:
    """Return zeros of the shape and dtype of `type_`; they are never weak."""
    return full(type_.shape, 0, type_.dtype)


def zeros_like(value: Any) -> Any:
    """Return zeros of the shape and dtype of `value`."""
    return zeros(type_of(value))


def results(proxy: Any) -> tuple[Any, ...]:
    """Return the results of a value of several, or the value alone."""
    if isinstance(proxy, tuple):
        return proxy
    if not isinstance(proxy.type, TupleType):
        return (proxy,)
    return tuple(project(proxy, i) for i in range(len(proxy.type.items)))


def project(proxy: Any, position: int) -> Any:
    """Return one result of a value of several, which may be a tuple of them."""
    return proxy[position] if isinstance(proxy, tuple) else bind(Project(position), proxy)


# --- what errors show ---


def described(node: Node, here: Source | None = None) -> str:
    """Return where a node comes from, as errors show it.

    What the call at `here` itself made of one operand (a conversion, say) is shown as the operand.
    """
    while here is not None and node.source == here and len(node.inputs) == 1:
        node = node.inputs[0]
    where = node.source.shown() if node.source else ""
    if node.label:
        return f"parameter {node.label}  {node.source or ''}".rstrip()
    return f"constant {node.op.value}" if isinstance(node.op, Constant) else where


def operand_rows(kinds: Sequence[Any], origins: Sequence[str]) -> list[errors.Value]:
    """Return the operands of an op as rows of an error."""
    names = {1: ("operand",), 2: ("lhs", "rhs")}
    labels = names.get(len(kinds)) or [f"operand {i}" for i in range(len(kinds))]
    return [(n, repr(t), where) for n, t, where in zip(labels, kinds, origins, strict=True)]


def named_row(proxy: Proxy) -> errors.Value:
    """Return a traced array as a row of an error: by the name of its parameter or of its op."""
    node = proxy.node
    return node.label or node.op.name, repr(proxy.type), described(node)


def doing() -> list[str]:
    """Return what is being done, innermost first: the user's line, and the traces in force."""
    trace, here = trace_variable.get(), user_source()
    made = trace.source if trace is not None else None
    lines = [f"computing {where.shown()}" for where in (made or here,) if where]
    while trace is not None:
        at = f", called at {trace.call}" if trace.call else ""
        lines.append(f"tracing {trace.function} for {trace.transform}{at}")
        trace = trace.parent
    return lines


def escaped(proxy: Proxy) -> errors.UnexpectedTracerError:
    """Return the error for a proxy that is used outside its trace."""
    trace = proxy.owner
    where = "after" if not trace.alive else "outside"
    at = f", called at {trace.call}" if trace.call else ""
    return errors.UnexpectedTracerError(
        f"a traced array was used {where} the trace that made it, "
        f"of {trace.function} for {trace.transform}{at}.",
        values=[named_row(proxy)],
        advice=(
            "Return the value from the function; do not store it in a global, an attribute "
            "or a list."
        ),
    )
