"""jit: one compiled variant per specialization, reached without Python where that can be.

A call goes to the native entry first, which knows the variants for flat positional arrays.  Every
other call comes to `_Specializer.call`: it flattens the arguments, looks the variant up by key
(structure, types, static arguments, configuration), traces and compiles if there is none, and runs
it.  Inside an outer trace a jitted function is inlined.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, NamedTuple

from stax.api.abstract import ShapeDtypeStruct
from stax.api.donating import check_given_once, delete_donated, run_donating
from stax.api.leaf_calls import MISSED, LeafCalls
from stax.api.stages import Lowered, checked_budget
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    positional_names,
    positions,
    trace_function,
    with_static,
)
from stax.array import Array, array_from_numpy, value_of
from stax.config import config
from stax.errors import ArgumentError, ArgumentValueError, FallbackWarning, LoweringError
from stax.extent import symbol
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate, found_types
from stax.interpreters.interpret import inline
from stax.named_axes import in_force
from stax.runtime import loops
from stax.runtime.call_form import donated_leaves, tree_form
from stax.runtime.compiler import CompiledProgram, compile_graph
from stax.runtime.entry import make_entry
from stax.runtime.forking import Lock
from stax.trace import current_trace, links, recorder, trace_variable
from stax.types import ArrayType

# Variants that a jitted function keeps at once.
MOST_VARIANTS = 4096


@dataclass(eq=False)
class Variant:
    """One specialization: its key, the traced graph, and the program once there is one."""

    key: Any
    traced: Traced
    donated: tuple[bool, ...] = ()  # a flag for each leaf, if any is given up
    program: CompiledProgram | None = None
    calls: int = 0
    fallback: str = ""
    lock: Lock = field(default_factory=Lock)
    generation: Any = None  # that of the native calls which know it

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.traced.graph.input_types))
        return f"<variant {self.traced.graph.name}({shown})>"


class JitFunction(functools.partial):
    """A jitted function.  Calling it calls the native entry; it binds as a method."""

    __wrapped__: Callable[..., Any]
    _specializer: _Specializer

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<jitted {function_name(self.__wrapped__)}>"

    def __reduce__(self) -> Any:
        if _is_global(self):
            return self.__qualname__  # type: ignore[attr-defined]
        return _rebuild, (self.__wrapped__, self._specializer.options)

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for these arguments (arrays or ShapeDtypeStructs), without running."""
        variant = self._specializer.variant(args, kwargs)
        budget = self._specializer.options.memory_budget
        return Lowered(variant.traced, variant.key[0], budget, variant.donated)

    def trace(self, /, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph for these arguments."""
        return self._specializer.variant(args, kwargs).traced.graph

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes and dtypes of the result for these arguments."""
        traced = self._specializer.variant(args, kwargs).traced
        return traced.out_tree.unflatten(map(ShapeDtypeStruct.of, traced.graph.output_types))

    def variants(self) -> list[Variant]:
        """Return the specializations that exist, oldest first."""
        return list(self._specializer.variants.values())

    def clear_cache(self) -> None:
        """Forget all specializations."""
        self._specializer.clear()


@dataclass(frozen=True)
class Options:
    """What jit was told."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    dynamic: tuple[tuple[str, tuple[tuple[int, str], ...]], ...] = ()
    memory_budget: int | None = None


_live: weakref.WeakSet[_Specializer] = weakref.WeakSet()


def clear_caches() -> None:
    """Forget the compiled variants of all jitted functions, and the programs of loops outside.

    Each compiles again when it is called.
    """
    for specializer in list(_live):
        specializer.clear()
    loops.clear()


def _on_config(active: int) -> None:
    """Send calls through Python while a setting is overridden; the entries do not look at it."""
    for specializer in list(_live):
        specializer.reset_entry(active == 0)


config.listeners.append(_on_config)


class _Collection:
    """Keeps the cycle collector out while graphs grow: each pass over the heap would visit them
    all, which makes tracing and compiling quadratic in the size of the program."""

    def __init__(self) -> None:
        self.blocks = 0
        self.was_enabled = False
        self.lock = Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._resume)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause it for a block; blocks may overlap, in several threads."""
        with self.lock:
            if not self.blocks:
                self.was_enabled = gc.isenabled()
            self.blocks += 1
            gc.disable()
        try:
            yield
        finally:
            with self.lock:
                self.blocks = max(0, self.blocks - 1)
                if not self.blocks and self.was_enabled:
                    gc.enable()

    def _resume(self) -> None:
        """Let the collector run in the child of a fork, where no other thread pauses it."""
        if self.blocks and self.was_enabled:
            gc.enable()
        self.blocks = 0


_collection = _Collection()


class _Given(NamedTuple):
    """The arguments of a call: the static ones by position and by name, and the others."""

    fixed: dict[int, Any]
    fixed_names: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def static_key(self) -> tuple[Any, ...]:
        """Return what a variant depends on: equal values of one type, at one place."""
        if not (self.fixed or self.fixed_names):
            return ()
        static = (*self.fixed.items(), *self.fixed_names.items())
        return tuple([(place, type(value), value) for place, value in static])


class _Places(NamedTuple):
    """Which arguments of a call are static and which are not, by position and by name."""

    fixed: Sequence[int]
    others: Sequence[int]
    fixed_names: Sequence[str]
    other_names: Sequence[str]


class _Specializer:
    """What is behind a jitted function: its variants, by key."""

    def __init__(self, fun: Callable[..., Any], options: Options) -> None:
        self.fun = fun
        self.options = options
        self.variants: dict[Any, Variant] = {}
        self.names = positional_names(fun)
        self.entry: Any = None
        self.entry_key = config.key()
        self.usable = not (config.active_overrides or config.disable_jit)
        self.leaf_calls = LeafCalls()
        self.generation = object()  # of the programs that native calls know
        self.places: dict[Any, _Places] = {}  # by number of positions and names of a call
        self.has_static = bool(options.static_argnums or options.static_argnames)
        _live.add(self)

    # --- the native entry ---

    def reset_entry(self, usable: bool) -> None:
        """Let native calls run the variants of the configuration in force, or none."""
        if usable and config.key() != self.entry_key:
            self.entry_key = config.key()
            self._forget_native_calls()
        self.usable = usable and not config.disable_jit
        if self.entry is not None:
            self.entry.enable(self.usable)

    def _forget_native_calls(self) -> None:
        """Let native calls know no variant; each is added again when it is called next."""
        self.generation = object()
        self.leaf_calls.clear()
        if self.entry is not None:
            self.entry.clear()

    def _add_native_calls(self, variant: Variant) -> None:
        """Let native calls run a variant from now on, where no option hinders."""
        program, (treedef, types, static, _, axes) = variant.program, variant.key
        variant.generation = self.generation
        if program is None or not program.is_static or self.options.dynamic or axes:
            return
        out, captures = variant.traced.out_tree, variant.traced.captures
        donated = variant.donated
        self.leaf_calls.add((treedef, types, static), program, captures, out, donated)
        fixed = [(place, value) for place, _, value in static]
        form = tree_form(treedef, out, fixed, donated)
        if form is not None:
            program.add_to(self.entry, captures, form)

    def _is_donated(self, place: int | str, count: int) -> bool:
        """Say whether an argument at a place is given up, in a call of `count` positions."""
        options = self.options
        if isinstance(place, str):
            numbers = [p for p in options.donate_argnums if 0 <= p < len(self.names)]
            return place in options.donate_argnames or place in [self.names[p] for p in numbers]
        named = place < len(self.names) and self.names[place] in options.donate_argnames
        return named or place in options.donate_argnums or place - count in options.donate_argnums

    # --- calls ---

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function on any arguments."""
        given = self._split(args, kwargs)
        if self.usable and self.leaf_calls and current_trace() is None:
            result = self.leaf_calls.run(given.args, given.kwargs, given.static_key())
            if result is not MISSED:
                return result
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        variant, arguments = self._find(given)
        traced = variant.traced
        if recorder(arguments.leaves) is not None:
            outs = inline(traced.graph, [*arguments.leaves, *traced.captures])
            return traced.out_tree.unflatten(outs)
        check_given_once(function_name(self.fun), arguments.leaves, variant.donated)
        outs = self._run(variant, arguments)
        return traced.out_tree.unflatten(outs)

    def variant(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Variant:
        """Return the specialization for these arguments, traced."""
        return self._find(self._split(tuple(args), dict(kwargs)))[0]

    def _find(self, given: _Given) -> tuple[Variant, Any]:
        self._check_static(given)
        arguments = flatten_arguments("jit", given.args, given.kwargs)
        types = self._dynamic_types(given, arguments) if self.options.dynamic else arguments.types
        axes = in_force()
        key = (arguments.treedef, tuple(types), given.static_key(), config.key(), axes)
        variant = self.variants.get(key)
        if variant is None:
            variant = self._trace(key, given, arguments, types)
        variant.calls += 1
        return variant, arguments

    def _trace(self, key: Any, given: _Given, arguments: Any, types: Any) -> Variant:
        fun = with_static(self.fun, given.fixed, given.fixed_names)
        names = labels(fun, given.args, given.kwargs)
        with _collection.paused():
            traced = trace_function(fun, arguments, "jit", types=types, names=names)
        # Tracing runs the user's code, which may wait for another thread, so no lock is held; of
        # threads that trace the same variant at once, the first to end is the one that is kept.
        static = [(place, value) for place, _, value in key[2]]
        donates = self.options.donate_argnums or self.options.donate_argnames
        donated = donated_leaves(key[0], static, self._is_donated) if donates else ()
        variant = Variant(key, traced, donated)
        if not traced.cacheable:
            return variant
        if len(self.variants) >= MOST_VARIANTS:
            self._forget_oldest()
        return self.variants.setdefault(key, variant)

    def _forget_oldest(self) -> None:
        """Forget the older half of the variants: static arguments may have no end of values."""
        for key in list(self.variants)[: MOST_VARIANTS // 2]:
            self.variants.pop(key, None)
        self._forget_native_calls()

    def _run(self, variant: Variant, arguments: Any) -> list[Any]:
        captures = variant.traced.captures
        values = [value_of(x if type(x) is Array else links.as_array(x)) for x in arguments.leaves]
        values += map(value_of, captures)
        if variant.program is None and not variant.fallback:
            with variant.lock:
                if variant.program is None:
                    self._compile(variant)
        if (
            variant.generation is not self.generation
            and self.usable
            and variant.key[3] == self.entry_key
        ):
            self._add_native_calls(variant)
        if variant.program is None:
            results = evaluate(variant.traced.graph, values)
            delete_donated(arguments.leaves, variant.donated)
            return list(map(array_from_numpy, results, found_types(variant.traced.graph, results)))
        return run_donating(variant.program, arguments.leaves, values, variant.donated)

    def _compile(self, variant: Variant) -> None:
        try:
            with _collection.paused():
                donated = [i for i, gives in enumerate(variant.donated) if gives]
                budget = self.options.memory_budget
                variant.program = compile_graph(variant.traced.graph, budget, donated)
        except LoweringError as error:
            if config.strict or self.options.dynamic:
                raise
            variant.fallback = str(error)
            warnings.warn(
                f"{function_name(self.fun)} runs on the reference evaluator: {error}",
                FallbackWarning,
                stacklevel=4,
            )

    def clear(self) -> None:
        """Forget all variants."""
        self.variants.clear()
        self._forget_native_calls()

    # --- static and dynamic arguments ---

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given:
        """Take the static arguments out of a call."""
        if not self.has_static:
            return _Given({}, {}, args, kwargs)
        form = (len(args), *kwargs)
        places = self.places.get(form)
        if places is None:
            places = self.places[form] = self._places(len(args), kwargs)
        return _Given(
            {p: args[p] for p in places.fixed},
            {n: kwargs[n] for n in places.fixed_names},
            tuple([args[p] for p in places.others]),
            {n: kwargs[n] for n in places.other_names} if kwargs else kwargs,
        )

    def _places(self, count: int, kwargs: Collection[str]) -> _Places:
        """Return where the static arguments of a call are, for calls of this form."""
        options = self.options
        static = {p % count for p in options.static_argnums if -count <= p < count}
        static |= {i for i, n in enumerate(self.names[:count]) if n in options.static_argnames}
        names = set(options.static_argnames)
        names |= {self.names[p] for p in options.static_argnums if 0 <= p < len(self.names)}
        return _Places(
            sorted(static),
            [p for p in range(count) if p not in static],
            sorted(n for n in kwargs if n in names),
            [n for n in kwargs if n not in names],
        )

    def _check_static(self, given: _Given) -> None:
        """Raise ArgumentValueError for a static argument that is not hashable."""
        by_position = [(self._name(p), v) for p, v in given.fixed.items()]
        for label, value in [*by_position, *given.fixed_names.items()]:
            _check_hashable(function_name(self.fun), label, value)

    def _name(self, position: int) -> str:
        return self.names[position] if position < len(self.names) else f"argument {position}"

    def _dynamic_types(self, given: _Given, arguments: Any) -> list[ArrayType]:
        """Return the types of the leaves, with symbols where `dynamic` leaves a length open."""
        fun = with_static(self.fun, given.fixed, given.fixed_names)
        names = labels(fun, given.args, given.kwargs)
        wanted, types, lengths = dict(self.options.dynamic), [], dict[str, int]()
        for label, t in zip(names, arguments.types, strict=True):
            shape = list(t.shape)
            for axis, name in wanted.get(label, ()):
                if not -len(shape) <= axis < len(shape):
                    raise ArgumentValueError(
                        f"jit: dynamic names axis {axis} of {label}, which is {t}.",
                        values=[(label, repr(t), "")],
                        advice="Axes count from 0.",
                    )
                length = shape[axis]
                if lengths.setdefault(name, length) != length:
                    raise ArgumentValueError(
                        f"jit: dynamic length {name} is {lengths[name]} and {length} in one call."
                    )
                if length >= 2:  # 0 and 1 are specialised
                    shape[axis] = symbol(name)
            types.append(t.with_shape(tuple(shape)))
        return types


def _is_global(f: Any) -> bool:
    """Say whether a function stands in its module under its own name, as a decorated one does."""
    found: Any = sys.modules.get(getattr(f, "__module__", ""))
    for part in getattr(f, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is f


def _check_hashable(function: str, label: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise ArgumentValueError(
            f"jit: static argument {label} of {function} is not hashable, but of type "
            f"{type(value).__name__}.",
            values=[(label, type(value).__name__, repr(value)[:60])],
            advice=(
                "Static arguments are part of the key of a compiled variant; pass a tuple or "
                "a frozen dataclass."
            ),
        ) from None


def _strings(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _open_lengths(fun: Callable[..., Any], dynamic: Mapping[str, Mapping[int, str]]) -> Any:
    """Return `dynamic` in the form of options; raises for what is not of its form."""
    for name, axes in dynamic.items():
        if not isinstance(axes, Mapping):
            raise ArgumentError(
                f"jit: dynamic gives {axes!r} for {name}, not names of axes.",
                advice='Give the axes by number: dynamic={"x": {0: "n"}}.',
            )
    # A name may be that of a leaf of a parameter, "x['w']", and `*args` are arg0, arg1, ...
    roots = [re.split(r"\W", name)[0] for name in dynamic]
    _check_names(fun, "dynamic", [x for x in roots if not re.fullmatch(r"arg\d+", x)])
    return tuple((name, tuple(sorted(axes.items()))) for name, axes in dynamic.items())


def _check_names(fun: Callable[..., Any], option: str, names: Sequence[str]) -> None:
    """Raise ArgumentValueError for a name, in an option, that is no parameter of `fun`."""
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name in names:
        if name not in parameters and not takes_any:
            raise ArgumentValueError(
                f"jit: {option} names {name!r}, which {function_name(fun)} does not take.",
                advice=f"Its parameters are {', '.join(parameters) or 'none'}.",
            )


def _rebuild(fun: Callable[..., Any], options: Options) -> JitFunction:
    specializer = _Specializer(fun, options)
    entry = make_entry(specializer.call, Array, trace_variable)
    specializer.entry = entry
    result = JitFunction(entry.call)
    functools.update_wrapper(result, fun)
    result._specializer = specializer
    return result


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    memory_budget: int | None = None,
) -> Any:
    """Return `fun` compiled to native code, one variant per structure, types and static arguments.

    `dynamic={"x": {0: "n"}}` leaves the length of an axis of a parameter open: one variant serves
    all lengths from 2 up; an op that has no kernel for it raises LoweringError.  `memory_budget` is
    the most bytes that a call may use for temporary values, beside arguments and results; where it
    would need more, values are computed again in place of being kept, by the same operations (a sum
    may add in another order where other values share its kernel).

    Donated arguments are deleted by the call, and results of their types are written over them,
    without memory of their own, unless somebody else sees that memory (`np.asarray` of the array is
    alive, say); `explain` tells which.  If the call raises before the program runs they are kept;
    after that, those that are written over are deleted and the others kept.

    Some thousand variants are kept, the older ones are forgotten for new ones; `clear_cache` of the
    result forgets all.  `keep_unused`, `device`, `backend`, `inline` and `compiler_options` are
    accepted for JAX programs and change nothing.

    Raises ArgumentError for arguments that are no arrays, ArgumentValueError for static ones that
    are not hashable and for a budget that cannot be met, with the smallest one that can.
    """
    if fun is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            dynamic=dynamic,
            memory_budget=memory_budget,
        )
    check_callable("jit", fun)
    _check_names(fun, "static_argnames", _strings(static_argnames))
    open_lengths = _open_lengths(fun, dynamic or {})
    options = Options(
        positions(static_argnums),
        _strings(static_argnames),
        positions(donate_argnums),
        _strings(donate_argnames),
        open_lengths,
        checked_budget(memory_budget),
    )
    return _rebuild(fun, options)
