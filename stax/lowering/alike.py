"""Kernels that are alike: equal but for the names of what they work on and numbers that they hold.

An unrolled loop, or one rule applied to many parameters, makes such kernels by the dozen.  They
become one, which reads its numbers from a table that it is given as one more buffer.  Numbers of
sums and products alone are taken so, and not those that code is chosen by, like 0, 1 and 2; what is
computed is the same operation on the same operand.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stax.lowering.llvm_scalar import literal
from stax.lowering.llvm_writer import REGISTER
from stax.lowering.loop_ir import (
    Alloc,
    Apply,
    Buffer,
    Const,
    For,
    Kernel,
    Load,
    Store,
    Update,
    Var,
    children,
    index,
    map_children,
)
from stax.types import float32, float64

_WITH_NUMBERS = frozenset(("add", "sub", "mul"))
_CHOOSING = (0.0, 0.5, 1.0, 2.0)
# More numbers that differ would fill the registers of a kernel.
_MOST_NUMBERS = 16
_TABLE = "numbers"


@dataclass(frozen=True)
class Alike:
    """A kernel that stands for several: their names, and the numbers of each, if it takes any."""

    kernel: Kernel
    names: tuple[str, ...]
    numbers: tuple[tuple[Const, ...], ...]

    def tables(self) -> dict[str, str]:
        """Return the LLVM text of the tables of numbers, by the names of the kernels."""
        found = {}
        for name, numbers in zip(self.names, self.numbers, strict=True):
            if numbers:
                element = REGISTER[numbers[0].dtype]
                items = ", ".join(f"{element} {literal(c.value, c.dtype).text}" for c in numbers)
                array = f"[{len(numbers)} x {element}] [{items}]"
                found[name] = f"{table_of(name)} = internal unnamed_addr constant {array}"
        return found


def table_of(name: str) -> str:
    """Return the name of the table of a kernel."""
    return f"@{name}.{_TABLE}"


def alike(kernels: Sequence[Kernel], steps: Collection[str]) -> list[Alike]:
    """Group kernels; those named in `steps` can be given a table."""
    rough: dict[Hashable, list[Kernel]] = {}
    for kernel in kernels:
        rough.setdefault(_outline(kernel), []).append(kernel)
    found: list[Alike] = []
    groups: dict[Hashable, list[_Content]] = {}
    for similar in rough.values():
        if len(similar) == 1:
            found.append(Alike(similar[0], (similar[0].name,), ((),)))
            continue
        for kernel in similar:
            content = _Content(kernel, kernel.name in steps)
            groups.setdefault(content.key, []).append(content)
    for group in groups.values():
        columns = list(zip(*[content.numbers for content in group], strict=True))
        differing = list(dict.fromkeys([c for c in columns if len(set(c)) > 1]))
        if len(differing) <= _MOST_NUMBERS:
            found.append(_joined(group, columns, differing))
        else:
            found += _apart(group)
    return found


def _outline(kernel: Kernel) -> Hashable:
    """Return what kernels that are alike have in common, and most others do not."""
    loops = [len(stmt.body) if type(stmt) is For else type(stmt) for stmt in kernel.body]
    return tuple([(b.dtype, b.shape) for b in kernel.params]), len(kernel.extents), tuple(loops)


def _apart(group: Sequence[_Content]) -> list[Alike]:
    equal: dict[tuple[Const, ...], list[_Content]] = {}
    for content in group:
        equal.setdefault(content.numbers, []).append(content)
    return [_joined(contents, [], []) for contents in equal.values()]


def _joined(
    group: Sequence[_Content], columns: list[tuple[Const, ...]], differing: list[tuple[Const, ...]]
) -> Alike:
    """Return one kernel for all, which reads the numbers that are `differing` from a table."""
    first, names = group[0], tuple([content.kernel.name for content in group])
    if not differing:
        return Alike(first.kernel, names, ((),) * len(group))
    table = Buffer(_TABLE, differing[0][0].dtype, (len(differing),))
    places = {
        place: differing.index(columns[i])
        for place, i in first.places.items()
        if columns[i] in differing
    }
    body = tuple([_reading(stmt, places, table) for stmt in first.kernel.body])
    kernel = replace(first.kernel, params=(*first.kernel.params, table), body=body)
    return Alike(kernel, names, tuple(zip(*differing, strict=True)))


def _reading(root: Any, places: dict[tuple[int, int], int], table: Buffer) -> Any:
    """Return a statement that reads numbers from a table instead of holding them."""
    memo: dict[int, Any] = {}
    stack: list[Any] = [root]
    while stack:
        node = stack[-1]
        waiting = [child for child in children(node) if id(child) not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        new = map_children(node, lambda child: memo[id(child)])
        taken = [i for i in range(2) if (id(node), i) in places]
        if taken:
            args = list(new.args)
            for i in taken:
                args[i] = Load(table, (index(places[id(node), i]),))
            new = Apply(new.name, tuple(args), new.dtype)
        memo[id(node)] = new
    return memo[id(root)]


class _Content:
    """What tells a kernel from others: `key`, and the `numbers` that a table could hold."""

    def __init__(self, kernel: Kernel, takes_numbers: bool) -> None:
        self.kernel = kernel
        self.places: dict[tuple[int, int], int] = {}  # an application and an operand to a number
        self._takes = takes_numbers
        self._numbers: list[Const] = []
        self._buffers = {buffer.name: i for i, buffer in enumerate(kernel.params)}
        outputs, streamed, aliases = (
            tuple([self._buffers[name] for name in names])
            for names in (kernel.outputs, kernel.streamed, itertools.chain(*kernel.aliases))
        )
        params = tuple([(buffer.dtype, buffer.shape) for buffer in kernel.params])
        head = (params, kernel.extents, outputs, streamed, aliases)
        self.key: Hashable = (head, *self._tokens())
        self.numbers = tuple(self._numbers)

    def _tokens(self) -> list[Hashable]:
        tokens: list[Hashable] = []
        seen: dict[int, int] = {}
        stack: list[Any] = list(reversed(self.kernel.body))
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is Const or kind is Var:
                tokens.append(node)
            elif id(node) in seen:
                tokens.append(seen[id(node)])
            else:
                seen[id(node)] = len(seen)
                tokens.append(self._token(node))
                inside: Sequence[Any] = children(node)
                if kind is Apply and node.name in _WITH_NUMBERS and self._takes:
                    inside = self._without_numbers(node, tokens)
                stack += reversed(inside)
        return tokens

    def _without_numbers(self, node: Apply, tokens: list[Hashable]) -> list[Any]:
        """Return the operands of a sum or product that are not taken for numbers of a table."""
        rest: list[Any] = []
        for i, x in enumerate(node.args):
            if type(x) is Const and _is_number(x, self._numbers):
                tokens.append((_TABLE, i))
                self.places[id(node), i] = len(self._numbers)
                self._numbers.append(x)
            else:
                rest.append(x)
        return rest

    def _token(self, node: Any) -> Hashable:
        number = self._buffers.get
        match node:
            case Apply(name, args, dtype):
                return name, len(args), dtype
            case Load(buffer, _, mask):
                return Load, number(buffer.name, buffer.name), buffer.shape, mask is None
            case Store(buffer, _, _, mask):
                return Store, number(buffer.name, buffer.name), buffer.shape, mask is None
            case For(var, _, kind, body, going):
                return var, kind, len(body), going is None
            case Update(op, var):
                return op, var
            case Alloc():
                return node
        return type(node), node.var


def _is_number(x: Const, others: Sequence[Const]) -> bool:
    """Say whether a table could hold a constant, and those others with it."""
    if x.dtype not in (float32, float64) or (others and others[0].dtype != x.dtype):
        return False
    return bool(np.isfinite(x.value)) and abs(x.value) not in _CHOOSING
