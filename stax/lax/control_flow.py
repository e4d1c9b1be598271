"""Control flow that depends on values: choices and loops, as single nodes of the graph.

Functions and operands are pytrees; arrays that a function closes over become operands.  Python's
own `if` and `while` on traced values are errors under jit: these functions take their place.
"""

from __future__ import annotations

import functools
import inspect
from builtins import map as map_
from collections.abc import Callable, Sequence
from typing import Any

from stax import control, tree
from stax.api.abstract import ShapeDtypeStruct
from stax.api.checkpoint import checkpoint
from stax.api.mapping import vmap
from stax.api.tracing import (
    Traced,
    check_callable,
    flatten_arguments,
    function_name,
    trace_function,
    whole_number,
)
from stax.config import config
from stax.control.while_loop import Limit
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import Extent
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.lax import unstaged
from stax.numpy import joining
from stax.numpy.elementwise import clip, minimum
from stax.operators.arithmetic import in_range
from stax.operators.elementwise import convert
from stax.operators.reshape import reshape
from stax.operators.shape import slice_in_dim
from stax.trace import Proxy, Trace, as_array, full, type_of
from stax.types import ArrayType, bool_, int32, is_integer, is_python_number, promote

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "while_loop"]


# --- choices ---


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = None,
    linear: Any = None,
) -> Any:
    """Return `true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`; one of them runs.

    `pred` is a scalar: a bool, or a number that counts as true if it is not 0.  Both functions
    return one tree of arrays of one shape and dtype each.  `linear` changes nothing.

    Raises ShapeError if `pred` is not a scalar, ArgumentError if the results differ, or if one of
    the functions does not take the operands.
    """
    given = operands if operand is None else (operand,)
    type_ = type_of(pred)
    if type_.shape:
        raise ShapeError(
            f"cond: the predicate has to be a scalar, got {type_}.",
            advice="Reduce it (any, all), or use where to choose element by element.",
        )
    holds = as_array(pred)
    if type_.dtype != bool_:
        holds = holds != 0
    return _choose("cond", convert(holds, int32), (false_fun, true_fun), given)


def switch(
    index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = None
) -> Any:
    """Return `branches[index](*operands)`; `index`, a scalar integer, is clamped.

    Raises ArgumentValueError without branches, ArgumentError if their results differ or one does
    not take the operands, ShapeError and DTypeError if `index` is not a scalar integer.
    """
    given = operands if operand is None else (operand,)
    if not branches:
        raise ArgumentValueError(
            "switch: there is no branch.", advice="Pass at least one function."
        )
    type_ = type_of(index)
    if type_.shape:
        raise ShapeError(
            f"switch: the index has to be a scalar, got {type_}.", advice="Use vmap for many."
        )
    if not is_integer(type_.dtype):
        raise DTypeError(
            f"switch: the index has to be an integer, got {type_}.", advice="Convert with astype."
        )
    if len(branches) == 1:
        return _fitting("switch", branches, given, lambda: branches[0](*given))
    number = convert(clip(index, 0, len(branches) - 1), int32)
    return _choose("switch", number, tuple(branches), given)


def _choose(
    name: str, index: Any, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    for f in branches:
        check_callable(name, f)
    number = unstaged.known_integer(index) if config.disable_jit else None
    if number is not None:
        found = _fitting(name, branches, operands, lambda: branches[number](*operands))
        return tree.tree_map(as_array, found)
    arguments = flatten_arguments(name, operands, {})
    traced = _fitting(
        name, branches, operands, lambda: [trace_function(f, arguments, name) for f in branches]
    )
    for other in traced[1:]:
        _check_same(f"{name}: branches return", traced[0], other)
    captures = [x for t in traced for x in t.captures]
    weak = [all(column) for column in zip(*(_weak(t) for t in traced), strict=True)]
    graphs = []
    for i, t in enumerate(traced):
        before = sum(len(other.captures) for other in traced[:i])
        graphs.append(_branch(t, arguments.types, captures, before, weak))
    found = control.switch(index, graphs, *arguments.leaves, *captures)
    return traced[0].out_tree.unflatten(found)


def _fitting(
    name: str,
    branches: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    run: Callable[[], Any],
) -> Any:
    """Return `run()`; ArgumentError in place of Python's TypeError for a branch of other parameters
    than the operands."""
    try:
        return run()
    except TypeError:
        places = ["false_fun", "true_fun"] if name == "cond" else map_(str, range(len(branches)))
        for place, f in zip(places, branches, strict=True):
            _check_parameters(f"{name}: branch {place}", f, len(operands))
        raise


def _check_parameters(what: str, f: Callable[..., Any], count: int) -> None:
    """Raise ArgumentError if `f` cannot be called with `count` arguments."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise ArgumentError(
            f"{what}, {function_name(f)}{signature}, is given {count} operand{'s' * (count != 1)}: "
            f"{error}.",
            advice="Every branch takes all operands.",
        ) from None


def _weak(traced: Traced) -> list[bool]:
    return [t.weak for t in traced.graph.output_types]


def _branch(
    traced: Traced,
    types: Sequence[ArrayType],
    captures: Sequence[Any],
    before: int,
    weak: Sequence[bool],
) -> Graph:
    """Return the graph of a branch that is given what all branches close over."""
    with Trace(traced.graph.name, "switch") as trace:
        args = [trace.input(t, x.label) for t, x in zip(types, traced.graph.inputs, strict=False)]
        closed = [trace.input(type_of(x)) for x in captures]
        mine = closed[before : before + len(traced.captures)]
        outs = inline(traced.graph, [*args, *mine])
        return trace.finish([convert(y, y.type.dtype, w) for y, w in zip(outs, weak, strict=True)])


def _check_same(what: str, first: Traced, second: Traced) -> None:
    """Raise ArgumentError unless two functions return one tree of the same types."""
    if first.out_tree != second.out_tree:
        raise ArgumentError(
            f"{what} different trees.",
            values=[(t.graph.name, "", str(t.out_tree)) for t in (first, second)],
            advice="Return the same containers, with the same keys, from both.",
        )
    pairs = zip(first.graph.output_types, second.graph.output_types, strict=True)
    for i, (a, b) in enumerate(pairs):
        if a.strong() is not b.strong():
            raise ArgumentError(
                f"{what} different types: result {i} is {a} and {b}.",
                values=[(t.graph.name, repr(t.graph.output_types[i]), "") for t in (first, second)],
                advice="Convert with astype or broadcast so that they agree.",
            )


# --- loops ---


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
    checkpoint_every: int | None = None,
) -> Any:
    """Apply `body_fun` to `init_val`, a tree of arrays, as long as `cond_fun` of it holds.

    `body_fun` returns what it is given: the same tree, shapes and dtypes.  Unlike in JAX reverse
    mode works too: the loop then keeps what the backward pass needs of every step, in memory that
    grows with their number.  With `checkpoint_every` it keeps the carry once in so many steps, and
    takes the steps between again.  A loop that has not ended after `max_steps` steps (of any lane,
    under vmap) is an error.

    Raises ArgumentError if the carry changes, DTypeError if the condition is not a scalar bool,
    ArgumentValueError for numbers of steps that make no sense (ArgumentError for those that are no
    integers), and StepLimitError when it runs.
    """
    check_callable("while_loop", cond_fun)
    check_callable("while_loop", body_fun)
    most = _steps("while_loop", "max_steps", max_steps, 0)
    every = _steps("while_loop", "checkpoint_every", checkpoint_every, 1)
    if every is not None:
        return _while_checkpointed(cond_fun, body_fun, init_val, most, every)
    return _while(cond_fun, body_fun, init_val, None if most is None else Limit(most, most))


def _steps(loop: str, name: str, value: Any, least: int) -> int | None:
    """Return a number of steps, if it is given; raises for one that makes no sense."""
    return None if value is None else whole_number(f"{loop}: {name}", value, least)


def _while_checkpointed(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    most: int | None,
    every: int,
) -> Any:
    """Apply a loop whose steps are loops of `every` steps, of which only the carry is kept."""

    @checkpoint
    def piece(carry: Any) -> Any:
        done, value = carry
        left = every if most is None else minimum(every, most - done)
        steps, value = _while(
            lambda c: (c[0] < left) & cond_fun(c[1]),
            lambda c: (c[0] + 1, body_fun(c[1])),
            (full((), 0, int32), value),
            None,
        )
        return done + steps, value

    limit = None if most is None else Limit(-(-most // every), most)
    start = (full((), 0, int32), init_val)
    return _while(lambda carry: cond_fun(carry[1]), piece, start, limit)[1]


def _while(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    limit: Limit | None,
) -> Any:
    if config.disable_jit and limit is None:
        result = unstaged.while_loop(cond_fun, body_fun, init_val)
        if result is not unstaged.UNKNOWN:
            return result
    carry, body = _traced_carry("while_loop", body_fun, init_val)
    arguments = flatten_arguments("while_loop", (init_val,), {})
    held = trace_function(cond_fun, arguments, "while_loop", types=[type_of(x) for x in carry])
    is_bool = [(t.dtype, t.shape) for t in held.graph.output_types] == [(bool_, ())]
    if not is_bool or held.out_tree != tree.tree_structure(0):
        returned = held.out_tree.unflatten(list(held.graph.output_types))
        raise DTypeError(
            f"while_loop: the condition has to be a bool[], got {returned}.",
            advice="Return one comparison of scalars; reduce with any or all.",
        )
    found = control.while_loop(
        _consts_first(held), _consts_first(body), held.captures, body.captures, carry, limit
    )
    return body.out_tree.unflatten(found)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    checkpoint_every: int | None = None,
) -> Any:
    """Return `init_val` after `body_fun(i, value)` for each integer i from `lower` up to `upper`.

    With bounds that are known it is a `scan`, else a `while_loop`; both have a reverse mode, and
    `checkpoint_every`.  `unroll` is that of `scan`.

    Raises DTypeError if a bound is not an integer.
    """
    _check_unroll("fori_loop", 1 if unroll is None else unroll)
    for bound in (lower, upper):
        if not is_integer(type_of(bound).dtype) or type_of(bound).shape:
            raise DTypeError(
                f"fori_loop: bounds are scalar integers, got {type_of(bound)}.",
                advice="Convert them with int or astype.",
            )
    if not any(isinstance(bound, Proxy | Extent) for bound in (lower, upper)):
        first, last = (int(in_range(bound)) for bound in (lower, upper))

        def step(carry: Any, _: None) -> Any:
            i, value = carry
            return (i + 1, body_fun(i, value)), None

        n = max(0, last - first)
        # A number that is known counts as Python's, as in JAX.
        (_, result), _ = scan(
            step, (first, init_val), None, length=n, checkpoint_every=checkpoint_every
        )
        return result
    (dtype, _), weak = promote(type_of(lower), type_of(upper)), type_of(lower).weak
    start, end = (_typed(x, ArrayType(dtype, (), weak)) for x in (lower, upper))
    return while_loop(
        lambda carry: carry[0] < end,
        lambda carry: (carry[0] + 1, body_fun(*carry)),
        (start, init_val),
        checkpoint_every=checkpoint_every,
    )[1]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """Apply `f(carry, x) -> (carry, y)` along the leading axis of `xs`, a tree of arrays.

    Returns the last carry and the results stacked along a leading axis, in the order of `xs`, also
    with `reverse`, which goes from the last element to the first.  `length` is needed if `xs` is
    empty.  `unroll`, True or a number of steps, changes nothing.  With `checkpoint_every` reverse
    mode keeps the carry once in so many steps or a few less, and takes the steps between again.

    Raises ArgumentError if the carry changes its tree or types, ShapeError if lengths differ,
    ArgumentValueError, or ArgumentError, if `length`, `unroll` or `checkpoint_every` is no number
    of steps.
    """
    check_callable("scan", f)
    _check_unroll("scan", unroll)
    elements = flatten_arguments("scan", (xs,), {})
    steps = _length(elements.types, length)
    every = _steps("scan", "checkpoint_every", checkpoint_every, 1)
    if every is not None and steps:
        return _scan_checkpointed(f, init, xs, steps, bool(reverse), every)
    if config.disable_jit and isinstance(steps, int) and steps:
        return unstaged.scan(_returning_pairs(f), init, xs, steps, bool(reverse))
    structs = [ShapeDtypeStruct.of(t.without_leading()) for t in elements.types]
    x = tree.tree_unflatten(tree.tree_structure(xs), structs)
    carry, traced = _traced_carry("scan", _returning_pairs(f), init, x)
    found = control.scan(
        _consts_first(traced), traced.captures, carry, elements.leaves, steps, bool(reverse)
    )
    last, ys = traced.out_tree.unflatten(found)
    return last, ys


def _check_unroll(loop: str, unroll: Any) -> None:
    """Raise unless `unroll` is one that JAX takes: a bool, or a number of steps."""
    whole_number(f"{loop}: unroll", unroll, 0, "The compiler chooses: leave it out.")


def _scan_checkpointed(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    every: int,
) -> tuple[Any, Any]:
    """Scan over pieces of `every` steps, and a last one of those left, of which each is a scan
    that is computed again; the last piece is the first part of `xs` if the order is reversed.
    """
    if isinstance(length, Extent):
        raise ArgumentValueError(
            f"scan: checkpoint_every needs a length that is known, not {length}.",
            advice="Leave out dynamic=, or checkpoint_every.",
        )

    every = _without_rest(length, every)

    def piece(carry: Any, x: Any, n: int = every) -> tuple[Any, Any]:
        return scan(f, carry, x, length=n, reverse=reverse)

    count, left = divmod(length, every)
    start, stop = (left, length) if reverse else (0, count * every)
    if not count:
        return checkpoint(lambda c, x: piece(c, x, left))(init, xs)
    blocks = tree.tree_map(lambda x: _cut(_part(x, start, stop), count), xs)
    # In the body of a loop nothing merges what is computed again with the first time.
    again = checkpoint(piece, prevent_cse=False)
    carry, ys = scan(again, init, blocks, length=count, reverse=reverse)
    ys = tree.tree_map(_joined, ys)
    if not left:
        return carry, ys
    rest = tree.tree_map(lambda x: _part(x, 0, left) if reverse else _part(x, stop, length), xs)
    carry, others = checkpoint(lambda c, x: piece(c, x, left))(carry, rest)
    parts = (others, ys) if reverse else (ys, others)
    return carry, tree.tree_map(lambda a, b: joining.concatenate([a, b]), *parts)


def _without_rest(length: int, every: int) -> int:
    """Return the most steps up to `every` that leave no shorter piece, for which arrays would have
    to be cut and copied; `every` itself where that were less than half as many."""
    fitting = range(every, every // 2, -1) if every < length else ()
    return next((n for n in fitting if length % n == 0), every)


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Return `f` of each element along the leading axis of `xs`, one after the other, stacked.

    With `batch_size`, that many elements at a time, by vmap; 0 counts as none.

    Raises ShapeError if the leading axes differ, ArgumentValueError, or ArgumentError, if
    `batch_size` is no number of elements.
    """
    batch_size = _steps("map", "batch_size", batch_size, 0)
    if not batch_size:
        return scan(lambda _, x: ((), f(x)), (), xs)[1]
    leaves = tree.tree_leaves(xs)
    length = _length([type_of(x) for x in leaves], None)
    whole = length // batch_size * batch_size
    many = vmap(f)
    blocks = tree.tree_map(lambda x: _cut(_part(x, 0, whole), length // batch_size), xs)
    done = tree.tree_map(_joined, scan(lambda _, x: ((), many(x)), (), blocks)[1])
    if whole == length:
        return done
    rest = many(tree.tree_map(lambda x: _part(x, whole, length), xs))
    return tree.tree_map(lambda a, b: joining.concatenate([a, b]), done, rest)


def _part(x: Any, start: int, stop: int) -> Any:
    return slice_in_dim(as_array(x), start, stop)


def _cut(x: Any, count: int) -> Any:
    """Return an array cut along its leading axis into `count` pieces of one length."""
    n, *rest = x.shape
    return reshape(x, (count, n // max(count, 1), *rest))


def _joined(x: Any) -> Any:
    """Return an array of pieces as one: the inverse of `_cut`."""
    count, n, *rest = x.shape
    return reshape(x, (count * n, *rest))


def _length(types: Sequence[ArrayType], length: int | None) -> Any:
    """Return the length of the leading axes, which all are the same; raises ShapeError."""
    for t in types:
        if not t.shape:
            raise ShapeError(
                f"scan: xs holds {t}, which has no axis to go along.",
                advice="Close over what is the same in every step.",
            )
    found = [t.shape[0] for t in types]
    if length is not None:
        found.append(whole_number("scan: length", length, 0, "It is the number of steps."))
    if not found:
        raise ArgumentValueError("scan: there is no xs and no length.", advice="Pass length=.")
    if any(n != found[0] for n in found):
        raise ShapeError(
            f"scan: leading axes differ: {', '.join(map_(str, found))}.",
            advice="The arrays of xs, and length if given, have one leading length.",
        )
    return found[0]


def _traced_carry(
    name: str, f: Callable[..., Any], init: Any, *others: Any
) -> tuple[list[Any], Traced]:
    """Trace a step, given its carry and more; returns the initial carry as arrays, and the step.

    A carry that starts out weakly typed takes the dtype that the step gives it.
    """
    arguments = flatten_arguments(name, (init, *others), {})
    in_tree = tree.tree_structure(init)
    count = in_tree.num_leaves
    types = list(arguments.types)
    while True:
        traced = trace_function(f, arguments, name, types=types)
        out_tree, out_types = _carried(name, traced)
        if out_tree != in_tree:
            raise ArgumentError(
                f"{name}: {function_name(f)} carries another tree than it is given.",
                values=[("given", "", str(in_tree)), ("returned", "", str(out_tree))],
                advice="Return the carry in the containers in which it comes.",
            )
        changed = [_settled(a, b) for a, b in zip(types, out_types, strict=False)]
        if changed == types[:count]:
            break
        types[:count] = changed
    for i, (a, b) in enumerate(zip(types, out_types, strict=False)):
        if a.strong() is not b.strong():
            raise ArgumentError(
                f"{name}: {function_name(f)} changes the type of carry {i} from {a} to {b}.",
                values=[("given", repr(a), ""), ("returned", repr(b), "")],
                advice="Every step returns the shapes and dtypes it is given: convert with astype.",
            )
    carry = [_typed(x, t) for x, t in zip(arguments.leaves[:count], types, strict=False)]
    return carry, traced


def _typed(x: Any, t: ArrayType) -> Any:
    """Return an initial value as an array of type `t`; a number stays a constant of the graph."""
    if is_python_number(x):
        return full((), x, t.dtype, t.weak)
    return convert(as_array(x), t.dtype, t.weak)


def _returning_pairs(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f`, checked to return a pair."""

    @functools.wraps(f)
    def step(carry: Any, x: Any) -> Any:
        result = f(carry, x)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentError(
                f"scan: {function_name(f)} has to return a pair (carry, y), got a "
                f"{type(result).__name__}.",
                advice="Return (carry, None) if there is nothing to stack.",
            )
        return result

    return step


def _carried(name: str, traced: Traced) -> tuple[tree.TreeDef, Sequence[ArrayType]]:
    """Return the tree and the types of the carry that a step returns."""
    if name != "scan":
        return traced.out_tree, traced.graph.output_types
    carry, _ = traced.out_tree.children()
    return carry, traced.graph.output_types[: carry.num_leaves]


def _settled(given: ArrayType, returned: ArrayType) -> ArrayType:
    """Return the type of a carry: that of the step's result, if it is given a weak number."""
    if not given.weak or given is returned or given.shape != returned.shape:
        return given
    dtype, _ = promote(given, returned)
    return ArrayType(dtype, given.shape) if dtype == returned.dtype != given.dtype else given


def _consts_first(traced: Traced) -> Graph:
    """Return the graph of a step that takes what it closes over before the rest."""
    inputs = traced.graph.inputs
    own = len(inputs) - len(traced.captures)
    return Graph(
        traced.graph.name,
        [*inputs[own:], *inputs[:own]],
        traced.graph.nodes,
        traced.graph.outputs,
    )
