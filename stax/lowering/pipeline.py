"""From a graph to one LLVM module: the ordered list of what happens, and why each step is there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stax.config import config
from stax.graph import Graph
from stax.lowering.host import HostStep
from stax.lowering.lapack import LapackStep
from stax.lowering.llvm import emit_kernel
from stax.lowering.loop_ir import Kernel
from stax.lowering.loop_verify import verify_kernel
from stax.lowering.loops import ControlStep
from stax.lowering.prepare import prepare
from stax.lowering.program import DriverWriter, Program, lower
from stax.lowering.sorting import SortStep
from stax.lowering.vector_math import MathLibrary


class Target(Protocol):
    """What code depends on."""

    @property
    def vector_bytes(self) -> int: ...

    @property
    def attributes(self) -> str: ...


@dataclass(frozen=True)
class Lowered:
    """A program with its code: LLVM text, the slots of the context table that it uses, and how
    many kernels were compiled (equal ones are compiled once)."""

    program: Program
    text: str
    slots: tuple[str, ...]
    distinct_kernels: int


def lower_graph(graph: Graph) -> Program:
    """Lower a graph to kernels and library calls."""
    return lower(prepare(graph))


def generate(program: Program, target: Target, slot: Callable[[str], int]) -> Lowered:
    """Write the LLVM module of a program."""
    math = MathLibrary()
    symbols: dict[str, str] = {}  # the body of a kernel to the name it is emitted under
    functions: dict[str, str] = {}
    natives: dict[str, str] = {}  # functions that are no kernels of the loop IR
    parts = []
    for kernel in program.kernels:
        if config.verify:
            verify_kernel(kernel)
        text = emit_kernel(kernel, math, target)
        body = _nameless(kernel, text)
        if body not in symbols:
            symbols[body] = kernel.name
            parts.append(text)
        functions[kernel.name] = symbols[body]
    drivers = [DriverWriter(program, functions, slot, target.attributes, math.externals)]
    for step in itertools.chain.from_iterable(part.steps for part in program.parts):
        if isinstance(step, SortStep | HostStep | LapackStep | ControlStep):
            natives.update(step.functions(target.attributes))
        if isinstance(step, ControlStep):
            drivers += [
                DriverWriter(body, functions, slot, target.attributes, name=step.body_name(i))
                for i, body in enumerate(step.bodies)
            ]
    parts += [*natives.values(), *(driver.write() for driver in drivers), math.text()]
    slots = dict.fromkeys(name for driver in drivers for name in driver.slots)
    return Lowered(program, "\n".join(parts), tuple(slots), len(symbols))


def _nameless(kernel: Kernel, text: str) -> str:
    """Return the code of a kernel without the names of the values that it works on.

    They are all that differs where a program does one thing to several values.
    """
    numbers = {buffer.name: str(i) for i, buffer in enumerate(kernel.params)}
    body = text.partition("(")[2]
    return re.sub(r"%(\w+)\.data", lambda m: f"%{numbers.get(m[1], m[1])}.data", body)
