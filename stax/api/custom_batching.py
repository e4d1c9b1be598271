"""custom_vmap: a function with a rule of its own for vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType
from typing import Any

from stax import named_axes, tree
from stax.api.custom import CustomFunction, with_unused
from stax.api.custom_rules import Closure, RuleTrace, Signature, prepared
from stax.api.tracing import Arguments, Traced, check_callable, function_name
from stax.control.custom_vmap import Batched, CustomVmap
from stax.custom import Rule
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    DTypeError,
    MissingRule,
    ShapeError,
)
from stax.op import Batch
from stax.operators.elementwise import convert
from stax.trace import Proxy, bind, results, type_of
from stax.types import ArrayType


class custom_vmap(CustomFunction):
    """A function with a rule for vmap, set by `def_vmap`.

    The rule stands for the function wherever vmap maps an argument, inside of jit and loops too.
    Derivatives are those of the rule wherever it stands for the function, in vmap of a gradient
    too: there the cotangent of each lane is that of the rule's results in this lane, so a rule has
    to compute lanes from themselves.

    The function and its rule may close over anything that is not mapped itself.
    """

    kind = "custom_vmap"
    vmap_rule: Callable[..., Any] | None = None

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule `vmap_rule(axis_size, in_batched, *args) -> (result, out_batched)`.

        `in_batched` is a list with a tree of bools for each argument: leaves that are mapped have
        the axis in front.  `out_batched` is a tree of bools for the result.

        The call that is mapped raises ArgumentValueError if trees differ, ShapeError and DTypeError
        if a result is not what the function returns, with the axis in front where it says so.
        """
        check_callable("def_vmap", vmap_rule)
        self.vmap_rule = vmap_rule
        return vmap_rule

    def _check_rule(self) -> None:
        if self.vmap_rule is None:
            raise MissingRule(
                f"custom_vmap: {function_name(self.fun)} has no rule.",
                advice="Set one with def_vmap, before the first call.",
            )

    def _bound(
        self, given: Sequence[Any], fixed: dict[int, Any], arguments: Arguments, traced: Traced
    ) -> Any:
        assert self.vmap_rule is not None
        signature = self._signature(arguments, traced)
        every = (Batch(named_axes.innermost_size(2)), *[True] * len(arguments.leaves))

        def explore(rule: Rule) -> None:
            if any(_traced_values(self.vmap_rule)):
                rule(every)

        rule, closed = prepared(
            function_name(self.vmap_rule),
            [self.vmap_rule],
            (),
            functools.partial(_batched, signature, self.vmap_rule),
            None,
            explore,
        )
        graph = with_unused(traced.graph, closed)
        op = CustomVmap(graph, rule, len(arguments.leaves), len(closed))
        operands = [*arguments.leaves, *traced.captures, *closed]
        return traced.out_tree.unflatten(results(bind(op, *operands)))


def _traced_values(value: Any, depth: int = 3) -> Iterator[bool]:
    """Yield True if a function closes over traced arrays, in containers or other functions too."""
    for leaf in tree.tree_leaves(value):
        if type(leaf) is Proxy:
            yield True
        elif depth and isinstance(leaf, functools.partial):
            yield from _traced_values((leaf.func, leaf.args, leaf.keywords), depth - 1)
        elif depth and callable(leaf):
            held = [getattr(leaf, "__wrapped__", None), getattr(leaf, "__defaults__", None)]
            cells = getattr(leaf, "__closure__", None) or ()
            yield from _traced_values([*held, *map(_content, cells)], depth - 1)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not set yet
        return None


def _batched(
    signature: Signature, vmap_rule: Callable[..., Any], closure: Closure, key: Any
) -> Batched:
    """Trace a rule for an axis and flags of the arguments."""
    name, (axis, *flags) = function_name(vmap_rule), key
    outer = [(n, size) for n, size in named_axes.in_force() if n != axis.axis_name]
    with named_axes.restored(outer), RuleTrace(name, "custom_vmap", closure) as trace:
        leaves = [
            trace.input(t.with_leading(axis.size) if f else t, "arg")
            for t, f in zip(signature.types, flags, strict=True)
        ]
        (args, _), (marks, _) = (signature.treedef.unflatten(x) for x in (leaves, flags))
        found = vmap_rule(axis.size, list(marks), *args)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise ArgumentError(
                f"custom_vmap: the rule {name} of {signature.name} has to return a pair (result, "
                f"out_batched), got {type(found).__name__}.",
                advice="Return the result, and a tree of bools that says where it is mapped.",
            )
        outs, out_flags = _checked_trees(signature, name, *found)
        values = [
            _checked(name, y, t.with_leading(axis.size) if f else t)
            for y, t, f in zip(outs, signature.out_types, out_flags, strict=True)
        ]
        return Batched(trace.finish(values), out_flags)


def _checked_trees(
    signature: Signature, name: str, out: Any, out_batched: Any
) -> tuple[list[Any], list[bool]]:
    """Return the leaves of a result and of its flags; raises ArgumentValueError if trees differ."""
    leaves, out_tree = tree.tree_flatten(out)
    marks, marks_tree = tree.tree_flatten(out_batched)
    if not out_tree == marks_tree == signature.out_tree:
        raise ArgumentValueError(
            f"custom_vmap: the rule {name} of {signature.name} returns other trees than the "
            "function.",
            values=[
                ("function", "", str(signature.out_tree)),
                ("result of the rule", "", str(out_tree)),
                ("out_batched", "", str(marks_tree)),
            ],
            advice="The result, and the bools for it, have the containers of the function.",
        )
    return leaves, [bool(mark) for mark in marks]


def _checked(name: str, value: Any, wanted: ArrayType) -> Any:
    """Return a result of a rule as a value of the type that is wanted; raises unless it fits."""
    given = type_of(value)
    for error, differs, advice in (
        (
            ShapeError,
            given.shape != wanted.shape,
            "The axis is in front where out_batched says so.",
        ),
        (DTypeError, given.dtype != wanted.dtype, "Convert it with astype."),
    ):
        if differs:
            raise error(
                f"custom_vmap: a result of the rule {name} is {given} where {wanted} is needed.",
                advice=advice,
            )
    return convert(value, wanted.dtype, wanted.weak)
