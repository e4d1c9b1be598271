"""How JAX shows its work: the equations of the jaxpr, and what XLA compiled, read from its text.

XLA's text has computations of instructions.  A fusion is one piece of code, and its own computation
says what is inside it; `call` and `while` run the instructions of other computations.  So the
instructions that run are found by a walk from ENTRY, which does not enter fusions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax

from stax.compare.side import Work

_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9\-]*)\("
)
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_CALLEES = re.compile(
    r"(?:to_apply|body|condition|branch_computations|calls)=\{?(?P<names>[%\w.\-, ]+)"
)
# Instructions that only name or regroup memory, or run others.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "call", "while",
    "conditional",
}  # fmt: skip
_RUNS_OTHERS = {"call", "while", "conditional"}


class JaxSide:
    """JAX, as one of the two sides."""

    name = "JAX"
    library = jax

    def __init__(self) -> None:
        # The first call is to compile; a cache on disk would show the time to read it.
        jax.config.update("jax_enable_compilation_cache", False)

    def work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work:
        """Trace and compile `function` for these arguments."""
        jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
        compiled = jax.jit(function).lower(*arguments).compile()
        cost = compiled.cost_analysis()
        nbytes = int(cost.get("bytes accessed", 0)) if cost else 0
        memory = compiled.memory_analysis()
        planned = memory.temp_size_in_bytes + memory.output_size_in_bytes if memory else 0
        instructions = count_instructions(compiled.as_text() or "")
        return Work(count_equations(jaxpr), instructions, nbytes, int(planned))


def count_equations(jaxpr: Any) -> int:
    """Count equations; one that only calls a jaxpr (jit, a custom rule) stands for its contents."""
    pending, total = [jaxpr], 0
    while pending:
        for equation in pending.pop().eqns:
            held = list(_held(equation.params))
            pending += held
            total += not held
    return total


def _held(params: dict[str, Any]) -> Iterator[Any]:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "cond_jaxpr", "body_jaxpr"):
        value = params.get(name)
        value = getattr(value, "jaxpr", value)
        if hasattr(value, "eqns"):
            yield value


def count_instructions(text: str) -> int:
    """Count the fusions and other instructions that one call of a compiled module runs."""
    entry, computations = _parse(text)
    pending, seen, total = [entry], {entry}, 0
    while pending:
        for opcode, callees in computations.get(pending.pop(), []):
            total += opcode not in _FREE
            if opcode in _RUNS_OTHERS:
                pending += [name for name in callees if name not in seen]
                seen.update(callees)
    return total


def _parse(text: str) -> tuple[str, dict[str, list[tuple[str, list[str]]]]]:
    """Return the entry's name, and for each computation its opcodes with what they refer to."""
    entry = ""
    computations: dict[str, list[tuple[str, list[str]]]] = {}
    current: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = computations[head["name"]] = []
            entry = head["name"] if head["entry"] else entry
        elif instruction := _INSTRUCTION.match(line):
            names = ",".join(match["names"] for match in _CALLEES.finditer(line))
            current.append((instruction["opcode"], re.findall(r"[\w.\-]+", names)))
    return entry, computations
