"""From a graph to one LLVM module: the ordered list of what happens, and why each step is there."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from stax.config import config
from stax.graph import Graph
from stax.lowering.alike import alike
from stax.lowering.bounds import RECORD, Site, checked_kernel
from stax.lowering.budget import lower_within
from stax.lowering.donated import Donated
from stax.lowering.driver import DriverWriter
from stax.lowering.hoist import hoisted
from stax.lowering.lapack import LapackStep
from stax.lowering.llvm import emit_kernel
from stax.lowering.llvm_memory import STREAM_TEXT
from stax.lowering.loop_verify import verify_kernel
from stax.lowering.loops import ControlStep
from stax.lowering.prepare import prepare
from stax.lowering.program import Program, lower
from stax.lowering.sorting import SortStep
from stax.lowering.unread import without_unread
from stax.lowering.vector_math import MathLibrary
from stax.lowering.watching import watched


class Target(Protocol):
    """What code depends on."""

    @property
    def vector_bytes(self) -> int: ...

    @property
    def attributes(self) -> str: ...


@dataclass(frozen=True)
class Lowered:
    """A program with its code: LLVM text, the slots of the context table that it uses, how many
    kernels were compiled (those that are alike as one), and the places of its bounds checks, the
    status that the program ends with being the number of one, from 1."""

    program: Program
    text: str
    slots: tuple[str, ...]
    distinct_kernels: int
    checked: tuple[Site, ...] = ()


def lower_graph(
    graph: Graph, memory_budget: int | None = None, donated: Collection[int] = ()
) -> Program:
    """Lower a graph to kernels and library calls; arrays that it holds are its last inputs.

    With a `memory_budget`, its temporary values take at most so many bytes (`lower_within`).
    Results may take the memory of `donated` inputs, unless a call looks at arguments again where
    it finds something wrong with what it computed.
    """
    looks_again = config.check != "none" or config.watches()
    given_up = Donated.of(() if looks_again else donated, graph)
    whole = watched(hoisted(graph).graph)
    prepared = without_unread(prepare(whole, donated=given_up))
    if memory_budget is None:
        return lower(prepared, donated=given_up)
    inside = without_unread(prepare(whole, outside=False, donated=given_up))
    return lower_within(prepared, memory_budget, inside, given_up)


def generate(program: Program, target: Target, slot: Callable[[str], int]) -> Lowered:
    """Write the LLVM module of a program."""
    math = MathLibrary(avx512=target.vector_bytes == 64)
    functions: dict[str, str] = {}
    natives: dict[str, str] = {}  # functions that are no kernels of the loop IR
    sites: list[Site] = []
    has_checks = config.check == "bounds"
    parts = [f"{RECORD} = internal global i64 0"] if has_checks else []
    tables: dict[str, str] = {}
    kernels = program.kernels
    if has_checks:
        kernels = [checked_kernel(kernel, sites) for kernel in kernels]
    groups = alike(kernels, () if has_checks else program.plain_kernels)
    for group in groups:
        if config.verify or has_checks:
            verify_kernel(group.kernel)
        parts.append(emit_kernel(group.kernel, math, target))
        functions.update(dict.fromkeys(group.names, group.kernel.name))
        tables.update(group.tables())
    hosts = {step: i for i, step in enumerate(program.host_steps)}
    writer = functools.partial(
        DriverWriter, host_numbers=hosts, has_checks=has_checks, tables=frozenset(tables)
    )
    drivers = [writer(program, functions, slot, target.attributes, math.externals)]
    for step in itertools.chain.from_iterable(part.steps for part in program.parts):
        if isinstance(step, SortStep | LapackStep | ControlStep):
            natives.update(step.functions(target.attributes))
        if isinstance(step, ControlStep):
            drivers += [
                writer(body, functions, slot, target.attributes, name=step.body_name(i))
                for i, body in enumerate(step.bodies)
            ]
    parts += [
        *tables.values(),
        *natives.values(),
        *(driver.write() for driver in drivers),
        math.text(),
    ]
    parts += [STREAM_TEXT] if any(kernel.streamed for kernel in program.kernels) else []
    slots = dict.fromkeys(name for driver in drivers for name in driver.slots)
    return Lowered(program, "\n".join(parts), tuple(slots), len(groups), tuple(sites))
