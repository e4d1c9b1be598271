"""The form of a call: how its arguments come apart into leaves, and how its result is put together.

The one idea: a structure is a list of steps for a stack. For arguments they stand in the order in
which containers are met, for results in the order in which they are built; the native call runs
them (dispatcher_trees.py). Containers of Python's own and named tuples are taken apart natively, a
registered class by its own function.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stax.tree import TreeDef
from stax.tree_nodes import node_rules

LEAF, SAME, TUPLE, LIST, DICT, STATIC, CUSTOM, CALL = range(8)
"""Kinds of steps: a leaf; the object itself (None); containers of Python's own, a named tuple among
the tuples; an object of the same type that is equal; a class whose `object` gives a tuple of the
children or None; a callable that is given the children."""

MOST_STEPS = 4096
"""Forms of more steps would need much of the machine's stack."""


class Step(NamedTuple):
    """What the native call does with one object: see the kinds. `object` is a class for a tuple, a
    list and a dictionary; `items` are the keys of a dictionary, the class of a CUSTOM one."""

    kind: int
    object: Any = None
    children: int = 0
    items: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class CallForm:
    """How many arguments by position, the sorted names of the others, the steps of the arguments
    (none: they are the leaves), those of the result, and a flag for each leaf, if any is donated"""

    positional: int
    results: tuple[Step, ...]
    names: tuple[str, ...] = ()
    arguments: tuple[Step, ...] = ()
    donated: tuple[bool, ...] = ()

    @property
    def argument_stack(self) -> int:
        """The most objects that wait at once while the arguments are taken apart."""
        return _deepest(self.arguments, self.positional + len(self.names), lambda s: s.children - 1)

    @property
    def result_stack(self) -> int:
        """The most objects that wait at once while the result is built."""
        return _deepest(self.results, 0, lambda s: 1 - s.children)

    @property
    def takes_leaves(self) -> bool:
        """Whether the arguments are the leaves, and none is given up."""
        return not (self.arguments or self.names or self.donated)


def _deepest(steps: Sequence[Step], start: int, change: Callable[[Step], int]) -> int:
    depth = most = start
    for step in steps:
        depth += change(step)
        most = max(most, depth)
    return most


def flat_form(inputs: int, outputs: int, is_tuple: bool = True) -> CallForm:
    """The form of a call of leaves by position, for a tuple of results or a single one."""
    if not is_tuple and outputs != 1:
        raise ValueError(f"a call without a tuple is for one result, got {outputs}")
    end = (Step(TUPLE, tuple, outputs),) if is_tuple else ()
    return CallForm(inputs, (Step(LEAF),) * outputs + end)


def tree_form(
    in_tree: TreeDef,
    out_tree: TreeDef,
    static: Sequence[tuple[int | str, Any]] = (),
    donated: tuple[bool, ...] = (),
) -> CallForm | None:
    """The form of a call whose arguments, without the static ones, have the structure `in_tree`.

    `static` are places (positions and names) with their values; `donated` has a flag for each leaf
    if any is given up. None for a call of too many steps.
    """
    arguments: list[Step] = []
    names: list[str] = []
    count = 0
    for place, subtree in _places(in_tree, static):
        if type(place) is str:
            names.append(place)
        else:
            count += 1
        arguments += argument_steps(subtree) if subtree else [Step(STATIC, dict(static)[place])]
    results = tuple(result_steps(out_tree))
    if len(arguments) + len(results) > MOST_STEPS:
        return None
    flat = not names and all(step.kind == LEAF for step in arguments)
    return CallForm(count, results, tuple(names), () if flat else tuple(arguments), donated)


def donated_leaves(
    in_tree: TreeDef,
    static: Sequence[tuple[int | str, Any]],
    donates: Callable[[int | str, int], bool],
) -> tuple[bool, ...]:
    """A flag for each leaf of a call, or none where nothing is given up; `donates` tells for a
    place and the number of positions whether what stands there is."""
    places = list(_places(in_tree, static))
    count = sum(type(place) is int for place, _ in places)
    found = [donates(place, count) for place, t in places if t for _ in range(t.num_leaves)]
    return tuple(found) if any(found) else ()


def _places(
    in_tree: TreeDef, static: Sequence[tuple[int | str, Any]]
) -> Iterator[tuple[int | str, TreeDef | None]]:
    """The positions of a call and then its names, sorted, each with the structure that stands
    there, or None for a static argument."""
    given, named = in_tree.children()
    fixed = dict(static)
    count = len(given.children()) + sum(type(place) is int for place in fixed)
    node: Any = named.node_data()
    trees = iter([*given.children(), *named.children()])
    names = sorted([*node[1], *(place for place in fixed if type(place) is str)])
    for place in (*range(count), *names):
        yield place, None if place in fixed else next(trees)


def argument_steps(treedef: TreeDef) -> list[Step]:
    """The steps that take a structure apart: each container before its children."""

    def node(cls: type, data: Any, children: Sequence[list[Step]]) -> list[Step]:
        steps = [_apart(cls, data, len(children))]
        for child in children:
            steps += child
        return steps

    return treedef.fold([Step(LEAF)], node)


def result_steps(treedef: TreeDef) -> list[Step]:
    """The steps that build a structure: each container after its children."""

    def node(cls: type, data: Any, children: Sequence[list[Step]]) -> list[Step]:
        steps = [step for child in children for step in child]
        return [*steps, _together(cls, data, len(children))]

    return treedef.fold([Step(LEAF)], node)


def _plain(cls: type, data: Any, count: int) -> Step | None:
    """The step of a container of Python's own; None for other classes."""
    if cls is type(None):
        return Step(SAME, None)
    if cls is tuple or cls is list:
        return Step(TUPLE if cls is tuple else LIST, cls, count)
    if cls is dict:
        return Step(DICT, dict, count, tuple(data))
    return None


def _apart(cls: type, data: Any, count: int) -> Step:
    plain, rules = _plain(cls, data, count), node_rules(cls)
    if plain is not None or rules is None:
        return plain or Step(TUPLE, cls, count)  # a named tuple

    static = _static(cls, data)

    def children(node: Any) -> tuple[Any, ...] | None:
        found, given = rules.flatten(node)
        return tuple(found) if given == static else None

    return Step(CUSTOM, children, count, (cls,))


def _together(cls: type, data: Any, count: int) -> Step:
    plain, rules = _plain(cls, data, count), node_rules(cls)
    if plain is not None or rules is None:
        return plain or Step(CALL, cls, count)
    static, unflatten = _static(cls, data), rules.unflatten
    return Step(CALL, lambda *children: unflatten(static, children), count)  # type: ignore[misc]


def _static(cls: type, data: Any) -> Any:
    """The static data of a node as its own flatten gives it; optree has lists of keys."""
    if cls is OrderedDict:
        return tuple(data)
    return (data[0], tuple(data[1])) if cls is defaultdict else data
