"""The matrix op x rule: what every op has of its own, by family, or not at all, and why not.

An empty cell without a written reason is a KeyError, so a new op cannot lack a rule by oversight.
"""

from __future__ import annotations

from collections.abc import Iterator

from stax.graph import ArrayConstant, Constant, Input, Length, Project
from stax.op import Op
from stax.operators import (
    bits,
    callback,
    collective,
    contract,
    dynamic,
    fft,
    gradient,
    index,
    linalg,
    qr,
    random,
    reduce,
    shape,
    sort,
    special,
    special_complex,
    spectral,
)
from stax.operators.elementwise import ROWS

RULES = ("evaluate", "jvp", "transpose", "batch", "lower")
LEAVES = (Input, Constant, ArrayConstant, Length, Project)
# Importing a module is what puts its ops into the table.
MODULES = (
    bits,
    callback,
    collective,
    contract,
    dynamic,
    fft,
    gradient,
    index,
    linalg,
    qr,
    random,
    reduce,
    shape,
    sort,
    special,
    special_complex,
    spectral,
)

NOT_LINEAR = "not linear in any operand, so no cotangent ever reaches it"
OWN_KERNEL = "a kernel of its own or a library call computes it, see lowering.own"
HOLDS_GRAPH = "its graph is inlined before lowering; jvp is pushforward and linearize"
NO_OPERANDS = "it has no operands"
LOWERED_ONLY = "lowering makes it, after the transforms"
NAMED_AXES = {
    "evaluate": "lanes differ though their operands do not; the batch rule for its axis says how",
    "lower": "the batch rule for its axis leaves ordinary ops",
    "jvp": NO_OPERANDS,
    "transpose": NOT_LINEAR,
}
PIECEWISE = "its value is constant between jumps: the tangent is zero"


def families() -> Iterator[type[Op]]:
    """Yield the classes of ops, base classes left out."""
    pending = list(Op.__subclasses__())
    seen = set()
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        is_op = isinstance(cls.__dict__.get("name"), str) and cls not in LEAVES
        if is_op and cls not in seen and cls.__module__.startswith("stax."):
            seen.add(cls)
            yield cls


def _mark(cls: type[Op], rule: str) -> str:
    for base in cls.__mro__:
        if base is Op:
            return ""
        if rule in base.__dict__:
            return "own" if base is cls else "family"
    return ""


def reason(cls: type[Op], rule: str) -> str:
    """Return why a class of ops lacks a rule; raises KeyError if nobody has said why."""
    if cls.holds_graph and rule in ("lower", "jvp"):
        return HOLDS_GRAPH
    if issubclass(cls, collective.Named) and rule in NAMED_AXES:
        return NAMED_AXES[rule]
    if cls is shape.Iota and rule != "lower":
        return NO_OPERANDS
    if cls.__module__.startswith("stax.lowering"):
        return LOWERED_ONLY
    reasons = {"transpose": NOT_LINEAR, "lower": OWN_KERNEL}
    return reasons[rule]


def _row(name: str) -> dict[str, str]:
    row = ROWS[name]
    marks = dict.fromkeys(RULES, "family")
    marks["evaluate"] = "own"
    marks["jvp"] = "own" if any(row.partials) else PIECEWISE
    marks["transpose"] = "own" if row.linear else NOT_LINEAR
    return marks


def cells() -> dict[str, dict[str, str]]:
    """Return for each op and rule "own", "family", or the reason why there is none."""
    table = {name: _row(name) for name in ROWS}
    for cls in families():
        marks = {rule: _mark(cls, rule) for rule in RULES}
        table[cls.name] = {r: m or reason(cls, r) for r, m in marks.items()}
    return dict(sorted(table.items()))


def table() -> str:
    """Return the matrix as text; a number in a cell refers to a reason at the end."""
    notes: dict[str, int] = {}
    lines = [f"{'op':<24}" + "".join(f"{rule:<11}" for rule in RULES)]
    for name, marks in cells().items():
        shown = []
        for rule in RULES:
            mark = marks[rule]
            if mark not in ("own", "family"):
                mark = f"({notes.setdefault(mark, len(notes) + 1)})"
            shown.append(f"{mark:<11}")
        lines.append((f"{name:<24}" + "".join(shown)).rstrip())
    lines += ["", *(f"({number}) {note}" for note, number in notes.items())]
    return "\n".join(lines)
