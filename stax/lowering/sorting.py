"""Sorting the rows of arrays, in LLVM text.

By one key rows are sorted in place (`part_kernel`).  By several, or by a long key of several
arrays, every element becomes a record of its key and of the place that it came from, and records
are sorted by each of the keys, the last first (`row_text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from stax.errors import LoweringError
from stax.extent import Dimension, product
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import length_of, static_size
from stax.lowering.own import counted_places
from stax.lowering.part_kernel import LONG_FROM, PartKernel, can_part
from stax.lowering.row_text import (
    bytes_sort,
    end_function,
    insertion_sort,
    loop_function,
    ordered_key,
    payload,
    rows_function,
    widened,
)
from stax.operators.sort import Sort

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Rows are dealt out in at most so many tasks.
MOST_TASKS, FEW_TASKS, LEAST_TASKS = 64, 16, 2
# Scratch for one row up to this size is on the stack of who sorts it.
STACK_SCRATCH = 1 << 16
# Elements below which threads are not worth their start.
PARALLEL_FROM = 1 << 12
MOST_ELEMENTS = (1 << 31) - 1


class Kernel(Protocol):
    """A native function for rows."""

    @property
    def name(self) -> str: ...

    def scratch(self, length: Dimension) -> Dimension:
        """Bytes of scratch for one row."""

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""


@dataclass(frozen=True, eq=False)
class SortStep:
    """Sort rows: what is read, and by position which of the results are wanted."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    @property
    def kernel(self) -> Kernel:
        """The function that sorts."""
        op = self.node.op
        assert isinstance(op, Sort)
        dtypes = tuple(x.type.dtype for x in self.node.inputs)
        wanted = tuple(i for i, _ in self.results)
        if not can_part(dtypes, op.num_keys):
            return SortKernel(dtypes, op.num_keys, wanted)
        is_known = isinstance(self.rows, int) and isinstance(self.length, int)
        kernel = PartKernel(
            dtypes,
            wanted,
            counted_places(self.node),
            is_strided=self.stride != 1,
            is_long=is_known and self.rows == 1 and self.length >= LONG_FROM,
        )
        is_small = is_known and kernel.scratch(self.length) <= STACK_SCRATCH
        return replace(kernel, on_stack=bool(is_small and kernel.row_bytes))

    @property
    def axis(self) -> int:
        """The axis that rows lie along."""
        op = self.node.op
        return op.axis if isinstance(op, Sort) else self.node.inputs[0].type.ndim - 1

    @property
    def length(self) -> Dimension:
        """The length of a row."""
        return self.node.inputs[0].type.shape[self.axis]

    @property
    def stride(self) -> Dimension:
        """How far apart the elements of a row are."""
        return product(self.node.inputs[0].type.shape[self.axis + 1 :])

    @property
    def rows(self) -> Dimension:
        """How many rows there are."""
        shape = self.node.inputs[0].type.shape
        return product((*shape[: self.axis], *shape[self.axis + 1 :]))

    @property
    def tasks(self) -> int:
        """In how many tasks the rows are sorted; all scratch is at most half of what is read."""
        scratch = self.kernel.scratch(self.length)
        if not isinstance(self.rows, int) or not isinstance(self.length, int):
            return 1 if self.rows == 1 else FEW_TASKS
        if self.rows * self.length < PARALLEL_FROM:
            return min(self.rows, 1)
        assert isinstance(scratch, int)
        read = sum(static_size(x.type.shape) * x.type.dtype.itemsize for x in self.node.inputs)
        fitting = max(LEAST_TASKS, read // (2 * scratch)) if scratch else MOST_TASKS
        return min(self.rows, fitting, MOST_TASKS)

    @property
    def scratch_bytes(self) -> Dimension:
        """The memory that the tasks need between them."""
        return self.tasks * self.kernel.scratch(self.length)

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        scratch = "null" if self.scratch_bytes == 0 else driver.scratch(self)
        pointers = [scratch, *map(driver.pointer, self.reads_and_writes)]
        kernel = self.kernel
        if isinstance(kernel, PartKernel) and kernel.is_long:
            assert isinstance(self.length, int)
            kernel.call_long(driver, pointers, self.length)
            return
        buffers = driver.table("ptr", pointers)
        sizes = (self.rows, self.length, self.tasks, self.stride)
        extents = driver.table("i64", [driver.number(ir.index(length_of(n))) for n in sizes])
        name, given = kernel.name, f"ptr {buffers}, ptr {extents}"
        if self.tasks < 2:
            driver.do(f"call void @{name}({given}, i64 0, i64 {self.tasks})")
            return
        parallel = driver.from_context("parallel_for")
        driver.do(f"call void {parallel}(ptr @{name}, {given}, i64 {self.tasks}, i64 1)")

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions that the call needs."""
        yield from self.kernel.functions(attributes)


def sort_step(
    kind: type[SortStep],
    node: Node,
    operands: Sequence[Node],
    results: Sequence[tuple[int, Node]],
) -> SortStep:
    """Return the step, of the class `kind`, that sorts along an axis."""
    step = kind(node, tuple(operands), tuple(results))
    if isinstance(step.length, int) and step.length > MOST_ELEMENTS:
        raise LoweringError(f"{node.op.name} of {node.inputs[0].type!r}: rows are too long.")
    return step


@dataclass(frozen=True)
class SortKernel:
    """The native function for several operands of given dtypes, of which some results are wanted.

    It sorts records by each of the keys, the last first.
    """

    dtypes: tuple[np.dtype, ...]
    num_keys: int
    wanted: tuple[int, ...]

    @property
    def keys(self) -> tuple[np.dtype, ...]:
        return self.dtypes[: self.num_keys]

    @property
    def half(self) -> int:
        """Bits of a key, and of a place, in a record."""
        return 64 if max(d.itemsize for d in self.keys) > 4 else 32

    @property
    def name(self) -> str:
        keys = "_".join(d.name for d in self.keys)
        moved = "_".join(f"{i}x{self.dtypes[i].itemsize}" for i in self.wanted)
        return f"sort_{keys}_of_{len(self.dtypes)}_moving_{moved}"

    def scratch(self, length: Dimension) -> Dimension:
        """Bytes of scratch for one row."""
        return length * (self.half // 2)

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield names and texts of the functions."""
        half = self.half
        yield f"insertion{half}", insertion_sort(half, attributes)
        for size in sorted({d.itemsize for d in self.keys}):
            yield f"by_bytes{half}_{size}", bytes_sort(half, size, attributes)
        first = self.keys[-1]
        yield self._begin_name, _begin(self._begin_name, half, first, attributes)
        for dtype in dict.fromkeys(self.keys[:-1]):
            yield f"again{half}_{dtype.name}", _again(half, dtype, attributes)
        for i in self.wanted:
            name, size = self._end_name(i), self.dtypes[i].itemsize
            yield name, end_function(name, half, size, attributes)
        yield self.name, self._rows(attributes)

    @property
    def _begin_name(self) -> str:
        return f"begin{self.half}_{self.keys[-1].name}"

    def _end_name(self, i: int) -> str:
        return f"end{self.half}_{self.dtypes[i].itemsize}"

    def _rows(self, attributes: str) -> str:
        """Return the function that sorts the rows of tasks `begin` to `end`."""
        sides = [*(("in", i) for i in range(len(self.dtypes))), *(("out", i) for i in self.wanted)]
        pointers, body = [], []
        for number, name in enumerate(["scratch", *(f"{side}{i}" for side, i in sides)]):
            pointers.append(f"%{name}.at = getelementptr ptr, ptr %buffers, i64 {number}")
            pointers.append(f"%{name} = load ptr, ptr %{name}.at")
        for side, i in sides:
            element = f"i{8 * self.dtypes[i].itemsize}"
            line = f"%{side}{i}.row = getelementptr {element}, ptr %{side}{i}, i64 %first"
            body.append(line)
        body.append(f"%b = getelementptr i{2 * self.half}, ptr %a, i64 %n")
        body += self._one_row()
        return rows_function(self.name, attributes, self.half // 2, pointers, body)

    def _one_row(self) -> list[str]:
        """Return the calls that sort one row, key by key."""
        last, half = self.num_keys - 1, self.half
        lines = [f"call void @{self._begin_name}(ptr %in{last}.row, ptr %a, i64 %n)"]
        records, spare = "%a", "%b"
        for key in range(last, -1, -1):
            dtype, both = self.keys[key], f"ptr {records}, ptr {spare}"
            if key != last:
                again = f"@again{half}_{dtype.name}"
                lines.append(f"call void {again}(ptr %in{key}.row, ptr {records}, i64 %n)")
            by_bytes = f"@by_bytes{half}_{dtype.itemsize}"
            lines.append(f"%r{key} = call ptr {by_bytes}({both}, i64 %n)")
            lines.append(f"%same{key} = icmp eq ptr %r{key}, {records}")
            lines.append(f"%spare{key} = select i1 %same{key}, ptr {spare}, ptr {records}")
            records, spare = f"%r{key}", f"%spare{key}"
        for i in self.wanted:
            row = f"ptr %in{i}.row, ptr %out{i}.row, ptr {records}"
            lines.append(f"call void @{self._end_name(i)}({row}, i64 1, i64 %n)")
        return lines


def _begin(name: str, half: int, dtype: np.dtype, attributes: str) -> str:
    """Return the function that makes records of elements."""
    bits, record = 8 * dtype.itemsize, f"i{2 * half}"
    body = [
        f"%in.at = getelementptr i{bits}, ptr %in, i64 %i",
        f"%bits = load i{bits}, ptr %in.at",
        *ordered_key(dtype),
        widened("key", bits, 2 * half, "wide"),
        f"%high = shl {record} %wide, {half}",
        widened("i", 64, 2 * half, "payload"),
        f"%record = or {record} %high, %payload",
        f"%at = getelementptr {record}, ptr %records, i64 %i",
        f"store {record} %record, ptr %at",
    ]
    return loop_function(name, "ptr %in, ptr %records", body, attributes)


def _again(half: int, dtype: np.dtype, attributes: str) -> str:
    """Return the function that gives records another key, of the elements at their places."""
    bits, record = 8 * dtype.itemsize, f"i{2 * half}"
    body = [
        *payload(half),
        f"%in.at = getelementptr i{bits}, ptr %in, i64 %place",
        f"%bits = load i{bits}, ptr %in.at",
        *ordered_key(dtype),
        widened("key", bits, 2 * half, "wide"),
        f"%high = shl {record} %wide, {half}",
        widened("place", 64, 2 * half, "payload"),
        f"%new = or {record} %high, %payload",
        f"store {record} %new, ptr %at",
    ]
    return loop_function(f"again{half}_{dtype.name}", "ptr %in, ptr %records", body, attributes)
