"""Rules of the user's as graphs: tracing their functions, and checking what they return.

A rule may close over anything.  Arrays are held by its graph.  Values of a trace that surrounds the
call are found by tracing the rule there, once; they become operands of the op, and whenever the
rule is traced again, in a transform of a later time, inputs stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stax import tree
from stax.api.tracing import function_name
from stax.control.held import marked, spread
from stax.custom import Backward, Flags, Forward, Pushed, Rule
from stax.errors import ArgumentError, DTypeError, ShapeError, UnexpectedTracerError
from stax.graph import ArrayConstant, ByIdentity, Graph, Node
from stax.operators.elementwise import convert
from stax.trace import Proxy, Trace, current_trace, full, type_of, zeros
from stax.types import ArrayType, float0, is_inexact, is_python_number

# --- symbolic zeros ---


class SymbolicZero:
    """Stands for a tangent or cotangent that is zero whatever the values are; it has a type only.

    Rules get them, and may return them, where they were set with `symbolic_zeros=True`.
    """

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return "SymbolicZero"

    def __getattr__(self, name: str) -> Any:
        if name == "aval" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.aval, name)

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero:
        """Return the zero that is a tangent of `val`."""
        return SymbolicZero(_tangent_of(type_of(val)))


@dataclass(slots=True)
class CustomVJPPrimal:
    """A leaf of an argument as `fwd` gets it with symbolic zeros: `perturbed` says whether it is
    differentiated."""

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree_: Any) -> Any:
    """Return a tree of `CustomVJPPrimal` as the tree of their values; raises ArgumentError for any
    other leaf."""

    def value(leaf: Any) -> Any:
        if type(leaf) is not CustomVJPPrimal:
            raise ArgumentError(
                f"custom_vjp_primal_tree_values: a leaf is of type {type(leaf).__name__}.",
                advice="Pass arguments of a fwd rule that was set with symbolic_zeros=True.",
            )
        return leaf.value

    return tree.tree_map(value, tree_)


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Return the tangents of a tree of values that are zero, as arrays or as `SymbolicZero`."""

    def zero(x: Any) -> Any:
        return SymbolicZero.from_primal_value(x) if symbolic_zeros else _zero(type_of(x))

    return tree.tree_map(zero, val)


def _tangent_of(type_: ArrayType) -> ArrayType:
    return type_.tangent() if is_inexact(type_.dtype) else ArrayType(float0, type_.shape)


def _zero(type_: ArrayType, symbolic: bool = False) -> Any:
    """Return a zero tangent of a value of `type_`."""
    if symbolic:
        return SymbolicZero(_tangent_of(type_))
    return zeros(type_.tangent()) if is_inexact(type_.dtype) else np.zeros(type_.shape, float0)


# --- what a rule closes over ---


class Closure:
    """The traced values that the functions of a rule close over, once they are known."""

    def __init__(self) -> None:
        self.values: list[Proxy] = []
        self.is_known = False
        self.reads_values = False  # of the arguments, in Python's control flow say
        self.leaves: Sequence[Any] = ()  # arguments of the call, while they are at hand

    def add(self, values: Sequence[Proxy]) -> None:
        """Note values that a trace captured."""
        known = {x.node for x in self.values}
        self.values += [x for x in values if x.node not in known]


class RuleTrace(Trace):
    """Records a function of a rule: arrays from outside are held by the graph, and its first inputs
    stand for the values of `closure`, whose traces may have ended."""

    def __init__(self, function: str, transform: str, closure: Closure) -> None:
        super().__init__(function, transform)
        self._closure = closure
        for x in closure.values if closure.is_known else ():
            proxy = self.input(x.type, "closed", x if x.owner.alive else None)
            self._captured[id(x.node)] = proxy.node

    def has(self, value: Proxy) -> bool:
        return super().has(value) or id(value.node) in self._captured

    def _capture(self, value: Any, type_: ArrayType) -> Node:
        if type(value) is not Proxy:
            return self.apply(ArrayConstant(ByIdentity(value)), ())
        return super()._capture(value, type_)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        graph = super().finish(outputs)
        self._closure.reads_values |= self.concretised
        if not self._closure.is_known:
            self._closure.add(self.captures)
        elif self.captures:
            raise UnexpectedTracerError(
                f"{self.transform}: the rule {self.function} closes over a traced array that it "
                "did not use where its function was applied.",
                values=[("traced array", repr(x.type), "") for x in self.captures],
                advice="Pass the value as an argument, or in the residuals.",
            )
        return graph


# Rules that are being traced: a rule may well apply the function that it belongs to.
_under_way: ContextVar[dict[Any, Closure]] = ContextVar("stax_rules", default={})  # noqa: B039
# A rule may define a function with a rule, and so on without end; so many are looked into.
_DEEPEST = 4


def prepared(
    name: str,
    functions: Sequence[Any],
    leaves: Sequence[Any],
    make: Callable[[Closure, Flags], Any],
    every: Sequence[bool] | None,
    explore: Callable[[Rule], None],
    owner: Any = None,
) -> tuple[Rule, list[Proxy]]:
    """Return a rule, and the traced values that it closes over, which have to be operands.

    Inside of a trace `explore` traces the rule at once, to find them; a rule that fails there is
    traced again, and fails, when it is needed.  The `owner` of the functions, if there is one,
    remembers that they close over nothing, so that this is done once.
    """
    key = tuple(map(id, functions))
    around = _under_way.get()
    closure = around.get(key) or Closure()

    def made(flags: Flags) -> Any:
        token = _under_way.set({**_under_way.get(), key: closure})
        try:
            return make(closure, flags)
        finally:
            _under_way.reset(token)

    rule = Rule(name, made, every)
    if key not in around:
        known = owner is not None and owner.closes_over_nothing
        if not known and current_trace() is not None and len(around) < _DEEPEST:
            closure.leaves = leaves
            is_empty = _find(closure, rule, explore)
            closure.leaves = ()
            if owner is not None and is_empty:
                owner.closes_over_nothing = True
        closure.is_known = True
    return rule, list(closure.values)


def _find(closure: Closure, rule: Rule, explore: Callable[[Rule], None]) -> bool:
    """Find what a rule closes over by tracing it; returns whether it needs nothing from around."""
    try:
        explore(rule)
    except Exception:
        closure.values.clear()
        rule.forget()
        return False
    if closure.values:  # inputs of the graphs to come, captured by those there are
        rule.forget()
    return not (closure.values or closure.reads_values)


# --- the graphs ---


@dataclass(frozen=True)
class Signature:
    """What the functions of a rule have to fit: the arguments of the function, and its results."""

    name: str
    types: Sequence[ArrayType]
    treedef: tree.TreeDef
    out_tree: tree.TreeDef
    out_types: Sequence[ArrayType]
    symbolic: bool

    @property
    def moving(self) -> list[bool]:
        """Which leaves of the arguments have derivatives."""
        return _moving(self.types)

    @property
    def out_moving(self) -> list[bool]:
        """Which results have derivatives."""
        return _moving(self.out_types)

    def primals(self, trace: Trace, closure: Closure) -> list[Any]:
        """Return inputs that stand for the arguments, with their values while they are at hand."""
        values = closure.leaves or [None] * len(self.types)
        return [trace.input(t, "primal", x) for t, x in zip(self.types, values, strict=True)]

    def rule(self, kind: str, name: str) -> str:
        """Return what errors call a function of the rule."""
        return f"{kind}: the rule {name} of {self.name}"

    def results(self, value: Any, rule: str) -> list[Any]:
        """Return the leaves of what a rule says is the result; raises unless it fits."""
        leaves = _leaves_like(value, self.out_tree, rule, "result")
        checked = zip(leaves, self.out_types, strict=True)
        return [convert(_checked(rule, "result", x, t), t.dtype, t.weak) for x, t in checked]


def _moving(types: Sequence[ArrayType]) -> list[bool]:
    return [is_inexact(t.dtype) for t in types]


def pushed(signature: Signature, jvp: Callable[..., Any], closure: Closure, flags: Flags) -> Pushed:
    """Trace a rule `jvp(primals, tangents)`, given the tangents that are flagged."""
    name = function_name(jvp)
    rule = signature.rule("custom_jvp", name)
    with RuleTrace(name, "custom_jvp", closure) as trace:
        primals = signature.primals(trace, closure)
        dots = [
            trace.input(t.tangent(), "tangent") if f else _zero(t, signature.symbolic)
            for t, f in zip(signature.types, flags, strict=True)
        ]
        (args, _), (tangents, _) = (signature.treedef.unflatten(x) for x in (primals, dots))
        found = jvp(args, tangents)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise ArgumentError(
                f"{rule} has to return a pair (result, tangent), got {_kind(found)}.",
                advice="Return (primal_out, tangent_out).",
            )
        outs = signature.results(found[0], rule)
        out_dots = [
            _tangent(rule, x, t)
            for x, t in zip(
                _leaves_like(found[1], signature.out_tree, rule, "tangent"),
                signature.out_types,
                strict=True,
            )
        ]
        kept = [x for x in out_dots if x is not None]
        return Pushed(trace.finish([*outs, *kept]), [x is not None for x in out_dots])


class Kept(NamedTuple):
    """What `fwd` returns for `bwd`: its tree, and those of its leaves that are `stored`, as results
    of a graph; the others are handed on as they are."""

    treedef: tree.TreeDef
    leaves: list[Any]
    stored: list[bool]

    def unflatten(self, arrays: Sequence[Any]) -> Any:
        """Return the residuals with `arrays` in the places of what was stored."""
        pairs = zip(spread(arrays, self.stored), self.leaves, self.stored, strict=True)
        return self.treedef.unflatten([x if s else leaf for x, leaf, s in pairs])


def _is_static(leaf: Any) -> bool:
    """Say whether a residual is a Python value, which a rule may branch on or count with."""
    if is_python_number(leaf):
        return True
    if type(leaf) is CustomVJPPrimal:
        return False  # has a traced value in it, and is refused as no array
    try:
        type_of(leaf)
    except (TypeError, ValueError):
        return True
    return False


def forward(
    signature: Signature,
    fwd: Callable[..., Any],
    bwd: Callable[..., Any],
    closure: Closure,
    flags: Flags,
) -> Forward:
    """Trace the first part of a rule for cotangents, given which arguments are differentiated."""
    name, symbolic = function_name(fwd), signature.symbolic
    rule = signature.rule("custom_vjp", name)
    with RuleTrace(name, "custom_vjp", closure) as trace:
        primals = signature.primals(trace, closure)
        given = list(map(CustomVJPPrimal, primals, flags)) if symbolic else primals
        args, _ = signature.treedef.unflatten(given)
        found = fwd(*args)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise ArgumentError(
                f"{rule} has to return a pair (result, residuals), got {_kind(found)}.",
                advice="Return what the function returns, and what bwd needs.",
            )
        outs = signature.results(found[0], rule)
        leaves, kept_tree = tree.tree_flatten(found[1])
        stored = [not _is_static(x) for x in leaves]
        graph = trace.finish([*outs, *marked(leaves, stored)])
        kept = Kept(
            kept_tree, [None if s else x for x, s in zip(leaves, stored, strict=True)], stored
        )
    types = graph.output_types[len(outs) :]
    around = _under_way.get()

    def make(flags: Flags) -> Backward:
        token = _under_way.set(around)
        try:
            return _backward(signature, bwd, kept, types, closure, flags)
        finally:
            _under_way.reset(token)

    every = None if symbolic else [True] * sum(signature.out_moving)
    return Forward(graph, Rule(function_name(bwd), make, every))


def _backward(
    signature: Signature,
    bwd: Callable[..., Any],
    kept: Kept,
    kept_types: Sequence[ArrayType],
    closure: Closure,
    flags: Flags,
) -> Backward:
    """Trace the second part, given the cotangents that are flagged of results that have any."""
    name, symbolic = function_name(bwd), signature.symbolic
    rule = signature.rule("custom_vjp", name)
    with RuleTrace(name, "custom_vjp", closure) as trace:
        residuals = kept.unflatten([trace.input(t, "residual") for t in kept_types])
        taken = [f is True for f in spread(flags, signature.out_moving)]
        cts = [
            trace.input(t.tangent(), "ct") if f else _zero(t, symbolic)
            for t, f in zip(signature.out_types, taken, strict=True)
        ]
        found = bwd(residuals, signature.out_tree.unflatten(cts))
        back = [
            _tangent(rule, x, t, "cotangent")
            for x, t in zip(_cotangents(signature, rule, found), signature.types, strict=True)
            if is_inexact(t.dtype)
        ]
        graph = trace.finish([x for x in back if x is not None])
        return Backward(graph, [x is not None for x in back])


# --- checks ---


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    try:
        return repr(type_of(value))
    except (TypeError, ValueError):
        return type(value).__name__


def _cotangents(signature: Signature, rule: str, found: Any) -> list[Any]:
    """Return what `bwd` returns as a list for the leaves of the arguments; None means zero.

    None, or one array, may stand for a whole argument or a part of it.
    """
    args, _ = signature.treedef.unflatten(list(signature.types))
    if not isinstance(found, tuple | list) or len(found) != len(args):
        raise ArgumentError(
            f"{rule} has to return a tuple of {len(args)} cotangents, got {_kind(found)}.",
            advice="Return one for each argument that is differentiated, None for zero.",
        )
    result: list[Any] = []

    def add(ct: Any, part: Any) -> None:
        result.extend([ct] * len(tree.tree_leaves(part)))

    try:
        tree.tree_map(add, tuple(found), args, is_leaf=lambda x: x is None)
    except (TypeError, ValueError):
        shown = [(args, "arguments"), (tuple(found), "cotangents")]
        raise ArgumentError(
            f"{rule} returns cotangents of another tree than the arguments.",
            values=[(what, "", str(tree.tree_structure(x))) for x, what in shown],
            advice="Return the same containers, None in place of what is zero.",
        ) from None
    return result


def _leaves_like(value: Any, out_tree: tree.TreeDef, rule: str, what: str) -> list[Any]:
    leaves, found = tree.tree_flatten(value)
    if found != out_tree:
        raise ArgumentError(
            f"{rule} returns a {what} of another tree than the function's.",
            values=[("function", "", str(out_tree)), ("rule", "", str(found))],
            advice="Return the same containers.",
        )
    return leaves


def _tangent(rule: str, x: Any, primal: ArrayType, what: str = "tangent") -> Any:
    """Return a tangent of a value of type `primal`, None if it is zero; raises unless it fits.

    A Python number may stand for a cotangent.
    """
    if x is None:
        return None
    wanted = _tangent_of(primal)
    is_number = is_python_number(x) and not isinstance(x, complex)
    if what == "cotangent" and is_number and not primal.shape:
        return full((), x, wanted.dtype)
    _checked(rule, what, x, wanted)
    return None if type(x) is SymbolicZero or wanted.dtype == float0 else x


def _checked(rule: str, what: str, x: Any, wanted: ArrayType) -> Any:
    """Return `x`; raises unless it has the shape and dtype that are wanted."""
    given = _type_of(rule, what, x)
    shapes = given.shape != wanted.shape
    if shapes or given.dtype != wanted.dtype:
        kind = ShapeError if shapes else DTypeError
        raise kind(
            f"{rule} returns a {what} {given} where {wanted} is needed.",
            values=[("needed", repr(wanted), ""), ("returned", repr(given), "")],
            advice=f"A {what} has the shape of what it belongs to."
            if shapes
            else "Convert it with astype.",
        )
    return x


def _type_of(rule: str, what: str, x: Any) -> ArrayType:
    if type(x) is SymbolicZero:
        return x.aval
    if getattr(x, "dtype", None) == float0:
        return ArrayType(float0, np.shape(x))
    try:
        return type_of(x)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{rule} returns a {what} of type {type(x).__name__}, which is not an array.",
            advice="Return arrays, or numbers.",
        ) from None
