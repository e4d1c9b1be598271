"""From a Python function and its arguments to a finished graph.

Every transform starts here: arguments are flattened to leaves, the function is traced on proxies of
their types, and what it returns is flattened to outputs.  Arrays and outer proxies that the
function closes over become trailing inputs, whose values come back as `captures`.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from stax import tree
from stax.api.abstract import ShapeDtypeStruct
from stax.errors import ArgumentError, ArgumentValueError, StaxError
from stax.graph import Graph
from stax.interpreters.simplify import simplify
from stax.source import Source, is_internal
from stax.trace import Proxy, Trace, is_array, links, type_of
from stax.types import ArrayType
from stax.verify import verified


class Auxiliary(NamedTuple):
    """The auxiliary data of a function, which may hold anything; `None` stands for traced arrays.

    Those are outputs of the graph; all else is handed on as it is.
    """

    treedef: tree.TreeDef
    kept: list[Any]

    def unflatten(self, arrays: Sequence[Any]) -> Any:
        """Return the data with `arrays` in the place of the traced ones."""
        given = iter(arrays)
        leaves = [next(given) if x is None else x for x in self.kept]
        return self.treedef.unflatten(leaves)


class Traced(NamedTuple):
    """A traced function: its graph, what it closed over, and how to rebuild its result.

    The first `out_tree.num_leaves` outputs are the result, the others are those of `aux`.
    """

    graph: Graph
    captures: list[Any]
    out_tree: tree.TreeDef
    aux: Auxiliary
    cacheable: bool

    def input_flags(self, flags: Sequence[bool]) -> list[bool]:
        """Return flags of the arguments as flags of the graph's inputs: captures have none."""
        return [*flags, *[False] * len(self.captures)]

    def rebuilt(self, outs: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """Return the result, the auxiliary data, and what `outs` holds beyond those."""
        count, end = self.out_tree.num_leaves, len(self.graph.outputs)
        result, aux = self.out_tree.unflatten(outs[:count]), outs[count:end]
        return result, self.aux.unflatten(aux), list(outs[end:])


class Arguments(NamedTuple):
    """Flattened arguments: leaves, their types, and the structure of `(args, kwargs)`."""

    leaves: list[Any]
    types: list[ArrayType]
    treedef: tree.TreeDef


def flatten_arguments(
    name: str, args: Sequence[Any], kwargs: dict[str, Any], names: Sequence[str] = ()
) -> Arguments:
    """Flatten `(args, kwargs)`; raises ArgumentError for a leaf that is no array or number.

    `names` are those of the leaves in errors, where their places in `args` say little.
    """
    leaves, treedef = tree.tree_flatten((tuple(args), kwargs))
    types = []
    for i, leaf in enumerate(leaves):
        try:
            types.append(leaf.type if isinstance(leaf, ShapeDtypeStruct) else type_of(leaf))
        except (TypeError, ValueError):
            raise _no_array(name, names[i] if names else _paths(args, kwargs)[i], leaf) from None
    return Arguments(leaves, types, treedef)


def _no_array(name: str, path: str, leaf: Any) -> ArgumentError:
    kind = type(leaf).__name__
    advice = (
        "Pass arrays, numbers or containers of them; mark other arguments with "
        "static_argnums,\nor close over them."
    )
    if isinstance(leaf, np.ma.MaskedArray):
        advice = "Masked arrays would lose their mask: use x.filled(value)."
    elif isinstance(leaf, np.ndarray | np.generic):
        kind, advice = f"{kind} of {leaf.dtype}", "Arrays hold numbers: convert it with astype."
    return ArgumentError(
        f"{name}: argument {path} is not an array or a number, but of type {kind}.",
        values=[(path, kind, _shown(leaf))],
        advice=advice,
    )


def _paths(args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    found, _ = tree.tree_flatten_with_path((tuple(args), kwargs))
    return [("args", "kwargs")[path[0].idx] + "".join(map(str, path[1:])) for path, _ in found]


def labels(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """Return a printable name for each leaf: the parameter's, and the path inside it."""
    names = positional_names(f)[: len(args)]
    names += [f"arg{i}" for i in range(len(names), len(args))]
    result = []
    for name, value in [*zip(names, args, strict=True), *sorted(kwargs.items())]:
        for path, _ in tree.tree_flatten_with_path(value)[0]:
            result.append(name + "".join(map(str, path)))
    return result


def check_callable(transform: str, fun: Any) -> None:
    """Raise ArgumentError if `fun` is not a function, where it is transformed."""
    if not callable(fun):
        raise ArgumentError(
            f"{transform}: {_shown(fun)} is not callable.",
            advice=f"Pass a function: {transform}(f)(x), not {transform}(f(x)).",
        )


def _shown(value: Any) -> str:
    """Return a value in at most a line, for errors."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def positions(argnums: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the positions that an `argnums` names; None names none."""
    if argnums is None:
        return ()
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def whole_number(of: str, value: Any, least: int, advice: str = "Or leave it out.") -> int:
    """Return an argument that is a number of steps or the like, of which `of` is what errors say.

    Raises ArgumentError if it is no integer, ArgumentValueError if it is below `least`.
    """
    try:
        number = operator.index(value)
    except StaxError:  # of a traced array, say
        raise
    except TypeError:
        raise ArgumentError(f"{of} is an integer, got {_shown(value)}.", advice=advice) from None
    if number < least:
        raise ArgumentValueError(f"{of} is at least {least}, got {number}.", advice=advice)
    return number


def with_static(
    f: Callable[..., Any], fixed: dict[int, Any], names: dict[str, Any]
) -> Callable[..., Any]:
    """Return `f` of the other arguments: static ones are given by position and by name.

    Its signature is that of `f` without the static parameters, so the others keep their names.
    """
    if not fixed and not names:
        return f

    @functools.wraps(f)
    def of_others(*args: Any, **kwargs: Any) -> Any:
        others = iter(args)
        count = len(fixed) + len(args)
        every = [fixed[i] if i in fixed else next(others) for i in range(count)]
        return f(*every, **names, **kwargs)

    parameters = _parameters(f)
    if parameters:
        kept = [p for i, p in enumerate(parameters) if i not in fixed and p.name not in names]
        of_others.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return of_others


def _parameters(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of `f`; none if it does not say, as some functions in C."""
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(f: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of `f` that can be given by position."""
    if type(f) is FunctionType and not f.__dict__:
        return list(f.__code__.co_varnames[: f.__code__.co_argcount])
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in _parameters(f) if p.kind in kinds]


def _innermost(f: Any) -> Any:
    """Return the function inside wrappers and partials; a jitted function is both."""
    while hasattr(f, "__wrapped__") or isinstance(f, functools.partial):
        f = f.__wrapped__ if hasattr(f, "__wrapped__") else f.func
    return f


def function_name(f: Callable[..., Any]) -> str:
    """Return the name of a function as graphs and errors print it."""
    f = _innermost(f)
    name = getattr(f, "__name__", type(f).__name__)
    return "function" if name == "<lambda>" else name


def definition(f: Callable[..., Any]) -> Source | None:
    """Return where a function is defined, which is where its parameters are."""
    code = getattr(_innermost(f), "__code__", None)
    return None if code is None or is_internal(code) else Source(code, 0)


def trace_function(
    f: Callable[..., Any],
    arguments: Arguments,
    transform: str,
    *,
    values: Sequence[Any] | None = None,
    has_aux: bool = False,
    mapped: bool = False,
    types: Sequence[ArrayType] | None = None,
    names: Sequence[str] = (),
    differentiated: bool = False,
) -> Traced:
    """Trace `f` on proxies of the arguments' types (or of `types`).

    `values` are the known values of the leaves (None where unknown), `names` what errors and graphs
    call them; with `has_aux`, `f` returns a pair whose second part is kept aside: traced arrays in
    it are the last outputs.
    """
    defined = definition(f)
    kinds = types or arguments.types
    made = Trace(function_name(f), transform, mapped=mapped, differentiated=differentiated)
    with _room_for(made), made as trace:
        proxies = [
            trace.input(t, name, value, defined)
            for t, name, value in zip(
                kinds, names or [""] * len(kinds), values or [None] * len(kinds), strict=True
            )
        ]
        args, kwargs = arguments.treedef.unflatten(proxies)
        result, aux = f(*args, **kwargs), ()
        if has_aux:
            result, aux = _pair(result, function_name(f), transform)
        outs, out_tree = flatten_result(result, function_name(f))
        aux_leaves, aux_tree = tree.tree_flatten(aux)
        graph = trace.finish([*outs, *(x for x in aux_leaves if type(x) is Proxy)])
        kept = Auxiliary(aux_tree, [None if type(x) is Proxy else x for x in aux_leaves])
    local = not any(type(c) is not links.array_class for c in trace.captures)
    cacheable = local and not trace.concretised
    graph = simplify(verified(graph, "trace"))
    return Traced(graph, trace.captures, out_tree, kept, cacheable)


# Python's own limit on nested calls allows about 150 nested transforms of JAX or of Stax.
_FRAMES_PER_TRACE = 12
_DEEPEST = 2000


@contextmanager
def _room_for(trace: Trace) -> Iterator[None]:
    """Let functions be nested in transforms deeper than Python's limit on calls allows."""
    before = sys.getrecursionlimit()
    if trace.depth % 64 == 63 and trace.depth < _DEEPEST:
        sys.setrecursionlimit(before + 64 * _FRAMES_PER_TRACE)
    try:
        yield
    finally:
        if trace.depth % 64 == 63:
            sys.setrecursionlimit(before)


def flatten_result(result: Any, name: str) -> tuple[list[Any], tree.TreeDef]:
    """Flatten what a function returned; raises ArgumentError for a leaf that is not an array."""
    leaves, treedef = tree.tree_flatten(result)
    for leaf in leaves:
        if is_array(leaf):
            continue
        try:
            type_of(leaf)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{name} returned {leaf!r} of type {type(leaf).__name__}, which is not an array.",
                advice=(
                    "Functions that are transformed return arrays, numbers or containers of them."
                ),
            ) from None
    return leaves, treedef


def _kind(value: Any) -> str:
    return f"an array, {value.type}" if is_array(value) else type(value).__name__


def _pair(result: Any, name: str, transform: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ArgumentError(
            f"{transform} with has_aux=True needs {name} to return a pair (output, "
            f"auxiliary data), got {_kind(result)}.",
            advice="Return (loss, aux), or leave out has_aux.",
        )
    return result
